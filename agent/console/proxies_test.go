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
	"unicode"

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
			limits(t, proxy.URL, trusted != nil)
		})
	}
}

// FuzzForwarded: the client's address is one of the header or the proxy's, and nothing that the client sends replaces the one that the
// proxy appends.
func FuzzForwarded(f *testing.F) {
	for _, seed := range []string{
		"", ",", "198.51.100.7", "1.1.1.1, 198.51.100.7, 10.1.2.3", "198.51.100.7:4711", "2001:db8::7", "[2001:db8::7]:4711", "[::1", "fe80::1%eth0",
		"::ffff:10.0.0.1", "unknown", `for=1.1.1.1, proto=https;For="[2001:db8::7]:4711"`, `for="_hidden", for=""`, `for=;for=1.1.1.1`, `for="1.1.1.1, 2.2.2.2"`,
	} {
		f.Add(seed, seed)
	}
	f.Fuzz(func(t *testing.T, list, forwarded string) {
		const peer, appended = "127.0.0.1", "198.51.100.77"
		client := func(from string, h http.Header) string {
			r := &http.Request{RemoteAddr: from + ":1234", Header: h}
			got, err := console.Client(r, peer, "10.0.0.0/8")
			require.NoError(t, err)
			return got
		}
		both := http.Header{"X-Forwarded-For": {list}, "Forwarded": {forwarded}}
		for _, h := range []http.Header{{"X-Forwarded-For": {list}}, {"Forwarded": {forwarded}}, both} {
			require.Equal(t, "192.0.2.1", client("192.0.2.1", h), "no proxy")
			got := client(peer, h)
			require.True(t, got == peer || names(h, got), "%q is not in %v", got, h)
		}
		require.Equal(t, appended, client(peer, http.Header{"X-Forwarded-For": {list, appended}}))
		require.Equal(t, appended, client(peer, http.Header{"X-Forwarded-For": {list + ", " + appended}}))
		require.Equal(t, appended, client(peer, http.Header{"Forwarded": {forwarded + `, For="` + appended + `:80";proto=http`}}))
		got := client(peer, http.Header{"X-Forwarded-For": {list + "," + appended}, "Forwarded": {forwarded}})
		require.Contains(t, []string{peer, appended}, got, "the proxy passes on the other header")
	})
}

// names reports whether headers have an address, in any of its forms.
func names(h http.Header, address string) bool {
	for _, line := range h {
		for _, word := range strings.FieldsFunc(line[0], func(r rune) bool { return unicode.IsSpace(r) || strings.ContainsRune(`,;="`, r) }) {
			word, _, _ = strings.Cut(word, "%") // a zone
			a, err := netip.ParseAddr(strings.Trim(word, "[]"))
			if with, withErr := netip.ParseAddrPort(word); withErr == nil {
				a, err = with.Addr(), nil
			}
			if err == nil && a.Unmap().String() == address {
				return true
			}
		}
	}
	return false
}

// limits guesses tokens through a proxy from an address. Another one has limits of its own, or the same.
func limits(t *testing.T, proxy string, own bool) {
	t.Helper()
	login := func(from string) int {
		dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
		client := &http.Client{Transport: &http.Transport{
			DisableKeepAlives: true,
			DialContext:       func(ctx context.Context, n, a string) (net.Conn, error) { return dialer.DialContext(ctx, n, a) },
		}}
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, proxy+"/api/login", strings.NewReader(`{"token":"wrong"}`))
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
	if own {
		require.Equal(t, http.StatusUnauthorized, login("127.0.0.3"))
	} else {
		require.Equal(t, http.StatusTooManyRequests, login("127.0.0.3"))
	}
}
