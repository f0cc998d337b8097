//go:build integration

package bot_test

import (
	"encoding/json"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"touchline/agent"
	"touchline/agent/bot"
	"touchline/configs"
	"touchline/media/source"
	"touchline/media/source/rtsp/rtsptest"
)

// testClip is a moving picture with a key frame each second.
func testClip(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "clip.mp4")
	out, err := exec.CommandContext(t.Context(), "ffmpeg", "-v", "error", "-f", "lavfi", "-i", "testsrc2=size=320x180:rate=15", "-t", "4",
		"-c:v", "libx264", "-preset", "ultrafast", "-tune", "zerolatency", "-pix_fmt", "yuv420p", "-g", "15", path).CombinedOutput()
	require.NoError(t, err, "%s", out)
	return path
}

// call calls the API and returns the answer, which must never have the cameras' password.
func call(t *testing.T, method, url, body string, answer any) (status int, text string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	require.NoError(t, err)
	res, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	defer res.Body.Close()
	all, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	require.NotContains(t, string(all), "hunter2")
	if answer != nil {
		require.NoError(t, json.Unmarshal(all, answer), "%s", all)
	}
	http.DefaultClient.CloseIdleConnections()
	return res.StatusCode, string(all)
}

// A camera is added by the API, watched and commented on, goes away, comes back
// and is removed.
func TestSourcesByTheAPI(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	cfg := configs.Default()
	b, reader := h.bot(cfg, "api", nil)
	sources, err := b.NewSources(bot.SourcesOptions{Allow: source.Allow{Public: true, Private: true, Loopback: true}, LoopbackOnly: true})
	require.NoError(t, err)
	page := h.page(b, cfg)
	h.run("sources", sources.Run)
	h.run("bot", b.Run)

	var list struct {
		Sources []source.Info
		Cameras []source.RoomCamera
		Scene   bool
		WHIP    *source.WHIPEndpoint
	}
	status, _ := call(t, http.MethodGet, page+"api/sources", "", &list)
	require.Equal(t, http.StatusOK, status)
	require.Empty(t, list.Sources)
	require.False(t, list.Scene)
	require.Equal(t, "/whip/api", list.WHIP.Path)
	require.GreaterOrEqual(t, len(list.WHIP.Key), 8)

	for _, tt := range []struct {
		method, path, body, code string
		status                   int
	}{
		{http.MethodPost, "api/sources", `{"url": "/etc/passwd"}`, "not_allowed", http.StatusForbidden},
		{http.MethodPost, "api/sources", `{"url": "http://169.254.169.254/"}`, "not_allowed", http.StatusForbidden},
		{http.MethodPost, "api/sources", `{"url": "gopher://u:hunter2@x"}`, "bad_source", http.StatusUnprocessableEntity},
		{http.MethodPost, "api/sources", `{"uri": "x"}`, "unknown_field", http.StatusBadRequest},
		{http.MethodGet, "api/sources/unknown", ``, "no_source", http.StatusNotFound},
		{http.MethodDelete, "api/sources/unknown", ``, "no_source", http.StatusNotFound},
		{http.MethodPost, "api/sources/unknown/select", ``, "no_source", http.StatusNotFound},
		{http.MethodPut, "api/sources", ``, "method_not_allowed", http.StatusMethodNotAllowed},
	} {
		var problem struct {
			Code    string
			Request string `json:"request_id"`
		}
		status, text := call(t, tt.method, page+tt.path, tt.body, &problem)
		require.Equal(t, tt.status, status, text)
		require.Equal(t, tt.code, problem.Code, text)
		require.NotEmpty(t, problem.Request)
	}

	camera := rtsptest.New(t, "127.0.0.1", testClip(t))
	var x source.Info
	status, text := call(t, http.MethodPost, page+"api/rooms/api/sources", `{"url": "`+camera.URL("admin:hunter2")+`", "name": "Gate"}`, &x)
	require.Equal(t, http.StatusCreated, status, text)
	one := page + "api/sources/" + x.ID
	live := func(want string, watched bool) func() bool {
		return func() bool {
			call(t, http.MethodGet, one, "", &x)
			return x.State == want && x.Watched == watched
		}
	}
	require.Eventually(t, live("live", true), patience, 50*time.Millisecond, "%+v", &x)
	require.Eventually(t, func() bool { return len(reader.Records()) > 0 }, patience, 50*time.Millisecond, "a comment on it")
	require.Equal(t, x.Identity, b.Room.Watcher().Source().Identity)
	call(t, http.MethodGet, page+"api/sources", "", &list)
	require.Len(t, list.Cameras, 1)
	require.Equal(t, source.RoomCamera{Identity: x.Identity, Name: "Gate", Kind: "camera", Watched: true}, list.Cameras[0])

	camera.Off()
	off := time.Now()
	var snap agent.Snapshot
	waits := func() bool {
		snap = agent.Snapshot{}
		call(t, http.MethodGet, page+"api/status", "", &snap)
		return snap.Status.Activity == agent.ActivityWaiting && snap.Status.Detail == snap.Sources[0].Reason && snap.Sources[0].State == "waiting"
	}
	require.Eventually(t, waits, patience, 50*time.Millisecond, "in the bot's own state, with the reason: %+v", &snap)
	t.Logf("waiting for the camera is said %v after it was switched off", time.Since(off).Round(10*time.Millisecond))
	joins := b.Room.Joins()
	time.Sleep(11 * time.Second) // longer than a silent track is borne that says nothing
	require.Equal(t, joins, b.Room.Joins(), "the bot stays in the room while a camera reports that it is away")
	camera.On()
	on := time.Now()
	require.Eventually(t, func() bool { return b.Snapshot().CaptureRunning }, patience, 20*time.Millisecond)
	t.Logf("pictures again %v after it was switched on", time.Since(on).Round(10*time.Millisecond))

	// Another one, which the bot does not watch until it is selected.
	var y source.Info
	status, text = call(t, http.MethodPost, page+"api/sources", `{"url": "`+camera.URL("")+`", "watch": false, "transport": "tcp"}`, &y)
	require.Equal(t, http.StatusCreated, status, text)
	require.Eventually(t, func() bool {
		call(t, http.MethodGet, page+"api/sources/"+y.ID, "", &y)
		return y.State == "live"
	}, patience, 50*time.Millisecond)
	require.False(t, y.Watched)
	status, text = call(t, http.MethodPost, page+"api/sources/"+y.ID+"/select", "", nil)
	require.Equal(t, http.StatusOK, status, text)
	require.Eventually(t, func() bool { return b.Room.Watcher().Source().Identity == y.Identity }, patience, 50*time.Millisecond)

	status, text = call(t, http.MethodPatch, page+"api/sources/"+y.ID, `{"name": "Yard"}`, &y)
	require.Equal(t, http.StatusOK, status, text)
	require.Equal(t, "Yard", y.Name)
	status, _ = call(t, http.MethodDelete, page+"api/sources/"+y.ID, "", nil)
	require.Equal(t, http.StatusNoContent, status)
	require.Eventually(t, live("live", true), patience, 50*time.Millisecond, "the other one is the first camera again: %+v", &x)
	status, _ = call(t, http.MethodDelete, one, "", nil)
	require.Equal(t, http.StatusNoContent, status)
	require.Eventually(t, func() bool { return b.Room.Watcher().Source().Identity == "" }, patience, 50*time.Millisecond)
	call(t, http.MethodGet, page+"api/sources", "", &list)
	require.Empty(t, list.Sources)
	require.Empty(t, list.Cameras)

	// Senders are taken beside the page, each with a key of its own.
	status, text = call(t, http.MethodPost, page+"whip/api", "v=0", nil)
	require.Equal(t, http.StatusUnauthorized, status, text)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, page+"whip/api", strings.NewReader("v=0"))
	require.NoError(t, err)
	r.Header.Set("Content-Type", "application/sdp")
	r.Header.Set("Authorization", "Bearer "+list.WHIP.Key)
	res, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	res.Body.Close()
	require.Equal(t, http.StatusBadRequest, res.StatusCode, "let in, but that is no offer")
	http.DefaultClient.CloseIdleConnections()
}
