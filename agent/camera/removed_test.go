package camera_test

import (
	"bytes"
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
	server, closed := serve(t, senders, nil)
	require.Equal(t, http.StatusCreated, offer(t, server, "a-good-long-key"))
	select {
	case reason := <-closed:
		require.Contains(t, reason, "participant")
	case <-time.After(2 * time.Minute):
		t.Fatal("the session goes on")
	}
	require.Eventually(t, func() bool { return len(server.Sessions()) == 0 }, 2*time.Minute, time.Millisecond)
}

// serve serves WHIP senders until the test ends. The reason of each end is sent.
func serve(t *testing.T, senders *camera.Senders, authorize func(token, name string) (whip.Sender, error)) (*whip.Server, <-chan string) {
	t.Helper()
	closed := make(chan string, 1)
	server, err := whip.New(whip.Options{
		Keys: []whip.StreamKey{{Key: "a-good-long-key", Identity: "obs"}}, PortOptions: signaling.PortOptions{LoopbackOnly: true}, Now: time.Now,
		Authorize: authorize, Bounds: signaling.Bounds{ConnectTime: time.Hour}, Silence: time.Hour,
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
	return server, closed
}

// offer sends the offer of OBS and returns the status of the answer.
func offer(t *testing.T, server *whip.Server, token string) int {
	t.Helper()
	text, err := os.ReadFile("../../media/source/whip/testdata/obs-30.sdp")
	require.NoError(t, err)
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/whip/room", bytes.NewReader(text))
	r.Header.Set("Content-Type", "application/sdp")
	r.Header.Set("Authorization", "Bearer "+token)
	w := httptest.NewRecorder()
	server.ServeHTTP(w, r)
	return w.Code
}
