//go:build integration

package camera_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"touchline/agent/camera"
	"touchline/agent/room"
	"touchline/agent/settings"
	"touchline/media/source"
	"touchline/media/source/rtsp/rtsptest"
	"touchline/media/source/transcode"
)

func newManager(t *testing.T, s *stage, name string, allow source.Allow) *camera.Manager {
	t.Helper()
	m, err := camera.NewManager(camera.ManagerOptions{
		Feed:  camera.Options{URL: s.server.URL(), Keys: s.keys, Room: name, LoopbackOnly: true, Codec: programPath(), Log: zerolog.Nop()},
		Allow: allow, Max: 2, Log: zerolog.Nop(),
	})
	require.NoError(t, err)
	return m
}

// becomes waits until a source is in a state.
func becomes(t *testing.T, m *camera.Manager, id, state string) source.Info {
	t.Helper()
	var last source.Info
	require.Eventually(t, func() bool {
		for _, x := range m.Sources() {
			if x.ID == id {
				last = x
			}
		}
		return last.State == state
	}, 2*time.Minute, 20*time.Millisecond, "want %s, it is %+v", state, &last)
	return last
}

func TestManagerRefuses(t *testing.T) {
	s := newStage(t)
	m := newManager(t, s, "refusals", source.AllowCameras())
	run(t, m.Run)
	tests := []struct {
		name, url string
		change    func(*source.Request)
		is        error
		says      string
	}{
		{name: "loopback", url: "rtsp://u:hunter2@127.0.0.1/x", is: source.ErrNotAllowed, says: "this machine"},
		{name: "loopback by name", url: "http://localhost/x", is: source.ErrNotAllowed, says: "this machine"},
		{name: "loopback in IPv6", url: "http://[::1]/x", is: source.ErrNotAllowed, says: "this machine"},
		{name: "loopback in IPv6's clothes", url: "http://[::ffff:127.0.0.1]/x", is: source.ErrNotAllowed, says: "this machine"},
		{name: "cloud's secrets", url: "http://169.254.169.254/latest", is: source.ErrNotAllowed, says: "link-local"},
		{name: "file", url: "/etc/passwd", is: source.ErrNotAllowed, says: "command line only"},
		{name: "file's URL", url: "file:///etc/passwd", is: source.ErrNotAllowed, says: "command line only"},
		{name: "device", url: "/dev/video0", is: source.ErrNotAllowed, says: "command line only"},
		{name: "webcam", url: "webcam", is: source.ErrNotAllowed, says: "command line only"},
		{name: "nothing", url: "", says: "url: expected a camera's URL, a device or a file, got nothing"},
		{name: "line break", url: "new\nline.mp4", says: "url: expected an address or a file without line breaks"},
		{name: "another scheme", url: "gopher://u:hunter2@x/", says: "url: "},
		{name: "transport", url: "rtsp://10.0.0.1/x", change: func(n *source.Request) { n.Transport = "pigeon" }, says: "transport: expected"},
		{name: "name", url: "rtsp://10.0.0.1/x", change: func(n *source.Request) { n.Name = strings.Repeat("x", 65) }, says: "name: expected"},
		{name: "control characters", url: "rtsp://10.0.0.1/x", change: func(n *source.Request) { n.Name = "a\nb" }, says: "name: expected"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := source.Request{URL: tt.url}
			if tt.change != nil {
				tt.change(&w)
			}
			_, err := m.Add(w, "test")
			require.ErrorContains(t, err, tt.says)
			require.NotContains(t, err.Error(), "hunter2")
			if tt.is != nil {
				require.ErrorIs(t, err, tt.is)
			} else {
				_, ok := err.(*settings.RangeError) //nolint:errorlint // it is not wrapped
				require.True(t, ok)
			}
		})
	}
	require.Empty(t, m.Sources())
	_, err := m.Change("unknown", source.Change{}, "test")
	require.ErrorIs(t, err, source.ErrNotFound)
	require.ErrorIs(t, m.Remove(t.Context(), "unknown", "test"), source.ErrNotFound)

	for range 2 {
		_, err := m.Add(source.Request{URL: "rtsp://10.255.255.1/x"}, "test")
		require.NoError(t, err)
	}
	_, err = m.Add(source.Request{URL: "rtsp://10.255.255.1/x"}, "test")
	require.ErrorIs(t, err, source.ErrTooMany)
}

// What is really dialled is judged: a server that may be reached leads to one that may not.
func TestManagerJudgesWhatIsDialled(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	m := newManager(t, s, "redirects", source.Allow{Loopback: true})
	run(t, m.Run)
	asked := make(chan struct{}, 100)
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked <- struct{}{}
		http.Redirect(w, r, "http://169.254.169.254/latest/meta-data", http.StatusFound)
	}))
	t.Cleanup(web.Close)
	x, err := m.Add(source.Request{URL: web.URL + "/video?token=hunter2"}, "test")
	require.NoError(t, err)
	got := becomes(t, m, x.ID, "failed")
	require.Contains(t, got.Reason, "it is link-local", "the server is named in the log only")
	require.NotContains(t, got.Reason, "169.254.169.254")
	require.NotEmpty(t, asked)
	require.NotContains(t, got.Address+got.Name+got.Reason, "hunter2")
	require.Equal(t, strings.TrimPrefix(web.URL, "http://"), got.Name, "no path, which may be a stream key")
}

