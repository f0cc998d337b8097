package worlds_test

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"touchline/media"
	"touchline/worlds"
)

func TestCounterOfI420(t *testing.T) {
	for _, size := range [][2]int{{640, 360}, {1280, 720}, {450, 254}, {1920, 1080}, {320, 240}} {
		w := world(t, worlds.Options{Width: size[0], Height: size[1], Counter: true})
		n, ok := worlds.ReadCounterI420(w.Frame(4711), size[0], size[1])
		require.True(t, ok, "size %v", size)
		require.Equal(t, uint32(4711), n)
	}
}

func TestNoCounterIsNotRead(t *testing.T) {
	w := world(t, worlds.Options{})
	for n := uint32(0); n < 3000; n += 111 {
		_, ok := worlds.ReadCounterI420(w.Frame(n), 640, 360)
		require.False(t, ok)
	}
	for _, v := range []byte{0, 255, 128} {
		_, ok := worlds.ReadCounterI420(bytes.Repeat([]byte{v}, 640*360), 640, 360)
		require.False(t, ok)
	}
}

// A counter with any one square turned over is refused.
func TestCounterRefusesADamagedStrip(t *testing.T) {
	const width, height, unit = 640, 360, 8
	for bit := range 32 {
		pic := make([]byte, width*height*3/2)
		worlds.WriteCounter(pic, width, height, 123456)
		x0, y0 := width-19*unit+(1+bit%16)*unit, height-5*unit+(1+bit/16)*unit
		for y := y0; y < y0+unit; y++ {
			for x := x0; x < x0+unit; x++ {
				pic[y*width+x] = 251 - pic[y*width+x]
			}
		}
		_, ok := worlds.ReadCounterI420(pic, width, height)
		require.False(t, ok, "bit %d", bit)
	}
}

func FuzzReadCounter(f *testing.F) {
	w := world(f, worlds.Options{Width: 160, Height: 90, Counter: true})
	f.Add(160, 90, w.Frame(7))
	f.Add(640, 360, []byte{})
	f.Add(-1, 3, []byte{1, 2, 3})
	f.Add(80, 1, make([]byte, 240))
	f.Add(1<<31, 1<<31, make([]byte, 240))
	f.Fuzz(func(_ *testing.T, width, height int, pix []byte) {
		worlds.ReadCounterI420(pix, width, height)
		worlds.ReadCounter(media.VideoFrame{Width: width, Height: height, Pix: pix})
		worlds.WriteCounter(pix, width, height, 1)
	})
}
