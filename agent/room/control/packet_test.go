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

	"touchline/internal/limit"
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

// FuzzPacket passes packets of the room's data channel to the limiter of requests: after floodBurst requests of a caller it passes none.
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
			perCaller: limit.New[string](0, 1), link: func(*lksdk.Room, string) string { return "" },
			trusted: func(*lksdk.Room, string) bool { return false },
		}
		var packet livekit.DataPacket
		asks := proto.Unmarshal(data, &packet) == nil && packet.GetRpcRequest() != nil
		require.True(t, l.passes(&lksdk.Room{}, data))
		require.Equal(t, !asks, l.passes(&lksdk.Room{}, data))
	})
}
