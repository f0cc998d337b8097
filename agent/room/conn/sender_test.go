package conn_test

import (
	"testing"
	"time"

	"github.com/livekit/protocol/livekit"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"touchline/agent/room/conn"
	"touchline/internal/clocktest"
)

func TestVerifySender(t *testing.T) {
	keys := conn.Keys{APIKey: "key", APISecret: "a secret that is long enough for a signature"}
	who := conn.Person{Room: "match", Identity: "ann", Name: "Ann"}
	camera, err := conn.CameraToken(keys, who)
	require.NoError(t, err)
	got, err := conn.VerifySender(keys, camera, "match")
	require.NoError(t, err)
	require.Equal(t, who, got)

	// The dispatches for the room that it creates.
	asking := who
	asking.Agents = []*livekit.RoomAgentDispatch{{AgentName: "commentator", Metadata: "{}"}}
	token, err := conn.CameraToken(keys, asking)
	require.NoError(t, err)
	got, err = conn.VerifySender(keys, token, "match")
	require.NoError(t, err)
	require.Len(t, got.Agents, 1)
	require.True(t, proto.Equal(asking.Agents[0], got.Agents[0]), got.Agents)

	_, err = conn.VerifySender(keys, camera, "other")
	require.ErrorIs(t, err, conn.ErrNoRight)
	viewer, err := conn.ViewerToken(keys, who)
	require.NoError(t, err)
	_, err = conn.VerifySender(keys, viewer, "match")
	require.ErrorIs(t, err, conn.ErrNoRight)

	forged, err := conn.CameraToken(conn.Keys{APIKey: "key", APISecret: "another secret of about the same length"}, who)
	require.NoError(t, err)
	last := len(camera) - 1
	again := camera[:last] + string(camera[last]+1) // the same signature: its last character has two spare bits, which are 0
	for _, bad := range []string{"", "x", "a.b.c", forged, camera + "x", again, camera[:last] + "\n" + camera[last:]} {
		_, err = conn.VerifySender(keys, bad, "match")
		require.ErrorIs(t, err, conn.ErrBadToken, "%q", bad)
	}
	_, err = conn.VerifySender(conn.Keys{}, camera, "match")
	require.ErrorIs(t, err, conn.ErrBadToken)
}

// TestTokenLifeAndTheWallClock: a token ends with the right that it is for, by the wall clock, and after an hour at most.
func TestTokenLifeAndTheWallClock(t *testing.T) {
	t.Parallel()
	keys := conn.Keys{APIKey: "k", APISecret: "a secret of the tests, long enough"}
	for _, step := range clocktest.Steps {
		until := clocktest.Step(time.Now().Add(30*time.Minute), step)
		token, err := conn.ViewerToken(keys, conn.Person{Room: "match", Identity: "ann", Until: until})
		require.NoError(t, err)
		read, err := conn.ReadToken(token)
		require.NoError(t, err)
		want := max(0, min(time.Hour, 30*time.Minute+step))
		require.WithinDuration(t, time.Now().Add(want), read.Expires, time.Minute, step)
	}
}
