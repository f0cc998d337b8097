package pacing_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"touchline/internal/quantile"
	"touchline/pacing"
)

func votesConfig() pacing.VotesConfig {
	return pacing.VotesConfig{Need: 2, Of: 3, Pause: 10 * time.Second, ClearLooks: 2, ClearAfter: 30 * time.Second}
}

func TestVotes(t *testing.T) {
	with := func(change func(*pacing.VotesConfig)) pacing.VotesConfig {
		cfg := votesConfig()
		change(&cfg)
		return cfg
	}
	tests := []struct {
		name string
		cfg  pacing.VotesConfig
		// looks, one a second: x holds, o does not; - is a second without a look.
		looks string
		// want of each: . off, N new, + on, C cleared.
		want string
	}{
		{"one look of three is not enough", votesConfig(), "xooxoo", "......"},
		{"two in a row", votesConfig(), "xx", ".N"},
		{"two with one missed", votesConfig(), "xox", "..N"},
		{"a missed look does not end it", votesConfig(), "xxoxox", ".N++++"},
		{"looks in a row without the rule end it", votesConfig(), "xxoo", ".N+C"},
		{"votes start anew after the end", with(func(c *pacing.VotesConfig) { c.Pause = 0 }), "xxooxx", ".N+C.N"},
		{"the pause delays the next alert", votesConfig(), "xxooxxxxxxxxx", ".N+C.......N+"},
		{"the pause outlives an event", votesConfig(), "xxooxxooooooooo", ".N+C..........."},
		{"one of one", with(func(c *pacing.VotesConfig) { c.Need, c.Of, c.ClearLooks = 1, 1, 1 }), "oxo", ".NC"},
		{"three of three", with(func(c *pacing.VotesConfig) { c.Need = 3 }), "xxoxxx", ".....N"},
		{"no looks: the alert ends by time", with(func(c *pacing.VotesConfig) { c.ClearAfter = 3 * time.Second }), "xx----x", ".N++C.."},
		{
			"a late look that confirms the rule keeps the alert",
			with(func(c *pacing.VotesConfig) { c.ClearAfter = 3 * time.Second }), "xx--xo", ".N++++",
		},
		{"settings out of bounds are the nearest in them", pacing.VotesConfig{}, "xo", "NC"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			v := pacing.NewVotes(tt.cfg)
			var got []byte
			for i, look := range tt.looks {
				now := start().Add(time.Duration(i) * time.Second)
				var verdict pacing.Verdict
				if look == '-' {
					verdict = v.Wait(now)
				} else {
					verdict = v.Look(now, look == 'x')
				}
				got = append(got, map[pacing.Verdict]byte{
					pacing.VerdictOff: '.', pacing.VerdictNew: 'N', pacing.VerdictOn: '+', pacing.VerdictCleared: 'C',
				}[verdict])
			}
			require.Equal(t, tt.want, string(got))
		})
	}
}

func TestVotesReset(t *testing.T) {
	v := pacing.NewVotes(votesConfig())
	v.Look(start(), true)
	require.Equal(t, pacing.VerdictOff, v.Reset())
	require.Equal(t, pacing.VerdictOff, v.Look(start().Add(time.Second), true), "the look before the reset does not count")
	require.Equal(t, pacing.VerdictNew, v.Look(start().Add(2*time.Second), true))
	require.Equal(t, 2, v.Agreed())
	require.Equal(t, pacing.VerdictCleared, v.Reset())
	require.Zero(t, v.Agreed())
}

