package watch

import (
	"testing"
	"time"

	"github.com/livekit/protocol/livekit"
	"github.com/stretchr/testify/require"

	"touchline/agent/room/conn"
)

// watch calls next every 100 ms until the end, or until the bot joins again, and returns the times of each recovery,
// in seconds since the last packet.
func watch(s *stall, start time.Time, until time.Duration, see func(at time.Duration, s *stall) evidence) map[recovery][]float64 {
	done := map[recovery][]float64{}
	for at := time.Duration(0); at < until; at += conn.CheckEvery {
		c := s.next(start.Add(at), see(at, s))
		if c != recoveryNone {
			done[c] = append(done[c], at.Seconds())
		}
		if c == recoveryRejoin {
			break
		}
	}
	return done
}

func TestStall(t *testing.T) {
	t.Parallel()
	start := time.Unix(1000, 0)
	at := start.Add
	healthy := func(d time.Duration) evidence { return evidence{traffic: at(d)} }
	tests := []struct {
		name   string
		see    func(d time.Duration, s *stall) evidence
		rejoin float64 // seconds; 0 for never
		silent bool    // at the end
		again  int     // subscriptions in five minutes
	}{
		{"the connection is dead", func(time.Duration, *stall) evidence { return evidence{traffic: start} }, 9.1, false, 1},
		{"the new subscription carries padding", func(d time.Duration, s *stall) evidence {
			e := healthy(d)
			if !s.resubscribed.IsZero() && at(d).Sub(s.resubscribed) > time.Second {
				e.padding = s.resubscribed.Add(time.Second)
			}
			return e
		}, 0, true, 5},
		{"the server gets nothing from the camera", func(d time.Duration, _ *stall) evidence {
			e := healthy(d)
			if d > 12*time.Second {
				e.rating, e.ratedAt = livekit.ConnectionQuality_LOST, at(12*time.Second)
			}
			return e
		}, 0, true, 5},
		{"the server said so before the camera was silent", func(d time.Duration, _ *stall) evidence {
			e := healthy(d)
			e.rating, e.ratedAt = livekit.ConnectionQuality_POOR, start.Add(-time.Second)
			return e
		}, 20.1, false, 1},
		{"the server is content with the camera", func(d time.Duration, _ *stall) evidence {
			e := healthy(d)
			e.rating, e.ratedAt = livekit.ConnectionQuality_EXCELLENT, at(5*time.Second)
			return e
		}, 20.1, false, 1},
		{"nothing is known", func(d time.Duration, _ *stall) evidence { return healthy(d) }, 20.1, false, 1},
		{"the publisher does not allow it, and the server says so", func(d time.Duration, _ *stall) evidence {
			e := healthy(d)
			e.never, e.denied = true, true
			return e
		}, 0, false, 0},
		{"the subscription never had a packet", func(d time.Duration, _ *stall) evidence {
			e := healthy(d)
			e.never = true
			return e
		}, 0, true, 5},
		{"it never had a packet, and the connection is dead", func(time.Duration, *stall) evidence {
			return evidence{traffic: start, never: true}
		}, 9.1, false, 1},
		{"the connection dies while the camera is silent", func(d time.Duration, s *stall) evidence {
			e := healthy(min(d, 30*time.Second))
			if !s.resubscribed.IsZero() && d < 30*time.Second {
				e.padding = s.resubscribed.Add(time.Second)
			}
			return e
		}, 39.1, false, 2},
		{"pictures come again", func(d time.Duration, s *stall) evidence {
			e := healthy(d)
			if !s.resubscribed.IsZero() {
				e.padding = s.resubscribed.Add(time.Second)
			}
			if d >= 40*time.Second {
				e.media = at(d)
			}
			return e
		}, 0, false, 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var s stall
			s.begin(start)
			done := watch(&s, start, 5*time.Minute, tt.see)
			if tt.again > 0 {
				require.InDelta(t, 2.1, done[recoveryKeyFrame][0], 0.01)
				require.InDelta(t, 4.1, done[recoveryResubscribe][0], 0.01)
			}
			require.Equal(t, tt.silent, s.silent())
			require.Len(t, done[recoveryResubscribe], tt.again)
			if tt.rejoin == 0 {
				require.Empty(t, done[recoveryRejoin])
				return
			}
			require.InDelta(t, tt.rejoin, done[recoveryRejoin][0], 0.01)
		})
	}
}

// TestStallInVain: joins that do not help get rarer, until a picture comes.
func TestStallInVain(t *testing.T) {
	t.Parallel()
	var s stall
	now := time.Unix(1000, 0)
	var waits []float64
	for range 6 {
		s.begin(now)
		done := watch(&s, now, time.Hour, func(d time.Duration, _ *stall) evidence { return evidence{traffic: now.Add(d)} })
		waits = append(waits, done[recoveryRejoin]...)
		now = now.Add(time.Hour)
	}
	require.InDeltaSlice(t, []float64{20.1, 60.1, 180.1, 300.1, 300.1, 300.1}, waits, 0.01)
	require.Equal(t, recoveryNone, s.next(now, evidence{media: now, traffic: now}))
	require.Zero(t, s.rejoins)
}

// TestStallOfOurOwn: a process that stood still for long has not looked, which says nothing about the track.
func TestStallOfOurOwn(t *testing.T) {
	t.Parallel()
	var s stall
	now := time.Unix(1000, 0)
	s.begin(now)
	require.Equal(t, recoveryNone, s.next(now.Add(100*time.Millisecond), evidence{traffic: now}))
	now = now.Add(time.Minute)
	done := watch(&s, now, 3*time.Second, func(d time.Duration, _ *stall) evidence { return evidence{traffic: now.Add(d)} })
	require.Empty(t, done[recoveryRejoin])
	require.Empty(t, done[recoveryResubscribe])
}
