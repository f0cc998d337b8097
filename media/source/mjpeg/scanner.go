package mjpeg

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
)

const (
	// maxPicture bounds one JPEG, maxBetween what is between two, in bytes.
	maxPicture = 8 << 20
	maxBetween = 64 << 10
)

// JPEG markers (ITU-T T.81 table B.1).
const (
	soi, eoi, sos      = 0xd8, 0xd9, 0xda
	tem                = 0x01
	firstRST, lastRST  = 0xd0, 0xd7
	markerPrefix       = 0xff
	stuffed, smallest  = 0x00, 64
	boundaryLookedBack = 512
)

// scanner finds JPEG pictures in a stream by walking their own structure, so
// that neither wrong lengths and boundaries nor pictures within pictures (EXIF
// thumbnails) mislead it, and a picture is there with its last byte.
type scanner struct {
	in     *bufio.Reader
	begun  bool // the start of a picture was read already
	prefix bool // of a marker, likewise
}

func newScanner(r io.Reader) *scanner { return &scanner{in: bufio.NewReaderSize(r, 64<<10)} }

// atPicture reports whether the stream begins with a picture, or with the head of
// a part that says so, whatever the answer called itself.
func (s *scanner) atPicture() bool {
	b, _ := s.in.Peek(512) // less is no error here
	if bytes.HasPrefix(b, []byte{markerPrefix, soi, markerPrefix}) {
		return true
	}
	return bytes.HasPrefix(bytes.TrimLeft(b, "\r\n"), []byte("--")) && bytes.Contains(bytes.ToLower(b), []byte("image/jpeg"))
}

// next returns the next whole picture. Broken ones are passed over.
func (s *scanner) next() ([]byte, error) {
	for broken := 0; ; broken++ {
		if err := s.find(); err != nil {
			return nil, err
		}
		picture, err := s.walk()
		switch {
		case err == nil && len(picture) >= smallest:
			return picture, nil
		case err != nil && !errors.Is(err, errBroken):
			return nil, err
		case broken > 100:
			return nil, errBroken
		}
	}
}

// errBroken says that a picture's structure is broken.
var errBroken = errors.New("expected JPEG pictures, got broken ones")

// errLarge is returned for a picture of more than maxPicture bytes.
var errLarge = fmt.Errorf("expected pictures of at most %d bytes, got a larger one", maxPicture)

// find reads up to and including the next start of a picture.
func (s *scanner) find() error {
	if s.begun {
		s.begun = false
		return nil
	}
	before := byte(0)
	for range maxBetween {
		b, err := s.in.ReadByte()
		if err != nil {
			return err
		}
		if before == markerPrefix && b == soi {
			if p, err := s.in.Peek(1); err != nil || p[0] == markerPrefix {
				return nil //nolint:nilerr // walk finds out
			}
		}
		before = b
	}
	return fmt.Errorf("expected a JPEG picture, got %d bytes without one", maxBetween)
}

// walk reads a picture whose start was read. One that ends without its end
// marker, because the next one begins, is completed.
func (s *scanner) walk() ([]byte, error) {
	out := []byte{markerPrefix, soi}
	scans := false
	for {
		marker, err := s.marker(&out)
		if err != nil {
			return nil, err
		}
		if len(out) > maxPicture {
			return nil, errLarge
		}
		switch {
		case marker == eoi:
			return out, nil
		case marker == soi:
			s.begun = true
			if !scans {
				return nil, errBroken
			}
			return complete(out), nil
		case marker == tem || marker >= firstRST && marker <= lastRST:
			continue
		}
		var length [2]byte
		if _, err := io.ReadFull(s.in, length[:]); err != nil {
			return nil, whole(err)
		}
		n := int(length[0])<<8 | int(length[1])
		if n < 2 {
			return nil, errBroken
		}
		at := len(out) + 2
		out = append(append(out, length[:]...), make([]byte, n-2)...)
		if _, err := io.ReadFull(s.in, out[at:]); err != nil {
			return nil, whole(err)
		}
		if marker == sos {
			scans = true
			if err := s.scan(&out); err != nil {
				return nil, err
			}
		}
	}
}

// marker reads one, fill bytes in front included.
func (s *scanner) marker(out *[]byte) (byte, error) {
	b := byte(markerPrefix)
	var err error
	if !s.prefix {
		if b, err = s.in.ReadByte(); err != nil {
			return 0, whole(err)
		}
	}
	s.prefix = false
	if b != markerPrefix {
		return 0, errBroken
	}
	for b == markerPrefix {
		if b, err = s.in.ReadByte(); err != nil {
			return 0, whole(err)
		}
	}
	if b == stuffed {
		return 0, errBroken
	}
	if b != soi {
		*out = append(*out, markerPrefix, b)
	}
	return b, nil
}

// scan reads entropy-coded data up to the prefix of the next marker.
func (s *scanner) scan(out *[]byte) error {
	for {
		chunk, err := s.in.ReadSlice(markerPrefix)
		*out = append(*out, chunk...)
		if len(*out) > maxPicture {
			return errLarge
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		if err != nil {
			return whole(err)
		}
		next, err := s.in.Peek(1)
		if err != nil {
			return whole(err)
		}
		switch b := next[0]; {
		case b == stuffed, b >= firstRST && b <= lastRST:
			*out = append(*out, b)
			_, _ = s.in.Discard(1) // it was peeked
		case b == markerPrefix:
			*out = (*out)[:len(*out)-1] // a fill byte; the next one is looked at again
		default:
			*out = (*out)[:len(*out)-1]
			s.prefix = true
			return nil
		}
	}
}

// complete ends a picture whose end marker is missing, without the boundary
// that was taken for a part of it.
func complete(picture []byte) []byte {
	from := max(0, len(picture)-boundaryLookedBack)
	if i := bytes.LastIndex(picture[from:], []byte("\r\n--")); i >= 0 {
		picture = picture[:from+i]
	}
	return append(picture, markerPrefix, eoi)
}

// whole makes an end within a picture one that is not taken for a good one.
func whole(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
