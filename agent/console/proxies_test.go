package console_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"touchline/agent/console"
)

// TestForwardedAddresses: only trusted proxies name the client, by the last address that none of them has.
func TestForwardedAddresses(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, peer string
		header     http.Header
		want       string
	}{
		{"no proxy", "192.0.2.1", http.Header{"X-Forwarded-For": {"198.51.100.7"}}, "192.0.2.1"},
		{"a proxy", "127.0.0.1", http.Header{"X-Forwarded-For": {"198.51.100.7"}}, "198.51.100.7"},
		{"mapped", "::ffff:127.0.0.1", http.Header{"X-Forwarded-For": {"::ffff:198.51.100.7"}}, "198.51.100.7"},
		{"forged by the client", "127.0.0.1", http.Header{"X-Forwarded-For": {"1.1.1.1, 198.51.100.7"}}, "198.51.100.7"},
		{"two lines", "127.0.0.1", http.Header{"X-Forwarded-For": {"1.1.1.1", "198.51.100.7"}}, "198.51.100.7"},
		{"two proxies", "127.0.0.1", http.Header{"X-Forwarded-For": {"1.1.1.1, 198.51.100.7, 10.1.2.3"}}, "198.51.100.7"},
		{"proxies alone", "127.0.0.1", http.Header{"X-Forwarded-For": {"10.1.2.3"}}, "10.1.2.3"},
		{"a port", "127.0.0.1", http.Header{"X-Forwarded-For": {"198.51.100.7:4711"}}, "198.51.100.7"},
		{"IPv6", "127.0.0.1", http.Header{"X-Forwarded-For": {"2001:db8::7"}}, "2001:db8::7"},
		{"unknown", "127.0.0.1", http.Header{"X-Forwarded-For": {"1.1.1.1, unknown"}}, "127.0.0.1"},
		{"empty", "127.0.0.1", http.Header{"X-Forwarded-For": {""}}, "127.0.0.1"},
		{"no header", "127.0.0.1", nil, "127.0.0.1"},
		{"RFC 7239", "127.0.0.1", http.Header{"Forwarded": {`for=1.1.1.1, proto=https;For="[2001:db8::7]:4711"`}}, "2001:db8::7"},
		{"both agree", "127.0.0.1", http.Header{"Forwarded": {"for=198.51.100.7"}, "X-Forwarded-For": {"198.51.100.7"}}, "198.51.100.7"},
		{"the other one forged", "127.0.0.1", http.Header{"Forwarded": {"for=1.1.1.1"}, "X-Forwarded-For": {"198.51.100.7"}}, "127.0.0.1"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", http.NoBody)
			r.RemoteAddr = netip.AddrPortFrom(netip.MustParseAddr(tt.peer), 1234).String()
			r.Header = tt.header
			got, err := console.Client(r, "127.0.0.1", "10.0.0.0/8")
			require.NoError(t, err)
			require.Equal(t, tt.want, got)
		})
	}
	_, err := console.Client(httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", http.NoBody), "nginx")
	require.ErrorContains(t, err, `is "nginx"`)
}

// TestBehindAProxy: clients behind a trusted proxy have limits of their own. Behind another one they share its limits.
func TestBehindAProxy(t *testing.T) {
	t.Parallel()
	for name, trusted := range map[string][]string{"trusted": {"127.0.0.1"}, "another": nil} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := open(t, console.Options{
				Room: console.Room{Bot: newDesk()}, Config: console.Config{Token: "correct-horse-battery", TrustedProxies: trusted},
			})
			target, err := url.Parse(r.URL())
			require.NoError(t, err)
			proxy := httptest.NewServer(&httputil.ReverseProxy{Rewrite: func(p *httputil.ProxyRequest) {
				p.SetURL(target)
				p.Out.Header["X-Forwarded-For"] = p.In.Header["X-Forwarded-For"] // the forged one of the client
				p.SetXForwarded()
			}})
			t.Cleanup(proxy.Close)
			login := func(from string) int {
				dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
				client := &http.Client{Transport: &http.Transport{
					DisableKeepAlives: true,
					DialContext:       func(ctx context.Context, n, a string) (net.Conn, error) { return dialer.DialContext(ctx, n, a) },
				}}
				req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, proxy.URL+"/api/login", strings.NewReader(`{"token":"wrong"}`))
				require.NoError(t, err)
				req.Header.Set("X-Forwarded-For", "203.0.113.9")
				res, err := client.Do(req)
				require.NoError(t, err)
				_, _ = io.Copy(io.Discard, res.Body)
				require.NoError(t, res.Body.Close())
				return res.StatusCode
			}
			var guesses sync.WaitGroup // at once: the refused ones wait
			for range 30 {
				guesses.Go(func() { login("127.0.0.2") })
			}
			guesses.Wait()
			require.Equal(t, http.StatusTooManyRequests, login("127.0.0.2"))
			if want := http.StatusUnauthorized; trusted != nil {
				require.Equal(t, want, login("127.0.0.3"))
			} else {
				require.Equal(t, http.StatusTooManyRequests, login("127.0.0.3"))
			}
		})
	}
}
