package signaling //nolint:testpackage // the filter is not exported

import (
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"touchline/media/source"
)

// TestUsableAddresses: media leave out link-local addresses and those that no socket can be opened on.
func TestUsableAddresses(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]bool{"127.0.0.1": true, "fe80::1": false, "169.254.1.1": false, "203.0.113.77": false} {
		require.Equal(t, want, usable(net.ParseIP(address)), address)
	}
}

func TestDestinations(t *testing.T) {
	t.Parallel()
	d := newDestinations(source.Allow{Public: true, Private: true})
	tests := []struct {
		name, candidate string
		accepted        bool
	}{
		{"host", "1 1 udp 2130706431 192.168.1.2 5000 typ host", true},
		{"as PATCH has it", "candidate:1 1 UDP 2130706431 192.168.1.2 5001 typ host", true},
		{"the same address", "2 1 udp 1 192.168.1.2 5000 typ srflx raddr 10.0.0.1 rport 7", false},
		{"the same in IPv6", "2 1 udp 1 ::ffff:192.168.1.2 5000 typ host", false},
		{"public", "3 1 udp 1 8.8.8.8 5000 typ srflx raddr 10.0.0.1 rport 7", true},
		{"RTCP", "4 2 udp 1 192.168.1.2 5002 typ host", false},
		{"TCP", "5 1 tcp 1 192.168.1.2 9 typ host tcptype active", false},
		{"name", "6 1 udp 1 5e1c.local 5003 typ host", false},
		{"no port", "7 1 udp 1 192.168.1.2 typ host", false},
		{"port out of range", "8 1 udp 1 192.168.1.2 65536 typ host", false},
		{"link-local", "9 1 udp 1 169.254.169.254 80 typ host", false},
		{"loopback", "10 1 udp 1 127.0.0.1 53 typ host", false},
		{"multicast", "11 1 udp 1 239.1.1.1 5000 typ host", false},
		{"nothing", "", false},
	}
	for _, tt := range tests {
		require.Equal(t, tt.accepted, d.accept(tt.candidate), tt.name)
	}
	n := 3
	for i := range 100 {
		if d.accept(fmt.Sprintf("1 1 udp 1 10.0.0.1 %d typ host", 1000+i)) {
			n++
		}
	}
	require.Equal(t, maxDestinations, n)
	clear(d.tried) // ICE restart
	require.True(t, d.accept("1 1 udp 1 192.168.1.2 5000 typ host"), "a known address after an ICE restart")
	require.False(t, d.accept("1 1 udp 1 192.168.1.3 5000 typ host"), "a new one beyond the bound")
}

func TestFilterKeepsTheRestOfAnOffer(t *testing.T) {
	t.Parallel()
	head := "v=0\r\no=- 1 1 IN IP4 127.0.0.1\r\ns=-\r\nt=0 0\r\nm=audio 9 UDP/TLS/RTP/SAVPF 111\r\na=mid:0\r\n"
	good, bad := "a=candidate:1 1 udp 1 8.8.8.8 5000 typ host\r\n", "a=candidate:2 1 udp 1 10.0.0.1 5000 typ host\r\n"
	d := newDestinations(source.AllowPublic())
	require.Equal(t, head+good+"a=end-of-candidates\r\n", d.filter(head+good+bad+good+"a=end-of-candidates\r\n"))
	require.Equal(t, "no SDP", d.filter("no SDP"))
	require.NotContains(t, d.filter(strings.Replace(head, "m=audio", bad+"m=audio", 1)), "candidate")
}

func TestReach(t *testing.T) {
	t.Parallel()
	home := []netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("192.168.1.9"), netip.MustParseAddr("2a00:1450::1")}
	rented := []netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("142.250.1.1"), netip.MustParseAddr("10.0.0.5")}
	tests := []struct {
		name    string
		options PortOptions
		own     []netip.Addr
		local   bool
		want    source.Allow
	}{
		{"loopback only", PortOptions{LoopbackOnly: true}, rented, false, source.Allow{Loopback: true}},
		{"home", PortOptions{}, home, false, source.Allow{Public: true, Private: true}},
		{"home, client on this machine", PortOptions{}, home, true, source.Allow{Public: true, Private: true, Loopback: true}},
		{"rented machine", PortOptions{}, rented, false, source.Allow{Public: true}},
		{"behind a forwarding router", PortOptions{ExternalIPs: []string{"142.250.1.1"}}, home, false, source.Allow{Public: true}},
		{"behind two routers", PortOptions{ExternalIPs: []string{"10.9.9.9"}}, home, false, source.Allow{Public: true, Private: true}},
	}
	for _, tt := range tests {
		require.Equal(t, tt.want, reach(tt.options, tt.own, tt.local), tt.name)
	}
}
