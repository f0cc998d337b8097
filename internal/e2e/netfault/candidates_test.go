package netfault

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCandidates(t *testing.T) {
	from, to := netip.MustParseAddrPort("127.0.0.1:7000"), netip.MustParseAddrPort("127.0.0.1:9")
	sdp := "v=0\r\na=candidate:1 1 udp 2130706431 127.0.0.1 7000 typ host\r\n" +
		"a=candidate:2 1 tcp 1 127.0.0.1 7001 typ host tcptype passive\r\na=candidate:3 1 udp 1 10.0.0.1 7000 typ host\r\na=mid:0\r\n"
	require.Equal(t, "v=0\r\na=candidate:1 1 udp 2130706431 127.0.0.1 9 typ host\r\na=mid:0\r\n",
		editSDP(sdp, func(l string) string { return redirect(l, from, to) }))
	require.Equal(t, "v=0\r\na=mid:0\r\n", editSDP(sdp, func(string) string { return "" }))
	require.Empty(t, redirect("candidate:", from, to))
}
