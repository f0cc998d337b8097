//go:build integration

package netfault

import (
	"context"
	"encoding/binary"
	"net"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"testing"
	"time"

	lksdk "github.com/livekit/server-sdk-go/v2"
	"github.com/pion/webrtc/v4"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"touchline/agent/room/conn"
	"touchline/agent/sfu"
	"touchline/agent/sfu/sfutest"
)

func TestMain(m *testing.M) { os.Exit(sfutest.Main(m)) }

// carried sends numbers through a relay to an echo server and returns the round-trip times by number.
func carried(t *testing.T, imp Impairment, count int, gap time.Duration) (numbers []int, took []time.Duration, stats Stats) {
	t.Helper()
	echo, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	require.NoError(t, err)
	defer echo.Close()
	go func() {
		b := make([]byte, 1500)
		for {
			n, from, err := echo.ReadFromUDPAddrPort(b)
			if err != nil {
				return
			}
			_, _ = echo.WriteToUDPAddrPort(b[:n], from)
		}
	}()
	r, err := newRelay(echo.LocalAddr().(*net.UDPAddr).AddrPort(), 1)
	require.NoError(t, err)
	r.set(imp)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.run(ctx) }()
	defer func() { cancel(); require.NoError(t, <-ended) }()
	c, err := net.DialUDP("udp4", nil, net.UDPAddrFromAddrPort(r.addr()))
	require.NoError(t, err)
	defer c.Close()
	sent := make([]time.Time, count)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := range sent {
			sent[i] = time.Now()
			_, _ = c.Write(binary.BigEndian.AppendUint32(nil, uint32(i)))
			time.Sleep(gap)
		}
	}()
	b := make([]byte, 1500)
	for {
		over := isOver(done) // before a second without a packet
		require.NoError(t, c.SetReadDeadline(time.Now().Add(time.Second)))
		n, err := c.Read(b)
		if err != nil && !over {
			continue
		}
		if err != nil {
			break
		}
		i := int(binary.BigEndian.Uint32(b[:n]))
		numbers, took = append(numbers, i), append(took, time.Since(sent[i]))
	}
	return numbers, took, r.counts()
}

func isOver(done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	default:
		return false
	}
}

func TestRelay(t *testing.T) {
	const n = 500
	got, _, _ := carried(t, Impairment{}, n, time.Millisecond)
	require.Len(t, got, n)
	require.True(t, slices.IsSorted(got))

	got, _, stats := carried(t, Impairment{Loss: 0.1}, n, time.Millisecond)
	require.InDelta(t, n*0.81, len(got), n*0.08, "lost on both ways")
	require.True(t, slices.IsSorted(got))
	require.NotZero(t, stats.Lost)

	got, took, _ := carried(t, Impairment{Jitter: 200 * time.Millisecond}, n, time.Millisecond)
	require.Len(t, got, n)
	require.True(t, slices.IsSorted(got), "jitter keeps the order")
	require.Greater(t, slices.Max(took), 100*time.Millisecond)

	got, _, stats = carried(t, Impairment{Reorder: 0.05, HoldBack: 30 * time.Millisecond}, n, time.Millisecond)
	require.Len(t, got, n)
	require.False(t, slices.IsSorted(got))
	require.InDelta(t, 2*n*0.05, float64(stats.HeldBack), 30)
}

// TestClientsThatLeft: idle clients make room for new ones.
func TestClientsThatLeft(t *testing.T) {
	server, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	require.NoError(t, err)
	defer func() { require.NoError(t, server.Close()) }()
	r, err := newRelay(server.LocalAddr().(*net.UDPAddr).AddrPort(), 1)
	require.NoError(t, err)
	r.idle = time.Millisecond
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.run(ctx) }()
	before := runtime.NumGoroutine()
	buf := make([]byte, 100)
	for i := range 3 * maxFlows {
		c, err := net.DialUDP("udp4", nil, net.UDPAddrFromAddrPort(r.addr()))
		require.NoError(t, err)
		_, err = c.Write([]byte{byte(i)})
		require.NoError(t, err)
		require.NoError(t, server.SetReadDeadline(time.Now().Add(2*time.Minute)))
		n, from, err := server.ReadFromUDPAddrPort(buf)
		require.NoError(t, err, "client %d", i)
		require.Equal(t, []byte{byte(i)}, buf[:n])
		_, err = server.WriteToUDPAddrPort(buf[:n], from)
		require.NoError(t, err)
		require.NoError(t, c.SetReadDeadline(time.Now().Add(2*time.Minute)))
		_, err = c.Read(buf)
		require.NoError(t, err, "the answer to client %d", i)
		require.NoError(t, c.Close())
		time.Sleep(2 * r.idle)
	}
	require.Eventually(t, func() bool { return runtime.NumGoroutine() <= before+8 }, 2*time.Minute, 10*time.Millisecond)
	cancel()
	require.NoError(t, <-ended)
}

// TestMediaGoesThroughTheRelay: media of a client of the proxy has no other path
// to the server.
func TestMediaGoesThroughTheRelay(t *testing.T) {
	server, _ := sfutest.Start(t, sfu.Options{})
	media, err := netip.ParseAddrPort(server.UDPAddr())
	require.NoError(t, err)
	p, err := New(t.Context(), Options{Signal: server.HTTPAddr(), Media: media, Seed: 1, Log: zerolog.Nop()})
	require.NoError(t, err)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	defer func() {
		stop()
		require.NoError(t, <-ended)
	}()

	token, err := conn.AgentToken(conn.Keys{APIKey: server.APIKey(), APISecret: server.APISecret()}, conn.Person{Room: "r", Identity: "bot"})
	require.NoError(t, err)
	client := lksdk.NewRoom(lksdk.NewRoomCallback())
	require.NoError(t, client.JoinWithToken(p.URL(), token))
	defer client.Disconnect()
	remote := func(pc *webrtc.PeerConnection) uint16 {
		pair, err := pc.SCTP().Transport().ICETransport().GetSelectedCandidatePair()
		require.NoError(t, err)
		require.NotNil(t, pair)
		return pair.Remote.Port
	}
	require.Equal(t, p.relay.addr().Port(), remote(client.LocalParticipant.GetSubscriberPeerConnection()))
	require.NoError(t, client.LocalParticipant.PublishDataPacket(lksdk.UserData([]byte("x")), lksdk.WithDataPublishReliable(true)))
	require.Equal(t, p.relay.addr().Port(), remote(client.LocalParticipant.GetPublisherPeerConnection()))
	require.NotZero(t, p.Stats().Passed)
}
