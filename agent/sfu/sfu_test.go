//go:build integration

package sfu_test

import (
	"context"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/livekit/protocol/auth"
	lksdk "github.com/livekit/server-sdk-go/v2"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"touchline/agent/sfu"
	"touchline/agent/sfu/sfutest"
)

// start runs a server until the returned function is called.
func start(t *testing.T, opts sfu.Options) (*sfu.Server, func()) {
	t.Helper()
	opts.Log = zerolog.New(os.Stderr).Level(zerolog.ErrorLevel) // the server may log after the test
	s, err := sfu.New(opts)
	require.NoError(t, err)
	stop := sfutest.ServeHere(t, s)
	return s, func() { require.NoError(t, stop()) }
}

func answers(t *testing.T, s *sfu.Server) bool {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+s.HTTPAddr(), http.NoBody)
	require.NoError(t, err)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

func TestServersSideBySideAndAgainOnTheSamePorts(t *testing.T) {
	first, stopFirst := start(t, sfu.Options{})
	second, stopSecond := start(t, sfu.Options{})
	require.NotEqual(t, first.URL(), second.URL())
	require.True(t, answers(t, first))
	require.True(t, answers(t, second))
	stopSecond()
	require.True(t, answers(t, first), "stopping one must leave the other alone")

	_, httpPort, err := net.SplitHostPort(first.HTTPAddr())
	require.NoError(t, err)
	_, udpPort, err := net.SplitHostPort(first.UDPAddr())
	require.NoError(t, err)
	again := sfu.Options{APIKey: first.APIKey(), APISecret: first.APISecret()}
	again.HTTPPort, _ = strconv.Atoi(httpPort)
	again.UDPPort, _ = strconv.Atoi(udpPort)
	stopFirst()
	require.False(t, answers(t, first))

	third, stopThird := start(t, again)
	defer stopThird()
	require.Equal(t, first.URL(), third.URL())
	require.True(t, answers(t, third))
}

func TestPortInUseIsAClearError(t *testing.T) {
	s, stop := start(t, sfu.Options{})
	defer stop()
	_, port, err := net.SplitHostPort(s.HTTPAddr())
	require.NoError(t, err)
	n, err := strconv.Atoi(port)
	require.NoError(t, err)
	other, err := sfu.New(sfu.Options{HTTPPort: n})
	require.NoError(t, err)
	err = other.Run(t.Context())
	require.ErrorContains(t, err, s.HTTPAddr())
}

func TestBadOptions(t *testing.T) {
	tests := []struct {
		name string
		opts sfu.Options
		want string
	}{
		{"key without secret", sfu.Options{APIKey: "k"}, "neither"},
		{"short secret", sfu.Options{APIKey: "k", APISecret: "short"}, "32 characters"},
		{"name for media", sfu.Options{MediaIP: "example"}, "IPv4 address of this machine"},
		{"name for clients", sfu.Options{ExternalIP: "example"}, "external IPv4 address"},
		{"every address for media", sfu.Options{MediaIP: "0.0.0.0"}, "one IPv4 address"},
		{"another machine's address for media", sfu.Options{MediaIP: "198.51.100.77"}, "198.51.100.77; it has"},
		{"port", sfu.Options{HTTPPort: 70000}, "65535"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := sfu.New(tt.opts)
			require.ErrorContains(t, err, tt.want)
		})
	}
}

// TestEverySocketIsOnLoopback compares this process's sockets with the kernel's list before and after
// the server came up.
func TestEverySocketIsOnLoopback(t *testing.T) {
	before := sockets(t)
	s, stop := start(t, sfu.Options{})
	defer stop()
	require.True(t, answers(t, s))
	opened := 0
	var seen []string
	for inode, sock := range sockets(t) {
		if _, old := before[inode]; old {
			continue
		}
		opened++
		seen = append(seen, sock.Local.String())
		require.True(t, sock.Local.Addr().IsLoopback(), "%s socket %s is not on loopback", sock.Network, sock.Local)
	}
	t.Logf("sockets: %v", seen)
	require.GreaterOrEqual(t, opened, 2, "at least the signalling and the media socket")
	require.Contains(t, strings.Join(seen, " "), s.HTTPAddr())
	require.Contains(t, strings.Join(seen, " "), s.UDPAddr())
}

// TestMediaOnAnotherAddress: a participant joins whose media cannot use loopback.
func TestMediaOnAnotherAddress(t *testing.T) {
	ip := outsideIPv4(t)
	if ip == "" {
		_, err := sfu.New(sfu.Options{MediaIP: "198.51.100.77"})
		require.ErrorContains(t, err, "an IPv4 address of this machine")
		t.Log("this machine has no address but loopback")
		return
	}
	before := sockets(t)
	s, stop := start(t, sfu.Options{MediaIP: ip})
	defer stop()
	require.True(t, answers(t, s))
	media := 0
	for inode, sock := range sockets(t) {
		if _, old := before[inode]; old {
			continue
		}
		if sock.Network == "udp" || sock.Network == "udp6" {
			media++
			require.Equal(t, s.UDPAddr(), sock.Local.String())
			require.Equal(t, ip, sock.Local.Addr().String())
			continue
		}
		require.True(t, sock.Local.Addr().IsLoopback(), "%s socket %s is not on loopback", sock.Network, sock.Local)
	}
	require.Equal(t, 1, media)

	grant := &auth.VideoGrant{RoomJoin: true, Room: "match"}
	token, err := auth.NewAccessToken(s.APIKey(), s.APISecret()).SetIdentity("guest").SetVideoGrant(grant).
		SetValidFor(time.Minute).ToJWT()
	require.NoError(t, err)
	guest := lksdk.NewRoom(lksdk.NewRoomCallback())
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	// The join ends only when media is connected.
	require.NoError(t, guest.JoinWithContextAndToken(ctx, s.URL(), token, lksdk.WithDisableTURN()))
	defer guest.Disconnect()
	require.Equal(t, lksdk.ConnectionStateConnected, guest.ConnectionState())
}

// outsideIPv4 is an address of this machine by which others could reach it, "" if it has none.
func outsideIPv4(t *testing.T) string {
	t.Helper()
	own, err := net.InterfaceAddrs()
	require.NoError(t, err)
	for _, a := range own {
		if n, ok := a.(*net.IPNet); ok && n.IP.To4() != nil && n.IP.IsGlobalUnicast() {
			return n.IP.String()
		}
	}
	return ""
}

// sockets lists this process's internet sockets, by inode.
func sockets(t *testing.T) map[string]sfutest.Socket {
	t.Helper()
	all, err := sfutest.Sockets()
	require.NoError(t, err)
	return all
}
