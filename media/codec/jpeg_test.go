package codec_test

import (
	"bytes"
	"image/jpeg"
	"testing"

	"github.com/stretchr/testify/require"

	"touchline/media"
	"touchline/media/codec"
)

func TestJPEG(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ w, h, maxWidth, wantW, wantH int }{
		{320, 180, 0, 320, 180},
		{320, 180, 500, 320, 180},
		{321, 181, 0, 321, 181},
		{320, 180, 160, 160, 90},
		{640, 360, 250, 250, 141},
		{3, 1000, 2, 2, 667},
		{1000, 1, 10, 10, 1},
	} {
		f := media.VideoFrame{Width: tt.w, Height: tt.h, Pix: drawBars(tt.w, tt.h, 5)}
		data, err := codec.JPEG(f, 90, tt.maxWidth)
		require.NoError(t, err)
		img, err := jpeg.Decode(bytes.NewReader(data))
		require.NoError(t, err)
		require.Equal(t, tt.wantW, img.Bounds().Dx())
		require.Equal(t, tt.wantH, img.Bounds().Dy())
		if tt.wantW < 100 || tt.wantH < 10 {
			continue
		}
		back := media.VideoFrame{Width: tt.wantW, Height: tt.wantH}
		for y := range tt.wantH {
			for x := range tt.wantW {
				r, g, b, _ := img.At(x, y).RGBA()
				back.Pix = append(back.Pix, byte(r>>8), byte(g>>8), byte(b>>8))
			}
		}
		require.Equal(t, 5, readBars(t, back))
	}
	_, err := codec.JPEG(media.VideoFrame{Width: 2, Height: 2, Pix: make([]byte, 11)}, 90, 0)
	require.ErrorContains(t, err, "got 11 bytes")
	_, err = codec.JPEG(media.VideoFrame{Width: 1, Height: 1, Pix: make([]byte, 3)}, 0, 0)
	require.ErrorContains(t, err, "must be between 1 and 100")
}

func BenchmarkJPEG(b *testing.B) {
	f := media.VideoFrame{Width: 1280, Height: 720, Pix: drawBars(1280, 720, 5)}
	for b.Loop() {
		_, err := codec.JPEG(f, 80, 640)
		require.NoError(b, err)
	}
}
