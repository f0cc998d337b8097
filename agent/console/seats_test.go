package console_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"touchline/agent"
	"touchline/agent/access"
	"touchline/agent/console"
	"touchline/agent/events"
	"touchline/media/window"
)

const operatorToken = "correct-horse-battery"

var crowdKeys = access.Keys{APIKey: "key", APISecret: "a secret of thirty-two characters or more"}

// crowd opens a console behind a trusted proxy, so that a header names the address of a client. As returns the headers of a client.
func crowd(t *testing.T, opts console.Options, prepare ...func(*console.Server)) (r *running, as func(token, from string) []string) {
	t.Helper()
	if opts.Keys.APIKey == "" {
		opts.Keys = crowdKeys
	}
	opts.Config = console.Config{Token: operatorToken, TrustedProxies: []string{"127.0.0.1"}}
	r = open(t, opts, prepare...)
	return r, func(token, from string) []string {
		return []string{"Authorization", "Bearer " + token, "X-Forwarded-For", from}
	}
}

// status makes a request and returns the status. The body of an answer with 200 stays open.
func (r *running) status(path string, header ...string) (status int, body io.ReadCloser, err error) {
	req, err := http.NewRequestWithContext(r.t.Context(), http.MethodGet, r.url(path), http.NoBody)
	if err != nil {
		return 0, nil, err
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := r.client.Do(req)
	if err != nil {
		return 0, nil, err
	}
	if resp.StatusCode == http.StatusOK {
		r.t.Cleanup(func() { _ = resp.Body.Close() })
		return resp.StatusCode, resp.Body, nil
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode, nil, resp.Body.Close()
}

// TestPlacesOfReaders: a link and an address have a part of the readers' places, however often they ask, and the operator finds one.
func TestPlacesOfReaders(t *testing.T) {
	t.Parallel()
	hub := events.NewHub(events.Options{History: -1})
	r, as := crowd(t, console.Options{Room: console.Room{Name: "final", Bot: newDesk(), Hub: hub}}, console.Unlimited)
	link := func(name string) string { return granted(t, crowdKeys, access.Watch, "final", name) } // each is another one
	seated := func(n int, header []string) int {
		got := r.many(n, func(int) (answer, error) {
			status, _, err := r.status("/api/stream", header...)
			return answer{status: status}, err
		})
		require.Equal(t, n, got[http.StatusOK]+got[http.StatusServiceUnavailable], "%v", got)
		return got[http.StatusOK]
	}
	first := link("a")
	one := as(first, "198.51.100.1")
	_, oldest, err := r.status("/api/stream", one...)
	require.NoError(t, err)
	require.Equal(t, 127, seated(1279, one))
	require.Equal(t, 0, seated(10, as(madeBy(t, first), "198.51.100.2")), "a link that its holder made")
	require.Equal(t, 64, seated(640, as(link("b"), "198.51.100.1")), "another link there")
	require.Equal(t, 64, seated(640, as(link("c"), "198.51.100.2")), "the room's places are taken")
	metrics := string(r.ask("GET", "/metrics", "", as(operatorToken, "198.51.100.3")...).body)
	for reason, n := range map[string]int{"token": 1162, "address": 576, "room": 576, "process": 0, "pushed_out": 0} {
		require.Contains(t, metrics, fmt.Sprintf("touchline_limit_refused_total{kind=\"readers\",reason=%q} %d\n", reason, n))
	}
	require.Contains(t, metrics, `touchline_limit_taken{kind="readers"} 256`)

	mine := r.events("/api/stream", as(operatorToken, "198.51.100.1")...)
	_, err = io.Copy(io.Discard, oldest)
	require.NoError(t, err, "the oldest ends")
	hub.Caption(agent.Caption{Delta: "Goal!"})
	require.Equal(t, "Goal!", mine.want("").data)
	require.Contains(t, string(r.ask("GET", "/metrics", "", as(operatorToken, "198.51.100.3")...).body),
		`touchline_limit_refused_total{kind="readers",reason="pushed_out"} 1`)
}

// TestPlacesOfSignalling: a link and an address have a part of the places of sockets to LiveKit, until the link is revoked, and the operator
// finds one.
func TestPlacesOfSignalling(t *testing.T) {
	t.Parallel()
	up, _ := echoServer(t)
	keys := crowdKeys
	keys.Links = access.NewLinks(nil, nil, time.Now())
	r, as := crowd(t, console.Options{
		Keys: keys, Room: console.Room{Name: "final", Bot: newDesk(), Tokens: mint{}}, SignalURL: up.URL,
	}, console.Unlimited)
	operator := as(operatorToken, "198.51.100.9")
	var made struct{ ID, Token string }
	require.NoError(t, json.Unmarshal(r.ask("POST", "/api/links", `{"rights":["watch"],"for":"1h","name":"a"}`, operator...).body, &made))
	var mu sync.Mutex
	open := func(n int, header []string) (seated []*websocket.Conn) {
		h := http.Header{}
		for i := 0; i < len(header); i += 2 {
			h.Set(header[i], header[i+1])
		}
		got := r.many(n, func(int) (answer, error) {
			ctx, cancel := context.WithTimeout(t.Context(), wait)
			defer cancel()
			conn, resp, err := websocket.DefaultDialer.DialContext(ctx, "ws"+strings.TrimPrefix(r.url("/rtc/v1"), "http"), h)
			if resp == nil {
				return answer{}, err
			}
			_ = resp.Body.Close()
			if err == nil {
				mu.Lock()
				defer mu.Unlock()
				seated = append(seated, conn)
				t.Cleanup(func() { _ = conn.Close() })
			}
			return answer{status: resp.StatusCode}, nil
		})
		require.Equal(t, n, got[http.StatusSwitchingProtocols]+got[http.StatusServiceUnavailable], "%v", got)
		return seated
	}
	link := func(name string) string { return granted(t, keys, access.Watch, "final", name) }
	first := open(2560, as(made.Token, "198.51.100.1"))
	require.Len(t, first, 256)
	others := open(256, as(link("b"), "198.51.100.1"))
	require.Len(t, others, 256)
	require.Empty(t, open(5120, as(link("c"), "198.51.100.1")), "the address has its part")
	elsewhere := open(10, as(link("c"), "198.51.100.2"))
	require.Len(t, elsewhere, 10)
	requireEcho(t, elsewhere[0])
	require.Len(t, open(1, as(operatorToken, "198.51.100.1")), 1, "the operator")
	metrics := string(r.ask("GET", "/metrics", "", operator...).body)
	for reason, n := range map[string]int{"token": 2304, "address": 5120, "process": 0, "pushed_out": 0} {
		require.Contains(t, metrics, fmt.Sprintf("touchline_limit_refused_total{kind=\"signalling_sockets\",reason=%q} %d\n", reason, n))
	}

	require.Equal(t, http.StatusNoContent, r.ask("DELETE", "/api/links/"+made.ID, "", operator...).status)
	for _, conn := range first {
		require.NoError(t, conn.SetReadDeadline(time.Now().Add(wait)))
		_, _, err := conn.ReadMessage()
		require.Error(t, err)
		require.NotErrorIs(t, err, os.ErrDeadlineExceeded, "the link ended")
	}
	require.Eventually(t, func() bool {
		return strings.Contains(string(r.ask("GET", "/metrics", "", operator...).body), `touchline_limit_taken{kind="signalling_sockets"} 267`)
	}, wait, 50*time.Millisecond)
	requireEcho(t, others[0])
}

// TestPlacesOfConnections: an address has a part of the places of connections, which need no token. Another address still gets answers.
func TestPlacesOfConnections(t *testing.T) {
	t.Parallel()
	r := open(t, console.Options{Room: console.Room{Bot: newDesk()}}, func(s *console.Server) { console.Connections(s, 32) })
	u, err := url.Parse(r.URL())
	require.NoError(t, err)
	// connect returns a connection from an address and the status of a first answer; 0 if it was closed before.
	connect := func(from string) (net.Conn, int) {
		conn, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}).DialContext(t.Context(), "tcp", u.Host)
		if errors.Is(err, syscall.ECONNRESET) {
			return nil, 0
		}
		require.NoError(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		require.NoError(t, conn.SetDeadline(time.Now().Add(wait)))
		_, _ = fmt.Fprintf(conn, "GET /healthz HTTP/1.1\r\nHost: %s\r\n\r\n", u.Host)
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			require.NotErrorIs(t, err, os.ErrDeadlineExceeded, "it is refused at once")
			return conn, 0
		}
		require.NoError(t, resp.Body.Close())
		return conn, resp.StatusCode
	}
	var held []net.Conn
	for range 240 {
		if conn, status := connect("127.0.0.2"); status == http.StatusOK {
			held = append(held, conn)
		}
	}
	require.Len(t, held, 24)
	_, status := connect("127.0.0.3")
	require.Equal(t, http.StatusOK, status)
	metrics := string(r.ask("GET", "/metrics", "").body) // from 127.0.0.1
	require.Contains(t, metrics, `touchline_limit_taken{kind="proxy_connections"} 26`)
	require.Contains(t, metrics, `touchline_limit_refused_total{kind="proxy_connections",reason="address"} 216`)
	require.Contains(t, metrics, `touchline_limit_taken{kind="connections"} 0`)
	require.NoError(t, held[0].Close())
	require.Eventually(t, func() bool { _, status := connect("127.0.0.2"); return status == http.StatusOK }, wait, 10*time.Millisecond)
}

