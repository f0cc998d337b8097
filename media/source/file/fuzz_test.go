package file_test

import (
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"

	"touchline/media"
	"touchline/media/source/file"
)

// tiny is a clip of three small pictures.
func tiny(f *testing.F, args ...string) []byte {
	f.Helper()
	all := append([]string{
		"-v", "error", "-nostdin", "-f", "lavfi", "-i", "testsrc2=size=64x64:rate=25", "-frames:v", "3", "-threads", "1", "-pix_fmt", "yuv420p",
	}, args...)
	out, err := exec.CommandContext(f.Context(), "ffmpeg", append(all, "pipe:1")...).Output()
	require.NoError(f, err)
	return out
}

func FuzzTS(f *testing.F) {
	seed := tiny(f, "-c:v", "libx264", "-preset", "ultrafast", "-f", "mpegts")
	n, _ := file.ReadTS(seed, media.H264)
	require.Equal(f, 3, n)
	f.Add(seed)
	f.Fuzz(func(_ *testing.T, b []byte) { _, _ = file.ReadTS(b, media.H264) })
}

func FuzzIVF(f *testing.F) {
	seed := tiny(f, "-c:v", "libvpx", "-deadline", "realtime", "-f", "ivf")
	n, _ := file.ReadIVF(seed, media.VP8)
	require.Equal(f, 3, n)
	f.Add(seed, false)
	f.Fuzz(func(_ *testing.T, b []byte, av1 bool) {
		codec := media.VP9
		if av1 {
			codec = media.AV1
		}
		_, _ = file.ReadIVF(b, codec)
	})
}

func FuzzProbe(f *testing.F) {
	f.Add([]byte(`{"streams":[{"codec_name":"h264","pix_fmt":"yuv420p","width":64,"height":64}]}`))
	f.Fuzz(func(_ *testing.T, b []byte) { _ = file.ReadProbe(b) })
}
