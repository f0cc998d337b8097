package wire

import (
	"encoding/binary"
	"fmt"
)

// Hello is the bot's first message.
type Hello struct {
	Version uint16
}

// Append appends the whole message to b.
func (m Hello) Append(b []byte) []byte {
	b = AppendHead(b, KindHello, 6)
	b = binary.LittleEndian.AppendUint32(b, magic)
	return binary.LittleEndian.AppendUint16(b, m.Version)
}

// ParseHello reads the body of a Hello. It does not judge the version.
func ParseHello(body []byte) (Hello, error) {
	c := cut{b: body}
	got := c.u32()
	m := Hello{Version: c.u16()}
	if err := c.end("hello"); err != nil {
		return Hello{}, err
	}
	if got != magic {
		return Hello{}, fmt.Errorf("%w: hello begins with %#x, not %#x", ErrMalformed, got, magic)
	}
	return m, nil
}

// Ready is the codec process's answer to Hello.
type Ready struct {
	Version uint16
	// Codecs says in words what it can do.
	Codecs string
}

// Append appends the whole message to b; text over MaxText is cut off.
func (m Ready) Append(b []byte) []byte {
	text := m.Codecs[:min(len(m.Codecs), MaxText)]
	b = AppendHead(b, KindReady, 6+len(text))
	b = binary.LittleEndian.AppendUint32(b, magic)
	b = binary.LittleEndian.AppendUint16(b, m.Version)
	return append(b, text...)
}

// ParseReady reads the body of a Ready. It does not judge the version.
func ParseReady(body []byte) (Ready, error) {
	c := cut{b: body}
	got := c.u32()
	m := Ready{Version: c.u16()}
	text, err := c.rest("ready", MaxText)
	if err != nil {
		return Ready{}, err
	}
	if got != magic {
		return Ready{}, fmt.Errorf("%w: ready begins with %#x, not %#x", ErrMalformed, got, magic)
	}
	m.Codecs = string(text)
	return m, nil
}

// Flags of a Unit or a Raw.
const (
	FlagSample   = 1 << iota // send the picture
	FlagEncode               // encode the picture as Setup says
	FlagForceKey             // and make it a key frame
	flagsEnd
)

// Unit is an access unit to decode.
type Unit struct {
	// ID counts up from 1; answers name it.
	ID uint64
	// Epoch and Codec: when either changes, the decoder starts anew.
	Epoch uint32
	Codec Codec
	Flags uint8
	// LongSide bounds the picture that is sent, in pixels; 0 is the source's own size.
	LongSide uint16
	// PTS in microseconds, for the encoder's rate control.
	PTS  int64
	Data []byte
}

const unitHead = 8 + 4 + 1 + 1 + 2 + 8

// Append appends the whole message to b.
func (m Unit) Append(b []byte) []byte {
	b = AppendHead(b, KindUnit, unitHead+len(m.Data))
	b = binary.LittleEndian.AppendUint64(b, m.ID)
	b = binary.LittleEndian.AppendUint32(b, m.Epoch)
	b = append(b, byte(m.Codec), m.Flags)
	b = binary.LittleEndian.AppendUint16(b, m.LongSide)
	b = binary.LittleEndian.AppendUint64(b, uint64(m.PTS)) //nolint:gosec // two's complement on purpose
	return append(b, m.Data...)
}

// ParseUnit reads the body of a Unit; Data points into it.
func ParseUnit(body []byte) (Unit, error) {
	c := cut{b: body}
	m := Unit{
		ID: c.u64(), Epoch: c.u32(), Codec: Codec(c.u8()), Flags: c.u8(), LongSide: c.u16(),
		PTS: int64(c.u64()), //nolint:gosec // two's complement on purpose
	}
	var err error
	if m.Data, err = c.rest("unit", MaxUnit); err != nil {
		return Unit{}, err
	}
	switch {
	case m.ID == 0 || m.ID > 1<<62:
		return Unit{}, fmt.Errorf("%w: unit with id %d", ErrMalformed, m.ID)
	case !m.Codec.Known():
		return Unit{}, fmt.Errorf("%w: unit of unknown codec %d", ErrMalformed, m.Codec)
	case m.Flags >= flagsEnd:
		return Unit{}, fmt.Errorf("%w: unit with unknown flags %#x", ErrMalformed, m.Flags)
	case m.LongSide > MaxSide:
		return Unit{}, fmt.Errorf("%w: unit asks for %d pixels, at most %d allowed", ErrMalformed, m.LongSide, MaxSide)
	}
	return m, nil
}

