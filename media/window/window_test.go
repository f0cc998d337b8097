package window_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"touchline/media"
	"touchline/media/window"
)

func frame(n int) media.VideoFrame {
	return media.VideoFrame{PTS: time.Duration(n) * 200 * time.Millisecond}
}

func ids(frames []window.Frame) []uint64 {
	var out []uint64
	for _, f := range frames {
		out = append(out, f.ID)
	}
	return out
}

func TestSelect(t *testing.T) {
	w := window.New(6)
	require.Empty(t, w.Select(4, 1))
	for i := range 10 {
		require.Equal(t, uint64(i+1), w.Push(frame(i)))
	}
	require.Equal(t, 6, w.Len())
	tests := []struct {
		n, stride int
		want      []uint64
	}{
		{4, 1, []uint64{7, 8, 9, 10}},
		{3, 2, []uint64{6, 8, 10}},
		{4, 2, []uint64{6, 8, 10}}, // the window does not reach back to 4
		{1, 9, []uint64{10}},
		{0, 0, []uint64{10}},
		{99, 1, []uint64{5, 6, 7, 8, 9, 10}},
	}
	for _, tt := range tests {
		require.Equal(t, tt.want, ids(w.Select(tt.n, tt.stride)), "%+v", tt)
	}
}

func TestLimit(t *testing.T) {
	w := window.New(6)
	for i := range 6 {
		w.Push(frame(i))
	}
	w.Limit(3)
	require.Equal(t, []uint64{4, 5, 6}, ids(w.Select(99, 1)))
	w.Limit(99)
	for i := 6; i < 20; i++ {
		w.Push(frame(i))
	}
	require.Equal(t, 6, w.Len(), "never over the capacity")
}

func TestPushKeepsOrderAndEpochs(t *testing.T) {
	w := window.New(4)
	w.Push(frame(5))
	require.Equal(t, uint64(1), w.Push(frame(5)), "the same picture twice")
	require.Equal(t, uint64(1), w.Push(frame(3)), "an older one")
	f := frame(0)
	f.Epoch = 1
	require.Equal(t, uint64(2), w.Push(f))
	require.Equal(t, []uint64{2}, ids(w.Select(4, 1)), "another source empties the window")
	w.Clear()
	_, ok := w.Newest()
	require.False(t, ok)
}

func picture(w, h int, at func(x, y int) byte) media.VideoFrame {
	f := media.VideoFrame{Width: w, Height: h, Pix: make([]byte, w*h*3)}
	for y := range h {
		for x := range w {
			v := at(x, y)
			copy(f.Pix[(y*w+x)*3:], []byte{v, v, v})
		}
	}
	return f
}

func TestDifference(t *testing.T) {
	grey := window.Sign(picture(448, 252, func(int, int) byte { return 100 }))
	bright := window.Sign(picture(448, 252, func(int, int) byte { return 140 }))
	spot := window.Sign(picture(448, 252, func(x, y int) byte {
		if x < 40 && y < 24 {
			return 220
		}
		return 100
	}))
	require.Equal(t, window.Change{Mean: window.Whole, Peak: window.Whole}, window.Difference(nil, grey))
	require.Equal(t, window.Change{}, window.Difference(grey, grey))
	c := window.Difference(grey, bright)
	require.InDelta(t, 40, c.Mean, 1)
	require.False(t, c.Below(5))
	require.True(t, c.Below(41))

	c = window.Difference(grey, spot)
	require.Less(t, c.Mean, 5.0)
	require.False(t, c.Below(5), "small movement on a still background counts")
	require.False(t, window.Change{}.Below(0), "threshold 0 never skips")

	require.Equal(t, &window.Signature{}, window.Sign(media.VideoFrame{Width: 9, Height: 9}), "a broken picture is black")
}

func BenchmarkSign(b *testing.B) {
	f := picture(448, 252, func(x, y int) byte { return byte(x ^ y) })
	for b.Loop() {
		window.Sign(f)
	}
}
