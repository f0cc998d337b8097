package camera_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"touchline/agent/camera"
	"touchline/agent/room/conn"
	"touchline/media/signaling"
	"touchline/media/source/whip"
)

// A WHIP session ends when its participant was removed from the room, so that its sender stops.
func TestSessionEndsWithItsParticipant(t *testing.T) {
	t.Parallel()
	refusing := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "no permissions to access the room", http.StatusUnauthorized)
	}))
	t.Cleanup(refusing.Close)
	senders := camera.NewSenders(camera.Options{
		URL: "ws" + strings.TrimPrefix(refusing.URL, "http"), LoopbackOnly: true, Codec: "true", // any program: it is never started
		Keys: conn.Keys{APIKey: "key", APISecret: "a secret that the server does not know"},
	})
	closed := make(chan string, 1)
	server, err := whip.New(whip.Options{
		Keys: []whip.StreamKey{{Key: "a-good-long-key", Identity: "obs"}}, PortOptions: signaling.PortOptions{LoopbackOnly: true}, Now: time.Now,
		Bounds: signaling.Bounds{ConnectTime: time.Hour},
		Open: func(x *whip.Session) (whip.Place, error) {
			place, err := senders.Open(x)
			inner := place.Close
			place.Close = func(reason string) { inner(reason); closed <- reason }
			return place, err
		},
	})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 2)
	go func() { ended <- senders.Run(ctx) }()
	go func() { ended <- server.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-ended)
		require.NoError(t, <-ended)
	})
	require.Eventually(t, func() bool { return server.UDPPort() > 0 }, 2*time.Minute, time.Millisecond)
	api := httptest.NewServer(server)
	t.Cleanup(api.Close)

	offer, err := os.ReadFile("../../media/source/whip/testdata/obs-30.sdp")
	require.NoError(t, err)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, api.URL+"/whip/room", strings.NewReader(string(offer)))
	require.NoError(t, err)
	r.Header.Set("Content-Type", "application/sdp")
	r.Header.Set("Authorization", "Bearer a-good-long-key")
	resp, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, http.StatusCreated, resp.StatusCode)
	select {
	case reason := <-closed:
		require.Contains(t, reason, "participant")
	case <-time.After(2 * time.Minute):
		t.Fatal("the session goes on")
	}
	require.Eventually(t, func() bool { return len(server.Sessions()) == 0 }, 2*time.Minute, time.Millisecond)
}
