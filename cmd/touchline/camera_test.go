//go:build integration && !nodemo

package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"touchline/agent/bot"
	"touchline/agent/room/conn"
	"touchline/agent/sfu"
	"touchline/agent/sfu/sfutest"
	"touchline/configs"
	"touchline/internal/e2e/browser"
	"touchline/internal/redact"
	"touchline/worlds"
)

// The clip of the test camera. From this size on browsers send three spatial
// layers; at 15 pictures a second a small machine can encode four codecs.
const (
	clipWidth, clipHeight = 960, 540
	clipFPS               = 15
	clipSeconds           = 20
)

// makeClip renders a generated match with its frame counter to a file for a browser's fake camera, once for all tests.
var makeClip = sync.OnceValues(func() (path string, err error) {
	world, err := worlds.New(worlds.Options{Seed: 5, Width: clipWidth, Height: clipHeight, FPS: clipFPS, Counter: true})
	if err != nil {
		return "", err
	}
	path, err = filepath.Abs("clip.mjpeg") // in the folder that TestMain removes
	if err != nil {
		return "", err
	}
	return path, encode(world, clipSeconds*clipFPS, "-c:v", "mjpeg", "-q:v", "4", "-pix_fmt", "yuvj420p", path)
})

// encode writes the first pictures of a world with ffmpeg.
func encode(world *worlds.World, pictures uint32, args ...string) error {
	width, height := world.Size()
	cmd := exec.Command("ffmpeg", append([]string{
		"-v", "error", "-f", "rawvideo", "-pix_fmt", "yuv420p", "-s", fmt.Sprintf("%dx%d", width, height),
		"-r", strconv.Itoa(world.FPS()), "-i", "pipe:0",
	}, args...)...)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("apt-get install ffmpeg: %w", err)
	}
	for n := range pictures {
		if _, err := in.Write(world.Frame(n)); err != nil {
			break // Wait says why
		}
	}
	return errors.Join(in.Close(), cmd.Wait())
}

// cameraPage publishes the browser's camera with the defaults of LiveKit's client.
const cameraPage = `<!doctype html><title>camera</title><link rel="icon" href="data:,">
<script type="module">
  import { Room, Track, setLogLevel } from '/livekit-client.js';
  const q = new URLSearchParams(location.search);
  setLogLevel('warn');
  try {
    const stream = await navigator.mediaDevices.getUserMedia({ video: {
      width: Number(q.get('width')), height: Number(q.get('height')), frameRate: Number(q.get('fps')) } });
    const room = new Room();
    await room.connect(q.get('url'), q.get('token'));
    await room.localParticipant.publishTrack(stream.getVideoTracks()[0], {
      source: Track.Source.Camera, videoCodec: q.get('codec'), degradationPreference: 'maintain-resolution' });
    window.published = true;
  } catch (err) {
    window.failed = String(err);
  }
</script>`

// house is a LiveKit server in this process, with the settings of a bot.
type house struct {
	server *sfu.Server
	keys   conn.Keys
	log    zerolog.Logger
}

func newHouse(t *testing.T) *house {
	t.Helper()
	h := &house{log: zerolog.New(os.Stderr).Level(zerolog.WarnLevel)} // the client library may log after the test
	h.server, _ = sfutest.Start(t, sfu.Options{})
	h.keys = conn.Keys{APIKey: h.server.APIKey(), APISecret: h.server.APISecret()}
	return h
}

// env returns the settings of a program for the server.
func (h *house) env() []string {
	return []string{"LIVEKIT_URL=" + h.server.URL(), "LIVEKIT_API_KEY=" + h.keys.APIKey, "LIVEKIT_API_SECRET=" + h.keys.APISecret}
}

// app returns the app of a command in this process.
func (h *house) app() *app {
	cfg := configs.Default()
	lk := &cfg.Agent.LiveKit
	lk.URL, lk.APIKey, lk.APISecret = h.server.URL(), h.keys.APIKey, redact.Secret(h.keys.APISecret)
	return &app{cfg: cfg, log: h.log}
}

// keepRunning runs a function until the test ends.
func keepRunning(t *testing.T, f func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := f(ctx); err != nil && ctx.Err() == nil {
			t.Errorf("a part ended: %v", err)
		}
	})
	t.Cleanup(func() { cancel(); wg.Wait() })
}

// bot runs a commentator with its page in a room. change changes the default settings.
func (h *house) bot(t *testing.T, name string, change ...func(*configs.Config)) (b *bot.Bot, url string) {
	t.Helper()
	cfg := configs.Default()
	for _, f := range change {
		f(&cfg)
	}
	cfg.Agent.LiveKit.URL, cfg.Agent.LiveKit.Room = h.server.URL(), name
	cfg.Agent.Console.Listen = "127.0.0.1:0"
	b, err := bot.New(bot.Options{Settings: cfg.Bot(), Keys: h.keys, LoopbackOnly: true, Log: h.log})
	require.NoError(t, err)
	announced := make(chan string, 1)
	page, err := b.Console(cfg.Agent.Console.Config, func(url string) { announced <- url })
	require.NoError(t, err)
	keepRunning(t, b.Run)
	keepRunning(t, page.Run)
	select {
	case url = <-announced:
	case <-time.After(startWait):
		require.FailNow(t, "the page was not announced")
	}
	return b, url
}

