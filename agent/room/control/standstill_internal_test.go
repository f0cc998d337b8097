package control

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"touchline/agent/access"
	"touchline/agent/room/conn"
	"touchline/internal/clocktest"
)

// TestRequestsFromBeforeAStandstill are refused.
func TestRequestsFromBeforeAStandstill(t *testing.T) {
	t.Parallel()
	now := time.Now()
	c := &Control{}
	c.still.Check(now)
	require.ErrorIs(t, c.admit(&caller{identity: "a"}, nil, now.Add(time.Minute)), errBusy)
}

// TestRightsAndTheWallClock: rights end at a time of the wall clock, whichever way it is set.
func TestRightsAndTheWallClock(t *testing.T) {
	t.Parallel()
	now := time.Now()
	who := caller{identity: "a", known: true, attributes: Attributes(conn.Keys{}, access.Grant{Rights: access.AllInRoom, Expires: now.Add(30 * time.Minute)})}
	for step, over := range map[time.Duration]bool{0: false, -time.Hour: false, time.Hour: true, 31 * 24 * time.Hour: true} {
		require.Equal(t, over, (&Control{}).ended(who, clocktest.Step(now, step)) != nil, step)
	}
}
