package whep_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/pion/webrtc/v4"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"touchline/agent"
	"touchline/agent/access"
	"touchline/agent/command"
	"touchline/agent/console"
	"touchline/agent/events"
	"touchline/agent/settings"
	"touchline/agent/whep"
	"touchline/media"
	"touchline/media/signaling"
	"touchline/media/source/whip"
	"touchline/media/window"
)

// served is a server of players that the stage runs.
type served struct{ *whep.Server }

func (served) Run(ctx context.Context) error { <-ctx.Done(); return nil }

// obedient is a bot that takes all orders.
type obedient struct{ agent.Steerer }

func (obedient) Snapshot() agent.Snapshot { return agent.Snapshot{} }

func (obedient) Change(command.Change, string) (settings.Settings, error) {
	return settings.Settings{}, nil
}

func (obedient) Command(command.Command, string) (command.Done, error) { return command.Done{}, nil }

// TestNormalUseMeetsNoLimit: behind one proxy, which is not trusted, 20 viewers with one link, 5 of them by WHEP, 5 moderators and 4 senders
// that reconnect are refused nothing.
func TestNormalUseMeetsNoLimit(t *testing.T) {
	t.Parallel()
	s := newStage(t, func(o *whep.Options) {
		o.Bounds = signaling.Bounds{ConnectTime: patience} // the usual ones
	})
	senders, err := whip.New(whip.Options{
		Keys: keysOf(4), Open: func(*whip.Session) (whip.Place, error) { return whip.Place{}, nil },
		PortOptions: signaling.PortOptions{LoopbackOnly: true}, Bounds: signaling.Bounds{ConnectTime: patience}, Now: time.Now,
	})
	require.NoError(t, err)
	keys := access.Keys{APIKey: "key", APISecret: "a secret of thirty-two characters or more"}
	hub := events.NewHub(events.Options{History: -1})
	registry, opened := prometheus.NewRegistry(), make(chan string, 1)
	page, err := console.New(console.Options{
		Config: console.Config{Listen: "127.0.0.1:0", Token: "correct-horse-battery"}, Keys: keys, Registry: registry, WebDir: t.TempDir(),
		Room: console.Room{Name: "match", Bot: obedient{}, Hub: hub}, WHEP: served{s.Server}, WHIP: senders,
		Announce: func(u string) { opened <- u }, Log: zerolog.Nop(),
	})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var running errgroup.Group
	running.Go(func() error { return page.Run(ctx) })
	running.Go(func() error { return senders.Run(ctx) })
	t.Cleanup(func() { cancel(); require.NoError(t, running.Wait()) })
	target, err := url.Parse(<-opened)
	require.NoError(t, err)
	s.api.Config.Handler = &httputil.ReverseProxy{Rewrite: func(p *httputil.ProxyRequest) { p.SetURL(target) }, FlushInterval: -1}
	require.Eventually(t, func() bool { return senders.UDPPort() > 0 }, patience, time.Millisecond)

	sign := func(r access.Rights) string {
		token, err := access.Sign(keys, access.Grant{Rooms: []string{"match"}, Rights: r, Expires: time.Now().Add(time.Hour)}, time.Now())
		require.NoError(t, err)
		return token
	}
	watch, steer := sign(access.Watch), sign(access.AllInRoom)
	frames := make([]window.Frame, 20)
	for i := range frames {
		frames[i] = window.Frame{ID: uint64(i + 1), VideoFrame: black()}
	}
	require.Eventually(t, func() bool {
		hub.Frames(1, frames)
		resp, _ := s.request(t, http.MethodGet, "/api/frames/20", "", "Authorization", "Bearer "+watch)
		return resp.StatusCode == http.StatusOK
	}, patience, 50*time.Millisecond)

	var people errgroup.Group
	visit := func(token string, rounds int, each func(c *guest)) {
		people.Go(func() error {
			c := &guest{api: s.api.URL, token: token}
			for _, path := range []string{"/api/events", "/api/stream"} { // until the end of the test
				c.open(t, path)
			}
			for _, path := range []string{"status", "profiles", "settings", "history", "rights", "rules", "alerts", "sources", "profiles", "status"} {
				c.ask(http.MethodGet, "/api/"+path, "")
			}
			for i := range frames { // the pictures of past comments
				c.ask(http.MethodGet, fmt.Sprintf("/api/frames/%d?w=160", i+1), "")
			}
			for range rounds {
				each(c)
			}
			return c.err
		})
	}
	for range 20 {
		visit(watch, 5, func(c *guest) {
			c.ask(http.MethodGet, "/api/frames/20?w=160", "")
			c.ask(http.MethodGet, "/api/status", "")
		})
	}
	for range 5 {
		visit(steer, 10, func(c *guest) { c.ask(http.MethodPost, "/api/instruction", `{"instruction": "x"}`) })
	}
	offer, err := os.ReadFile("../../media/source/whip/testdata/obs-30.sdp")
	require.NoError(t, err)
	for _, key := range keysOf(4) {
		people.Go(func() error {
			c := &guest{api: s.api.URL, token: key.Key}
			for range 4 { // the first time, and three again
				c.ask(http.MethodPost, "/whip/match", string(offer))
			}
			return c.err
		})
	}
	for range 5 {
		p := newPlayer(t, webrtc.MimeTypeH264)
		resp, body := s.request(t, http.MethodPost, "/whep/match", p.offer, "Content-Type", "application/sdp", "Authorization", "Bearer "+watch)
		require.Equal(t, http.StatusCreated, resp.StatusCode, body)
	}
	require.Len(t, s.Sessions(), 5) // these players never connect, so their sessions end after a time
	require.NoError(t, people.Wait())

	families, err := registry.Gather()
	require.NoError(t, err)
	seen := 0
	for _, f := range families {
		if f.GetName() == "touchline_limit_refused_total" {
			for _, m := range f.GetMetric() {
				require.Zero(t, m.GetCounter().GetValue(), m)
				seen++
			}
		}
	}
	require.Greater(t, seen, 10)
}

func keysOf(n int) (out []whip.StreamKey) {
	for i := range n {
		out = append(out, whip.StreamKey{Key: fmt.Sprintf("stream-key-%d", i), Room: "match", Identity: fmt.Sprintf("camera-%d", i)})
	}
	return out
}

func black() media.VideoFrame {
	return media.VideoFrame{Width: 320, Height: 180, Pix: make([]byte, 3*320*180)}
}

// guest is a client with a token. err is its first refusal.
type guest struct {
	api, token string
	err        error
}

func (c *guest) send(method, path, body string) *http.Response {
	req, err := http.NewRequest(method, c.api+path, strings.NewReader(body))
	if err == nil {
		req.Header.Set("Authorization", "Bearer "+c.token)
		if strings.HasPrefix(path, "/whip/") {
			req.Header.Set("Content-Type", "application/sdp")
		}
		var resp *http.Response
		if resp, err = http.DefaultClient.Do(req); err == nil {
			if resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode == http.StatusServiceUnavailable {
				err = fmt.Errorf("%s %s: %s", method, path, resp.Status)
			}
			if c.err == nil {
				c.err = err
			}
			return resp
		}
	}
	c.err = err
	return nil
}

func (c *guest) ask(method, path, body string) {
	if resp := c.send(method, path, body); resp != nil {
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
	}
}

func (c *guest) open(t *testing.T, path string) {
	t.Helper()
	if resp := c.send(http.MethodGet, path, ""); resp != nil {
		t.Cleanup(func() { _ = resp.Body.Close() })
	}
}