// TestBrowserCamera publishes a browser's camera with each codec; the picture reaches the page in another browser, and with one of
// them words and voice.
func TestBrowserCamera(t *testing.T) {
	clip, err := makeClip()
	require.NoError(t, err)
	h := newHouse(t)
	pages := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/livekit-client.js" {
			http.ServeFile(w, r, filepath.Join(webDist, "static", "vendor", "livekit-client.js"))
			return
		}
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = w.Write([]byte(cameraPage))
	}))
	t.Cleanup(pages.Close)

	for _, c := range []struct {
		codec string
		// layers is the kind of layers in the browser's statistics, relayed the codec at viewers.
		layers, relayed string
	}{
		{codec: "vp8", layers: "L1T3", relayed: "video/VP8"},
		{codec: "h264", layers: "L1T1", relayed: "video/H264"},
		{codec: "vp9", layers: "L3T3_KEY", relayed: "video/H264"},
		{codec: "av1", layers: "L3T3_KEY", relayed: "video/H264"},
	} {
		t.Run(c.codec, func(t *testing.T) {
			name := "camera-" + c.codec
			bot, address := h.bot(t, name, quick)
			token, err := conn.CameraToken(h.keys, conn.Person{Room: name, Identity: "browser"})
			require.NoError(t, err)
			camera := open(t, pages.URL+"/?"+url.Values{
				"url": {h.server.URL()}, "token": {token}, "codec": {c.codec},
				"width": {strconv.Itoa(clipWidth)}, "height": {strconv.Itoa(clipHeight)}, "fps": {strconv.Itoa(clipFPS)},
			}.Encode(), browser.Options{Width: 640, Height: 480, Video: clip})
			require.NoError(t, camera.Until(later, "window.published || window.failed"))
			failed, err := browser.Eval[string](camera, soon, "window.failed")
			require.NoError(t, err)
			require.Empty(t, failed)

			opened := time.Now()
			viewer := open(t, address, browser.Options{})
			plays(t, viewer, later)
			t.Logf("first picture %.1f s after the page was asked for", firstPicture(t, viewer))
			before := counts(t, viewer, 0)
			counts(t, viewer, before)
			if c.codec == "vp8" {
				captioned(t, viewer, later)
				heard(t, viewer, later)
				commented(t, viewer, later)
			}
			t.Logf("all of it %v after the browser was started", time.Since(opened))
			shoot(t, viewer, "camera-"+c.codec)

			source := bot.Snapshot().Source
			// A busy machine may receive a smaller layer.
			assert.GreaterOrEqual(t, source.Width, clipWidth/4)
			assert.InDelta(t, float64(clipWidth)/clipHeight, float64(source.Width)/float64(source.Height), 0.02)
			assert.True(t, strings.EqualFold(c.codec, source.Codec), "got %q", source.Codec)
			sent, err := browser.Eval[string](camera, soon, sending)
			require.NoError(t, err)
			assert.Contains(t, strings.ToLower(sent), "video/"+c.codec)
			assert.Contains(t, sent, c.layers)
			got, err := browser.Eval[string](viewer, soon, receiving)
			require.NoError(t, err)
			assert.Contains(t, got, c.relayed)
			t.Logf("the camera sends %s; the bot watches %dx%d; the viewer gets %s; the page shows %q",
				sent, source.Width, source.Height, got, text(t, viewer, "#list"))
			assert.Empty(t, problems(viewer))
		})
	}
}

// sending and receiving return the browser's statistics of its video.
const (
	sending = `(async () => { const out = []; for (const pc of spy.pcs) { const all = await pc.getStats();
		for (const s of all.values()) if (s.type === 'outbound-rtp' && s.kind === 'video' && s.framesEncoded > 0)
			out.push([all.get(s.codecId)?.mimeType, s.scalabilityMode, s.frameWidth + 'x' + s.frameHeight, Math.round(s.framesPerSecond) + '/s'].join(' ')); }
		return out.join(', ') })()`
	receiving = `(async () => { const out = []; for (const pc of spy.pcs) { const all = await pc.getStats();
		for (const s of all.values()) if (s.type === 'inbound-rtp' && s.kind === 'video')
			out.push([all.get(s.codecId)?.mimeType, s.frameWidth + 'x' + s.frameHeight, s.framesDecoded + ' decoded', s.framesDropped + ' dropped',
				s.freezeCount + ' freezes', s.pliCount + ' PLI'].join(' ')); }
		return out.join(', ') })()`
)
