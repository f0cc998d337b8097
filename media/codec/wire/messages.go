package wire

import (
	"fmt"
	"math"

	"touchline/internal/polygon"
)

// Hello is the first message of the bot and, as KindReady, of the codec process.
type Hello struct {
	Version uint16
}

func (m *Hello) fields(f *body) {
	f.magic()
	field(f, &m.Version, 2)
}

// Append appends the message to b.
func (m Hello) Append(b []byte) []byte { return build(b, KindHello, m.fields, nil, 0) }

// Answer appends the codec process's answer to b.
func (m Hello) Answer(b []byte) []byte { return build(b, KindReady, m.fields, nil, 0) }

// ParseHello reads the body of either Hello. It does not check the version.
func ParseHello(b []byte) (m Hello, err error) {
	_, err = parse(b, "hello", m.fields, 0)
	return m, err
}

// Flags of a Unit or a Raw.
const (
	FlagSample   = 1 << iota // send the picture
	FlagEncode               // encode the picture with the latest Setup
	FlagForceKey             // as a key frame
	flagsEnd
)

// Unit is an access unit to decode.
type Unit struct {
	// ID counts up from 1; answers refer to it.
	ID uint64
	// Epoch and Codec: a change of either restarts the decoder.
	Epoch uint32
	Codec Codec
	Flags uint8
	// LongSide bounds the picture that is sent, in pixels; 0 is the source's size.
	LongSide uint16
	// Turn is the quarter turns, clockwise, that make the picture upright; 0 leaves it as its stream says.
	Turn uint8
	// PTS in microseconds, for the encoder's rate control.
	PTS  int64
	Data []byte
}

func (m *Unit) fields(f *body) {
	field(f, &m.ID, 8)
	field(f, &m.Epoch, 4)
	field(f, &m.Codec, 1)
	field(f, &m.Flags, 1)
	field(f, &m.LongSide, 2)
	field(f, &m.Turn, 1)
	field(f, &m.PTS, 8)
}

// Append appends the message to b.
func (m Unit) Append(b []byte) []byte { return build(b, KindUnit, m.fields, m.Data, 0) }

// ParseUnit reads the body of a Unit; Data points into it.
func ParseUnit(b []byte) (m Unit, err error) {
	if m.Data, err = parse(b, "unit", m.fields, MaxUnit); err != nil {
		return m, err
	}
	switch {
	case m.ID == 0 || m.ID > 1<<62:
		err = fmt.Errorf("%w: unit with id %d", ErrMalformed, m.ID)
	case !m.Codec.Known():
		err = fmt.Errorf("%w: unit of unknown codec %d", ErrMalformed, m.Codec)
	case m.Flags >= flagsEnd:
		err = fmt.Errorf("%w: unit with unknown flags %#x", ErrMalformed, m.Flags)
	case m.Turn > 3:
		err = fmt.Errorf("%w: unit with %d quarter turns", ErrMalformed, m.Turn)
	case m.LongSide > MaxSide:
		err = fmt.Errorf("%w: unit asks for %d pixels, at most %d allowed", ErrMalformed, m.LongSide, MaxSide)
	}
	return m, err
}

// Latest asks for the newest decoded picture.
type Latest struct {
	// Seq is repeated in the answer.
	Seq uint32
	// LongSide bounds the picture, in pixels; 0 is the source's size.
	LongSide uint16
}

func (m *Latest) fields(f *body) {
	field(f, &m.Seq, 4)
	field(f, &m.LongSide, 2)
}

// Append appends the message to b.
func (m Latest) Append(b []byte) []byte { return build(b, KindLatest, m.fields, nil, 0) }

// ParseLatest reads the body of a Latest.
func ParseLatest(b []byte) (m Latest, err error) {
	if _, err = parse(b, "latest", m.fields, 0); err == nil && m.LongSide > MaxSide {
		err = fmt.Errorf("%w: latest asks for %d pixels, at most %d allowed", ErrMalformed, m.LongSide, MaxSide)
	}
	return m, err
}

// Setup configures the encoder, which is made for the first picture and again
// whenever the size changes.
type Setup struct {
	// Codec is H264 or VP8.
	Codec Codec
	// Scaled: BitRate is for 1280 x 720 and follows the picture's size.
	Scaled bool
	// FPS expected, 1 to 240.
	FPS uint16
	// BitRate in bit/s, also the cap.
	BitRate uint32
}

func (m *Setup) fields(f *body) {
	field(f, &m.Codec, 1)
	f.flag(&m.Scaled)
	field(f, &m.FPS, 2)
	field(f, &m.BitRate, 4)
}

