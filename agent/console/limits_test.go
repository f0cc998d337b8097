package console_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"touchline/agent"
	"touchline/agent/console"
	"touchline/agent/settings"
)

func TestRequestID(t *testing.T) {
	t.Parallel()
	r := open(t, console.Options{Room: console.Room{Bot: newDesk()}})
	long := strings.Repeat("x", 64)
	for _, id := range []string{"abc-1", "with space", long} {
		require.Equal(t, id, r.ask("GET", "/api/status", "", "X-Request-ID", id).header.Get("X-Request-ID"))
		a := r.ask("GET", "/api/none", "", "X-Request-ID", id)
		_, _, got := a.problem(t)
		require.Equal(t, id, got)
	}
	seen := map[string]bool{}
	for _, id := range []string{"", long + "x", "tab\there", "caf\u00e9", "\u202e"} {
		got := r.ask("GET", "/api/status", "", "X-Request-ID", id).header.Get("X-Request-ID")
		require.Len(t, got, 16, "%q is not repeated", id)
		require.False(t, seen[got], "each has its own")
		seen[got] = true
	}
}

// TestRequestsFromBeforeAStandstill are refused if they may change something, in every part, for as long as the system may have more.
func TestRequestsFromBeforeAStandstill(t *testing.T) {
	t.Parallel()
	d := newDesk()
	whip := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusCreated) })
	r := open(t, console.Options{Room: console.Room{Bot: d}, WHIP: whip})
	require.Equal(t, http.StatusCreated, r.ask("POST", "/whip/match", "").status)
	order := func() answer { return r.ask("POST", "/api/instruction", `{"instruction": "x"}`) }
	refused := func(f func() answer) (a answer) {
		require.Eventually(t, func() bool { // a busy machine may take longer than that
			console.StandStill(r.Server, time.Minute)
			a = f()
			return a.status == http.StatusServiceUnavailable
		}, wait, time.Millisecond)
		return a
	}
	require.Equal(t, "2", refused(order).header.Get("Retry-After"))
	a := refused(order)
	code, _, _ := a.problem(t)
	require.Equal(t, "stood_still", code)
	refused(func() answer { return r.ask("POST", "/whip/match", "") })
	u, err := url.Parse(r.URL())
	require.NoError(t, err)
	require.Eventually(t, func() bool { // while its body is read
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", u.Host)
		if err != nil {
			return false
		}
		defer conn.Close()
		_, _ = fmt.Fprintf(conn, "POST /api/instruction HTTP/1.1\r\nHost: %s\r\nContent-Length: 20\r\nExpect: 100-continue\r\n\r\n", u.Host)
		in := bufio.NewReader(conn)
		if line, _ := in.ReadString('\n'); !strings.Contains(line, "100 Continue") {
			return false // still refused for the last one
		}
		_, _ = in.ReadString('\n')
		console.StandStill(r.Server, time.Minute)
		_, _ = io.WriteString(conn, `{"instruction": "y"}`)
		resp, err := http.ReadResponse(in, nil)
		if err != nil {
			return false
		}
		return resp.Body.Close() == nil && resp.StatusCode == http.StatusServiceUnavailable
	}, wait, 100*time.Millisecond)
	require.Equal(t, http.StatusOK, r.ask("GET", "/api/status", "").status)
	require.Eventually(t, func() bool { return order().status == http.StatusOK }, wait, 100*time.Millisecond)
}

