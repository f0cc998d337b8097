//go:build integration

package camera_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"touchline/agent/camera"
	"touchline/agent/room"
	"touchline/agent/room/conn"
	"touchline/agent/sfu"
	"touchline/agent/sfu/sfutest"
	"touchline/media"
	"touchline/media/codec"
	"touchline/media/codec/codectest"
	"touchline/media/source"
	"touchline/media/source/catalog"
	"touchline/media/source/rtsp/rtsptest"
	"touchline/worlds"
)

// programPath is where TestMain built touchline-codec from the present sources.
func programPath() string { return codectest.Program() }

func TestMain(m *testing.M) {
	code := codectest.Run(m)
	os.Exit(code)
}

const clipFPS = 15

// clip renders a generated match with its frame counter, four seconds.
func clip(t *testing.T, name string, args ...string) string {
	t.Helper()
	const w, h = 640, 360
	world, err := worlds.New(worlds.Options{Seed: 5, Width: w, Height: h, FPS: clipFPS, Counter: true})
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), name)
	all := append([]string{
		"-v", "error", "-f", "rawvideo", "-pix_fmt", "yuv420p", "-s", "640x360", "-r", strconv.Itoa(clipFPS), "-i", "pipe:0",
	}, args...)
	cmd := exec.CommandContext(t.Context(), "ffmpeg", append(all, path)...)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start(), "apt-get install ffmpeg")
	for n := range uint32(4 * clipFPS) {
		_, err := in.Write(world.Frame(n))
		require.NoError(t, err)
	}
	require.NoError(t, in.Close())
	require.NoError(t, cmd.Wait())
	return path
}

var (
	plain = []string{"-c:v", "libx264", "-preset", "veryfast", "-tune", "zerolatency", "-pix_fmt", "yuv420p", "-g", "15", "-b:v", "2M"}
	bees  = []string{"-c:v", "libx264", "-preset", "fast", "-bf", "2", "-pix_fmt", "yuv420p", "-g", "15", "-b:v", "2M"}
)

// stage is a LiveKit server with a viewer that reads frame counters.
type stage struct {
	server *sfu.Server
	keys   conn.Keys
}

func newStage(t *testing.T, codecs ...string) *stage {
	t.Helper()
	server, _ := sfutest.Start(t, sfu.Options{VideoCodecs: codecs})
	return &stage{server: server, keys: conn.Keys{APIKey: server.APIKey(), APISecret: server.APISecret()}}
}

// run runs f until stop is called, at the latest until the test ends.
func run(t *testing.T, f func(context.Context) error) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- f(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		select {
		case err := <-ended:
			if err != nil && ctx.Err() == nil {
				t.Error(err)
			}
		case <-time.After(2 * time.Minute):
			t.Error("run did not end")
		}
	})
	t.Cleanup(stop)
	return stop
}

// counters watches a participant until it has read n numbers.
func (s *stage) counters(t *testing.T, name, identity string, n int) []uint32 {
	t.Helper()
	var mu sync.Mutex
	var seen []uint32
	dec, err := codec.New(codec.Options{Path: programPath(), OnPicture: func(f media.VideoFrame) {
		if v, ok := worlds.ReadCounter(f); ok {
			mu.Lock()
			seen = append(seen, v)
			mu.Unlock()
		}
	}})
	require.NoError(t, err)
	defer run(t, dec.Run)()
	bot, err := room.New(room.Options{
		URL: s.server.URL(), Keys: s.keys, Room: name, Identity: "viewer", Name: "viewer", LoopbackOnly: true,
		Watch: media.WatchConfig{Identity: identity}, Log: zerolog.Nop(),
	})
	require.NoError(t, err)
	defer run(t, bot.Run)() // the next viewer has the same identity
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	for {
		f, err := bot.Watcher().ReadFrame(ctx)
		require.NoError(t, err)
		if dec.Decode(f, true) != nil {
			bot.Watcher().RequestKeyFrame()
		}
		mu.Lock()
		enough := len(seen) >= n
		mu.Unlock()
		if enough {
			mu.Lock()
			defer mu.Unlock()
			return append([]uint32(nil), seen...)
		}
	}
}

