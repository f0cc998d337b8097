package remote_test

import (
	"context"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"touchline/inference/remote"
)

// pipes is a listener in memory: the clock of a synctest bubble goes on while its connections wait.
type pipes struct {
	conns  chan net.Conn
	closed context.Context //nolint:containedctx // the listener's life
	stop   context.CancelFunc
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed.Done():
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error { p.stop(); return nil }

func (*pipes) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 8000} }

func (p *pipes) dial(context.Context, string, string) (net.Conn, error) {
	client, server := net.Pipe()
	p.conns <- server
	return client, nil
}

// bubble runs f with a server and a model whose time is a bubble's.
func bubble(t *testing.T, change func(*remote.Config), chat func(w http.ResponseWriter, n int), f func(t *testing.T, s *server, m *remote.Model)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		p := &pipes{conns: make(chan net.Conn)}
		p.closed, p.stop = context.WithCancel(context.Background())
		s := serveAt(t, p, list("vllm", "m"), func(w http.ResponseWriter, _ request, n int) { chat(w, n) })
		m := open(t, s.URL, change)
		m.SetDial(p.dial)
		f(t, s, m)
	})
}

func TestRetryAfterIsHonoured(t *testing.T) {
	var first, second time.Time
	bubble(t, func(*remote.Config) {}, func(w http.ResponseWriter, n int) {
		if n == 1 {
			first = time.Now()
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusTooManyRequests)
			return
		}
		second = time.Now()
		stream(w, delta("ok"), stop)
	}, func(t *testing.T, _ *server, m *remote.Model) {
		t.Helper()
		_, err := ask(t.Context(), session(t, m), prompt)
		require.NoError(t, err)
		require.GreaterOrEqual(t, second.Sub(first), time.Second)
	})
}

func TestTimeLimits(t *testing.T) {
	tests := []struct {
		name        string
		first, idle time.Duration
		hang        func(w http.ResponseWriter)
		text        string
		says        string
	}{
		{"no headers", time.Second, time.Hour, func(http.ResponseWriter) {}, "", "first_token_timeout"},
		{"no word", time.Second, time.Hour, func(w http.ResponseWriter) { stream(w, role, ": ping\n\n") }, "", "first_token_timeout"},
		{
			"stuck in the middle", time.Hour, time.Second,
			func(w http.ResponseWriter) { stream(w, delta("Red "), delta("sco")) }, "Red sco", "idle_timeout",
		},
		{
			"stuck with a mark begun", time.Hour, time.Second,
			func(w http.ResponseWriter) { stream(w, delta("1 <thi")) }, "1 <thi", "idle_timeout",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, func(c *remote.Config) { c.FirstTokenTimeout, c.IdleTimeout = tt.first, tt.idle }, func(w http.ResponseWriter, _ int) {
				tt.hang(w)
				time.Sleep(3 * time.Second)
			}, func(t *testing.T, s *server, m *remote.Model) {
				t.Helper()
				began := time.Now()
				text, err := ask(t.Context(), session(t, m), prompt)
				require.Equal(t, time.Second, time.Since(began))
				require.ErrorIs(t, err, remote.ErrTimeout)
				require.ErrorContains(t, err, tt.says)
				require.Equal(t, tt.text, text)
				require.Equal(t, 1, s.count(), "what is slow is not asked again")
			})
		})
	}
}

// TestSlowTokens: while words arrive, an answer may take longer than both timeouts.
func TestSlowTokens(t *testing.T) {
	bubble(t, func(c *remote.Config) {
		c.FirstTokenTimeout, c.IdleTimeout = 500*time.Millisecond, 500*time.Millisecond
	}, func(w http.ResponseWriter, _ int) {
		for range 12 {
			time.Sleep(60 * time.Millisecond)
			stream(w, delta("x"))
		}
		stream(w, stop, done)
	}, func(t *testing.T, _ *server, m *remote.Model) {
		t.Helper()
		text, err := ask(t.Context(), session(t, m), prompt)
		require.NoError(t, err)
		require.Equal(t, "xxxxxxxxxxxx", text)
	})
}

// TestTrickle: the limits of an answer end an endless stream of words or reasoning.
func TestTrickle(t *testing.T) {
	thought := "data: {\"choices\":[{\"delta\":{\"reasoning_content\":\"hm, let me think about it \"}}]}\n\n"
	for _, tt := range []struct {
		name, event string
		first       time.Duration
		err         error
		says        string
	}{
		{"thoughts without end", thought, time.Minute, remote.ErrNoAnswer, "on thinking"},
		{"a word now and then", delta("x"), 10 * time.Millisecond, remote.ErrTimeout, "took longer than 280ms"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, func(c *remote.Config) { c.FirstTokenTimeout = tt.first }, func(w http.ResponseWriter, _ int) {
				for range 300 {
					stream(w, tt.event)
					time.Sleep(15 * time.Millisecond)
				}
			}, func(t *testing.T, _ *server, m *remote.Model) {
				t.Helper()
				p := prompt
				p.MaxTokens = 1
				_, err := ask(t.Context(), session(t, m), p)
				require.ErrorIs(t, err, tt.err)
				require.ErrorContains(t, err, tt.says)
			})
		})
	}
}

// TestSlowReader: timeouts exclude the caller's time.
func TestSlowReader(t *testing.T) {
	bubble(t, func(c *remote.Config) { c.IdleTimeout = time.Second }, func(w http.ResponseWriter, _ int) {
		stream(w, delta("a"), delta("b"), stop)
	}, func(t *testing.T, _ *server, m *remote.Model) {
		t.Helper()
		var text strings.Builder
		for c, err := range session(t, m).Generate(t.Context(), prompt) {
			require.NoError(t, err)
			text.WriteString(c.Text)
			time.Sleep(10 * time.Second)
		}
		require.Equal(t, "ab", text.String())
	})
}
