package mjpeg

import "io"

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
