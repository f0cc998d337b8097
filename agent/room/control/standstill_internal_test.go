package control

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"touchline/agent/access"
	"touchline/agent/room/conn"
	"touchline/internal/clocktest"
)

// TestRequestsFromBeforeAStandstill are refused, until the system has no more of them; steps of the wall clock are no standstill.
func TestRequestsFromBeforeAStandstill(t *testing.T) {
	t.Parallel()
	for _, step := range clocktest.Steps {
		now := time.Now()
		after := func(d time.Duration) time.Time { return clocktest.Step(now.Add(d), step) }
		var s standstill
		require.False(t, s.stale(now), "no check yet")
		s.check(now)
		require.False(t, s.stale(after(time.Second)))
		s.check(after(time.Second))
		require.False(t, s.stale(after(30*time.Second)), "a slow machine")
		require.True(t, s.stale(after(62*time.Second)))
		s.check(after(62 * time.Second))
		require.True(t, s.stale(after(63*time.Second)))
		s.check(after(63 * time.Second))
		require.False(t, s.stale(after(65*time.Second)))
		s.reset()
		s.check(after(200 * time.Second))
		require.False(t, s.stale(after(200*time.Second)), "another connection")
	}
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
