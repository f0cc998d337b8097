package whep_test

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"github.com/pion/webrtc/v4"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"touchline/agent"
	"touchline/agent/access"
	"touchline/agent/alert"
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

// tokens makes tokens that nobody checks.
type tokens struct{}

func (tokens) Mint(_, name string, _ access.Grant) (console.Grant, error) {
	return console.Grant{Token: "token", Identity: name, Room: "match"}, nil
}

// TestNormalUseMeetsNoLimit: behind one proxy, 20 viewers with one link and 5 players with it, 5 moderators and 4 senders that reconnect are
// refused nothing. All log in by the page. The proxy is trusted, so that they have addresses of their own, or it is not.
func TestNormalUseMeetsNoLimit(t *testing.T) {
	t.Parallel()
	for name, trusted := range map[string][]string{"trusted proxy": {"127.0.0.1"}, "another proxy": nil} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			normalUse(t, trusted)
		})
	}
}

func normalUse(t *testing.T, trusted []string) {
	t.Helper()
	s := newStage(t, func(o *whep.Options) {
		o.Bounds = signaling.Bounds{ConnectTime: patience} // the usual ones
	})
	senders, err := whip.New(whip.Options{
		Keys: keysOf(4), Open: func(*whip.Session) (whip.Place, error) { return whip.Place{}, nil },
		PortOptions: signaling.PortOptions{LoopbackOnly: true}, Bounds: signaling.Bounds{ConnectTime: patience}, Now: time.Now,
	})
	require.NoError(t, err)
	rules, err := alert.NewSet(alert.Config{})
	require.NoError(t, err)
	const operator = "correct-horse-battery"
	keys := access.Keys{APIKey: "key", APISecret: "a secret of thirty-two characters or more"}
	hub := events.NewHub(events.Options{History: -1})
	registry, opened := prometheus.NewRegistry(), make(chan string, 1)
	page, err := console.New(console.Options{
		Config: console.Config{Listen: "127.0.0.1:0", Token: operator, TrustedProxies: trusted}, Keys: keys, Registry: registry,
		Room: console.Room{Name: "match", Bot: obedient{}, Hub: hub, Rules: rules, Tokens: tokens{}},
		WHEP: served{s.Server}, WHIP: senders, SignalURL: signalling(t), WebDir: t.TempDir(),
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
	between := &http.Transport{}
	t.Cleanup(between.CloseIdleConnections)
	s.api.Config.Handler = &httputil.ReverseProxy{FlushInterval: -1, Transport: between, Rewrite: func(p *httputil.ProxyRequest) {
		p.SetURL(target)
		p.Out.Host = p.In.Host
		p.SetXForwarded()
	}}
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
		_, ok := hub.Frame(20)
		return ok
	}, patience, 50*time.Millisecond)

	var people errgroup.Group
	guests := 0
	visit := func(token string, each func(c *guest)) {
		guests++
		c := newGuest(t, s.api.URL, guests)
		people.Go(func() error {
			c.ask(http.StatusNoContent, http.MethodPost, "/api/login", `{"token": "`+token+`"}`)
			for _, path := range []string{"/api/events", "/api/stream"} { // until the end of the test
				c.open(t, path)
			}
			for _, path := range []string{"status", "profiles", "history", "rights", "rules", "alerts", "profiles", "status"} {
				c.ask(http.StatusOK, http.MethodGet, "/api/"+path, "")
			}
			c.ask(http.StatusOK, http.MethodPost, "/api/livekit/token", `{"role": "viewer", "name": "Ann"}`)
			c.join(t)
			for i := range frames { // the pictures of past comments
				c.ask(http.StatusOK, http.MethodGet, fmt.Sprintf("/api/frames/%d?w=160", i+1), "")
			}
			for range 10 {
				each(c)
			}
			return c.err
		})
	}
	for range 20 {
		visit(watch, func(c *guest) {
			c.ask(http.StatusOK, http.MethodGet, "/api/frames/20?w=160", "")
			c.ask(http.StatusOK, http.MethodGet, "/api/status", "")
			time.Sleep(250 * time.Millisecond) // no comments follow faster
		})
	}
	for i := range 5 {
		token := steer
		if i == 0 {
			token = operator
		}
		visit(token, func(c *guest) {
			c.ask(http.StatusOK, http.MethodPost, "/api/instruction", `{"instruction": "x"}`)
			c.ask(http.StatusOK, http.MethodGet, "/api/settings", "")
			time.Sleep(250 * time.Millisecond) // no person is faster for long
		})
	}
	offer, err := os.ReadFile("../../media/source/whip/testdata/obs-30.sdp")
	require.NoError(t, err)
	for i, key := range keysOf(4) {
		c := newGuest(t, s.api.URL, 50+i)
		c.token = key.Key
		people.Go(func() error {
			for range 4 { // the first time, and three again
				c.ask(http.StatusCreated, http.MethodPost, "/whip/match", string(offer))
			}
			return c.err
		})
	}
	var players []*player
	for i := range 5 {
		p, c := newPlayer(t, webrtc.MimeTypeH264), newGuest(t, s.api.URL, 60+i)
		c.token = watch
		answer := c.ask(http.StatusCreated, http.MethodPost, "/whep/match", p.offer)
		require.NoError(t, c.err)
		require.NoError(t, p.pc.SetRemoteDescription(webrtc.SessionDescription{Type: webrtc.SDPTypeAnswer, SDP: answer}))
		players = append(players, p)
	}
	require.NoError(t, people.Wait())
	require.Len(t, s.Sessions(), 5)
	for _, p := range players {
		require.Eventually(t, func() bool { pictures, _, sounds, _ := p.seen(); return pictures > 0 && sounds > 0 }, patience, 10*time.Millisecond)
	}
	requireNoRefusal(t, registry)
}

