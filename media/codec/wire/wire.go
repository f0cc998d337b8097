// Package wire is the protocol between a bot and its codec process: messages with a
// length prefix, on two pipes.
//
// It owns the format and its bounds, no process and no codec. Both sides read with
// the same Reader, which refuses messages that are too long, of an unknown kind or
// malformed, and allocates no memory for a size that it has not checked.
//
// A message is a length (4 bytes, of kind and body), a kind (1 byte) and a body;
// integers are little endian.
package wire

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"touchline/internal/polygon"
)

// Version of the format. Both sides must have the same: they are built together.
const Version = 3

// Bounds of messages.
const (
	// MaxSide is the longest edge of any picture, in pixels.
	MaxSide = 8192
	// MaxPixels is the largest picture that is decoded, in pixels.
	MaxPixels = 8192 * 4320
	// MaxPicture is the largest picture in a message, in pixels.
	MaxPicture = 4096 * 2304
	// PictureMemory is the memory limit of a codec process, in bytes, until a large picture needs more.
	PictureMemory = 256 << 20
	// SoundMemory is that limit for sound.
	SoundMemory = 160 << 20
	// MaxUnit is the largest access unit, in bytes.
	MaxUnit = 8 << 20
	// MaxText is the longest text in a message, in bytes.
	MaxText = 1024

	maxSmall = 64 + MaxText
	header   = 5 // length and kind
	// keepBody is the largest buffer kept for the next body.
	keepBody = 1 << 20
)

// magic begins Hello, to detect another program.
const magic = 0x584c4354 // "TCLX"

// ErrMalformed is returned for a message that violates the format or its bounds. The
// stream is unusable after it.
var ErrMalformed = errors.New("malformed message")

// Kind of a message.
type Kind uint8

// The messages of the bot and, from KindReady on, of the codec process.
const (
	KindHello  Kind = 1
	KindUnit   Kind = 2
	KindLatest Kind = 3
	KindSetup  Kind = 4
	KindRaw    Kind = 5
	KindMasks  Kind = 6

	KindReady   Kind = 65
	KindAck     Kind = 66
	KindPicture Kind = 67
	KindEncoded Kind = 69
	KindProblem Kind = 70
)

// limit is the longest body of a kind, 0 for an unknown one.
func (k Kind) limit() int {
	switch k {
	case KindUnit, KindEncoded:
		return maxSmall + MaxUnit
	case KindRaw, KindPicture:
		return maxSmall + 3*MaxPicture
	case KindMasks:
		return 64 + maxMasks*(16+16*polygon.MaxCorners)
	case KindHello, KindLatest, KindSetup, KindReady, KindAck, KindProblem:
		return maxSmall
	}
	return 0
}

// Codec names a format of access units.
type Codec uint8

// The codecs.
const (
	VP8   Codec = 1
	VP9   Codec = 2
	H264  Codec = 3
	H265  Codec = 4
	AV1   Codec = 5
	MJPEG Codec = 6
)

// Known reports whether c is one of the codecs above.
func (c Codec) Known() bool { return c >= VP8 && c <= MJPEG }

// String returns the codec's name.
func (c Codec) String() string {
	names := [...]string{"unknown", "VP8", "VP9", "H264", "H265", "AV1", "MJPEG"}
	if !c.Known() {
		return names[0]
	}
	return names[c]
}

// Message is a received message: its kind and its unparsed body.
type Message struct {
	Kind Kind
	Body []byte
}

// Reader reads messages.
type Reader struct {
	r    *bufio.Reader
	body []byte // buffer for bodies
}

// NewReader reads from r through a buffer of size bytes.
func NewReader(r io.Reader, size int) *Reader {
	return &Reader{r: bufio.NewReaderSize(r, size), body: make([]byte, maxSmall)}
}

// Pending reports whether a part of the next message has been received, so that Next
// will not wait long.
func (r *Reader) Pending() bool { return r.r.Buffered() > 0 }

// Next waits for one message. The body of a picture or an encoded access unit
// belongs to the caller, any other is overwritten by the following call.
// At the end of the stream between two messages the error is io.EOF.
func (r *Reader) Next() (Message, error) { return r.NextInto(nil) }

