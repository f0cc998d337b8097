package window_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"touchline/media"
	"touchline/media/window"
)

// gradient is a picture with each colour, which changes slowly from pixel to pixel.
func gradient(w, h int) media.VideoFrame {
	f := media.VideoFrame{Width: w, Height: h}
	for y := range h {
		for x := range w {
			f.Pix = append(f.Pix, byte(255*x/w), byte(255*y/h), byte(255*(w-x)/w)) // 0 to 255
		}
	}
	return f
}

// A picture survives JPEG, of odd sizes too.
func TestJPEG(t *testing.T) {
	t.Parallel()
	for _, size := range [][2]int{{448, 252}, {321, 181}, {30, 1000}, {1, 1}} {
		f := gradient(size[0], size[1])
		data, err := window.JPEG(f, 90)
		require.NoError(t, err)
		require.Less(t, len(data), 2000+len(f.Pix)/5)
		back, err := window.FromJPEG(data)
		require.NoError(t, err)
		require.Equal(t, size[0], back.Width)
		require.Equal(t, size[1], back.Height)
		pix := back.Pix
		require.Len(t, pix, len(f.Pix))
		off := 0
		for i := range pix {
			off += max(int(pix[i])-int(f.Pix[i]), int(f.Pix[i])-int(pix[i]))
		}
		require.Less(t, float64(off)/float64(len(pix)), 6.0, "mean difference of %v", size)
	}
	_, err := window.JPEG(media.VideoFrame{Width: 2, Height: 2, Pix: make([]byte, 11)}, 90)
	require.ErrorContains(t, err, "got 11 bytes")
	_, err = window.JPEG(media.VideoFrame{Width: 1, Height: 1, Pix: make([]byte, 3)}, 0)
	require.ErrorContains(t, err, "must be between 1 and 100")
	_, err = window.FromJPEG([]byte("no picture"))
	require.ErrorContains(t, err, "read a JPEG")
}

func BenchmarkJPEG(b *testing.B) {
	f := gradient(448, 252)
	for b.Loop() {
		_, err := window.JPEG(f, 90)
		require.NoError(b, err)
	}
}
