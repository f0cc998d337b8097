package ingest_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"touchline/internal/clocktest"
	"touchline/media/ingest"
)

// start is an arbitrary time.
func start() time.Time { return time.Date(2026, 3, 1, 20, 0, 0, 0, time.UTC) }

// arrivals maps frames of a source whose clock runs ppm fast through a clock,
// and returns for each frame how far the result is from the capture time.
func arrivals(t *testing.T, frames, fps int, ppm float64, transit func(i int) time.Duration) []time.Duration {
	t.Helper()
	var c ingest.Clock
	out := make([]time.Duration, 0, frames)
	var last time.Time
	for i := range frames {
		captured := time.Duration(i) * time.Second / time.Duration(fps)
		pts := time.Duration(float64(captured) * (1 + ppm/1e6))
		a := c.Map(pts, start().Add(captured+transit(i)))
		if i > 0 {
			require.True(t, a.After(last), "frame %d: arrival went back from %v to %v", i, last, a)
		}
		last = a
		out = append(out, a.Sub(start())-captured)
	}
	return out
}

func TestClockTakesJitterOut(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		ppm    float64
		jitter func(r *rand.Rand) time.Duration
	}{
		{"uniform", 0, func(r *rand.Rand) time.Duration { return time.Duration(r.Int64N(int64(50 * time.Millisecond))) }},
		{"uniform, source fast", 200, func(r *rand.Rand) time.Duration {
			return time.Duration(r.Int64N(int64(50 * time.Millisecond)))
		}},
		{"uniform, source slow", -200, func(r *rand.Rand) time.Duration {
			return time.Duration(r.Int64N(int64(50 * time.Millisecond)))
		}},
		{"bursts", 0, func(r *rand.Rand) time.Duration {
			if r.IntN(4) == 0 {
				return 50 * time.Millisecond
			}
			return time.Duration(r.ExpFloat64() * float64(3*time.Millisecond))
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			const fps = 30
			r := rand.New(rand.NewPCG(1, 2))
			off := arrivals(t, 120*fps, fps, tt.ppm, func(int) time.Duration { return 20*time.Millisecond + tt.jitter(r) })
			settled := off[30*fps:]
			least, most, worst := settled[0], settled[0], time.Duration(0)
			for i, d := range settled {
				least, most = min(least, d), max(most, d)
				if i > 0 {
					worst = max(worst, (d - settled[i-1]).Abs())
				}
			}
			t.Logf("band %v, largest step %v, offset %v to %v", most-least, worst, least, most)
			require.Less(t, most-least, 2*time.Millisecond, "jitter left in the arrivals")
			require.Less(t, worst, time.Millisecond, "one frame moved the mapping too far")
			require.Greater(t, least, 15*time.Millisecond)
			require.Less(t, most, 28*time.Millisecond, "drift is not followed")
		})
	}
}

func TestClockSettlesFromALateStart(t *testing.T) {
	t.Parallel()
	// The first frame waited 150 ms in a pacer; the others did not.
	off := arrivals(t, 60, 30, 0, func(i int) time.Duration {
		if i == 0 {
			return 170 * time.Millisecond
		}
		return 20 * time.Millisecond
	})
	require.InDelta(t, float64(20*time.Millisecond), float64(off[30]), float64(time.Millisecond))
}

func TestClockFollowsAPathChange(t *testing.T) {
	t.Parallel()
	const fps = 30
	t.Run("shorter", func(t *testing.T) {
		t.Parallel()
		off := arrivals(t, 60*fps, fps, 0, func(i int) time.Duration {
			if i < 20*fps {
				return 60 * time.Millisecond
			}
			return 30 * time.Millisecond
		})
		for i := 20 * fps; i < len(off); i++ {
			require.LessOrEqual(t, (off[i] - off[i-1]).Abs(), time.Millisecond)
		}
		require.InDelta(t, float64(30*time.Millisecond), float64(off[24*fps]), float64(3*time.Millisecond))
	})
	t.Run("longer", func(t *testing.T) {
		t.Parallel()
		off := arrivals(t, 120*fps, fps, 0, func(i int) time.Duration {
			if i < 20*fps {
				return 30 * time.Millisecond
			}
			return 80 * time.Millisecond
		})
		for i := 20 * fps; i < len(off); i++ {
			require.LessOrEqual(t, (off[i] - off[i-1]).Abs(), time.Millisecond)
		}
		require.InDelta(t, float64(30*time.Millisecond), float64(off[29*fps]), float64(time.Millisecond), "too soon")
		require.InDelta(t, float64(80*time.Millisecond), float64(off[100*fps]), float64(3*time.Millisecond))
	})
}