// madeBy returns the token of a link that the holder of another one made.
func madeBy(t *testing.T, token string) string {
	t.Helper()
	now := time.Now()
	g, err := access.Verify(crowdKeys, token, now)
	require.NoError(t, err)
	token, err = access.Sign(crowdKeys, g, now)
	require.NoError(t, err)
	return token
}

// TestRatesOfALink: a link changes and reads at a bounded rate, and has a bounded number of pictures encoded. Another link and the operator
// notice nothing.
func TestRatesOfALink(t *testing.T) {
	t.Parallel()
	desk, hub := newDesk(), events.NewHub(events.Options{History: 2})
	r, as := crowd(t, console.Options{Room: console.Room{Name: "final", Bot: desk, Hub: hub}})
	another := as(granted(t, crowdKeys, access.AllInRoom, "final", "another"), "198.51.100.1")
	operator := as(operatorToken, "198.51.100.1")
	require.Eventually(t, func() bool { // from when the hub runs
		shown := picture(640, 360, 90)
		hub.Frames(1, []window.Frame{{ID: 10, VideoFrame: shown}, {ID: 11, VideoFrame: shown}, {ID: 12, VideoFrame: shown}})
		return r.ask("GET", "/api/frames/10", "", operator...).status == http.StatusOK
	}, wait, 50*time.Millisecond)
	for _, tt := range []struct {
		kind, method string
		path         func(i int) string
		body         string
		rate, burst  int
	}{
		{"changes", "POST", func(int) string { return "/api/instruction" }, `{"instruction":"x"}`, 10, 100},
		{"pictures", "GET", func(i int) string { return fmt.Sprintf("/api/frames/%d?w=%d", 10+i%3, 16+i/3) }, "", 10, 100},
		{"requests", "GET", func(int) string { return "/api/rights" }, "", 100, 1000},
	} {
		link := as(granted(t, crowdKeys, access.AllInRoom, "final", tt.kind), "198.51.100.1") // each row has its own
		began, asked := time.Now(), 10*tt.burst
		answered := r.many(asked, func(i int) (answer, error) {
			a, err := r.try(tt.method, tt.path(i), tt.body, link...)
			if a.status == http.StatusTooManyRequests {
				assert.NotEmpty(t, a.header.Get("Retry-After"))
			}
			return a, err
		})
		busy := answered[http.StatusServiceUnavailable] // pictures, on a busy machine
		require.Equal(t, asked, answered[http.StatusOK]+answered[http.StatusTooManyRequests]+busy, "%s: %v", tt.kind, answered)
		require.GreaterOrEqual(t, answered[http.StatusOK], tt.burst, tt.kind)
		most := tt.burst + 1 + int(time.Since(began).Seconds()*float64(tt.rate))
		require.LessOrEqual(t, answered[http.StatusOK], most, tt.kind)
		for _, other := range [][]string{another, operator} {
			require.Equal(t, http.StatusOK, r.ask(tt.method, tt.path(399), tt.body, other...).status, tt.kind)
		}
		require.Contains(t, string(r.ask("GET", "/metrics", "", operator...).body),
			fmt.Sprintf("touchline_limit_refused_total{kind=%q,reason=\"token\"} %d\n", tt.kind, answered[http.StatusTooManyRequests]))
	}
}