// TestSources brings sources of each kind into a room and reads their frame counters back there.
func TestSources(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	h264, withB := clip(t, "clip.mp4", append(plain, "-movflags", "+faststart")...), clip(t, "bees.mkv", bees...)
	web := httptest.NewServer(http.FileServer(http.Dir(filepath.Dir(h264))))
	t.Cleanup(web.Close)
	tests := []struct {
		name, reason string
		address      func() string
	}{
		{"file", "", func() string { return h264 }},
		{"file with B frames", "B frames", func() string { return withB }},
		{"HTTP video", "", func() string { return web.URL + "/clip.mp4" }},
		{"HTTP MJPEG", "JPEG", func() string { return pictures(t, h264) }},
		{"RTSP", "", func() string { return rtsptest.New(t, "127.0.0.1", h264).URL("") }},
	}
	for i, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			a, err := source.ParseAddress(tt.address())
			require.NoError(t, err)
			p, err := catalog.Open(catalog.Options{Access: source.Access{Address: a, Allow: source.AllowEverything(), Now: time.Now}, Loop: true})
			require.NoError(t, err)
			name := "room-" + strconv.Itoa(i)
			var mu sync.Mutex
			var states []source.Status
			f, err := camera.New(camera.Options{
				URL: s.server.URL(), Keys: s.keys, Room: name, Identity: "camera", Name: "Camera", LoopbackOnly: true, Codec: programPath(),
				OnStatus: func(st source.Status) {
					mu.Lock()
					defer mu.Unlock()
					states = append(states, st)
				},
			})
			require.NoError(t, err)
			run(t, func(ctx context.Context) error { return f.Play(ctx, p, a.Hide) })
			seen := s.counters(t, name, "camera", 30)
			steps := 0
			for i := 1; i < len(seen); i++ {
				if seen[i] == seen[i-1]+1 {
					steps++
				}
			}
			require.Greater(t, steps, 20, "the counter goes on by one: %v", seen)
			require.Contains(t, f.Reason(), tt.reason)
			if tt.reason == "" {
				require.Empty(t, f.Reason())
			}
			mu.Lock()
			defer mu.Unlock()
			require.Equal(t, source.Connecting, states[0].State)
			require.Equal(t, 640, states[len(states)-1].Width)
		})
	}
}

// TestRoomWithoutH264: the picture of an H264 source is transcoded for a room that allows VP8 alone.
func TestRoomWithoutH264(t *testing.T) {
	t.Parallel()
	s := newStage(t, "video/vp8")
	a, err := source.ParseAddress(clip(t, "clip.mp4", append(plain, "-movflags", "+faststart")...))
	require.NoError(t, err)
	p, err := catalog.Open(catalog.Options{Access: source.Access{Address: a, Allow: source.AllowEverything(), Now: time.Now}, Loop: true})
	require.NoError(t, err)
	f, err := camera.New(camera.Options{
		URL: s.server.URL(), Keys: s.keys, Room: "room", Identity: "camera", Name: "Camera", LoopbackOnly: true, Codec: programPath(),
	})
	require.NoError(t, err)
	run(t, func(ctx context.Context) error { return f.Play(ctx, p, a.Hide) })
	s.counters(t, "room", "camera", 30)
	require.Equal(t, "the room does not allow pictures in H264", f.Reason())
}

// pictures has ffmpeg send a clip as JPEG pictures.
func pictures(t *testing.T, path string) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "multipart/x-mixed-replace;boundary=ffmpeg")
		cmd := exec.CommandContext(r.Context(), "ffmpeg", "-v", "error", "-nostdin", "-re", "-stream_loop", "-1", "-i", path,
			"-c:v", "mjpeg", "-q:v", "3", "-f", "mpjpeg", "-flush_packets", "1", "pipe:1")
		cmd.Stdout = flushed{w}
		_ = cmd.Run()
	}))
	t.Cleanup(s.Close)
	return s.URL
}

type flushed struct{ w http.ResponseWriter }

func (f flushed) Write(b []byte) (int, error) {
	n, err := f.w.Write(b)
	_ = http.NewResponseController(f.w).Flush()
	return n, err
}
