package file_test

import (
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"touchline/media/source"
	"touchline/media/source/file"
)

// TestWithoutFFmpeg: the error names the source and the package to install.
func TestWithoutFFmpeg(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	for want, a := range map[string]source.Address{
		"a video file needs the program ffmpeg":          {Kind: source.File, Path: "clip.mp4"},
		"an HLS or HTTP stream needs the program ffmpeg": {Kind: source.HTTP, URL: &url.URL{Scheme: "http", Host: "h", Path: "/l.m3u8"}},
	} {
		_, err := file.New(file.Options{Access: source.Access{Address: a, Now: time.Now}})
		require.ErrorContains(t, err, want)
		require.ErrorContains(t, err, "apt-get install ffmpeg")
	}
}