// TestDeletionsOfALink: a link deletes what people said at a low rate, as each reads the history. Another link and the operator notice
// nothing. An identity that is too long is not kept.
func TestDeletionsOfALink(t *testing.T) {
	t.Parallel()
	var deleted atomic.Int64
	r, as := crowd(t, console.Options{Room: console.Room{
		Name: "final", Bot: newDesk(), Hub: events.NewHub(events.Options{}), Forget: func(context.Context, string) error { deleted.Add(1); return nil },
	}})
	link := as(granted(t, crowdKeys, access.AllInRoom, "final"), "198.51.100.1")
	another := as(granted(t, crowdKeys, access.AllInRoom, "final", "another"), "198.51.100.1")
	operator := as(operatorToken, "198.51.100.1")
	long := r.ask("DELETE", "/api/heard?by="+strings.Repeat("x", 257), "", operator...)
	require.Equal(t, http.StatusUnprocessableEntity, long.status)
	const burst, rate = 5, 0.2
	began := time.Now()
	answered := r.many(10*burst, func(i int) (answer, error) {
		return r.try("DELETE", fmt.Sprintf("/api/heard?by=nobody%d", i), "", link...)
	})
	require.Equal(t, 10*burst, answered[http.StatusNoContent]+answered[http.StatusTooManyRequests], "%v", answered)
	require.GreaterOrEqual(t, answered[http.StatusNoContent], burst)
	require.LessOrEqual(t, answered[http.StatusNoContent], burst+1+int(time.Since(began).Seconds()*rate))
	require.EqualValues(t, answered[http.StatusNoContent], deleted.Load())
	for _, other := range [][]string{another, operator} {
		require.Equal(t, http.StatusNoContent, r.ask("DELETE", "/api/heard?by=nobody", "", other...).status)
	}
	require.Contains(t, string(r.ask("GET", "/metrics", "", operator...).body),
		fmt.Sprintf("touchline_limit_refused_total{kind=\"deletions\",reason=\"token\"} %d\n", answered[http.StatusTooManyRequests]))
}

