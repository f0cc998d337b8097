//go:build integration

package camera_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	lksdk "github.com/livekit/server-sdk-go/v2"
	"github.com/stretchr/testify/require"

	"touchline/agent/access"
	"touchline/agent/camera"
	"touchline/agent/room/conn"
	"touchline/agent/room/control"
	"touchline/internal/clocktest"
	"touchline/internal/e2e/whipclient"
	"touchline/media"
)

// TestSessionEndsWithItsLink: a WHIP session ends when the room's commentator shows that its link was revoked, as does a later one.
func TestSessionEndsWithItsLink(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	keys := s.keys
	keys.Links = access.NewLinks(nil, nil, time.Now())
	senders := camera.NewSenders(camera.Options{URL: s.server.URL(), LoopbackOnly: true, Codec: "true", Keys: keys})
	server, closed := serve(t, senders, camera.Authorize(keys))
	const link = "0123456789abcdef"
	end := time.Now().Add(time.Hour)
	token, err := conn.CameraToken(keys, conn.Person{
		Room: "room", Identity: "phone", Attributes: control.Attributes(keys, access.Grant{Expires: end, Links: []string{link}}),
	})
	require.NoError(t, err)
	api := httptest.NewServer(server)
	t.Cleanup(api.Close)
	phone, err := whipclient.Dial(t.Context(), whipclient.Options{
		URL: api.URL + "/whip/room", Token: token, Codec: media.VP8, Units: [][]byte{{0}}, FPS: 1,
	})
	require.NoError(t, err)
	t.Cleanup(phone.Vanish)

	bot, err := conn.AgentToken(keys, conn.Person{
		Room: "room", Identity: "bot", Attributes: map[string]string{control.AttributeRevoked: fmt.Sprintf("%s:%d", link, end.Unix())},
	})
	require.NoError(t, err)
	late := clocktest.Late(t)
	room, err := lksdk.ConnectToRoomWithToken(s.server.URL(), bot, lksdk.NewRoomCallback(), lksdk.WithAutoSubscribe(false))
	require.NoError(t, err)
	t.Cleanup(room.Disconnect)
	began, busy := time.Now(), late()
	select {
	case reason := <-closed:
		require.Equal(t, access.ErrRevoked.Error(), reason)
		require.LessOrEqual(t, time.Since(began), 5*time.Second+late()-busy)
	case <-time.After(2 * time.Minute):
		t.Fatal("the session goes on")
	}
	require.Equal(t, http.StatusUnauthorized, offer(t, server, token))
}
