package limit_test

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"touchline/internal/limit"
)

// TestConnectionsOfNetworks: an address, or a /64 network, has an eighth of the places; a proxy, or this machine, three quarters of others.
func TestConnectionsOfNetworks(t *testing.T) {
	t.Parallel()
	proxy := netip.MustParseAddr("10.0.0.1")
	c := limit.NewConnections(64, func(a netip.Addr) bool { return a == proxy })
	seated := func(from func(i int) string) (n int) {
		for i := range 640 {
			if _, err := c.Take(netip.MustParseAddr(from(i))); err == nil {
				n++
			}
		}
		return n
	}
	one := func(a string) func(int) string { return func(int) string { return a } }
	for _, from := range []string{"198.51.100.1", "::ffff:198.51.100.2"} {
		require.Equal(t, 8, seated(one(from)), from)
	}
	require.Equal(t, 8, seated(func(i int) string { return netip.AddrFrom16([16]byte{0x20, 1, 15: byte(i)}).String() }), "a /64")
	require.Equal(t, 40, seated(func(i int) string { return netip.AddrFrom4([4]byte{203, 0, 113, byte(i)}).String() }), "in all")
	require.Equal(t, 48, seated(one("10.0.0.1")), "a proxy")
	require.Equal(t, 16, seated(one("127.0.0.1")), "in all")

	c = limit.NewConnections(8192, nil)
	for range 20*6 + 64 { // the browsers of 20 viewers, and a wall of rooms
		_, err := c.Take(proxy)
		require.NoError(t, err)
	}

	c = limit.NewConnections(8, nil)
	seat, err := c.Take(proxy)
	require.NoError(t, err)
	_, err = c.Take(proxy)
	require.ErrorContains(t, err, "this address has reached its limit of 1 connections")
	seat.Leave()
	_, err = c.Take(proxy)
	require.NoError(t, err)
}

// TestConnectionsAreClosedAtOnce: connections beyond the bound are closed, and a closed one gives its place back.
func TestConnectionsAreClosedAtOnce(t *testing.T) {
	t.Parallel()
	plain, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	l := limit.NewConnections(4, nil).Bind(plain) // 3 of them for an address of this machine
	accepted, over := make(chan net.Conn, 100), make(chan error, 1)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				over <- err
				return
			}
			accepted <- c
		}
	}()
	dial := func(from string) net.Conn {
		c, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}).DialContext(t.Context(), "tcp", l.Addr().String())
		if errors.Is(err, syscall.ECONNRESET) {
			return nil
		}
		require.NoError(t, err)
		t.Cleanup(func() { _ = c.Close() })
		require.NoError(t, c.SetReadDeadline(time.Now().Add(time.Minute)))
		return c
	}
	for range 3 {
		dial("127.0.0.2")
	}
	for range 27 {
		if c := dial("127.0.0.2"); c != nil {
			_, err := c.Read(make([]byte, 1))
			require.Error(t, err)
			require.NotErrorIs(t, err, os.ErrDeadlineExceeded)
		}
	}
	dial("127.0.0.3")
	var first net.Conn
	for i := range 4 {
		c := <-accepted
		if i == 0 {
			first = c
		}
		t.Cleanup(func() { _ = c.Close() })
	}
	require.Empty(t, accepted)
	require.NoError(t, first.Close())
	dial("127.0.0.2")
	require.NoError(t, (<-accepted).Close())
	require.NoError(t, l.Close())
	require.ErrorIs(t, <-over, net.ErrClosed)
}