// Latest asks for the newest decoded picture.
type Latest struct {
	// Seq is repeated in the answer.
	Seq uint32
	// LongSide bounds the picture, in pixels; 0 is the source's own size.
	LongSide uint16
}

// Append appends the whole message to b.
func (m Latest) Append(b []byte) []byte {
	b = AppendHead(b, KindLatest, 6)
	b = binary.LittleEndian.AppendUint32(b, m.Seq)
	return binary.LittleEndian.AppendUint16(b, m.LongSide)
}

// ParseLatest reads the body of a Latest.
func ParseLatest(body []byte) (Latest, error) {
	c := cut{b: body}
	m := Latest{Seq: c.u32(), LongSide: c.u16()}
	if err := c.end("latest"); err != nil {
		return Latest{}, err
	}
	if m.LongSide > MaxSide {
		return Latest{}, fmt.Errorf("%w: latest asks for %d pixels, at most %d allowed", ErrMalformed, m.LongSide, MaxSide)
	}
	return m, nil
}

// Setup says how to encode. The encoder is made when the first picture comes
// and again whenever the size changes.
type Setup struct {
	// Codec is H264 or VP8.
	Codec Codec
	// Scaled: BitRate is meant for 1280 x 720 and follows the picture's size.
	Scaled bool
	// FPS expected, 1 to 240.
	FPS uint16
	// BitRate in bit/s, also the cap.
	BitRate uint32
}

// Append appends the whole message to b.
func (m Setup) Append(b []byte) []byte {
	b = AppendHead(b, KindSetup, 8)
	b = append(b, byte(m.Codec), flag(m.Scaled))
	b = binary.LittleEndian.AppendUint16(b, m.FPS)
	return binary.LittleEndian.AppendUint32(b, m.BitRate)
}