// requireNoRefusal: the metrics have no client beyond a limit, and no answer with an error.
func requireNoRefusal(t *testing.T, registry *prometheus.Registry) {
	t.Helper()
	families, err := registry.Gather()
	require.NoError(t, err)
	seen := map[string]int{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			switch f.GetName() {
			case "touchline_limit_refused_total":
				require.Zero(t, m.GetCounter().GetValue(), m)
			case "touchline_http_requests_total":
				for _, l := range m.GetLabel() {
					require.False(t, l.GetName() == "status" && l.GetValue() >= "400" && m.GetCounter().GetValue() > 0, m)
				}
			}
			seen[f.GetName()]++
		}
	}
	require.Greater(t, seen["touchline_limit_refused_total"], 10)
	require.Greater(t, seen["touchline_http_requests_total"], 10)
}

// signalling returns the address of a server that holds WebSockets open.
func signalling(t *testing.T) string {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, err := new(websocket.Upgrader).Upgrade(w, r, nil)
		if err != nil {
			return
		}
		defer func() { _ = conn.Close() }()
		_, _, _ = conn.ReadMessage()
	}))
	t.Cleanup(srv.Close)
	return srv.URL
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

// guest is a client with an address of its own, and with a cookie or a token. err is its first refusal.
type guest struct {
	http.Client

	api, token string
	dial       func(ctx context.Context, network, address string) (net.Conn, error)
	err        error
}

// newGuest returns a guest with the n-th address, and with as many connections as a browser has.
func newGuest(t *testing.T, api string, n int) *guest {
	t.Helper()
	jar, err := cookiejar.New(nil)
	require.NoError(t, err)
	d := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 1, byte(n))}}
	transport := &http.Transport{DialContext: d.DialContext, MaxConnsPerHost: 6}
	t.Cleanup(transport.CloseIdleConnections)
	return &guest{Client: http.Client{Jar: jar, Transport: transport}, api: api, dial: d.DialContext}
}

func (c *guest) send(want int, method, path, body string) *http.Response {
	if c.err != nil {
		return nil
	}
	req, err := http.NewRequest(method, c.api+path, strings.NewReader(body))
	if err == nil {
		if c.token != "" {
			req.Header.Set("Authorization", "Bearer "+c.token)
			req.Header.Set("Content-Type", "application/sdp")
		}
		var resp *http.Response
		if resp, err = c.Do(req); err == nil {
			if resp.StatusCode != want {
				c.err = fmt.Errorf("%s %s: %s", method, path, resp.Status)
			}
			return resp
		}
	}
	c.err = err
	return nil
}

// ask returns the body of an answer that has to have a status.
func (c *guest) ask(want int, method, path, body string) string {
	resp := c.send(want, method, path, body)
	if resp == nil {
		return ""
	}
	text, _ := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	if resp.StatusCode != want {
		c.err = fmt.Errorf("%w: %s", c.err, text)
	}
	return string(text)
}

func (c *guest) open(t *testing.T, path string) {
	t.Helper()
	if resp := c.send(http.StatusOK, http.MethodGet, path, ""); resp != nil {
		t.Cleanup(func() { _ = resp.Body.Close() })
	}
}

// join opens the socket of a viewer in the room.
func (c *guest) join(t *testing.T) {
	t.Helper()
	d := websocket.Dialer{NetDialContext: c.dial, Jar: c.Jar}
	conn, resp, err := d.Dial("ws"+strings.TrimPrefix(c.api, "http")+"/rtc/v1", nil)
	if resp != nil {
		_ = resp.Body.Close()
	}
	if err != nil {
		c.err = cmp.Or(c.err, fmt.Errorf("join the room: %w", err))
		return
	}
	t.Cleanup(func() { _ = conn.Close() })
}
