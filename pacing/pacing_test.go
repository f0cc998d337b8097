package pacing_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"touchline/pacing"
)

func start() time.Time { return time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC) }

func TestDelayEstimator(t *testing.T) {
	cfg := pacing.DefaultConfig()
	ms := func(n int) time.Duration { return time.Duration(n) * time.Millisecond }

	t.Run("initial delay before anything was measured", func(t *testing.T) {
		require.Equal(t, cfg.InitialDelay, pacing.NewDelayEstimator(cfg).Target())
	})
	t.Run("the largest of few", func(t *testing.T) {
		e := pacing.NewDelayEstimator(cfg)
		for _, d := range []int{700, 2600, 900} {
			e.Observe(ms(d))
		}
		require.Equal(t, ms(2600)+cfg.Margin, e.Target())
	})
	t.Run("quantile of many, outliers forgotten", func(t *testing.T) {
		e := pacing.NewDelayEstimator(cfg)
		e.Observe(ms(9000))
		for i := range 100 {
			e.Observe(ms(1000 + 10*i))
		}
		require.Equal(t, ms(1940)+cfg.Margin, e.Target())
	})
	t.Run("bounds, fixed, off", func(t *testing.T) {
		e := pacing.NewDelayEstimator(cfg)
		e.Observe(time.Hour)
		require.Equal(t, cfg.MaxDelay, e.Target())
		fixed := cfg
		fixed.FixedDelay = 5 * time.Second
		e.Configure(fixed)
		require.Equal(t, 5*time.Second, e.Target())
		off := cfg
		off.InitialDelay = 0
		e.Configure(off)
		require.Zero(t, e.Target())
	})
	t.Run("covers its share of what it was told", func(t *testing.T) {
		rng := rand.New(rand.NewPCG(1, 2))
		e := pacing.NewDelayEstimator(cfg)
		late, n := 0, 2000
		for i := range n {
			d := ms(400) + time.Duration(rng.Int64N(int64(ms(2600))))
			if i > 5 && d > e.Target() {
				late++
			}
			e.Observe(d)
		}
		require.Less(t, late, n/50, "a margin of 0.4 s over p95 leaves next to none late")
	})
}

func TestPlaybackClock(t *testing.T) {
	var c pacing.PlaybackClock
	now := start()
	require.Equal(t, now.Add(time.Second), c.Start(now.Add(time.Second), 2*time.Second))
	require.Equal(t, now.Add(3*time.Second), c.End())
	require.Equal(t, now.Add(3*time.Second), c.Start(now, time.Second), "speech waits for speech")
	c.Cut(now.Add(2 * time.Second))
	require.Equal(t, now.Add(2*time.Second), c.End())
	require.Equal(t, now.Add(9*time.Second), c.Start(now.Add(9*time.Second), time.Second), "a clock that ran dry begins anew")
}

// TestPlaybackClockPlansForLosses: the worst of the last eight utterances counts.
func TestPlaybackClockPlansForLosses(t *testing.T) {
	var c pacing.PlaybackClock
	now := start()
	require.Equal(t, 3*time.Second, c.Expect(3*time.Second), "nothing was lost yet")
	require.Zero(t, c.Expect(-time.Second))
	c.Start(now, 4*time.Second)
	c.Slip(2*time.Second, time.Second)
	require.Equal(t, 6*time.Second, c.Expect(4*time.Second), "as much of the rest, during the utterance")
	c.Slip(4*time.Second, time.Second)
	require.Equal(t, 5*time.Second, c.Expect(4*time.Second))
	require.Equal(t, 10*time.Second, c.Expect(8*time.Second))
	require.Equal(t, 1500*time.Millisecond, c.Expect(time.Second), "a short rest can lose more than its share")
	require.Zero(t, c.Expect(0))
	c.Start(now, 100*time.Millisecond)
	c.Slip(100*time.Millisecond, 200*time.Millisecond)
	require.Equal(t, 5*time.Second, c.Expect(4*time.Second), "a gap in a word is no rate")
	for range 8 {
		c.Start(now, time.Second)
	}
	require.Equal(t, 4*time.Second, c.Expect(4*time.Second), "forgotten")
}

