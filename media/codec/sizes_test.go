//go:build integration

package codec_test

import (
	"bytes"
	"fmt"
	"image"
	"image/color"
	"image/jpeg"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"touchline/media"
	"touchline/media/codec"
)

// TestSizes: pictures of any size up to 8192 x 4320 reach the engine, and browsers in a size that they play.
func TestSizes(t *testing.T) {
	for _, tt := range []struct{ w, h, outW, outH int }{
		{1, 1, 16, 16},
		{16, 1600, 16, 1600},
		{5000, 20, 5000, 20},
		{15, 7, 16, 16},
		{321, 181, 320, 180},
		{3840, 2160, 3840, 2160},
		{4000, 3000, 1662, 1246},
		{7680, 4320, 1920, 1080},
		{8192, 4320, 1982, 1044},
	} {
		t.Run(fmt.Sprintf("%dx%d", tt.w, tt.h), func(t *testing.T) {
			img := image.NewYCbCr(image.Rect(0, 0, tt.w, tt.h), image.YCbCrSubsampleRatio420)
			red := color.YCbCrModel.Convert(color.RGBA{R: 255, A: 255}).(color.YCbCr)
			for i := range img.Y {
				img.Y[i] = red.Y
			}
			for i := range img.Cb {
				img.Cb[i], img.Cr[i] = red.Cb, red.Cr
			}
			var b bytes.Buffer
			require.NoError(t, jpeg.Encode(&b, img, nil))
			f := media.EncodedFrame{Codec: codec.MJPEG, KeyFrame: true, Width: tt.w, Height: tt.h, SpatialLayers: 1, Data: b.Bytes()}
			tr, out := newTranscoder(t, codec.Options{})
			require.Eventually(t, func() bool { return tr.Decode(f, false) == nil }, soon, time.Millisecond)
			got := receive(t, out, "a transcoded frame")
			require.Equal(t, [2]int{tt.outW, tt.outH}, [2]int{got.Width, got.Height})
			requirePlayable(t, got)

			r := newRig(t, codec.Options{LongSide: 448})
			require.Eventually(t, func() bool { return r.Decode(f, true) == nil }, soon, time.Millisecond)
			p := receive(t, r.pictures, "a picture")
			require.Equal(t, max(tt.w, tt.h) > 448, max(p.Width, p.Height) == 448)
			require.InDelta(t, 255, int(p.Pix[0]), 8)
			require.InDelta(t, 0, int(p.Pix[1]), 8)
		})
	}
}
