package wire_test

import (
	"bytes"
	"encoding/binary"
	"io"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"touchline/internal/polygon"
	"touchline/media/codec/wire"
)

// samples returns one message of each kind.
func samples() map[wire.Kind][]byte {
	pix := bytes.Repeat([]byte{1, 2, 3}, 6)
	yuv := make([]byte, wire.I420.Bytes(3, 3))
	return map[wire.Kind][]byte{
		wire.KindHello: wire.Hello{Version: wire.Version}.Append(nil),
		wire.KindUnit: wire.Unit{
			ID: 7, Epoch: 9, Codec: wire.AV1, Flags: wire.FlagSample | wire.FlagForceKey, LongSide: 448, Turn: 3, PTS: -5, Data: []byte("unit"),
		}.Append(nil),
		wire.KindLatest:  wire.Latest{Seq: 3, LongSide: 100}.Append(nil),
		wire.KindSetup:   wire.Setup{Codec: wire.VP8, Scaled: true, FPS: 25, BitRate: 1_000_000}.Append(nil),
		wire.KindRaw:     append(wire.Raw{ID: 1, PTS: 33333, Width: 3, Height: 3}.AppendHead(nil), yuv...),
		wire.KindMasks:   wire.Masks{Masks: polygon.Masks{Version: 3, Shapes: []polygon.Shape{triangle(0.5), triangle(1)}}}.Append(nil),
		wire.KindReady:   wire.Hello{Version: wire.Version}.Answer(nil),
		wire.KindAck:     wire.Ack{Done: 12, Newest: 11}.Append(nil),
		wire.KindPicture: append(wire.Picture{Seq: 1, ID: 4, Width: 3, Height: 2}.AppendHead(nil), pix...),
		wire.KindEncoded: append(wire.Encoded{ID: 5, Codec: wire.H264, Key: true, Width: 2, Height: 2}.AppendHead(nil, 3), "abc"...),
		wire.KindProblem: wire.Problem{ID: 6, Text: "vp8: no"}.Append(nil),
	}
}

func triangle(x float64) polygon.Shape {
	return polygon.Shape{Aspect: 16.0 / 9, Points: []polygon.Point{{0, 0}, {x, 0}, {0, 0.7}}}
}

// TestMasksAreShared: the race detector sees that Append does not write to the shapes, which others read.
func TestMasksAreShared(t *testing.T) {
	t.Parallel()
	m := wire.Masks{Masks: polygon.Masks{Shapes: []polygon.Shape{triangle(1)}}}
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() { m.Append(nil) })
	}
	wg.Wait()
}

// parse parses a body of any kind and appends it again.
func parse(m wire.Message) ([]byte, error) {
	switch m.Kind {
	case wire.KindHello:
		v, err := wire.ParseHello(m.Body)
		return v.Append(nil), err
	case wire.KindUnit:
		v, err := wire.ParseUnit(m.Body)
		return v.Append(nil), err
	case wire.KindLatest:
		v, err := wire.ParseLatest(m.Body)
		return v.Append(nil), err
	case wire.KindSetup:
		v, err := wire.ParseSetup(m.Body)
		return v.Append(nil), err
	case wire.KindRaw:
		v, err := wire.ParseRaw(m.Body)
		return append(v.AppendHead(nil), v.Data...), err
	case wire.KindMasks:
		v, err := wire.ParseMasks(m.Body)
		return v.Append(nil), err
	case wire.KindReady:
		v, err := wire.ParseHello(m.Body)
		return v.Answer(nil), err
	case wire.KindAck:
		v, err := wire.ParseAck(m.Body)
		return v.Append(nil), err
	case wire.KindPicture:
		v, err := wire.ParsePicture(m.Body)
		return append(v.AppendHead(nil), v.Pix...), err
	case wire.KindEncoded:
		v, err := wire.ParseEncoded(m.Body)
		return append(v.AppendHead(nil, len(v.Data)), v.Data...), err
	case wire.KindProblem:
		v, err := wire.ParseProblem(m.Body)
		return v.Append(nil), err
	}
	return nil, wire.ErrMalformed
}

func TestEveryMessageComesBack(t *testing.T) {
	t.Parallel()
	var all, again []byte
	for _, msg := range samples() {
		all = append(all, msg...)
	}
	r := wire.NewReader(bytes.NewReader(all), 64)
	seen := map[wire.Kind]bool{}
	for {
		m, err := r.Next()
		if err != nil {
			require.ErrorIs(t, err, io.EOF)
			break
		}
		out, err := parse(m)
		require.NoError(t, err, "kind %d", m.Kind)
		seen[m.Kind] = true
		again = append(again, out...)
	}
	require.Equal(t, all, again)
	require.Len(t, seen, len(samples()))
}

func TestEveryShortBodyIsRefused(t *testing.T) {
	t.Parallel()
	// These end with data or text of any length, which may be empty.
	open := map[wire.Kind]int{wire.KindUnit: 25, wire.KindEncoded: 14, wire.KindProblem: 8}
	for k, msg := range samples() {
		body := msg[5:]
		for n := range len(body) {
			if least, ok := open[k]; ok && n >= least {
				continue
			}
			_, err := parse(wire.Message{Kind: k, Body: body[:n]})
			require.ErrorIs(t, err, wire.ErrMalformed, "kind %d with %d bytes", k, n)
		}
		if _, ok := open[k]; !ok {
			_, err := parse(wire.Message{Kind: k, Body: append(bytes.Clone(body), 0)})
			require.ErrorIs(t, err, wire.ErrMalformed, "kind %d with a byte too many", k)
		}
	}
}

