package main

import (
	"bytes"
	"io"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"touchline/internal/wav"
	"touchline/media/codec/wire"
)

func TestMain(m *testing.M) {
	setUpLibav()
	os.Exit(m.Run())
}

// serve runs a server over an input and returns its answers.
func serve(tb testing.TB, in []byte) ([]wire.Message, error) {
	tb.Helper()
	var out bytes.Buffer
	err := newServer(bytes.NewReader(in), &out, io.Discard, newChoice(nil)).run()
	r := wire.NewReader(&out, 64)
	var answers []wire.Message
	for {
		m, readErr := r.Next()
		if readErr != nil {
			require.ErrorIs(tb, readErr, io.EOF, "answers are whole messages")
			return answers, err
		}
		m.Body = bytes.Clone(m.Body)
		answers = append(answers, m)
	}
}

func hello() []byte { return wire.Hello{Version: wire.Version}.Append(nil) }

func kinds(answers []wire.Message) []wire.Kind {
	var out []wire.Kind
	for _, m := range answers {
		out = append(out, m.Kind)
	}
	return out
}

// rawPicture returns a message with a grey I420 picture.
func rawPicture(id uint64, w, h int) []byte {
	head := wire.Raw{ID: id, Width: w, Height: h}.AppendHead(nil)
	return append(head, bytes.Repeat([]byte{128}, wire.I420.Bytes(w, h))...)
}

// encodedUnit returns a key frame of this program's encoder.
func encodedUnit(tb testing.TB, c wire.Codec) []byte {
	tb.Helper()
	setup := wire.Setup{Codec: c, FPS: 30, BitRate: 100_000}.Append(nil)
	answers, err := serve(tb, bytes.Join([][]byte{hello(), setup, rawPicture(1, 64, 48)}, nil))
	require.NoError(tb, err)
	require.Equal(tb, []wire.Kind{wire.KindReady, wire.KindEncoded, wire.KindAck}, kinds(answers))
	e, err := wire.ParseEncoded(answers[1].Body)
	require.NoError(tb, err)
	require.True(tb, e.Key)
	return e.Data
}

func TestEncodeThenDecode(t *testing.T) {
	for _, c := range []wire.Codec{wire.H264, wire.VP8} {
		unit := wire.Unit{ID: 5, Codec: c, Flags: wire.FlagSample, LongSide: 32, Data: encodedUnit(t, c)}
		latest := wire.Latest{Seq: 9}
		answers, err := serve(t, bytes.Join([][]byte{hello(), latest.Append(nil), unit.Append(nil), latest.Append(nil)}, nil))
		require.NoError(t, err)
		require.Equal(t,
			[]wire.Kind{wire.KindReady, wire.KindPicture, wire.KindAck, wire.KindPicture, wire.KindPicture}, kinds(answers))
		p, err := wire.ParsePicture(answers[3].Body)
		require.NoError(t, err)
		require.Equal(t, [4]int{0, 5, 32, 24}, [4]int{int(p.Seq), int(p.ID), p.Width, p.Height})
		require.InDelta(t, 130, p.Pix[len(p.Pix)/2], 4, "grey of luma 128")
		p, err = wire.ParsePicture(answers[4].Body)
		require.NoError(t, err)
		require.Equal(t, [4]int{9, 5, 64, 48}, [4]int{int(p.Seq), int(p.ID), p.Width, p.Height})
	}
}

func TestBotOfAnotherKind(t *testing.T) {
	answers, err := serve(t, wire.Hello{Version: wire.Version + 1}.Append(nil))
	require.ErrorContains(t, err, "build both programs together")
	require.Equal(t, []wire.Kind{wire.KindReady}, kinds(answers), "it learns our version")

	for _, in := range [][]byte{[]byte("GET / HTTP/1.0\r\n\r\n"), wire.Latest{}.Append(nil), append(hello(), hello()...)} {
		_, err := serve(t, in)
		require.ErrorIs(t, err, wire.ErrMalformed)
	}
}

