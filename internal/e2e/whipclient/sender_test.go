//go:build integration

package whipclient_test

import (
	"context"
	"encoding/binary"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"touchline/internal/e2e/whipclient"
	"touchline/media"
	"touchline/media/signaling"
	"touchline/media/source"
	"touchline/media/source/whip"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// H264 access units arrive with their numbers, and Close ends the session.
func TestSender(t *testing.T) {
	units := whipclient.SplitH264([]byte("\x00\x00\x00\x01\x09\x10" +
		"\x00\x00\x00\x01\x67\x42\xc0\x1f\xda\x02\x80\xf6\x84\x00\x00\x00\x01\x68\xce\x3c\x80\x00\x00\x00\x01\x65\x88\x84\x01" +
		"\x00\x00\x00\x01\x09\x30\x00\x00\x00\x01\x41\x9a\x02\x03"))
	require.Len(t, units, 2)
	numbers, closed := make(chan uint32, 1024), make(chan string, 1)
	srv, err := whip.New(whip.Options{
		Keys: []whip.StreamKey{{Key: "a-good-long-key", Identity: "x"}}, PortOptions: signaling.PortOptions{LoopbackOnly: true}, Now: time.Now,
		Open: func(*whip.Session) (whip.Place, error) {
			return whip.Place{Sink: source.Sink{Frame: func(f media.EncodedFrame) {
				if n, ok := whipclient.Number(f.Data); ok {
					numbers <- n
				}
			}}, Close: func(reason string) { closed <- reason }}, nil
		},
	})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ran := make(chan error, 2)
	go func() { ran <- srv.Run(ctx) }()
	web := httptest.NewServer(srv)
	defer web.Close()
	require.Eventually(t, func() bool { return srv.UDPPort() > 0 }, 2*time.Minute, time.Millisecond)

	o := whipclient.Options{URL: web.URL + "/whip/a", Codec: media.H264, Units: units, FPS: 50, Number: true, Client: web.Client()}
	_, err = whipclient.Dial(ctx, o)
	require.ErrorContains(t, err, "got 401")
	o.Token = "a-good-long-key"
	s, err := whipclient.Dial(ctx, o)
	require.NoError(t, err)
	sctx, stop := context.WithCancelCause(ctx)
	errEnough := errors.New("enough")
	go func() { ran <- s.Run(sctx) }()
	last := <-numbers
	for range 20 {
		n := <-numbers
		require.Equal(t, last+1, n)
		last = n
	}
	stop(errEnough)
	require.ErrorIs(t, <-ran, errEnough)
	require.NoError(t, s.Close(ctx))
	require.Equal(t, "the sender ended it", <-closed)
	cancel()
	require.NoError(t, <-ran)
	http.DefaultClient.CloseIdleConnections()
}

func TestSplitIVF(t *testing.T) {
	var file []byte
	file = append(file, make([]byte, 32)...)
	for _, frame := range []string{"one", "three"} {
		file = binary.LittleEndian.AppendUint32(file, uint32(len(frame)))
		file = append(append(file, make([]byte, 8)...), frame...)
	}
	require.Equal(t, [][]byte{[]byte("one"), []byte("three")}, whipclient.SplitIVF(file))
	require.Len(t, whipclient.SplitIVF(file[:len(file)-1]), 1)
	require.Empty(t, whipclient.SplitIVF(nil))
}