func TestManagerAddsChangesAndRemoves(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	m := newManager(t, s, "sources", source.AllowEverything())
	run(t, m.Run)
	path := clip(t, "clip.mp4", plain...)
	camera := rtsptest.New(t, "127.0.0.1", path)
	x, err := m.Add(source.Request{URL: camera.URL("admin:hunter2"), Name: "Gate"}, "test")
	require.NoError(t, err)
	require.Equal(t, "rtsp", x.Kind)
	require.Contains(t, x.Address, "rtsp://127.0.0.1:")
	require.NotContains(t, x.Address, "hunter2")
	becomes(t, m, x.ID, "live")
	require.NotEmpty(t, s.counters(t, "sources", x.Identity, 10))
	got := becomes(t, m, x.ID, "live")
	require.Equal(t, "H264", got.Codec)
	require.Equal(t, 640, got.Width)
	require.Positive(t, got.FPS)
	require.InDelta(t, 1, got.KeyFrameInterval, 0.1)
	require.Positive(t, got.BitRate)

	camera.Off()
	got = becomes(t, m, x.ID, "waiting")
	require.NotEmpty(t, got.Reason)
	require.Zero(t, got.FPS)
	camera.On()
	becomes(t, m, x.ID, "live")

	// Another camera for the same participant: its identity stays.
	bees := clip(t, "bees.mkv", bees...)
	y, err := m.Change(x.ID, source.Change{URL: &bees, Name: ptr("Clip")}, "test")
	require.NoError(t, err)
	require.Equal(t, "file", y.Kind)
	require.Equal(t, x.Identity, y.Identity)
	require.Eventually(t, func() bool {
		got := becomes(t, m, x.ID, "live")
		return strings.Contains(got.Transcoded, "B frames")
	}, 2*time.Minute, 50*time.Millisecond)
	require.NotEmpty(t, s.counters(t, "sources", x.Identity, 10))
	_, err = m.Change(x.ID, source.Change{URL: &path}, "test")
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		got := becomes(t, m, x.ID, "live")
		return got.Transcoded == "" && got.Address == "clip.mp4"
	}, 2*time.Minute, 50*time.Millisecond, "the next one has no B frames")

	gone := "/nowhere.mp4"
	_, err = m.Change(x.ID, source.Change{URL: &gone}, "test")
	require.NoError(t, err)
	require.Contains(t, becomes(t, m, x.ID, "waiting").Reason, "does not exist")
	_, err = m.Change(x.ID, source.Change{URL: &path}, "test")
	require.NoError(t, err)
	becomes(t, m, x.ID, "live")

	require.NoError(t, m.Remove(t.Context(), x.ID, "test"))
	require.Empty(t, m.Sources())
}

func ptr[T any](v T) *T { return &v }

// An IP camera whose key frames are ten seconds apart is named with what to set
// at it, and transcoded from its next key frame on, unless the settings say no.
func TestManagerNamesSlowKeyFrames(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	path := clip(t, "slow.mp4", append(plain, "-g", "250", "-keyint_min", "250", "-sc_threshold", "0")...)
	for _, tt := range []struct {
		mode       transcode.Mode
		transcoded string
	}{{transcode.Auto, "key frames are too far apart"}, {transcode.Off, ""}} {
		t.Run(string(tt.mode), func(t *testing.T) {
			t.Parallel()
			name := "slow-" + string(tt.mode)
			m, err := camera.NewManager(camera.ManagerOptions{
				Feed: camera.Options{
					URL: s.server.URL(), Keys: s.keys, Room: name, LoopbackOnly: true, Codec: programPath(), Mode: tt.mode, Log: zerolog.Nop(),
				},
				Allow: source.AllowEverything(), Log: zerolog.Nop(),
			})
			require.NoError(t, err)
			run(t, m.Run)
			x, err := m.Add(source.Request{URL: rtsptest.New(t, "127.0.0.1", path).URL("")}, "test")
			require.NoError(t, err)
			// A viewer requests key frames, as the bot does: the server forwards them as PLI.
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			watching := make(chan struct{})
			bot, err := room.New(room.Options{
				URL: s.server.URL(), Keys: s.keys, Room: name, Identity: "viewer", Name: "viewer", LoopbackOnly: true, Log: zerolog.Nop(),
			})
			require.NoError(t, err)
			run(t, bot.Run)
			go func() {
				defer close(watching)
				tick := time.NewTicker(500 * time.Millisecond)
				defer tick.Stop()
				for {
					select {
					case <-ctx.Done():
						return
					case <-tick.C:
						bot.Watcher().RequestKeyFrame()
					}
				}
			}()
			defer func() { stop(); <-watching }()
			var got source.Info
			require.Eventually(t, func() bool {
				got = becomes(t, m, x.ID, "live")
				return got.Advice != "" && strings.Contains(got.Transcoded, tt.transcoded) && (tt.transcoded == "") == (got.Transcoded == "")
			}, 2*time.Minute, 50*time.Millisecond, "%+v", &got)
			require.Contains(t, got.Advice, "I-frame interval")
			require.Contains(t, got.Advice, "cannot be asked")
			t.Logf("%s / %s", got.Advice, got.Transcoded)
			if tt.transcoded == "" {
				return
			}
			// Now each request is answered: many key frames come within the time of one.
			keys := bot.Watcher().Stats().KeyFrames
			require.Eventually(t, func() bool {
				f, err := bot.Watcher().ReadFrame(ctx)
				return err == nil && !f.Received.IsZero() && bot.Watcher().Stats().KeyFrames >= keys+4
			}, 2*time.Minute, time.Millisecond)
		})
	}
}
