package mjpeg

import "io"

// Still converts a single picture.
func Still(r io.Reader, kind string) ([]byte, error) { return newScanner(r).still(kind) }

// Pictures returns all pictures found.
func Pictures(r io.Reader) (out [][]byte) {
	s := newScanner(r)
	for {
		p, err := s.next()
		if err != nil {
			return out
		}
		out = append(out, p)
	}
}
