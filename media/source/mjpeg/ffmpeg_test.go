//go:build integration

package mjpeg_test

import (
	"context"
	"math/rand/v2"
	"net"
	"net/url"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"touchline/media"
	"touchline/media/source"
	"touchline/media/source/mjpeg"
)

// ffmpeg is the camera, which is switched off and on.
func TestFFmpegComesBack(t *testing.T) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	require.NoError(t, err)
	port := l.Addr().(*net.TCPAddr).Port
	l.Close()
	address := "http://127.0.0.1:" + strconv.Itoa(port) + "/"
	film := func() (stop func()) {
		cmd := exec.CommandContext(t.Context(), "ffmpeg", "-v", "error", "-nostdin", "-re", "-f", "lavfi", "-i",
			"testsrc2=size=320x180:rate=25", "-c:v", "mjpeg", "-q:v", "5", "-f", "mpjpeg", "-listen", "1", address)
		require.NoError(t, cmd.Start(), "apt-get install ffmpeg")
		return func() {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	}
	stop := film()
	u, err := url.Parse(address)
	require.NoError(t, err)
	cam, err := mjpeg.New(mjpeg.Options{Access: source.Access{Address: source.Address{URL: u}, Allow: source.Allow{Loopback: true}, Now: time.Now}})
	require.NoError(t, err)
	frames := make(chan media.EncodedFrame, 4096)
	sup, err := source.NewSupervisor(source.Options{
		Puller: cam, Sink: source.Sink{Frame: func(f media.EncodedFrame) { frames <- f }}, Now: time.Now, Random: rand.Float64,
	})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- sup.Run(ctx) }()
	next := func() media.EncodedFrame {
		select {
		case f := <-frames:
			return f
		case <-time.After(2 * time.Minute):
			t.Fatal("no picture")
			return media.EncodedFrame{}
		}
	}
	f := next()
	require.Equal(t, 320, f.Width)
	stop()
	require.Eventually(t, func() bool { return sup.Status().State == source.Waiting }, 2*time.Minute, 10*time.Millisecond)
	for len(frames) > 0 {
		<-frames
	}
	stop = film()
	back := time.Now()
	f = next()
	t.Logf("first picture %v after the camera was back", time.Since(back).Round(time.Millisecond))
	require.EqualValues(t, 2, f.Epoch)
	cancel()
	require.NoError(t, <-ended)
	stop()
}