func TestMethodNotAllowed(t *testing.T) {
	t.Parallel()
	r := open(t, console.Options{Room: console.Room{Bot: newDesk()}})
	tests := []struct{ method, path, allow string }{
		{"PUT", "/api/status", "GET, HEAD, OPTIONS"},
		{"GET", "/api/instruction", "DELETE, OPTIONS, POST"},
		{"DELETE", "/api/settings", "GET, HEAD, OPTIONS, POST"},
		{"DELETE", "/api/profiles", "GET, HEAD, OPTIONS, POST"},
		{"POST", "/api/events", "GET, HEAD, OPTIONS"},
		{"POST", "/metrics", "GET, HEAD, OPTIONS"},
		{"POST", "/healthz", "GET, HEAD, OPTIONS"},
		{"PATCH", "/", "GET, HEAD, OPTIONS"},
		{"GET", "/api/login", "OPTIONS, POST"},
	}
	for _, tt := range tests {
		a := r.ask(tt.method, tt.path, "")
		require.Equal(t, http.StatusMethodNotAllowed, a.status, tt.path)
		require.Equal(t, tt.allow, a.header.Get("Allow"), tt.path)
		code, _, _ := a.problem(t)
		require.Equal(t, "method_not_allowed", code)
		a = r.ask("OPTIONS", tt.path, "")
		require.Equal(t, http.StatusNoContent, a.status)
		require.Equal(t, tt.allow, a.header.Get("Allow"))
	}
	for _, path := range []string{"/api/status", "/api/events", "/api/stream"} {
		a := r.ask("HEAD", path, "")
		require.Equal(t, http.StatusOK, a.status, path)
		require.Empty(t, a.body)
	}
}

func TestLargeBodies(t *testing.T) {
	t.Parallel()
	d := newDesk()
	r := open(t, console.Options{Room: console.Room{Bot: d, Tokens: mint{}}, SignalURL: "ws://127.0.0.1:1"})
	huge := `{"instruction":"` + strings.Repeat("x", 2<<20) + `"}`
	u, err := url.Parse(r.URL())
	require.NoError(t, err)
	for _, path := range []string{
		"/api/instruction", "/api/profiles", "/api/settings", "/api/start", "/api/stop", "/api/source", "/api/livekit/token", "/api/login",
	} {
		for _, chunked := range []bool{false, true} {
			// By hand: the write of a client that is refused early may fail before it reads the reason.
			conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", u.Host)
			require.NoError(t, err)
			require.NoError(t, conn.SetDeadline(time.Now().Add(wait)))
			wrote := make(chan struct{})
			go func() {
				defer close(wrote)
				if chunked {
					_, _ = fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: %s\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n", path, u.Host, len(huge))
				} else {
					_, _ = fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: %s\r\nContent-Length: %d\r\n\r\n", path, u.Host, len(huge))
				}
				_, _ = io.WriteString(conn, huge) // the server may close in the middle
			}()
			resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
			require.NoError(t, err, path)
			body, err := io.ReadAll(resp.Body)
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
			require.Equal(t, http.StatusRequestEntityTooLarge, resp.StatusCode, "%s %s", path, body)
			require.Contains(t, string(body), "65536")
			require.NoError(t, conn.Close())
			<-wrote
		}
	}
	require.Empty(t, d.orders())
	exact := `{"instruction":"x` + strings.Repeat(" ", 64<<10-len(`{"instruction":"x"}`)) + `"}`
	require.Len(t, exact, 64<<10)
	require.Equal(t, http.StatusOK, r.ask("POST", "/api/instruction", exact).status)
	require.Equal(t, http.StatusRequestEntityTooLarge, r.ask("POST", "/api/instruction", exact+" ").status)
}

func TestPanicIsAnsweredAndLogged(t *testing.T) {
	t.Parallel()
	d := newDesk()
	var log bytes.Buffer
	r := open(t, console.Options{Room: console.Room{Bot: d}, Log: zerolog.New(zerolog.SyncWriter(&log))})
	d.mu.Lock()
	d.boom = true
	d.mu.Unlock()
	a := r.ask("GET", "/api/status", "", "X-Request-ID", "find-me")
	require.Equal(t, http.StatusInternalServerError, a.status)
	code, message, _ := a.problem(t)
	require.Equal(t, "internal", code)
	require.NotContains(t, message, "fell over", "what went wrong inside is for the log")
	require.Equal(t, http.StatusOK, r.ask("GET", "/healthz", "").status, "the others go on")
	r.close()
	require.Contains(t, log.String(), "the desk fell over")
	require.Contains(t, log.String(), "find-me")
	require.Contains(t, log.String(), "console_test.go", "with the stack")
}

