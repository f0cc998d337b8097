package mjpeg_test

import (
	"bytes"
	"image"
	"image/jpeg"
	"image/png"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/image/bmp"

	"touchline/media/source/mjpeg"
)

func FuzzScanner(f *testing.F) {
	p := picture(1, 16, 16)
	f.Add(append(append([]byte("--x\r\n\r\n"), p...), p...))
	f.Add(withThumbnail(p))
	f.Add(append(p[:len(p)-2:len(p)-2], p...))
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, p := range mjpeg.Pictures(bytes.NewReader(b)) {
			require.True(t, bytes.HasPrefix(p, []byte{0xff, 0xd8}))
			require.True(t, bytes.HasSuffix(p, []byte{0xff, 0xd9}))
		}
	})
}

// FuzzStill converts pictures of other formats, which a camera sends as its still picture.
func FuzzStill(f *testing.F) {
	var p, b bytes.Buffer
	require.NoError(f, png.Encode(&p, image.NewGray(image.Rect(0, 0, 8, 4))))
	require.NoError(f, bmp.Encode(&b, image.NewGray(image.Rect(0, 0, 8, 4))))
	f.Add(p.Bytes())
	f.Add(b.Bytes())
	f.Add([]byte("RIFF\x1a\x00\x00\x00WEBPVP8L\x0d\x00\x00\x00\x2f\x00\x00\x00\x10\x07\x10\x11\x11\x88\x88\xfe\x07\x00"))
	f.Fuzz(func(t *testing.T, in []byte) {
		out, err := mjpeg.Still(bytes.NewReader(in), "image/bmp")
		if err == nil && out != nil {
			_, err = jpeg.DecodeConfig(bytes.NewReader(out))
			require.NoError(t, err)
		}
	})
}
