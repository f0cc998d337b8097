//go:build integration && !nodemo

package main

import (
	"context"
	"crypto/tls"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"touchline/agent/camera"
	"touchline/agent/sfu"
	"touchline/agent/sfu/sfutest"
	"touchline/configs"
	"touchline/internal/redact"
	"touchline/media/signaling"
	"touchline/media/source/whip"
)

// cameraApp returns the app of the command, with a LiveKit server that runs until the test ends.
func cameraApp(t *testing.T) *app {
	t.Helper()
	server, _ := sfutest.Start(t, sfu.Options{})
	cfg := configs.Default()
	lk := &cfg.Agent.LiveKit
	lk.URL, lk.Room, lk.APIKey, lk.APISecret = server.URL(), "match", server.APIKey(), redact.Secret(server.APISecret())
	return &app{cfg: cfg, log: zerolog.Nop()}
}

func newCameraCmd(source string) *cameraCmd {
	return &cameraCmd{
		Source: source, Identity: "camera", Name: "Camera", Allow: []string{"all"},
		openFlags: openFlags{Transport: "auto", Size: "1280x720", FPS: 30},
	}
}

func TestCameraCommandPlaysAFile(t *testing.T) {
	t.Parallel()
	a := cameraApp(t)
	path := filepath.Join(t.TempDir(), "clip.mp4")
	out, err := exec.CommandContext(t.Context(), "ffmpeg", "-v", "error", "-f", "lavfi", "-i", "testsrc2=size=320x180:rate=25", "-t", "2",
		"-c:v", "libx264", "-preset", "ultrafast", "-tune", "zerolatency", "-pix_fmt", "yuv420p", path).CombinedOutput()
	require.NoError(t, err, string(out))
	c := newCameraCmd(path)
	c.Once = true
	began := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	require.NoError(t, c.Run(ctx, a))
	require.GreaterOrEqual(t, time.Since(began), 1500*time.Millisecond, "at its own pace")
	require.NoError(t, ctx.Err())
}

func TestCameraCommandRefuses(t *testing.T) {
	a := cameraApp(t)
	text := filepath.Join(t.TempDir(), "x.txt")
	require.NoError(t, os.WriteFile(text, []byte("no video"), 0o600))
	for _, tt := range []struct {
		source, says string
		change       func(*cameraCmd)
	}{
		{"", "name either a source", nil},
		{"rtmp://u:hunter2@x/", "rtsp, rtsps, http, https or file", nil},
		{text, "look at the video", nil},
		{"/nowhere.mp4", "no such file", nil},
		{text, "command line only", func(c *cameraCmd) { c.Allow = []string{"public"} }},
		{"rtsp://admin:hunter2@127.0.0.1:1/x", "may not be opened", func(c *cameraCmd) { c.Allow = []string{"private"} }},
		{text, `got "moon"`, func(c *cameraCmd) { c.Allow = []string{"moon"} }},
		{"webcam", "--size", func(c *cameraCmd) { c.Size = "big" }},
		{"", "--whip-key 1: too short", func(c *cameraCmd) { c.Whip, c.WhipKeys = "127.0.0.1:0", []string{"short"} }},
	} {
		c := newCameraCmd(tt.source)
		if tt.change != nil {
			tt.change(c)
		}
		ctx, cancel := context.WithTimeout(t.Context(), soon)
		err := c.Run(ctx, a)
		cancel()
		require.ErrorContains(t, err, tt.says)
		require.NotContains(t, err.Error(), "hunter2")
	}
}

// TestStreamKeysOfTheEnvironment are hidden from the list of processes.
func TestStreamKeysOfTheEnvironment(t *testing.T) {
	c := newCameraCmd("")
	c.WhipKeys, c.Identity = []string{"key-of-the-flag"}, "camera"
	keys, err := c.keys("match", camera.WHIPConfig{Keys: "left=key-of-the-left,other/right=key-of-the-right"})
	require.NoError(t, err)
	require.Equal(t, []whip.StreamKey{
		{Key: "key-of-the-left", Room: "match", Identity: "left", Name: "left"},
		{Key: "key-of-the-flag", Room: "match", Identity: "camera", Name: c.Name},
	}, keys)
}

// A program whose source can never work ends with exit code 1; one whose camera is away goes on.
func TestFirstSourceEndsTheProgram(t *testing.T) {
	t.Parallel()
	p := launch(t, nil, "demo", "--source", t.TempDir(), "--listen", "127.0.0.1:0")
	select {
	case <-p.done:
	case <-time.After(startWait):
		require.Fail(t, "it goes on")
	}
	require.Equal(t, 1, p.exitCode())
	p = launch(t, nil, "demo", "--source", "rtsp://user:password@127.0.0.1:1/x", "--listen", "127.0.0.1:0")
	p.says(t, "Touchline is on the air")
	p.interrupt(t)
	require.Zero(t, p.exitCode())
}

func TestCameraCommandTakesWHIP(t *testing.T) {
	t.Parallel()
	a := cameraApp(t)
	a.cfg.Agent.Console.ICE = signaling.ICEConfig{
		Servers: []string{"stun:stun.example.org", "turn:turn.example.org?transport=tcp"}, Username: "us", Credential: "turn word",
	}
	for _, scheme := range []string{"http", "https"} {
		t.Run(scheme, func(t *testing.T) {
			t.Parallel()
			address := freeAddress(t)
			c := newCameraCmd("")
			c.Whip, c.WhipKeys, c.TLS = address, []string{"left=a-good-long-key"}, scheme == "https"
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- c.Run(ctx, a) }()
			transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
			defer transport.CloseIdleConnections()
			ask := func(method, token string) (status int, links []string) {
				r, err := http.NewRequestWithContext(t.Context(), method, scheme+"://"+address+"/whip/match", strings.NewReader("x"))
				require.NoError(t, err)
				r.Header.Set("Content-Type", "application/sdp")
				r.Header.Set("Authorization", "Bearer "+token)
				resp, err := transport.RoundTrip(r)
				if err != nil {
					return 0, nil
				}
				resp.Body.Close()
				return resp.StatusCode, resp.Header.Values("Link")
			}
			require.Eventually(t, func() bool {
				status, _ := ask(http.MethodPost, "wrong")
				return status == http.StatusUnauthorized
			}, 2*time.Minute, 20*time.Millisecond)
			status, _ := ask(http.MethodPost, "a-good-long-key")
			require.Equal(t, http.StatusBadRequest, status, "let in, but that is no offer")
			_, links := ask(http.MethodOptions, "a-good-long-key")
			require.Equal(t, []string{
				`<stun:stun.example.org>; rel="ice-server"`,
				`<turn:turn.example.org?transport=tcp>; rel="ice-server"; username="us"; credential="turn word"; credential-type="password"`,
			}, links)
			_, links = ask(http.MethodOptions, "wrong")
			require.Empty(t, links, "strangers are told of no relay")
			if scheme == "http" {
				requireBounded(t, address)
			}
			cancel()
			require.NoError(t, <-ended)
		})
	}
}