func TestClockStepsWhenTheSourceStoodStill(t *testing.T) {
	t.Parallel()
	// For 5 s the source's clock does not run: every frame comes 5 s late by its PTS.
	var c ingest.Clock
	var last time.Time
	for i := range 300 {
		pts := time.Duration(i) * time.Second / 30
		at := start().Add(pts)
		if i >= 150 {
			at = at.Add(5 * time.Second)
		}
		a := c.Map(pts, at)
		require.True(t, i == 0 || a.After(last))
		last = a
		if i >= 150+90 {
			require.InDelta(t, 0, float64(at.Sub(a)), float64(5*time.Millisecond), "frame %d", i)
		}
	}
}

func TestClockSurvivesAStall(t *testing.T) {
	t.Parallel()
	// A stall of 1.5 s, then all frames at once, does not move the clock.
	off := arrivals(t, 600, 30, 0, func(i int) time.Duration {
		if i >= 300 && i < 345 {
			return 20*time.Millisecond + time.Duration(345-i)*time.Second/30
		}
		return 20 * time.Millisecond
	})
	for _, d := range off[60:] {
		require.InDelta(t, float64(20*time.Millisecond), float64(d), float64(time.Millisecond))
	}
}

func TestClockNTP(t *testing.T) {
	t.Parallel()
	var c ingest.Clock
	require.True(t, c.NTP(time.Second).IsZero())
	require.True(t, c.At(time.Second).IsZero())
	c.Map(0, start())
	c.SenderReport(start().Add(time.Hour), 2*time.Second)
	require.Equal(t, start().Add(time.Hour+3*time.Second), c.NTP(5*time.Second))
}

func BenchmarkClock(b *testing.B) {
	b.ReportAllocs()
	var c ingest.Clock
	i := 0
	for b.Loop() {
		pts := time.Duration(i) * 33 * time.Millisecond
		c.Map(pts, start().Add(pts))
		i++
	}
}

// TestClockNeverLeadsFar: timestamps that run ahead, by a jump or a fast clock,
// place a picture at most a second after its arrival.
func TestClockNeverLeadsFar(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name  string
		media func(i int) time.Duration // of frame i at 30 fps
	}{
		{"jump of 9 s", func(i int) time.Duration {
			pts := time.Duration(i) * time.Second / 30
			if i >= 100 {
				pts += 9 * time.Second
			}
			return pts
		}},
		{"five times too fast for 10 s", func(i int) time.Duration {
			fast := max(0, min(i, 400)-100)
			return time.Duration(i+4*fast) * time.Second / 30
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var c ingest.Clock
			var last time.Time
			for i := range 2000 {
				received := start().Add(time.Duration(i) * time.Second / 30)
				got := c.Map(tt.media(i), received)
				require.LessOrEqual(t, got.Sub(received), time.Second, "frame %d", i)
				require.False(t, got.Before(last), "frame %d", i)
				last = got
				if i > 1200 {
					require.WithinDuration(t, received, got, 50*time.Millisecond, "frame %d: settled again", i)
				}
			}
		})
	}
}

// TestClockAndTheWallClock: a step of the wall clock moves no picture, and arrivals are by the wall clock as it is.
func TestClockAndTheWallClock(t *testing.T) {
	t.Parallel()
	for _, step := range clocktest.Steps {
		var c ingest.Clock
		began := time.Now()
		for i := range 100 {
			pts, by := time.Duration(i)*40*time.Millisecond, time.Duration(0)
			if i >= 50 {
				by = step
			}
			at := clocktest.Step(began.Add(pts), by)
			got := c.Map(pts, at)
			require.Equal(t, pts, got.Sub(began), "frame %d, %v", i, step)
			require.Zero(t, got.Round(0).Sub(at.Round(0)), "frame %d, %v", i, step)
		}
	}
}