// TestPlaybackClockRests: pauses grow with each loss, and shrink without.
func TestPlaybackClockRests(t *testing.T) {
	var c pacing.PlaybackClock
	say := func(lost time.Duration) time.Duration {
		c.Start(start(), 4*time.Second)
		c.Slip(4*time.Second, lost)
		return c.Rest()
	}
	require.Zero(t, c.Rest())
	require.Zero(t, say(0))
	require.Equal(t, 200*time.Millisecond, say(200*time.Millisecond))
	require.Equal(t, 1200*time.Millisecond, say(time.Minute), "one long loss may be the last")
	require.Equal(t, 900*time.Millisecond, say(0))
	c.Start(start(), 4*time.Second)
	require.Equal(t, 675*time.Millisecond, c.Rest(), "nothing was lost so far")
	c.Slip(2*time.Second, 100*time.Millisecond)
	require.Equal(t, time.Second, c.Rest(), "during the utterance")
	for range 30 {
		say(3 * time.Second)
	}
	require.Equal(t, 10*time.Second, c.Rest())
	for range 30 {
		say(0)
	}
	require.Less(t, c.Rest(), 10*time.Millisecond)
}

func TestRelease(t *testing.T) {
	now := start()
	pause := 500 * time.Millisecond
	sec := func(n float64) time.Time { return now.Add(time.Duration(n * float64(time.Second))) }
	require.Equal(t, sec(2), pacing.Release(now, sec(2), time.Time{}, pause), "waits for its frame")
	require.Equal(t, now, pacing.Release(now, sec(-1), time.Time{}, pause), "late: at once")
	require.Equal(t, now, pacing.Release(now, time.Time{}, time.Time{}, pause), "no picture: at once")
	require.Equal(t, sec(3.15), pacing.Release(now, sec(2), sec(3), pause), "never into the voice before it")
	require.Equal(t, sec(4), pacing.Release(now, sec(4), sec(3), pause))
}

func TestGateTimesTheNextCycle(t *testing.T) {
	cfg := pacing.DefaultConfig()
	var g pacing.Gate
	now := start()
	at, ok := g.Next(now, time.Time{}, 3*time.Second, cfg)
	require.True(t, ok)
	require.Equal(t, now, at)
	require.NoError(t, g.Begin(now))
	_, ok = g.Next(now, time.Time{}, 0, cfg)
	require.False(t, ok, "one in flight")
	require.NoError(t, g.Finish(true))
	end := now.Add(6 * time.Second)
	at, ok = g.Next(now.Add(time.Second), end, 3*time.Second, cfg)
	require.True(t, ok)
	require.Equal(t, end.Add(cfg.PauseAfter-3*time.Second), at, "playback end + pause - D")
	g.Interrupt()
	at, _ = g.Next(now.Add(time.Second), end, 3*time.Second, cfg)
	require.Equal(t, now.Add(time.Second), at)
}

// TestGateRefuses: an event that the state does not allow returns an error with both names, and
// changes nothing.
func TestGateRefuses(t *testing.T) {
	now := time.Unix(0, 0)
	begin := func(g *pacing.Gate) error { return g.Begin(now) }
	finish := func(g *pacing.Gate) error { return g.Finish(true) }
	release := (*pacing.Gate).Release
	events := map[string]func(*pacing.Gate) error{"begin": begin, "finish": finish, "release": release}
	tests := []struct {
		state   pacing.GateState
		name    string
		by      []func(*pacing.Gate) error
		refused []string
	}{
		{pacing.GateOpen, "open", nil, []string{"finish", "release"}},
		{pacing.GateGenerating, "generating", []func(*pacing.Gate) error{begin, release}, []string{"begin", "release"}},
		{pacing.GateBlocked, "blocked", []func(*pacing.Gate) error{begin, finish, begin, finish}, []string{"begin", "finish"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var g pacing.Gate
			for _, event := range tt.by {
				require.NoError(t, event(&g))
			}
			before := g
			for _, name := range tt.refused {
				err := events[name](&g)
				require.Equal(t, &pacing.GateError{State: tt.state, Event: name}, err)
				require.EqualError(t, err, fmt.Sprintf("gate: event %q cannot happen while %s", name, tt.name))
				require.Equal(t, before, g)
			}
		})
	}
}

