package room_test

import (
	"testing"

	"github.com/livekit/protocol/livekit"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"touchline/agent/room"
)

func TestVerifySender(t *testing.T) {
	keys := room.Keys{APIKey: "key", APISecret: "a secret that is long enough for a signature"}
	who := room.Person{Room: "match", Identity: "ann", Name: "Ann"}
	camera, err := room.CameraToken(keys, who)
	require.NoError(t, err)
	got, err := room.VerifySender(keys, camera, "match")
	require.NoError(t, err)
	require.Equal(t, who, got)

	// The dispatches for the room that it creates.
	asking := who
	asking.Agents = []*livekit.RoomAgentDispatch{{AgentName: "commentator", Metadata: "{}"}}
	token, err := room.CameraToken(keys, asking)
	require.NoError(t, err)
	got, err = room.VerifySender(keys, token, "match")
	require.NoError(t, err)
	require.Len(t, got.Agents, 1)
	require.True(t, proto.Equal(asking.Agents[0], got.Agents[0]), got.Agents)

	_, err = room.VerifySender(keys, camera, "other")
	require.ErrorIs(t, err, room.ErrNoRight)
	viewer, err := room.ViewerToken(keys, who)
	require.NoError(t, err)
	_, err = room.VerifySender(keys, viewer, "match")
	require.ErrorIs(t, err, room.ErrNoRight)

	forged, err := room.CameraToken(room.Keys{APIKey: "key", APISecret: "another secret of about the same length"}, who)
	require.NoError(t, err)
	for _, bad := range []string{"", "x", "a.b.c", forged, camera + "x"} {
		_, err = room.VerifySender(keys, bad, "match")
		require.ErrorIs(t, err, room.ErrBadToken)
	}
	_, err = room.VerifySender(room.Keys{}, camera, "match")
	require.ErrorIs(t, err, room.ErrBadToken)
}
