package codec_test

import (
	"bytes"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"touchline/media"
	"touchline/media/codec"
	"touchline/media/codec/wire"
)

func sampled(id uint64) []byte {
	return append(wire.Picture{ID: id, Width: 2, Height: 1}.AppendHead(nil), 1, 2, 3, 4, 5, 6)
}

// withAnswers passes 20 access units to a decoder, with each tenth sampled, and then the output
// of a process.
func withAnswers(tb testing.TB, said []byte) (d *codec.Decoder, pictures int, err error) {
	tb.Helper()
	self, err := os.Executable() // any program: it is not started
	require.NoError(tb, err)
	d, err = codec.New(codec.Options{Path: self, OnPicture: func(media.VideoFrame) { pictures++ }})
	require.NoError(tb, err)
	d.Begin()
	for i := range 20 {
		f := media.EncodedFrame{Codec: media.VP8, KeyFrame: i == 0, PTS: frameGap, Data: make([]byte, 100)}
		require.NoError(tb, d.Decode(f, i%10 == 9))
	}
	d.HandOver()
	return d, pictures, d.Answers(said)
}

// Answers without a request, or for unknown units, are refused.
func TestProcessThatLies(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		said [][]byte
		lie  bool
	}{
		{"all samples", [][]byte{sampled(10), sampled(20)}, false},
		{"a sample too many", [][]byte{sampled(10), sampled(20), sampled(20)}, true},
		{"a sample of nothing", [][]byte{sampled(21)}, true},
		{"an answer to no question", [][]byte{wire.Picture{Seq: 1}.AppendHead(nil)}, true},
		{"a picture for no question", [][]byte{append(wire.Picture{Seq: 4, ID: 1, Width: 1, Height: 1}.AppendHead(nil), 1, 2, 3)}, true},
		{"an encoded picture", [][]byte{append(wire.Encoded{ID: 5, Codec: wire.H264, Width: 2, Height: 2}.AppendHead(nil, 1), 1)}, true},
		{"a message of the bot", [][]byte{wire.Latest{Seq: 1}.Append(nil)}, true},
		{"progress beyond the end", [][]byte{wire.Ack{Done: 1 << 63, Newest: 1 << 63}.Append(nil)}, false},
	} {
		_, _, err := withAnswers(t, bytes.Join(tt.said, nil))
		if tt.lie {
			require.ErrorIs(t, err, wire.ErrMalformed, tt.name)
			continue
		}
		require.NoError(t, err, tt.name)
	}
}

// FuzzAnswers handles any output of a process: without a panic, with no more pictures than
// requested, and without remaining state after its end.
func FuzzAnswers(f *testing.F) {
	f.Add(bytes.Join([][]byte{wire.Ack{Done: 9, Newest: 9}.Append(nil), sampled(10), wire.Ack{Done: 20, Newest: 20}.Append(nil), sampled(20)}, nil))
	f.Add(bytes.Join([][]byte{sampled(10), sampled(10), sampled(10)}, nil))
	f.Add(wire.Problem{ID: 3, Text: "vp8: no"}.Append(nil))
	f.Add(wire.Picture{Seq: 1}.AppendHead(nil))
	f.Add(append(wire.Encoded{ID: 5, Codec: wire.H264, Key: true, Width: 2, Height: 2}.AppendHead(nil, 3), "abc"...))
	f.Add(wire.Ack{Done: 1 << 63, Newest: 1 << 63}.Append(nil))
	f.Fuzz(func(t *testing.T, said []byte) {
		d, _, _ := withAnswers(t, said)
		require.LessOrEqual(t, d.Stats().Pictures, uint64(2))
		d.Lost()
		held, out, size := d.Waiting()
		require.Equal(t, [3]int{}, [3]int{held, out, size})
	})
}

// The bytes of sent units are released although their entries in times were overwritten by many
// dropped units.
func TestBytesAreGivenBack(t *testing.T) {
	t.Parallel()
	d, _, err := withAnswers(t, nil)
	require.NoError(t, err)
	for i := range 400 { // each key frame drops the held units before it
		f := media.EncodedFrame{Codec: media.VP8, KeyFrame: i%20 == 0, PTS: frameGap, Data: make([]byte, 7)}
		require.NoError(t, d.Decode(f, false))
	}
	require.NoError(t, d.Answers(wire.Ack{Done: 20, Newest: 20}.Append(nil)))
	held, out, size := d.Waiting()
	require.Equal(t, [3]int{20, 0, 140}, [3]int{held, out, size})
}
