//go:build integration && !nodemo

package main

import (
	"encoding/json"
	"net/http"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/livekit/protocol/auth"
	"github.com/livekit/protocol/livekit"
	"github.com/stretchr/testify/require"

	"touchline/agent/camera"
	"touchline/agent/room/conn"
	"touchline/internal/e2e/whipclient"
	"touchline/media"
	"touchline/media/source"
)

// identities returns the identities in a room.
func (h *agentHouse) identities(name string) (out []string) {
	in, err := h.rooms.ListParticipants(h.t.Context(), &livekit.ListParticipantsRequest{Room: name})
	if err != nil {
		return nil
	}
	for _, p := range in.GetParticipants() {
		out = append(out, p.GetIdentity())
	}
	return out
}

// TestAgentTakesSenders: a WHIP sender creates its room at any worker. A dispatch, also one in the sender's token,
// selects the worker that comments there and serves WHEP players.
func TestAgentTakesSenders(t *testing.T) {
	t.Parallel()
	const name, path = "yard/ 1", "yard%2F%201"
	h := newAgentHouse(t)
	s := &studio{dir: t.TempDir()}
	renderMatch(t, filepath.Join(s.dir, "match.mkv"), cameraSeconds)
	units := ivf(t, s.clip(t, "whip.ivf", encoders["vp8"]...))
	h.env = []string{"TOUCHLINE_PACING_FIXED_DELAY=2s"}
	called := h.start("--console", "127.0.0.1:0")
	offers := called.console(t)
	h.env = append(h.env, "TOUCHLINE_SOURCES_WHIP_KEYS=other/left=stream-key-left")
	automatic := h.start("--console", "127.0.0.1:0", "--agent-name=")
	shows := automatic.console(t)
	post := func(d *desk, path, token string) (int, string) {
		return d.ask(http.MethodPost, path, "v=0\r\n", "Content-Type", "application/sdp", "Authorization", "Bearer "+token)
	}

	// Permissions of senders.
	token, err := conn.CameraToken(h.keys, conn.Person{Room: name, Identity: "gate"})
	require.NoError(t, err)
	viewer, err := conn.ViewerToken(h.keys, conn.Person{Room: name, Identity: "vera"})
	require.NoError(t, err)
	for _, tt := range []struct {
		token, path string
		status      int
	}{
		{"", path, http.StatusUnauthorized},
		{"no-such-key", path, http.StatusUnauthorized},
		{viewer, path, http.StatusForbidden},
		{token, "elsewhere", http.StatusForbidden},
		{token, path, http.StatusBadRequest}, // permitted, but not an offer
		{"stream-key-left", path, http.StatusForbidden},
		{"stream-key-left", "other", http.StatusBadRequest},
	} {
		status, body := post(shows, "/whip/"+tt.path, tt.token)
		require.Equal(t, tt.status, status, "%+v: %s", tt, body)
	}
	require.NotContains(t, h.identities(name), "gate")

	// The sender's worker gets no job, as no dispatch names it. The other worker serves every new room.
	began := time.Now()
	send(t, whipclient.Options{URL: offers.url + "/whip/" + path, Token: token, Codec: media.VP8, Units: units, FPS: cameraFPS})
	shows.eventually(name, func(r map[string]any) bool {
		source, _ := r["source"].(map[string]any)
		return source["identity"] == "gate" && r["newest"] != nil
	})
	t.Logf("sender to comment: %.1f s", time.Since(began).Seconds())
	require.Nil(t, offers.room(name))

	// Only the commenting worker has players; the other answers with a retry.
	ctx := t.Context()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, offers.url+"/whep/"+path, strings.NewReader(playerOffer))
	require.NoError(t, err)
	req.Header.Set("Content-Type", "application/sdp")
	res, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	var problem struct{ Detail string }
	require.NoError(t, json.NewDecoder(res.Body).Decode(&problem))
	require.NoError(t, res.Body.Close())
	require.Equal(t, http.StatusConflict, res.StatusCode, problem.Detail)
	require.NotEmpty(t, res.Header.Get("Retry-After"))
	require.Contains(t, problem.Detail, `this program has no commentator in room "yard/ 1"`)
	player := watches(t, playerPage(t).URL+"/?"+url.Values{"url": {shows.url + "/whep/" + path}, "token": {viewer}}.Encode())

	// The key on the room's page is valid for this room only.
	var list struct {
		Cameras []source.RoomCamera
		Sources []source.Info
		WHIP    source.WHIPEndpoint
	}
	sources := func() {
		_, body := shows.ask(http.MethodGet, "/api/rooms/"+path+"/sources", "")
		require.NoError(t, json.Unmarshal([]byte(body), &list), body)
	}
	sources()
	require.Equal(t, "/whip/"+path, list.WHIP.Path)
	status, body := post(shows, "/whip/elsewhere", list.WHIP.Key)
	require.Equal(t, http.StatusUnauthorized, status, body)
	send(t, whipclient.Options{URL: shows.url + list.WHIP.Path, Token: list.WHIP.Key, Codec: media.VP8, Units: units, FPS: cameraFPS})
	require.Eventually(t, func() bool {
		sources()
		return len(list.Cameras) == 2 && slices.ContainsFunc(list.Sources, func(x source.Info) bool {
			return x.Kind == "whip" && x.Identity == camera.StreamIdentity && x.State == "live"
		})
	}, later, 50*time.Millisecond)

	// A sender's token can dispatch a named commentator to the new room.
	asking, err := auth.NewAccessToken(h.keys.APIKey, h.keys.APISecret).SetIdentity("tower").
		SetVideoGrant(&auth.VideoGrant{RoomJoin: true, Room: "harbour"}).SetAgents(&livekit.RoomAgentDispatch{AgentName: agentWord}).ToJWT()
	require.NoError(t, err)
	send(t, whipclient.Options{URL: shows.url + "/whip/harbour", Token: asking, Codec: media.VP8, Units: units, FPS: cameraFPS})
	offers.eventually("harbour", func(r map[string]any) bool {
		source, _ := r["source"].(map[string]any)
		return source["identity"] == "tower" && r["newest"] != nil
	})
	require.Nil(t, shows.room("harbour"))

	// When a worker ends, its senders leave; those of other workers stay.
	require.NoError(t, automatic.cmd.Process.Signal(syscall.SIGTERM))
	select {
	case <-automatic.done:
	case <-time.After(startWait):
		require.FailNow(t, "the drain does not end")
	}
	require.Zero(t, automatic.exitCode())
	require.NoError(t, player.Until(later, `['closed', 'failed', 'disconnected'].includes(pc.connectionState)`))
	require.Eventually(t, func() bool { return slices.Equal(h.identities(name), []string{"gate"}) }, later, 50*time.Millisecond)
	for _, line := range slices.Concat(called.lines(), automatic.lines()) {
		require.NotContains(t, line, list.WHIP.Key)
		require.NotContains(t, line, "eyJ", "no token")
	}
}

// playerOffer returns the offer of a player for video.
const playerOffer = "v=0\r\no=- 1 2 IN IP4 127.0.0.1\r\ns=-\r\nt=0 0\r\nm=video 9 UDP/TLS/RTP/SAVPF 96\r\nc=IN IP4 0.0.0.0\r\n" +
	"a=ice-ufrag:abcd\r\na=ice-pwd:0123456789012345678901\r\na=fingerprint:sha-256 00\r\na=setup:actpass\r\na=mid:0\r\na=recvonly\r\n" +
	"a=rtcp-mux\r\na=rtpmap:96 VP8/90000\r\n"
