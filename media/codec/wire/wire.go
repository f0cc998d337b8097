// Package wire is the language between a bot and its codec process: messages
// with a length in front, on two pipes.
//
// It owns the format and its bounds and nothing else: no process, no codec.
// Both sides read with the same Reader, so a message that is too long, of an
// unknown kind or not shaped as promised is refused by its receiver, and
// neither side believes a size the other one names before it was checked.
//
// A message is a length (4 bytes, of what follows), a kind (1 byte) and a
// body; integers are little endian.
package wire

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// Version of the format. The two sides must agree on it exactly: they are
// built together.
const Version = 1

// Bounds of what may be sent.
const (
	// MaxSide is the longest edge of any picture, in pixels.
	MaxSide = 8192
	// MaxPixels is the largest picture, in pixels: 4096 x 2304.
	MaxPixels = 4096 * 2304
	// MaxUnit is the largest access unit, in bytes.
	MaxUnit = 8 << 20
	// MaxText is the longest text in a message, in bytes.
	MaxText = 1024

	maxSmall = 64 + MaxText
	header   = 5 // length and kind
	// keepBody is the largest body whose room is kept for the next one.
	keepBody = 1 << 20
)

// magic opens a Hello, so that a wrong program is noticed at once.
const magic = 0x584c4354 // "TCLX"

// ErrMalformed is returned when a message breaks the format or its bounds.
// The stream cannot be trusted after it.
var ErrMalformed = errors.New("malformed message")

// Kind tells messages apart.
type Kind uint8

// The messages of the bot and, from KindReady on, those of the codec process.
const (
	KindHello  Kind = 1 // Hello: first of all
	KindUnit   Kind = 2 // Unit: decode this
	KindLatest Kind = 3 // Latest: show the newest picture
	KindSetup  Kind = 4 // Setup: how to encode from now on
	KindRaw    Kind = 5 // Raw: encode this

	KindReady     Kind = 65 // Ready: the answer to Hello
	KindAck       Kind = 66 // Ack: how far decoding got
	KindPicture   Kind = 67 // Picture: a decoded one
	KindNoPicture Kind = 68 // NoPicture: nothing decoded yet
	KindEncoded   Kind = 69 // Encoded: an access unit
	KindProblem   Kind = 70 // Problem: something could not be done
)

// limit is the longest body of a kind, 0 for an unknown one.
func (k Kind) limit() int {
	switch k {
	case KindUnit, KindEncoded:
		return maxSmall + MaxUnit
	case KindRaw, KindPicture:
		return maxSmall + 3*MaxPixels
	case KindHello, KindLatest, KindSetup, KindReady, KindAck, KindNoPicture, KindProblem:
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

// Message is one message as it came: its kind and its body, not looked into.
type Message struct {
	Kind Kind
	Body []byte
}

// Reader reads messages.
type Reader struct {
	r    *bufio.Reader
	body []byte // for bodies that are not kept
}

// NewReader reads from r through a buffer of size bytes.
func NewReader(r io.Reader, size int) *Reader {
	return &Reader{r: bufio.NewReaderSize(r, size), body: make([]byte, maxSmall)}
}

// Pending reports whether a further message is already here at least in part,
// so that Next will not wait long.
func (r *Reader) Pending() bool { return r.r.Buffered() > 0 }

// Next waits for one message. The body of a picture or an encoded access unit
// belongs to the caller, any other is overwritten by the following call.
// At the end of the stream between two messages the error is io.EOF.
func (r *Reader) Next() (Message, error) { return r.NextInto(nil) }

// NextInto is Next with a say in where the body goes: place, if not nil,
// returns room for n bytes, or nil for the usual place.
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

// cut takes integers off the front of a body.
type cut struct {
	b   []byte
	bad bool
}

func (c *cut) take(n int) []byte {
	if len(c.b) < n {
		c.bad, c.b = true, nil
		return make([]byte, n)
	}
	head := c.b[:n]
	c.b = c.b[n:]
	return head
}

func (c *cut) u8() uint8   { return c.take(1)[0] }
func (c *cut) u16() uint16 { return binary.LittleEndian.Uint16(c.take(2)) }
func (c *cut) u32() uint32 { return binary.LittleEndian.Uint32(c.take(4)) }
func (c *cut) u64() uint64 { return binary.LittleEndian.Uint64(c.take(8)) }

// end checks that the body was long enough and that nothing is left over.
func (c *cut) end(what string) error {
	if c.bad {
		return fmt.Errorf("%w: %s is too short", ErrMalformed, what)
	}
	if len(c.b) != 0 {
		return fmt.Errorf("%w: %s has %d bytes too many", ErrMalformed, what, len(c.b))
	}
	return nil
}

// rest takes all that is left.
func (c *cut) rest(what string, limit int) ([]byte, error) {
	if c.bad {
		return nil, fmt.Errorf("%w: %s is too short", ErrMalformed, what)
	}
	if len(c.b) > limit {
		return nil, fmt.Errorf("%w: %s carries %d bytes, at most %d allowed", ErrMalformed, what, len(c.b), limit)
	}
	return c.b, nil
}

// size checks the edges of a picture.
func size(what string, w, h int) error {
	if w < 1 || h < 1 || w > MaxSide || h > MaxSide || w*h > MaxPixels {
		return fmt.Errorf("%w: %s of %d x %d pixels, at most %d pixels allowed", ErrMalformed, what, w, h, MaxPixels)
	}
	return nil
}