// TestVotesClockSetBack: the clock goes back by a day after an alert. The pause and the end of the alert take one more
// second, that of the change.
func TestVotesClockSetBack(t *testing.T) {
	v := pacing.NewVotes(votesConfig())
	now := start()
	look := func(held bool) pacing.Verdict {
		now = now.Add(time.Second)
		return v.Look(now, held)
	}
	look(true)
	require.Equal(t, pacing.VerdictNew, look(true))
	now = now.AddDate(0, 0, -1)
	require.Equal(t, pacing.VerdictOn, look(false))
	require.Equal(t, pacing.VerdictCleared, look(false))
	for range 8 {
		require.Equal(t, pacing.VerdictOff, look(true), "in the pause")
	}
	require.Equal(t, pacing.VerdictNew, look(true))
	now = now.AddDate(0, 0, 1)
	require.Equal(t, pacing.VerdictOn, look(true), "forward: a look that confirms the rule keeps the alert")
}

// script simulates a rule with events of 20 looks, 40 to 160 looks apart. A look is a second.
type script struct {
	miss, wrong float64 // of a look while the rule holds, and while it does not

	dice  *rand.Rand
	votes *pacing.Votes
	now   time.Time

	quiet, alarms    int // looks without an event, and alerts that begin there
	missed, twice    int // events without an alert, and further alerts of an event
	toAlert, toClear []int
}

func newScript(miss, wrong float64) *script {
	return &script{
		miss: miss, wrong: wrong, dice: rand.New(rand.NewPCG(1, 7)), now: start(),
		votes: pacing.NewVotes(pacing.VotesConfig{Need: 2, Of: 3, Pause: 10 * time.Second, ClearLooks: 5}),
	}
}

func (s *script) look(holds bool) pacing.Verdict {
	s.now = s.now.Add(time.Second)
	wrong := s.wrong
	if holds {
		wrong = s.miss
	}
	return s.votes.Look(s.now, holds != (s.dice.Float64() < wrong))
}

// event is one event after some looks without one.
func (s *script) event() {
	const during = 20
	before, shown := 40+s.dice.IntN(121), s.votes.Agreed() > 0
	for i := range before {
		switch s.look(false) {
		case pacing.VerdictNew:
			s.alarms++
			shown = false
		case pacing.VerdictCleared:
			if shown {
				s.toClear = append(s.toClear, i+1)
				shown = false
			}
		case pacing.VerdictOff, pacing.VerdictOn:
		}
	}
	s.quiet += before
	alerts := 0
	for i := range during {
		if s.look(true) != pacing.VerdictNew {
			continue
		}
		if alerts++; alerts == 1 {
			s.toAlert = append(s.toAlert, i+1)
		}
	}
	if alerts == 0 {
		s.missed++ // a false alarm is on, or its pause
	}
	s.twice += max(alerts-1, 0)
}

// TestVotesSimulated: 20,000 events, so that chance moves no figure of 1,000 over its bound.
func TestVotesSimulated(t *testing.T) {
	tests := []struct {
		miss, wrong      float64
		toAlert, toClear int     // looks, p95
		falseAlarms      float64 // per 1,000 looks
	}{
		{0.2, 0.01, 5, 5, 0.2},
		{0.02, 0.02, 2, 8, 0.8},
	}
	const events = 20_000
	for _, tt := range tests {
		t.Run(fmt.Sprintf("%g missed, %g wrong", tt.miss, tt.wrong), func(t *testing.T) {
			s := newScript(tt.miss, tt.wrong)
			for range events {
				s.event()
			}
			falseAlarms := 1000 * float64(s.alarms) / float64(s.quiet)
			t.Logf("p95 of looks to the alert %d, to its end %d; %.2f false alarms per 1,000 looks; of %d events %d missed, %d alerted twice",
				quantile.Of(s.toAlert, 0.95), quantile.Of(s.toClear, 0.95), falseAlarms, events, s.missed, s.twice)
			require.LessOrEqual(t, quantile.Of(s.toAlert, 0.95), tt.toAlert)
			require.LessOrEqual(t, quantile.Of(s.toClear, 0.95), tt.toClear)
			require.LessOrEqual(t, falseAlarms, tt.falseAlarms)
			require.Less(t, s.missed, events/100)
			require.Less(t, s.twice, events/100)
		})
	}
}
