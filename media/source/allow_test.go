package source_test

import (
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"touchline/media/source"
)

func TestAllow(t *testing.T) {
	tests := []struct {
		ip   string
		kind source.Allow // the only setting that lets it through; none for a dead address
	}{
		{"8.8.8.8", source.Allow{Public: true}},
		{"2a00:1450:4001::1", source.Allow{Public: true}},
		{"10.1.2.3", source.Allow{Private: true}},
		{"172.20.0.1", source.Allow{Private: true}},
		{"192.168.1.20", source.Allow{Private: true}},
		{"100.100.0.1", source.Allow{Private: true}},
		{"fd00::1", source.Allow{Private: true}},
		{"::ffff:192.168.1.20", source.Allow{Private: true}},
		{"64:ff9b::c0a8:114", source.Allow{Private: true}},
		{"2002:c0a8:114::1", source.Allow{Private: true}},
		{"127.0.0.1", source.Allow{Loopback: true}},
		{"127.9.9.9", source.Allow{Loopback: true}},
		{"::1", source.Allow{Loopback: true}},
		{"0.0.0.0", source.Allow{Loopback: true}},
		{"::", source.Allow{Loopback: true}},
		{"::ffff:127.0.0.1", source.Allow{Loopback: true}},
		{"::7f00:1", source.Allow{Loopback: true}},
		{"169.254.169.254", source.Allow{LinkLocal: true}},
		{"fe80::1%eth0", source.Allow{LinkLocal: true}},
		{"64:ff9b::a9fe:a9fe", source.Allow{LinkLocal: true}},
		{"::ffff:0:a9fe:a9fe", source.Allow{LinkLocal: true}},
		{"::ffff:0:808:808", source.Allow{Public: true}},
		{"168.63.129.16", source.Allow{LinkLocal: true}},
		{"::ffff:168.63.129.16", source.Allow{LinkLocal: true}},
		{"168.63.129.17", source.Allow{Public: true}},
		{"100.100.100.200", source.Allow{LinkLocal: true}},
		{"192.0.0.192", source.Allow{LinkLocal: true}},
		{"fd00:ec2::254", source.Allow{LinkLocal: true}},
		{"fd20:ce::254", source.Allow{LinkLocal: true}},
		{"64:ff9b:1::808:808", source.Allow{}},
		{"64:ff9b:1:a9fe:a9:fe00::808", source.Allow{}},
		{"224.0.0.1", source.Allow{}},
		{"ff02::1", source.Allow{}},
		{"255.255.255.255", source.Allow{}},
		{"0.1.2.3", source.Allow{}},
		{"2001::1", source.Allow{}},
	}
	all := []source.Allow{{Public: true}, {Private: true}, {Loopback: true}, {LinkLocal: true}, {Files: true}}
	for _, tt := range tests {
		ip := netip.MustParseAddr(tt.ip)
		for _, a := range all {
			err := a.Check(ip)
			if a == tt.kind {
				require.NoError(t, err, tt.ip)
			} else {
				require.ErrorIs(t, err, source.ErrNotAllowed, "%s with %+v", tt.ip, a)
			}
		}
	}
	require.NoError(t, source.AllowEverything().Check(netip.MustParseAddr("64:ff9b:1::808:808")))
	require.Error(t, source.AllowEverything().Check(netip.Addr{}))
	require.Error(t, source.AllowEverything().Control("tcp", "example.com:80", nil))
	_, err := source.ParseAllow([]string{"public", "moon"})
	require.ErrorContains(t, err, `"moon"`)
	a, err := source.ParseAllow([]string{"Public", " link-local"})
	require.NoError(t, err)
	require.Equal(t, source.Allow{Public: true, LinkLocal: true}, a)
}

// The dialled address is checked, not the name, also after a redirect.
func TestClientChecksWhatItDials(t *testing.T) {
	inside := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) }))
	defer inside.Close()
	_, port, err := net.SplitHostPort(inside.Listener.Addr().String())
	require.NoError(t, err)

	get := func(a source.Allow, url string) error {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
		require.NoError(t, err)
		resp, err := a.Client(false).Do(r)
		if err == nil {
			resp.Body.Close()
		}
		return err
	}
	for _, host := range []string{"127.0.0.1", "localhost", "[::ffff:127.0.0.1]", "0.0.0.0"} {
		require.ErrorIs(t, get(source.AllowCameras(), "http://"+host+":"+port), source.ErrNotAllowed, host)
		require.NoError(t, get(source.AllowEverything(), "http://"+host+":"+port), host)
	}
	away := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, r.URL.Query().Get("to"), http.StatusFound)
	}))
	defer away.Close()
	loopback := source.Allow{Loopback: true}
	require.NoError(t, get(loopback, away.URL+"?to="+inside.URL))
	require.ErrorIs(t, get(loopback, away.URL+"?to=http://169.254.169.254/latest/meta-data"), source.ErrNotAllowed)
	require.ErrorContains(t, get(loopback, away.URL+"?to=file:///etc/passwd"), "scheme other than")
	require.ErrorContains(t, get(loopback, away.URL+"?to=/"), "redirect") // without an end
}

// TestRedirectHasNoReferer: the address of a camera, which may have a password or a token in it, is not sent to the next server.
func TestRedirectHasNoReferer(t *testing.T) {
	got := make(chan string, 2)
	next := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got <- r.Header.Get("Referer") }))
	defer next.Close()
	first := httptest.NewServer(http.RedirectHandler(next.URL, http.StatusFound))
	defer first.Close()
	for _, own := range []string{"", "https://example.com/"} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, first.URL+"/secret?token=secret", nil)
		require.NoError(t, err)
		if own != "" {
			r.Header.Set("Referer", own)
		}
		resp, err := source.AllowEverything().Client(false).Do(r)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.Equal(t, own, <-got)
	}
}

func TestPacketConn(t *testing.T) {
	c, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	require.NoError(t, err)
	defer c.Close()
	_, err = source.Allow{Public: true}.PacketConn(c).WriteTo([]byte("x"), c.LocalAddr())
	require.ErrorIs(t, err, source.ErrNotAllowed)
	_, err = source.Allow{Loopback: true}.PacketConn(c).WriteTo([]byte("x"), c.LocalAddr())
	require.NoError(t, err)
}

func FuzzAllow(f *testing.F) {
	f.Add("127.0.0.1:80")
	f.Add("[64:ff9b::7f00:1]:80")
	f.Fuzz(func(t *testing.T, address string) {
		if ap, err := netip.ParseAddrPort(address); err == nil && ap.Addr().Unmap().IsLoopback() {
			require.Error(t, source.AllowCameras().Control("tcp", address, nil))
		}
		_ = source.AllowPublic().Control("tcp", address, nil)
	})
}
