//go:build integration

package codec_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"image/jpeg"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"touchline/media"
	"touchline/media/codec"
)

// oriented returns a JPEG with an EXIF orientation (CIPA DC-008 section 4.6.5), whose stored picture is red at the top left, else blue.
func oriented(t *testing.T, orientation uint16) []byte {
	t.Helper()
	img := image.NewRGBA(image.Rect(0, 0, 320, 180))
	draw.Draw(img, img.Bounds(), image.NewUniform(color.RGBA{B: 255, A: 255}), image.Point{}, draw.Src)
	draw.Draw(img, image.Rect(0, 0, 160, 90), image.NewUniform(color.RGBA{R: 255, A: 255}), image.Point{}, draw.Src)
	var b bytes.Buffer
	require.NoError(t, jpeg.Encode(&b, img, nil))
	exif := append([]byte("Exif\x00\x00MM\x00*\x00\x00\x00\x08\x00\x01"), binary.BigEndian.AppendUint16([]byte{0x01, 0x12, 0, 3, 0, 0, 0, 1}, orientation)...)
	exif = append(exif, 0, 0, 0, 0, 0, 0)
	head := append([]byte{0xff, 0xd8, 0xff, 0xe1}, binary.BigEndian.AppendUint16(nil, uint16(len(exif)+2))...)
	return append(append(head, exif...), b.Bytes()[2:]...)
}

// TestOrientation: JPEG pictures with an EXIF orientation are upright for the engine and for browsers.
func TestOrientation(t *testing.T) {
	for orientation, tt := range map[uint16]struct {
		w, h, x, y int // the size, and the place of the red quarter
	}{1: {320, 180, 0, 0}, 2: {320, 180, 1, 0}, 3: {320, 180, 1, 1}, 4: {320, 180, 0, 1}, 6: {180, 320, 1, 0}, 8: {180, 320, 0, 1}} {
		t.Run(fmt.Sprint(orientation), func(t *testing.T) {
			f := media.EncodedFrame{Codec: codec.MJPEG, KeyFrame: true, Width: 320, Height: 180, SpatialLayers: 1, Data: oriented(t, orientation)}
			tr, out := newTranscoder(t, codec.Options{})
			require.Eventually(t, func() bool { return tr.Decode(f, false) == nil }, soon, time.Millisecond)
			got := receive(t, out, "a transcoded frame")
			require.Equal(t, [2]int{tt.w, tt.h}, [2]int{got.Width, got.Height})

			r := newRig(t, codec.Options{})
			require.NoError(t, r.Decode(f, true))
			p := receive(t, r.pictures, "a picture")
			require.Equal(t, [2]int{tt.w, tt.h}, [2]int{p.Width, p.Height})
			if turn, ok := map[uint16]uint8{3: 2, 6: 1, 8: 3}[orientation]; ok { // as the transport says it
				f.Data, f.Turn = oriented(t, 1), turn
				require.NoError(t, tr.Decode(f, false))
				got = receive(t, out, "a transcoded frame")
				require.Equal(t, [2]int{tt.w, tt.h}, [2]int{got.Width, got.Height})
				require.Zero(t, got.Turn)
				require.NoError(t, r.Decode(f, true))
				again := receive(t, r.pictures, "a picture")
				require.Equal(t, p.Pix, again.Pix)
			}
			for i := range 4 {
				x, y := i%2, i/2
				at := 3 * ((tt.h/4+y*tt.h/2)*tt.w + tt.w/4 + x*tt.w/2)
				want := 0
				if x == tt.x && y == tt.y {
					want = 255
				}
				require.InDelta(t, want, int(p.Pix[at]), 8, "quarter %d %d", x, y)
			}
		})
	}
}
