package mjpeg

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

const (
	// maxPicture bounds one JPEG, maxBetween the data between two, in bytes.
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

// scanner finds JPEG pictures in a stream by their markers. It does not depend on
// lengths and boundaries, which may be wrong, skips embedded pictures (EXIF
// thumbnails), and returns a picture as soon as its last byte has come.
type scanner struct {
	in     *bufio.Reader
	begun  bool // the start of a picture was read
	prefix bool // the prefix of a marker was read
}

func newScanner(r io.Reader) *scanner { return &scanner{in: bufio.NewReaderSize(r, 64<<10)} }

// atPicture reports whether the stream begins with a picture or with a multipart
// header for one, at any content type.
func (s *scanner) atPicture() bool {
	b, _ := s.in.Peek(512) // may be shorter
	if bytes.HasPrefix(b, []byte{markerPrefix, soi, markerPrefix}) {
		return true
	}
	return bytes.HasPrefix(bytes.TrimLeft(b, "\r\n"), []byte("--")) && bytes.Contains(bytes.ToLower(b), []byte("image/jpeg"))
}

// next returns the next complete picture, and skips broken ones.
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

// errBroken is returned for a picture with a broken structure.
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
				return nil //nolint:nilerr // walk returns the error
			}
		}
		before = b
	}
	return fmt.Errorf("expected a JPEG picture, got %d bytes without one", maxBetween)
}

// walk reads a picture after its start marker. A picture without an end marker, where
// the next one begins, is completed.
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
			return nil, unexpected(err)
		}
		n := int(binary.BigEndian.Uint16(length[:]))
		if n < 2 {
			return nil, errBroken
		}
		at := len(out) + 2
		out = append(append(out, length[:]...), make([]byte, n-2)...)
		if _, err := io.ReadFull(s.in, out[at:]); err != nil {
			return nil, unexpected(err)
		}
		if marker == sos {
			scans = true
			if err := s.scan(&out); err != nil {
				return nil, err
			}
		}
	}
}

// marker reads a marker, with fill bytes before it.
func (s *scanner) marker(out *[]byte) (byte, error) {
	b := byte(markerPrefix)
	var err error
	if !s.prefix {
		if b, err = s.in.ReadByte(); err != nil {
			return 0, unexpected(err)
		}
	}
	s.prefix = false
	if b != markerPrefix {
		return 0, errBroken
	}
	for b == markerPrefix {
		if b, err = s.in.ReadByte(); err != nil {
			return 0, unexpected(err)
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
			return unexpected(err)
		}
		next, err := s.in.Peek(1)
		if err != nil {
			return unexpected(err)
		}
		switch b := next[0]; {
		case b == stuffed, b >= firstRST && b <= lastRST:
			*out = append(*out, b)
			_, _ = s.in.Discard(1) // it was peeked
		case b == markerPrefix:
			*out = (*out)[:len(*out)-1] // a fill byte
		default:
			*out = (*out)[:len(*out)-1]
			s.prefix = true
			return nil
		}
	}
}

// complete adds a missing end marker, and removes a boundary that was read as part of the picture.
func complete(picture []byte) []byte {
	from := max(0, len(picture)-boundaryLookedBack)
	if i := bytes.LastIndex(picture[from:], []byte("\r\n--")); i >= 0 {
		picture = picture[:from+i]
	}
	return append(picture, markerPrefix, eoi)
}

// unexpected turns an end within a picture into io.ErrUnexpectedEOF.
func unexpected(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
