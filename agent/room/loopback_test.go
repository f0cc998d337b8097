//go:build integration

package room_test

import (
	"net"
	"testing"
	"time"

	lksdk "github.com/livekit/server-sdk-go/v2"
	"github.com/stretchr/testify/require"

	"touchline/agent/sfu"
	"touchline/agent/sfu/sfutest"
)

// ownSockets lists this process's internet sockets, by inode.
func ownSockets(t *testing.T) map[string]sfutest.Socket {
	t.Helper()
	all, err := sfutest.Sockets()
	require.NoError(t, err)
	return all
}

// TestEverySocketIsOnLoopback watches this process's sockets while server, camera and bot connect, exchange
// media, and reconnect fully.
func TestEverySocketIsOnLoopback(t *testing.T) {
	before := ownSockets(t)
	seen := map[string]bool{}
	look := func() {
		t.Helper()
		for inode, s := range ownSockets(t) {
			if _, old := before[inode]; !old {
				seen[inode] = true
				require.True(t, s.Local.Addr().IsLoopback(), "a socket is on %s", s.Local)
			}
		}
	}
	s := startServer(t)
	startCamera(t, s, "cam", 640, 360)
	bot := startBot(t, s, nil)
	pump(t, bot)
	frames := func(n uint64) func() bool {
		return func() bool { look(); return drained(bot) > n }
	}
	eventually(t, frames(20), "flows")
	bot.CurrentRoom().Simulate(lksdk.SimulateNodeFailure)
	settle := time.After(500 * time.Millisecond)
	for waiting := true; waiting; {
		look()
		select {
		case <-settle:
			waiting = false
		case <-time.After(5 * time.Millisecond):
		}
	}
	eventually(t, frames(drained(bot)+20), "flows again")
	t.Logf("%d sockets seen", len(seen))
	require.Greater(t, len(seen), 6, "server, camera and bot")
}

// TestLoopbackReachesMediaElsewhere has camera and bot stay on loopback beside a server whose media others reach.
func TestLoopbackReachesMediaElsewhere(t *testing.T) {
	address := "127.0.0.1" // on a machine that has no other
	own, err := net.InterfaceAddrs()
	require.NoError(t, err)
	for _, a := range own {
		if n, ok := a.(*net.IPNet); ok && n.IP.To4() != nil && n.IP.IsGlobalUnicast() {
			address = n.IP.String()
			break
		}
	}
	before := ownSockets(t)
	s := startServerWith(t, sfu.Options{MediaIP: address})
	startCamera(t, s, "cam", 640, 360)
	bot := startBot(t, s, nil)
	pump(t, bot)
	eventually(t, func() bool { return drained(bot) > 20 }, "flows")
	elsewhere := 0
	for inode, s := range ownSockets(t) {
		if ip := s.Local.Addr(); before[inode] == (sfutest.Socket{}) && !ip.IsLoopback() {
			require.Equal(t, address, ip.String())
			elsewhere++
		}
	}
	require.LessOrEqual(t, elsewhere, 1, "the server's media socket alone")
}
