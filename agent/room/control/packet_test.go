package control //nolint:testpackage // it has no exported form

import (
	"testing"

	"github.com/livekit/protocol/livekit"
	lksdk "github.com/livekit/server-sdk-go/v2"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"touchline/internal/limit"
)

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
		l := &floodLimiter{perCaller: limit.New[string](0, 1), trusted: func(*lksdk.Room, string) bool { return false }}
		var packet livekit.DataPacket
		asks := proto.Unmarshal(data, &packet) == nil && packet.GetRpcRequest() != nil
		require.True(t, l.passes(&lksdk.Room{}, data))
		require.Equal(t, !asks, l.passes(&lksdk.Room{}, data))
	})
}
