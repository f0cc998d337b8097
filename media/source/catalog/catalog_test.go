package catalog_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"touchline/media/source"
	"touchline/media/source/catalog"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t *testing.T, address string, allow source.Allow) (source.Puller, error) {
	t.Helper()
	a, err := source.ParseAddress(address)
	require.NoError(t, err)
	return catalog.Open(catalog.Options{Access: source.Access{Address: a, Allow: allow, Now: time.Now}})
}

func TestKinds(t *testing.T) {
	for _, address := range []string{"rtsp://cam/x", "rtsps://cam/x", "http://cam/x", "https://cam/x.m3u8", "clip.mp4", "webcam", "/dev/video3"} {
		p, err := open(t, address, source.AllowEverything())
		require.NoError(t, err, address)
		require.NotNil(t, p)
	}
	_, err := open(t, "/dev/video0", source.AllowCameras())
	require.ErrorIs(t, err, source.ErrNotAllowed)
	_, err = catalog.Open(catalog.Options{})
	require.Error(t, err)
}
