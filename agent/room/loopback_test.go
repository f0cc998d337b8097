package room_test

import (
	"bufio"
	"encoding/hex"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	lksdk "github.com/livekit/server-sdk-go/v2"
	"github.com/stretchr/testify/require"
)

// ownSockets lists the local addresses of this process's internet sockets, by inode.
func ownSockets(t *testing.T) map[string]net.IP {
	t.Helper()
	own := map[string]bool{}
	fds, err := filepath.Glob("/proc/self/fd/*")
	require.NoError(t, err)
	for _, fd := range fds {
		if to, err := os.Readlink(fd); err == nil && strings.HasPrefix(to, "socket:[") {
			own[strings.TrimSuffix(strings.TrimPrefix(to, "socket:["), "]")] = true
		}
	}
	out := map[string]net.IP{}
	for _, network := range []string{"udp", "udp6", "tcp", "tcp6"} {
		f, err := os.Open("/proc/net/" + network)
		if os.IsNotExist(err) {
			continue // no IPv6 here
		}
		require.NoError(t, err)
		lines := bufio.NewScanner(f)
		lines.Scan() // heading
		for lines.Scan() {
			fields := strings.Fields(lines.Text())
			if len(fields) < 10 || !own[fields[9]] {
				continue
			}
			host, _, _ := strings.Cut(fields[1], ":")
			raw, err := hex.DecodeString(host)
			require.NoError(t, err)
			for i := 0; i+3 < len(raw); i += 4 { // each 32-bit word is little endian
				raw[i], raw[i+1], raw[i+2], raw[i+3] = raw[i+3], raw[i+2], raw[i+1], raw[i]
			}
			out[fields[9]] = raw
		}
		require.NoError(t, lines.Err())
		require.NoError(t, f.Close())
	}
	return out
}

// TestEverySocketIsOnLoopback watches this process's sockets while server, camera and bot connect, exchange
// media, and reconnect fully.
func TestEverySocketIsOnLoopback(t *testing.T) {
	before := ownSockets(t)
	seen := map[string]bool{}
	look := func() {
		t.Helper()
		for inode, ip := range ownSockets(t) {
			if _, old := before[inode]; !old {
				seen[inode] = true
				require.True(t, ip.IsLoopback(), "a socket is on %s", ip)
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
	s := startServerAt(t, address)
	startCamera(t, s, "cam", 640, 360)
	bot := startBot(t, s, nil)
	pump(t, bot)
	eventually(t, func() bool { return drained(bot) > 20 }, "flows")
	elsewhere := 0
	for inode, ip := range ownSockets(t) {
		if _, old := before[inode]; !old && !ip.IsLoopback() {
			require.Equal(t, address, ip.String())
			elsewhere++
		}
	}
	require.LessOrEqual(t, elsewhere, 1, "the server's media socket alone")
}
