//go:build integration && !nodemo

package main

import (
	"net"
	"net/netip"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"touchline/internal/e2e/browser"
)

// TestRun: run comments on a file as the camera, in a room of its name and without a home folder. Its media are on the page's port,
// and Chromium sends to the external address, from which a router or a container's host would forward them.
func TestRun(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	clip := filepath.Join(dir, "clip.mp4")
	out, err := exec.CommandContext(t.Context(), "ffmpeg", slices.Concat([]string{
		"-v", "error", "-nostdin", "-f", "lavfi", "-i", "testsrc2=size=640x360:rate=25", "-t", "10", "-threads", "1",
	}, encoders["h264"], []string{clip})...).CombinedOutput()
	require.NoError(t, err, "%s", out)
	_, port, err := net.SplitHostPort(freeAddress(t))
	require.NoError(t, err)

	home := filepath.Join(dir, "home")
	p, url := start(t, []string{"HOME=" + home}, "run", "--source", clip, "--room", "hall", "--listen", "0.0.0.0:"+port,
		"--media-ip", "127.0.0.1", "--state", filepath.Join(dir, "state"))
	require.Contains(t, url, "http://127.0.0.1:"+port+"/#token=")
	forwarded := forward(t, port)
	b := open(t, url, browser.Options{})
	plays(t, b, later)
	require.Positive(t, forwarded.Load(), "the picture comes by the external address")
	commented(t, b, later)
	known, err := browser.Eval[string](b, soon, `Promise.all([
		fetch('/api/status').then((r) => r.json()).then((s) => 'scene: ' + s.scene + ', watched: ' + s.sources.find((c) => c.watched)?.identity),
		fetch('/api/livekit/token', { method: 'POST', headers: { 'Content-Type': 'application/json' }, body: '{"role":"viewer","name":"V"}' })
			.then((r) => r.json()).then((g) => 'room: ' + g.room),
	]).then((lines) => lines.join(', '))`)
	require.NoError(t, err)
	require.Equal(t, "scene: false, watched: camera, room: hall", known)
	require.Empty(t, problems(b))
	p.interrupt(t)
	require.Zero(t, p.exitCode())
	require.NoDirExists(t, home)
	require.FileExists(t, filepath.Join(dir, "state", "state.db"))
}

// forward sends what comes to a UDP port of 127.0.0.1 on to the same port of this machine's own address, and back, and counts the
// packets to the client.
func forward(t *testing.T, port string) *atomic.Int64 {
	t.Helper()
	own, err := mediaIP(t.Context(), ":"+port)
	require.NoError(t, err)
	require.NotEmpty(t, own, "this test needs an address other than loopback")
	n, err := strconv.ParseUint(port, 10, 16)
	require.NoError(t, err)
	inside := netip.AddrPortFrom(netip.MustParseAddr(own), uint16(n))
	outer, err := net.ListenUDP("udp4", net.UDPAddrFromAddrPort(netip.MustParseAddrPort("127.0.0.1:"+port)))
	require.NoError(t, err)
	var packets atomic.Int64
	done := make(chan struct{})
	var inner []*net.UDPConn
	go func() {
		defer close(done)
		clients := map[netip.AddrPort]*net.UDPConn{}
		for b := make([]byte, 2048); ; {
			n, from, err := outer.ReadFromUDPAddrPort(b)
			if err != nil {
				return
			}
			c := clients[from]
			if c == nil {
				if c, err = net.DialUDP("udp4", nil, net.UDPAddrFromAddrPort(inside)); err != nil {
					return
				}
				clients[from], inner = c, append(inner, c)
				go func() {
					for b := make([]byte, 2048); ; packets.Add(1) {
						n, err := c.Read(b)
						if err != nil {
							return
						}
						_, _ = outer.WriteToUDPAddrPort(b[:n], from)
					}
				}()
			}
			_, _ = c.Write(b[:n])
		}
	}()
	t.Cleanup(func() {
		_ = outer.Close()
		<-done
		for _, c := range inner {
			_ = c.Close()
		}
	})
	return &packets
}