// NextInto is Next with a buffer for the body: place, if not nil, returns one of n
// bytes, or nil for the Reader's own.
func (r *Reader) NextInto(place func(k Kind, n int) []byte) (Message, error) {
	var h [header]byte
	if _, err := io.ReadFull(r.r, h[:]); err != nil {
		if errors.Is(err, io.EOF) {
			return Message{}, io.EOF
		}
		return Message{}, fmt.Errorf("read a message's head: %w", err)
	}
	k := Kind(h[4])
	n := int64(binary.LittleEndian.Uint32(h[:])) - 1
	limit := k.limit()
	if limit == 0 {
		return Message{}, fmt.Errorf("%w: unknown kind %d", ErrMalformed, k)
	}
	if n < 0 || n > int64(limit) {
		return Message{}, fmt.Errorf("%w: kind %d of %d bytes, at most %d allowed", ErrMalformed, k, n, limit)
	}
	body := r.room(k, int(n), place)
	if _, err := io.ReadFull(r.r, body); err != nil {
		return Message{}, fmt.Errorf("read a message of kind %d: %w", k, noEOF(err))
	}
	return Message{Kind: k, Body: body}, nil
}

func (r *Reader) room(k Kind, n int, place func(Kind, int) []byte) []byte {
	if place != nil {
		if b := place(k, n); len(b) == n && n > 0 {
			return b
		}
	}
	if k == KindPicture || k == KindEncoded || n > keepBody {
		return make([]byte, n)
	}
	if n > len(r.body) {
		r.body = make([]byte, min(2*n, keepBody))
	}
	return r.body[:n]
}

func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// AppendHead appends the head of a message whose body will have n bytes.
func AppendHead(b []byte, k Kind, n int) []byte {
	b = binary.LittleEndian.AppendUint32(b, uint32(n+1)) //nolint:gosec // n is bounded by Kind.limit
	return append(b, byte(k))
}

// body appends the fields of a message to b, or reads them off its front.
type body struct {
	b              []byte
	reading        bool
	short, foreign bool
}

// field appends or reads an integer of size bytes.
func field[T ~int | ~int64 | ~uint8 | ~uint16 | ~uint32 | ~uint64](f *body, v *T, size int) {
	if !f.reading {
		f.b = append(f.b, binary.LittleEndian.AppendUint64(nil, uint64(*v))[:size]...)
		return
	}
	if len(f.b) < size {
		f.short, f.b = true, nil
		return
	}
	var wide [8]byte
	copy(wide[:], f.b[:size])
	*v, f.b = T(binary.LittleEndian.Uint64(wide[:])), f.b[size:]
}

// flag appends or reads a boolean.
func (f *body) flag(v *bool) {
	n := uint8(0)
	if *v {
		n = 1
	}
	field(f, &n, 1)
	*v = n != 0
}

// magic appends or checks the magic number.
func (f *body) magic() {
	n := uint32(magic)
	field(f, &n, 4)
	f.foreign = n != magic
}

// build appends a message with fields and a tail to b. more is the number of bytes that the caller sends after it.
func build(b []byte, k Kind, fields func(*body), tail []byte, more int) []byte {
	at := len(b)
	f := body{b: AppendHead(b, k, 0)}
	fields(&f)
	f.b = append(f.b, tail...)
	binary.LittleEndian.PutUint32(f.b[at:], uint32(len(f.b)-at-4+more)) //nolint:gosec // bounded by Kind.limit
	return f.b
}

// parse reads the fields of a body and returns the rest, of at most limit bytes.
func parse(b []byte, what string, fields func(*body), limit int) (rest []byte, err error) {
	f := body{b: b, reading: true}
	fields(&f)
	switch {
	case f.short:
		return nil, fmt.Errorf("%w: %s is too short", ErrMalformed, what)
	case f.foreign:
		return nil, fmt.Errorf("%w: %s does not begin with %#x", ErrMalformed, what, uint32(magic))
	case len(f.b) > limit:
		return nil, fmt.Errorf("%w: %s has %d bytes after its fields, at most %d allowed", ErrMalformed, what, len(f.b), limit)
	}
	return f.b, nil
}
