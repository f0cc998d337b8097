package console_test

import (
	"fmt"
	"io"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"touchline/agent"
	"touchline/agent/access"
	"touchline/agent/console"
	"touchline/agent/events"
)

const operatorToken = "correct-horse-battery"

var crowdKeys = access.Keys{APIKey: "key", APISecret: "a secret of thirty-two characters or more"}

// crowd opens a console behind a trusted proxy, so that a header names the address of a client. As returns the headers of a client.
func crowd(t *testing.T, opts console.Options, prepare ...func(*console.Server)) (r *running, as func(token, from string) []string) {
	t.Helper()
	opts.Keys = crowdKeys
	opts.Config = console.Config{Token: operatorToken, TrustedProxies: []string{"127.0.0.1"}}
	r = open(t, opts, prepare...)
	r.client.Transport = &http.Transport{MaxIdleConnsPerHost: 64}
	return r, func(token, from string) []string {
		return []string{"Authorization", "Bearer " + token, "X-Forwarded-For", from}
	}
}

// status makes a request and returns the status. The body of an answer with 200 stays open.
func (r *running) status(path string, header ...string) (int, io.ReadCloser) {
	r.t.Helper()
	req, err := http.NewRequestWithContext(r.t.Context(), http.MethodGet, r.url(path), http.NoBody)
	require.NoError(r.t, err)
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := r.client.Do(req)
	require.NoError(r.t, err)
	if resp.StatusCode == http.StatusOK {
		r.t.Cleanup(func() { _ = resp.Body.Close() })
		return resp.StatusCode, resp.Body
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	require.NoError(r.t, resp.Body.Close())
	return resp.StatusCode, nil
}

// TestPlacesOfReaders: a link and an address have a part of the readers' places, however often they ask, and the operator finds one.
func TestPlacesOfReaders(t *testing.T) {
	t.Parallel()
	hub := events.NewHub(events.Options{History: -1})
	r, as := crowd(t, console.Options{Room: console.Room{Name: "final", Bot: newDesk(), Hub: hub}}, console.Unlimited)
	link := func(name string) string { return granted(t, crowdKeys, access.Watch, "final", name) } // each is another one
	var first io.ReadCloser
	seated := func(n int, header []string) (got int) {
		for range n {
			status, body := r.status("/api/stream", header...)
			if status == http.StatusOK {
				got++
			} else {
				require.Equal(t, http.StatusServiceUnavailable, status)
			}
			if first == nil {
				first = body
			}
		}
		return got
	}
	require.Equal(t, 128, seated(1280, as(link("a"), "198.51.100.1")))
	require.Equal(t, 64, seated(640, as(link("b"), "198.51.100.1")), "another link there")
	require.Equal(t, 64, seated(640, as(link("c"), "198.51.100.2")), "the room's places are taken")
	metrics := string(r.ask("GET", "/metrics", "", as(operatorToken, "198.51.100.3")...).body)
	for reason, n := range map[string]int{"token": 1152, "address": 576, "room": 576, "process": 0, "pushed_out": 0} {
		require.Contains(t, metrics, fmt.Sprintf("touchline_limit_refused_total{kind=\"readers\",reason=%q} %d\n", reason, n))
	}
	require.Contains(t, metrics, `touchline_limit_taken{kind="readers"} 256`)

	mine := r.events("/api/stream", as(operatorToken, "198.51.100.1")...)
	_, err := io.Copy(io.Discard, first)
	require.NoError(t, err, "the oldest ends")
	hub.Caption(agent.Caption{Delta: "Goal!"})
	require.Equal(t, "Goal!", mine.want("").data)
	require.Contains(t, string(r.ask("GET", "/metrics", "", as(operatorToken, "198.51.100.3")...).body),
		`touchline_limit_refused_total{kind="readers",reason="pushed_out"} 1`)
}