// ParseSetup reads the body of a Setup.
func ParseSetup(body []byte) (Setup, error) {
	c := cut{b: body}
	m := Setup{Codec: Codec(c.u8()), Scaled: c.u8() != 0, FPS: c.u16(), BitRate: c.u32()}
	if err := c.end("setup"); err != nil {
		return Setup{}, err
	}
	switch {
	case m.Codec != H264 && m.Codec != VP8:
		return Setup{}, fmt.Errorf("%w: setup for %v, only H264 and VP8 can be encoded", ErrMalformed, m.Codec)
	case m.FPS < 1 || m.FPS > 240:
		return Setup{}, fmt.Errorf("%w: setup with %d pictures a second, 1 to 240 allowed", ErrMalformed, m.FPS)
	case m.BitRate < 10_000 || m.BitRate > 200_000_000:
		return Setup{}, fmt.Errorf("%w: setup with %d bit/s, 10,000 to 200,000,000 allowed", ErrMalformed, m.BitRate)
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

// Bytes is the size of a picture of w x h pixels, 0 for an unknown format.
func (f Format) Bytes(w, h int) int {
	switch f {
	case I420:
		return w*h + 2*((w+1)/2)*((h+1)/2)
	case RGB24:
		return 3 * w * h
	}
	return 0
}

// Raw is a picture to encode.
type Raw struct {
	ID uint64
	// PTS in microseconds.
	PTS           int64
	Format        Format
	Flags         uint8 // FlagForceKey or 0
	Width, Height int
	Data          []byte
}

// RawHead is how many bytes of a Raw's body come before the picture.
const RawHead = 8 + 8 + 1 + 1 + 2 + 2

// AppendHead appends the message without its picture, which the caller
// sends after it.
func (m Raw) AppendHead(b []byte) []byte {
	b = AppendHead(b, KindRaw, RawHead+m.Format.Bytes(m.Width, m.Height))
	b = binary.LittleEndian.AppendUint64(b, m.ID)
	b = binary.LittleEndian.AppendUint64(b, uint64(m.PTS)) //nolint:gosec // two's complement on purpose
	b = append(b, byte(m.Format), m.Flags)
	b = binary.LittleEndian.AppendUint16(b, uint16(m.Width))     //nolint:gosec // bounded by MaxSide
	return binary.LittleEndian.AppendUint16(b, uint16(m.Height)) //nolint:gosec // bounded by MaxSide
}

// ParseRaw reads the body of a Raw; Data points into it.
func ParseRaw(body []byte) (Raw, error) {
	c := cut{b: body}
	m := Raw{
		ID:     c.u64(),
		PTS:    int64(c.u64()), //nolint:gosec // two's complement on purpose
		Format: Format(c.u8()), Flags: c.u8(), Width: int(c.u16()), Height: int(c.u16()),
	}
	var err error
	if m.Data, err = c.rest("raw picture", 3*MaxPixels); err != nil {
		return Raw{}, err
	}
	if err := size("raw picture", m.Width, m.Height); err != nil {
		return Raw{}, err
	}
	switch want := m.Format.Bytes(m.Width, m.Height); {
	case m.ID == 0 || m.ID > 1<<62:
		return Raw{}, fmt.Errorf("%w: raw picture with id %d", ErrMalformed, m.ID)
	case m.Flags&^FlagForceKey != 0:
		return Raw{}, fmt.Errorf("%w: raw picture with unknown flags %#x", ErrMalformed, m.Flags)
	case want == 0:
		return Raw{}, fmt.Errorf("%w: raw picture of unknown format %d", ErrMalformed, m.Format)
	case len(m.Data) != want:
		return Raw{}, fmt.Errorf("%w: raw picture of %d bytes, %d x %d needs %d",
			ErrMalformed, len(m.Data), m.Width, m.Height, want)
	}
	return m, nil
}

// Ack reports the progress of decoding or encoding.
type Ack struct {
	// Done is the last unit or raw picture that was worked on.
	Done uint64
	// Newest is the unit of the newest decoded picture, 0 when there is none.
	Newest uint64
}

// Append appends the whole message to b.
func (m Ack) Append(b []byte) []byte {
	b = AppendHead(b, KindAck, 16)
	b = binary.LittleEndian.AppendUint64(b, m.Done)
	return binary.LittleEndian.AppendUint64(b, m.Newest)
}

// ParseAck reads the body of an Ack.
func ParseAck(body []byte) (Ack, error) {
	c := cut{b: body}
	m := Ack{Done: c.u64(), Newest: c.u64()}
	return m, c.end("ack")
}

// Picture is a decoded picture.
type Picture struct {
	// Seq repeats the request for the latest picture, 0 for a sampled one.
	Seq           uint32
	ID            uint64 // its unit
	Width, Height int
	Pix           []byte // RGB24
}

const pictureHead = 4 + 8 + 2 + 2

// AppendHead appends the message without its pixels, which the caller sends
// after it.
func (m Picture) AppendHead(b []byte) []byte {
	b = AppendHead(b, KindPicture, pictureHead+RGB24.Bytes(m.Width, m.Height))
	b = binary.LittleEndian.AppendUint32(b, m.Seq)
	b = binary.LittleEndian.AppendUint64(b, m.ID)
	b = binary.LittleEndian.AppendUint16(b, uint16(m.Width))     //nolint:gosec // bounded by MaxSide
	return binary.LittleEndian.AppendUint16(b, uint16(m.Height)) //nolint:gosec // bounded by MaxSide
}

// ParsePicture reads the body of a Picture; Pix points into it.
func ParsePicture(body []byte) (Picture, error) {
	c := cut{b: body}
	m := Picture{Seq: c.u32(), ID: c.u64(), Width: int(c.u16()), Height: int(c.u16())}
	var err error
	if m.Pix, err = c.rest("picture", 3*MaxPixels); err != nil {
		return Picture{}, err
	}
	if err := size("picture", m.Width, m.Height); err != nil {
		return Picture{}, err
	}
	if want := RGB24.Bytes(m.Width, m.Height); len(m.Pix) != want {
		return Picture{}, fmt.Errorf("%w: picture of %d bytes, %d x %d needs %d",
			ErrMalformed, len(m.Pix), m.Width, m.Height, want)
	}
	return m, nil
}

// NoPicture answers Latest when nothing was decoded yet.
type NoPicture struct {
	Seq uint32
}

// Append appends the whole message to b.
func (m NoPicture) Append(b []byte) []byte {
	b = AppendHead(b, KindNoPicture, 4)
	return binary.LittleEndian.AppendUint32(b, m.Seq)
}

// ParseNoPicture reads the body of a NoPicture.
func ParseNoPicture(body []byte) (NoPicture, error) {
	c := cut{b: body}
	m := NoPicture{Seq: c.u32()}
	return m, c.end("no picture")
}

// Encoded is an access unit out of the encoder.
type Encoded struct {
	ID            uint64 // the unit or raw picture it was made of
	Codec         Codec
	Key           bool
	Width, Height int
	Data          []byte
}

const encodedHead = 8 + 1 + 1 + 2 + 2

// AppendHead appends the message without its n bytes of data, which the
// caller sends after it.
func (m Encoded) AppendHead(b []byte, n int) []byte {
	b = AppendHead(b, KindEncoded, encodedHead+n)
	b = binary.LittleEndian.AppendUint64(b, m.ID)
	b = append(b, byte(m.Codec), flag(m.Key))
	b = binary.LittleEndian.AppendUint16(b, uint16(m.Width))     //nolint:gosec // bounded by MaxSide
	return binary.LittleEndian.AppendUint16(b, uint16(m.Height)) //nolint:gosec // bounded by MaxSide
}

// ParseEncoded reads the body of an Encoded; Data points into it.
func ParseEncoded(body []byte) (Encoded, error) {
	c := cut{b: body}
	m := Encoded{
		ID: c.u64(), Codec: Codec(c.u8()), Key: c.u8() != 0, Width: int(c.u16()), Height: int(c.u16()),
	}
	var err error
	if m.Data, err = c.rest("encoded unit", MaxUnit); err != nil {
		return Encoded{}, err
	}
	if m.Codec != H264 && m.Codec != VP8 {
		return Encoded{}, fmt.Errorf("%w: encoded unit of %v, expected H264 or VP8", ErrMalformed, m.Codec)
	}
	return m, size("encoded unit", m.Width, m.Height)
}

// Trouble says what a Problem is about.
type Trouble uint8

// What can go wrong.
const (
	TroubleDecode Trouble = 1 // the unit could not be decoded
	TroubleEncode Trouble = 2 // the picture could not be encoded
	TroubleCodec  Trouble = 3 // there is no decoder or encoder for this
)

// Problem reports work that could not be done. The process goes on.
type Problem struct {
	ID   uint64
	What Trouble
	Text string
}

// Append appends the whole message to b; text over MaxText is cut off.
func (m Problem) Append(b []byte) []byte {
	text := m.Text[:min(len(m.Text), MaxText)]
	b = AppendHead(b, KindProblem, 9+len(text))
	b = binary.LittleEndian.AppendUint64(b, m.ID)
	b = append(b, byte(m.What))
	return append(b, text...)
}

// ParseProblem reads the body of a Problem.
func ParseProblem(body []byte) (Problem, error) {
	c := cut{b: body}
	m := Problem{ID: c.u64(), What: Trouble(c.u8())}
	text, err := c.rest("problem", MaxText)
	if err != nil {
		return Problem{}, err
	}
	if m.What < TroubleDecode || m.What > TroubleCodec {
		return Problem{}, fmt.Errorf("%w: problem of unknown sort %d", ErrMalformed, m.What)
	}
	m.Text = string(text)
	return m, nil
}

func flag(b bool) byte {
	if b {
		return 1
	}
	return 0
}