// A length beyond the bound of its kind is refused before memory is allocated.
func TestAbsurdLengths(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		kind   wire.Kind
		length uint32
	}{
		{wire.KindUnit, 1<<32 - 1},
		{wire.KindUnit, 9 << 20},
		{wire.KindPicture, 1 << 30},
		{wire.KindAck, 4096},
		{wire.KindHello, 0},
		{0, 10},
		{200, 10},
	} {
		head := append(binary.LittleEndian.AppendUint32(nil, tt.length), byte(tt.kind))
		r := wire.NewReader(io.MultiReader(bytes.NewReader(head), neverEnding{}), 16)
		_, err := r.Next()
		require.ErrorIs(t, err, wire.ErrMalformed, "kind %d, length %d", tt.kind, tt.length)
	}
}

type neverEnding struct{}

func (neverEnding) Read(b []byte) (int, error) { return len(b), nil }

func TestCutOffStream(t *testing.T) {
	t.Parallel()
	for k, msg := range samples() {
		for n := 1; n < len(msg); n++ {
			_, err := wire.NewReader(bytes.NewReader(msg[:n]), 16).Next()
			require.ErrorIs(t, err, io.ErrUnexpectedEOF, "kind %d cut off after %d bytes", k, n)
			require.NotErrorIs(t, err, io.EOF)
		}
	}
}

func TestValuesOutOfBounds(t *testing.T) {
	t.Parallel()
	for name, msg := range map[string][]byte{
		"unit without id":       wire.Unit{Codec: wire.VP8, Data: []byte{1}}.Append(nil),
		"unit of no codec":      wire.Unit{ID: 1, Data: []byte{1}}.Append(nil),
		"unit of codec 7":       wire.Unit{ID: 1, Codec: 7, Data: []byte{1}}.Append(nil),
		"unit with odd flags":   wire.Unit{ID: 1, Codec: wire.VP8, Flags: 8}.Append(nil),
		"unit turned too far":   wire.Unit{ID: 1, Codec: wire.VP8, Turn: 4}.Append(nil),
		"unit too wide":         wire.Unit{ID: 1, Codec: wire.VP8, LongSide: wire.MaxSide + 1}.Append(nil),
		"latest too wide":       wire.Latest{LongSide: wire.MaxSide + 1}.Append(nil),
		"setup for AV1":         wire.Setup{Codec: wire.AV1, FPS: 30, BitRate: 1e6}.Append(nil),
		"setup at 0 fps":        wire.Setup{Codec: wire.VP8, BitRate: 1e6}.Append(nil),
		"setup at 1 bit/s":      wire.Setup{Codec: wire.VP8, FPS: 30, BitRate: 1}.Append(nil),
		"raw without width":     wire.Raw{ID: 1, Height: 1}.AppendHead(nil),
		"raw with sample flag":  append(wire.Raw{ID: 1, Flags: wire.FlagSample, Width: 1, Height: 1}.AppendHead(nil), 1, 2, 3),
		"raw with wrong size":   append(wire.Raw{ID: 1, Width: 1, Height: 1}.AppendHead(nil), 1, 2, 3, 4),
		"mask without area":     wire.Masks{Masks: polygon.Masks{Shapes: []polygon.Shape{triangle(0)}}}.Append(nil),
		"too many masks":        wire.Masks{Masks: polygon.Masks{Shapes: slices.Repeat([]polygon.Shape{triangle(1)}, 33)}}.Append(nil),
		"picture without sides": wire.Picture{ID: 1}.AppendHead(nil),
		"picture too large":     wire.Picture{ID: 1, Width: wire.MaxSide, Height: wire.MaxSide}.AppendHead(nil),
		"picture too small":     append(wire.Picture{ID: 1, Width: 2, Height: 2}.AppendHead(nil), 1),
		"encoded as AV1":        wire.Encoded{ID: 1, Codec: wire.AV1, Width: 1, Height: 1}.AppendHead(nil, 0),
		"hello of another":      append(wire.AppendHead(nil, wire.KindHello, 6), "GET / "...),
	} {
		_, err := parse(wire.Message{Kind: wire.Kind(msg[4]), Body: msg[5:]})
		require.ErrorIs(t, err, wire.ErrMalformed, name)
	}
}

// FuzzMessages parses any bytes as messages: without a panic, and a parsed message is the
// same when written again.
func FuzzMessages(f *testing.F) {
	for _, msg := range samples() {
		f.Add(msg)
		f.Add(append(bytes.Clone(msg), msg...))
		f.Add(msg[:len(msg)/2])
	}
	f.Add([]byte{255, 255, 255, 255, 2})
	f.Fuzz(func(t *testing.T, stream []byte) {
		r := wire.NewReader(bytes.NewReader(stream), 64)
		for {
			m, err := r.Next()
			if err != nil {
				return
			}
			out, err := parse(m)
			if err != nil {
				continue
			}
			want := append(wire.AppendHead(nil, m.Kind, len(m.Body)), m.Body...)
			// A boolean is any byte but 0; all other fields are kept.
			if m.Kind != wire.KindMasks && m.Kind != wire.KindSetup && m.Kind != wire.KindEncoded {
				require.Equal(t, want, out)
			}
			require.Len(t, out, len(want))
		}
	})
}
