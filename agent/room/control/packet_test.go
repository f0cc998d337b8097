package control //nolint:testpackage // it has no exported form

import (
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/livekit/protocol/livekit"
	lksdk "github.com/livekit/server-sdk-go/v2"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
)

// TestFloodOfPackets: of ten times the burst of requests a participant's burst reaches the library, and another participant's passes.
func TestFloodOfPackets(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := floodedControl(t, &quietBot{}, zerolog.Nop())
		asks := func(from string) bool {
			data, err := proto.Marshal(&livekit.DataPacket{
				ParticipantIdentity: from, Value: &livekit.DataPacket_RpcRequest{RpcRequest: &livekit.RpcRequest{Method: "status"}},
			})
			require.NoError(t, err)
			return c.flood.passes(&lksdk.Room{}, data)
		}
		passed := 0
		for range 10 * floodBurst {
			if asks("ben") {
				passed++
			}
		}
		require.Equal(t, floodBurst, passed)
		require.True(t, asks("ann"))
		require.Equal(t, Refusals{Dropped: 9 * floodBurst}, c.Refused())

		c.flood.link = func(*lksdk.Room, string) string { return "a link" }
		passed = 0
		for i := range 10 * linkFlood * floodBurst {
			if asks(fmt.Sprint("one of many", i)) {
				passed++
			}
		}
		require.Equal(t, linkFlood*floodBurst, passed, "all identities of one link together")
	})
}

// TestUnaskedPackets: packets that the library would only log do not reach it: the answers to calls that the bot did not make, and
// encrypted ones without a key.
func TestUnaskedPackets(t *testing.T) {
	t.Parallel()
	c := floodedControl(t, &quietBot{}, zerolog.Nop())
	passes := func(packet *livekit.DataPacket) bool {
		packet.ParticipantIdentity = "ben"
		data, err := proto.Marshal(packet)
		require.NoError(t, err)
		return c.flood.passes(&lksdk.Room{}, data)
	}
	require.False(t, passes(&livekit.DataPacket{Value: &livekit.DataPacket_RpcAck{RpcAck: &livekit.RpcAck{RequestId: "x"}}}))
	require.False(t, passes(&livekit.DataPacket{Value: &livekit.DataPacket_RpcResponse{RpcResponse: &livekit.RpcResponse{RequestId: "x"}}}))
	encrypted := &livekit.DataPacket{Value: &livekit.DataPacket_EncryptedPacket{EncryptedPacket: &livekit.EncryptedPacket{}}}
	require.False(t, passes(encrypted))
	require.Equal(t, Refusals{Dropped: 3}, c.Refused())
	c.flood.encrypted = func() bool { return true }
	passed := 0
	for range 10 * sealedBurst {
		if passes(encrypted) {
			passed++
		}
	}
	require.InDelta(t, sealedBurst, passed, sealedRate, "they may be requests")
	require.Equal(t, Refusals{Dropped: uint64(3 + 10*sealedBurst - passed)}, c.Refused())
	require.True(t, passes(&livekit.DataPacket{Value: &livekit.DataPacket_User{User: &livekit.UserPacket{}}}))
}

// FuzzPacket passes packets of the room's data channel to the limiter of requests: after floodBurst requests of a caller it passes none,
// and never one that the library would only log.
func FuzzPacket(f *testing.F) {
	request, err := proto.Marshal(&livekit.DataPacket{
		ParticipantIdentity: "ben", Value: &livekit.DataPacket_RpcRequest{RpcRequest: &livekit.RpcRequest{Method: "status"}},
	})
	require.NoError(f, err)
	f.Add(request)
	f.Add(request[:len(request)-1])
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, data []byte) {
		l := &floodLimiter{
			requests: newFloodRates(0, 1), link: func(*lksdk.Room, string) string { return "" },
			trusted: func(*lksdk.Room, string) bool { return false }, encrypted: func() bool { return false },
		}
		var packet livekit.DataPacket
		valid := proto.Unmarshal(data, &packet) == nil
		unasked := valid && (packet.GetRpcAck() != nil || packet.GetRpcResponse() != nil || packet.GetEncryptedPacket() != nil)
		require.Equal(t, !unasked, l.passes(&lksdk.Room{}, data))
		require.Equal(t, !unasked && (!valid || packet.GetRpcRequest() == nil), l.passes(&lksdk.Room{}, data))
	})
}