func TestMissingParts(t *testing.T) {
	t.Parallel()
	r := open(t, console.Options{})
	tests := []struct {
		method, path, body string
		status             int
	}{
		{"GET", "/api/status", "", 503},
		{"GET", "/api/profiles", "", 503},
		{"POST", "/api/instruction", `{"instruction":"x"}`, 503},
		{"POST", "/api/settings", `{}`, 503},
		{"POST", "/api/stop", ``, 503},
		{"POST", "/api/livekit/token", `{"role":"viewer","name":"x"}`, 503},
		{"GET", "/api/frame", "", 404},
		{"GET", "/api/mjpeg", "", 404},
		{"GET", "/api/audio-stream", "", 404},
		{"GET", "/api/history", "", 200},
		{"GET", "/rtc", "", 503},
		{"GET", "/readyz", "", 503},
		{"GET", "/healthz", "", 200},
		{"GET", "/metrics", "", 200},
		{"GET", "/", "", 503},
	}
	for _, tt := range tests {
		a := r.ask(tt.method, tt.path, tt.body)
		require.Equal(t, tt.status, a.status, "%s %s", tt.path, a.body)
	}
	require.JSONEq(t, "[]", string(r.ask("GET", "/api/history", "").body))
	r.events("/api/events").want("history")
}

func TestReady(t *testing.T) {
	t.Parallel()
	d := newDesk()
	r := open(t, console.Options{Room: console.Room{Bot: d}})
	tests := []struct {
		name   string
		status agent.Status
		loaded bool
		code   int
		detail string
	}{
		{"watching", agent.Status{State: "listening", Activity: "watching"}, true, 200, "listening"},
		{"idle", agent.Status{State: "idle", Activity: "idle", Detail: "no instruction"}, true, 200, "no instruction"},
		{"loading", agent.Status{State: "initializing", Activity: "loading", Percent: 40}, false, 503, "40 %"},
		{"loading for long", agent.Status{State: "idle", Activity: "loading", Percent: 50, Detail: "half way"}, false, 503, "half way"},
		{"joining", agent.Status{State: "initializing", Activity: "waiting"}, true, 503, "not in the room yet"},
		{"reconnecting", agent.Status{State: "idle", Activity: "reconnecting", Detail: "the server is gone"}, true, 503, "server is gone"},
	}
	for _, tt := range tests {
		d.change(func(s *agent.Snapshot) { s.Status, s.ModelLoaded = tt.status, tt.loaded })
		a := r.ask("GET", "/readyz", "")
		require.Equal(t, tt.code, a.status, tt.name)
		var h struct{ Status, Detail string }
		require.NoError(t, json.Unmarshal(a.body, &h))
		require.Contains(t, h.Detail, tt.detail)
	}
}

// FuzzSettings: any body is either refused with 400 or accepted, and an accepted one survives encoding and decoding.
func FuzzSettings(f *testing.F) {
	for _, s := range []string{
		`{}`, `{"speech":true,"capture_fps":5,"frames_per_look":4}`, `{"frames":1}`, `{"capture_fps":"x"}`, `{"capture_fps":1e999}`,
		`[]`, `null`, `{} {}`, ``, ` `, `{"language":"\ud800"}`, `{"max_tokens":1.5}`, `{"speech":null}`, "{\"language\":\"\xff\"}",
		strings.Repeat(`{"a":`, 200), `{"SPEECH":false}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		var s settings.Settings
		status, err := console.ParseJSON(body, &s)
		if err != nil {
			require.Equal(t, http.StatusBadRequest, status)
			require.NotEmpty(t, err.Error())
			return
		}
		again, err := json.Marshal(s)
		require.NoError(t, err)
		var s2 settings.Settings
		_, err = console.ParseJSON(again, &s2)
		require.NoError(t, err)
		require.Equal(t, s, s2)
	})
}