// TestNewestPictureOfALink: of many requests for the newest picture one at a time asks the decoder, which the commentary uses too, and
// those that are refused do not ask it.
func TestNewestPictureOfALink(t *testing.T) {
	t.Parallel()
	st := newStudio()
	r, as := crowd(t, console.Options{Room: console.Room{Name: "final", Bot: newDesk(), Pictures: st}})
	link := as(granted(t, crowdKeys, access.Watch, "final"), "198.51.100.1")
	answered := r.many(1000, func(int) (answer, error) { return r.try("GET", "/api/frame", "", link...) })
	late := answered[http.StatusServiceUnavailable] // on a busy machine some wait for 2 s
	require.Equal(t, 1000, answered[http.StatusOK]+answered[http.StatusTooManyRequests]+late, "%v", answered)
	require.Positive(t, answered[http.StatusTooManyRequests])
	require.GreaterOrEqual(t, answered[http.StatusOK]+late, 100)
	st.mu.Lock()
	defer st.mu.Unlock()
	require.Equal(t, 1, st.atOnce)
	require.GreaterOrEqual(t, st.asked, answered[http.StatusOK])
	require.LessOrEqual(t, st.asked, answered[http.StatusOK]+late)
}

// TestThumbnailsOfSeenPicturesAreShared: viewers that show the same earlier picture have it encoded once.
func TestThumbnailsOfSeenPicturesAreShared(t *testing.T) {
	t.Parallel()
	hub := events.NewHub(events.Options{History: 2})
	r, as := crowd(t, console.Options{Room: console.Room{Name: "final", Bot: newDesk(), Hub: hub}})
	link := as(granted(t, crowdKeys, access.Watch, "final"), "198.51.100.1")
	require.Eventually(t, func() bool {
		hub.Frames(1, []window.Frame{{ID: 10, VideoFrame: picture(1280, 720, 90)}})
		return r.ask("GET", "/api/frames/10", "", link...).status == http.StatusOK
	}, wait, 50*time.Millisecond)
	for range 300 { // more than may be encoded for a link
		require.Equal(t, http.StatusOK, r.ask("GET", "/api/frames/10?w=160", "", link...).status)
	}
	require.NotEqual(t, r.ask("GET", "/api/frames/10?w=80", "", link...).body, r.ask("GET", "/api/frames/10?w=160", "", link...).body)
}

// TestUnreachableServerIsLoggedSeldom: requests of clients for a LiveKit server that does not answer write few lines.
func TestUnreachableServerIsLoggedSeldom(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	r := open(t, console.Options{
		Room: console.Room{Bot: newDesk()}, SignalURL: "ws://127.0.0.1:1", Log: zerolog.New(zerolog.SyncWriter(&log)),
	})
	began := time.Now()
	for range 50 {
		require.Equal(t, http.StatusBadGateway, r.ask("GET", "/rtc", "").status)
	}
	r.close()
	require.LessOrEqual(t, strings.Count(log.String(), "LiveKit server unreachable"), 4+int(time.Since(began).Seconds()/10))
}