// Append appends the message to b.
func (m Setup) Append(b []byte) []byte { return build(b, KindSetup, m.fields, nil, 0) }

// ParseSetup reads the body of a Setup.
func ParseSetup(b []byte) (m Setup, err error) {
	if _, err = parse(b, "setup", m.fields, 0); err != nil {
		return m, err
	}
	switch {
	case m.Codec != H264 && m.Codec != VP8:
		err = fmt.Errorf("%w: setup for %v, only H264 and VP8 can be encoded", ErrMalformed, m.Codec)
	case m.FPS < 1 || m.FPS > 240:
		err = fmt.Errorf("%w: setup with %d pictures a second, 1 to 240 allowed", ErrMalformed, m.FPS)
	case m.BitRate < 10_000 || m.BitRate > 200_000_000:
		err = fmt.Errorf("%w: setup with %d bit/s, 10,000 to 200,000,000 allowed", ErrMalformed, m.BitRate)
	}
	return m, err
}

// maxMasks is the largest number of masks.
const maxMasks = 32

// Masks has the masks of all pictures from now on, also of the newest one.
type Masks struct{ polygon.Masks }

func (m *Masks) fields(f *body) {
	field(f, &m.Version, 4)
	f.flag(&m.All)
	n := uint8(min(len(m.Shapes), math.MaxUint8))
	field(f, &n, 1)
	for i := range int(n) {
		if f.reading {
			if f.short || n > maxMasks {
				f.short = true
				return
			}
			m.Shapes = append(m.Shapes, polygon.Shape{})
		}
		s := &m.Shapes[i]
		number(f, &s.Aspect)
		corners := uint8(min(len(s.Points), math.MaxUint8))
		field(f, &corners, 1)
		if f.reading {
			s.Points = make([]polygon.Point, corners)
		}
		for j := range s.Points {
			number(f, &s.Points[j][0])
			number(f, &s.Points[j][1])
		}
	}
}

// number appends or reads a floating-point number.
func number(f *body, v *float64) {
	bits := math.Float64bits(*v)
	field(f, &bits, 8)
	if f.reading { // the shapes that are appended belong to others
		*v = math.Float64frombits(bits)
	}
}

// Append appends the message to b.
func (m Masks) Append(b []byte) []byte { return build(b, KindMasks, m.fields, nil, 0) }

// ParseMasks reads the body of a Masks.
func ParseMasks(b []byte) (m Masks, err error) {
	if _, err = parse(b, "masks", m.fields, 0); err != nil {
		return m, err
	}
	for i, s := range m.Shapes {
		if err := s.Validate(false); err != nil {
			return m, fmt.Errorf("%w: mask %d: %w", ErrMalformed, i, err)
		}
	}
	return m, nil
}

// Format is the layout of a raw picture, without padding.
type Format uint8

// The layouts.
const (
	I420  Format = 0 // Y, then U and V of half the width and height, rounded up
	RGB24 Format = 1 // R G B
)

// Bytes returns the size of a picture of w x h pixels.
func (f Format) Bytes(w, h int) int {
	if f == I420 {
		return w*h + 2*((w+1)/2)*((h+1)/2)
	}
	return 3 * w * h
}

// Raw is a picture to encode.
type Raw struct {
	ID uint64
	// PTS in microseconds.
	PTS           int64
	Flags         uint8 // FlagForceKey or 0
	Width, Height int
	Data          []byte // I420
}

// RawHead is the length of the fields of a Raw's body, before the picture.
const RawHead = 8 + 8 + 1 + 2 + 2

func (m *Raw) fields(f *body) {
	field(f, &m.ID, 8)
	field(f, &m.PTS, 8)
	field(f, &m.Flags, 1)
	field(f, &m.Width, 2)
	field(f, &m.Height, 2)
}

// AppendHead appends the message without its picture, which the caller sends after it.
func (m Raw) AppendHead(b []byte) []byte {
	return build(b, KindRaw, m.fields, nil, I420.Bytes(m.Width, m.Height))
}

// ParseRaw reads the body of a Raw; Data points into it.
func ParseRaw(b []byte) (m Raw, err error) {
	if m.Data, err = parse(b, "raw picture", m.fields, 3*MaxPicture); err != nil {
		return m, err
	}
	switch {
	case m.ID == 0 || m.ID > 1<<62:
		err = fmt.Errorf("%w: raw picture with id %d", ErrMalformed, m.ID)
	case m.Flags&^FlagForceKey != 0:
		err = fmt.Errorf("%w: raw picture with unknown flags %#x", ErrMalformed, m.Flags)
	default:
		err = checkPicture("raw picture", I420, m.Width, m.Height, len(m.Data))
	}
	return m, err
}