func TestUndecodableIsReportedNotEachTime(t *testing.T) {
	in := hello()
	for id := uint64(1); id <= 65; id++ {
		in = append(in, wire.Unit{ID: id, Codec: wire.VP8, Flags: wire.FlagSample, Data: []byte{1}}.Append(nil)...)
	}
	answers, err := serve(t, in)
	require.NoError(t, err)
	problems := 0
	for _, m := range answers {
		if m.Kind == wire.KindProblem {
			problems++
		}
	}
	require.Equal(t, 3, problems)
	last, err := wire.ParseAck(answers[len(answers)-1].Body)
	require.NoError(t, err)
	require.EqualValues(t, 65, last.Done)
}

// A sample with a damaged access unit uses the next valid one.
func TestSampleOfABrokenUnit(t *testing.T) {
	good := encodedUnit(t, wire.VP8)
	in := bytes.Join([][]byte{
		hello(),
		wire.Unit{ID: 1, Codec: wire.VP8, Data: good}.Append(nil),
		wire.Unit{ID: 2, Codec: wire.VP8, Flags: wire.FlagSample, Data: []byte{1}}.Append(nil),
		wire.Unit{ID: 3, Codec: wire.VP8, Data: good}.Append(nil),
	}, nil)
	answers, err := serve(t, in)
	require.NoError(t, err)
	var p wire.Picture
	for _, m := range answers {
		if m.Kind == wire.KindPicture {
			require.Zero(t, p.ID)
			p, err = wire.ParsePicture(m.Body)
			require.NoError(t, err)
		}
	}
	require.EqualValues(t, 3, p.ID)
}

func TestFit(t *testing.T) {
	for _, tt := range []struct{ w, h, longSide, wantW, wantH int }{
		{1280, 720, 448, 448, 252},
		{720, 1280, 448, 252, 448},
		{320, 180, 448, 320, 180},
		{1280, 720, 0, 1280, 720},
		{4000, 1, 100, 100, 1},
		{641, 359, 448, 448, 251},
	} {
		w, h := fit(tt.w, tt.h, tt.longSide)
		require.Equal(t, [2]int{tt.wantW, tt.wantH}, [2]int{w, h})
	}
}

// FuzzServe sends arbitrary messages to the real decoders and encoders.
func FuzzServe(f *testing.F) {
	for _, c := range []wire.Codec{wire.H264, wire.VP8} {
		unit := wire.Unit{ID: 1, Codec: c, Flags: wire.FlagSample | wire.FlagEncode, LongSide: 16, Data: encodedUnit(f, c)}
		f.Add(unit.Append(nil))
		unit.Epoch = 2
		f.Add(append(unit.Append(nil), wire.Latest{Seq: 1}.Append(nil)...))
		f.Add(append(wire.Setup{Codec: c, FPS: 30, BitRate: 50_000}.Append(nil), rawPicture(1, 18, 16)...))
	}
	f.Add(rawPicture(1, 1, 1))
	f.Add(wire.Unit{ID: 1, Codec: wire.MJPEG, Flags: wire.FlagSample, Data: []byte{0xff, 0xd8}}.Append(nil))
	f.Fuzz(func(t *testing.T, in []byte) {
		_, _ = serve(t, append(hello(), in...))
	})
}

// FuzzUnpack decodes the sound of a file of any format.
func FuzzUnpack(f *testing.F) {
	if err := loadUnpacker(); err != nil {
		f.Skip(err)
	}
	f.Add(wav.Encode(make([]float32, 800), 16000))
	f.Add([]byte("OggS\x00\x02\x00\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01\x13OpusHead\x01\x01\x38\x01\x80\xbb"))
	f.Add([]byte("fLaC\x80\x00\x00\x22\x10\x00\x10\x00\x00\x00\x00\x00\x00\x00\x0a\xc4\x40\xf0\x00\x00\x00\x00"))
	f.Add([]byte("ID3\x04\x00\x00\x00\x00\x00\x00\xff\xfb\x90\x00"))
	f.Add([]byte("\x00\x00\x00\x18ftypM4A \x00\x00\x00\x00M4A mp42\x00\x00\x00\x08moov"))
	f.Add([]byte("\x1a\x45\xdf\xa3\x84\x42\x82\x81w"))
	f.Fuzz(func(t *testing.T, in []byte) {
		file, err := os.CreateTemp(t.TempDir(), "")
		require.NoError(t, err)
		defer file.Close()
		_, err = file.Write(in)
		require.NoError(t, err)
		_, err = file.Seek(0, io.SeekStart)
		require.NoError(t, err)
		_ = unpackSound(int(file.Fd()), io.Discard)
	})
}
