//go:build integration

package bot_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"touchline/agent"
	"touchline/agent/bot"
	"touchline/agent/camera"
	"touchline/configs"
	"touchline/internal/e2e/stage"
)

// TestWorlds changes the generated world while the bot comments on it: by the
// profile until a world is chosen, then by choice alone.
func TestWorlds(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	worlds, err := camera.NewWorlds(camera.DemoOptions{
		URL: h.url, Keys: h.keys, Room: "worlds", Identity: "scene", Width: 640, Height: 360, FPS: 15, Seed: 5, LoopbackOnly: true, Log: zerolog.Nop(),
	})
	require.NoError(t, err)
	cfg := configs.Default()
	cfg.Agent.LiveKit.URL, cfg.Agent.LiveKit.Room = h.url, "worlds"
	cfg.Agent.Profile = "security"
	reader := &stage.Reader{}
	b, err := bot.New(bot.Options{
		Settings: cfg.Bot(), Keys: h.keys, BuiltIn: "scene", Worlds: worlds, LoopbackOnly: true, Texts: []agent.TextOutput{reader}, Log: zerolog.Nop(),
	})
	require.NoError(t, err)
	page := h.page(b, cfg)
	h.run("worlds", worlds.Run)
	h.run("bot", b.Run)

	var snap agent.Snapshot
	shows := func(world, previous string) {
		t.Helper()
		require.Eventually(t, func() bool {
			snap = agent.Snapshot{}
			call(t, http.MethodGet, page+"api/status", "", &snap)
			return snap.World != nil && snap.World.Name == world && snap.Source.Width > 0 && snap.Source.Track != previous && snap.CaptureRunning
		}, patience, 50*time.Millisecond, "%+v", &snap)
	}
	post := func(path, body string, want int) {
		t.Helper()
		began := time.Now()
		status, text := call(t, http.MethodPost, page+path, body, nil)
		require.Equal(t, want, status, text)
		t.Logf("%s %s took %v", path, body, time.Since(began).Round(time.Millisecond))
	}
	said := func() {
		t.Helper()
		from, n := time.Now(), len(reader.Records())
		require.Eventually(t, func() bool { return len(reader.Records()) > n+1 }, patience, 50*time.Millisecond, "the commentary goes on")
		t.Logf("commented after %v", time.Since(from).Round(10*time.Millisecond))
	}

	shows("yard", "") // the natural scene of the profile
	require.Equal(t, []string{"match", "yard"}, snap.Worlds)
	require.Empty(t, snap.World.Teams)
	said()
	yard := snap.Source.Track
	post("api/profiles", `{"profile":"nature"}`, http.StatusOK)
	shows("yard", "")
	require.Equal(t, yard, snap.Source.Track, "nature has no scene of its own")
	post("api/profiles", `{"profile":"sports"}`, http.StatusOK)
	shows("match", yard)
	require.Len(t, snap.World.Teams, 2)
	said()

	match := snap.Source.Track
	post("api/source", `{"source":"world:yard"}`, http.StatusOK)
	shows("yard", match)
	said()
	yard = snap.Source.Track
	post("api/profiles", `{"profile":"sports"}`, http.StatusOK)
	shows("yard", "")
	require.Equal(t, yard, snap.Source.Track, "a person has chosen the yard")
	post("api/source", `{"source":"world:moon"}`, http.StatusBadRequest)
	_, text := call(t, http.MethodPost, page+"api/source", `{"source":"world:moon"}`, nil)
	require.True(t, strings.Contains(text, "match") && strings.Contains(text, "yard"), text)

	// Another camera is watched: a world is no longer described, and profiles change nothing.
	h.camera("worlds", "")
	post("api/source", `{"source":"camera:camera"}`, http.StatusOK)
	require.Eventually(t, func() bool { return b.Snapshot().Source.Identity == "camera" && b.Snapshot().World == nil }, patience, 50*time.Millisecond)
	require.Equal(t, "yard", worlds.Present().World.Name())
	post("api/source", `{"source":"scene"}`, http.StatusOK)
	shows("yard", "")
}