// Ack reports the progress of decoding or encoding.
type Ack struct {
	// Done is the latest processed unit or raw picture.
	Done uint64
	// Newest is the unit of the newest decoded picture, 0 for none.
	Newest uint64
}

func (m *Ack) fields(f *body) {
	field(f, &m.Done, 8)
	field(f, &m.Newest, 8)
}

// Append appends the message to b.
func (m Ack) Append(b []byte) []byte { return build(b, KindAck, m.fields, nil, 0) }

// ParseAck reads the body of an Ack.
func ParseAck(b []byte) (m Ack, err error) {
	_, err = parse(b, "ack", m.fields, 0)
	return m, err
}

// Picture is a decoded picture. As an answer to Latest before the first one it has no size.
type Picture struct {
	// Seq is the Latest's, 0 for a sampled picture.
	Seq           uint32
	ID            uint64 // its unit
	Masks         uint32 // version of the masks that cover it
	Width, Height int
	Pix           []byte // RGB24
}

func (m *Picture) fields(f *body) {
	field(f, &m.Seq, 4)
	field(f, &m.ID, 8)
	field(f, &m.Masks, 4)
	field(f, &m.Width, 2)
	field(f, &m.Height, 2)
}

// AppendHead appends the message without its pixels, which the caller sends after it.
func (m Picture) AppendHead(b []byte) []byte {
	return build(b, KindPicture, m.fields, nil, RGB24.Bytes(m.Width, m.Height))
}

// ParsePicture reads the body of a Picture; Pix points into it.
func ParsePicture(b []byte) (m Picture, err error) {
	if m.Pix, err = parse(b, "picture", m.fields, 3*MaxPicture); err != nil {
		return m, err
	}
	if m.Seq != 0 && m.Width == 0 && m.Height == 0 && len(m.Pix) == 0 {
		return m, nil
	}
	return m, checkPicture("picture", RGB24, m.Width, m.Height, len(m.Pix))
}

// Encoded is an access unit from the encoder.
type Encoded struct {
	ID            uint64 // of its unit or raw picture
	Codec         Codec
	Key           bool
	Width, Height int
	Data          []byte
}

func (m *Encoded) fields(f *body) {
	field(f, &m.ID, 8)
	field(f, &m.Codec, 1)
	f.flag(&m.Key)
	field(f, &m.Width, 2)
	field(f, &m.Height, 2)
}

// AppendHead appends the message without its n bytes of data, which the caller sends after it.
func (m Encoded) AppendHead(b []byte, n int) []byte { return build(b, KindEncoded, m.fields, nil, n) }

// ParseEncoded reads the body of an Encoded; Data points into it.
func ParseEncoded(b []byte) (m Encoded, err error) {
	if m.Data, err = parse(b, "encoded unit", m.fields, MaxUnit); err != nil {
		return m, err
	}
	if m.Codec != H264 && m.Codec != VP8 {
		return m, fmt.Errorf("%w: encoded unit of %v, expected H264 or VP8", ErrMalformed, m.Codec)
	}
	return m, checkSize("encoded unit", m.Width, m.Height)
}

// Problem reports a failure. The process continues.
type Problem struct {
	ID   uint64
	Text string
}

func (m *Problem) fields(f *body) { field(f, &m.ID, 8) }

// Append appends the message to b; text over MaxText is cut off.
func (m Problem) Append(b []byte) []byte {
	return build(b, KindProblem, m.fields, []byte(m.Text[:min(len(m.Text), MaxText)]), 0)
}

// ParseProblem reads the body of a Problem.
func ParseProblem(b []byte) (m Problem, err error) {
	text, err := parse(b, "problem", m.fields, MaxText)
	m.Text = string(text)
	return m, err
}

// checkPicture checks the format, the edges and the length of a picture.
func checkPicture(what string, f Format, w, h, length int) error {
	if err := checkSize(what, w, h); err != nil {
		return err
	}
	if want := f.Bytes(w, h); length != want {
		return fmt.Errorf("%w: %s of %d bytes, %d x %d needs %d", ErrMalformed, what, length, w, h, want)
	}
	return nil
}

// checkSize checks the edges of a picture.
func checkSize(what string, w, h int) error {
	if w < 1 || h < 1 || w > MaxSide || h > MaxSide || w*h > MaxPicture {
		return fmt.Errorf("%w: %s of %d x %d pixels, at most %d pixels allowed", ErrMalformed, what, w, h, MaxPicture)
	}
	return nil
}
