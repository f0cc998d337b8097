package mjpeg_test

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

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