// TestGateRules sends random events to a gate and checks its two rules.
func TestGateRules(t *testing.T) {
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 7))
		var g pacing.Gate
		inFlight, unheard, now := 0, 0, start()
		releasedInFlight := false
		for range 500 {
			now = now.Add(time.Duration(rng.IntN(1000)) * time.Millisecond)
			switch rng.IntN(4) {
			case 0:
				if g.Begin(now) == nil {
					inFlight++
					releasedInFlight = false
				}
			case 1:
				said := rng.IntN(3) > 0
				if g.Finish(said) == nil {
					inFlight--
					if said && !releasedInFlight {
						unheard++
					}
				}
			case 2:
				waiting := unheard
				if g.Release() == nil {
					if waiting > 0 {
						unheard--
					} else {
						releasedInFlight = true
					}
				}
			case 3:
				if rng.IntN(10) == 0 {
					g.Interrupt()
				}
			}
			holds := func(ok bool, rule string) { // faster than require in 100,000 steps
				if !ok {
					require.FailNow(t, rule, "seed %d: %d in flight, %d unheard, gate %s", seed, inFlight, unheard, g.State())
				}
			}
			holds(inFlight <= 1, "at most one in flight")
			holds(unheard >= 0 && unheard <= 2, "one waits, one may be stuck in the generator")
			holds((unheard == 2) == (g.State() == pacing.GateBlocked), "blocked by two unheard comments")
			_, ok := g.Next(now, now, time.Second, pacing.DefaultConfig())
			holds(ok == (g.State() == pacing.GateOpen), "a cycle may start while the gate is open")
			holds(!ok || inFlight == 0 && unheard <= 1, "the rules of an open gate")
		}
		// The gate always returns to open.
		for range 4 {
			_ = g.Finish(false)
			_ = g.Release()
		}
		require.Equal(t, pacing.GateOpen, g.State())
	}
}

// TestSpeechFollowsSpeech simulates an engine of constant latency: the silence
// between two comments is the configured pause for any D that two comments can
// fill.
func TestSpeechFollowsSpeech(t *testing.T) {
	cfg := pacing.DefaultConfig()
	for _, tt := range []struct{ latency, speech, d time.Duration }{
		{600 * time.Millisecond, 2 * time.Second, time.Second},
		{600 * time.Millisecond, 2 * time.Second, 3 * time.Second},
		{1900 * time.Millisecond, 2 * time.Second, 2300 * time.Millisecond},
	} {
		var g pacing.Gate
		now := start()
		var due []time.Time // unheard, oldest first
		var gaps []time.Duration
		var voiceEnd, plannedEnd, finishAt time.Time
		generating := false
		for now.Before(start().Add(2 * time.Minute)) {
			if len(due) > 0 && !now.Before(due[0]) {
				if !voiceEnd.IsZero() {
					gaps = append(gaps, due[0].Sub(voiceEnd))
				}
				voiceEnd = due[0].Add(tt.speech)
				due = slices.Delete(due, 0, 1)
				require.NoError(t, g.Release())
			}
			if generating && !now.Before(finishAt) {
				require.NoError(t, g.Finish(true))
				generating = false
			}
			if at, ok := g.Next(now, plannedEnd, tt.d, cfg); ok && !now.Before(at) {
				require.NoError(t, g.Begin(now))
				generating, finishAt = true, now.Add(tt.latency)
				due = append(due, now.Add(tt.d))
				plannedEnd = now.Add(tt.d + tt.speech)
			}
			now = now.Add(5 * time.Millisecond)
		}
		require.NotEmpty(t, gaps)
		for _, gap := range gaps[1:] {
			require.InDelta(t, cfg.PauseAfter.Seconds(), gap.Seconds(), 0.02, "%+v", tt)
		}
	}
}
