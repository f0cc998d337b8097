package main

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"touchline/agent"
	"touchline/agent/look"
)

func TestBalance(t *testing.T) {
	at := func(s float64) time.Time { return time.Unix(1000, 0).Add(time.Duration(s * float64(time.Second))) }
	l := newLedger()
	add := func(segment string, cycle uint64, text string, from, to float64, final bool) {
		l.comments[segment] = &published{segment, cycle, text, at(from), at(to), final}
	}
	add("whole", 1, "All well.", 1, 3, true)
	add("again", 2, "All of it in the new room.", 4, 9, true)
	add("cut", 3, "Cut in the mid", 10, 12, true)
	add("dropped", 4, "Never", 13, 14, false)
	add("flight", 5, "Just before.", 15, 19.5, true)
	add("reader away", 6, "Nobody there.", 30, 33, true)
	add("begun away", 7, "Nobody to hear.", 21, 23, true)
	add("begun absent", 8, "Nobody to hear.", 31.5, 33, true)
	add("lost", 9, "Where is it?", 50, 52, true)
	add("part", 10, "It came in part.", 60, 62, true)
	add("no end", 11, "Never closed.", 70, 72, false)
	l.away = []span{{at(5), at(6)}, {at(20), at(25)}}
	for c := uint64(1); c <= 11; c++ {
		l.records[c] = look.Record{Cycle: c, Outcome: look.OutcomeSpoken}
	}
	l.records[3] = look.Record{Cycle: 3, Outcome: look.OutcomeCut, Reason: "a new instruction"}
	l.records[4] = look.Record{Cycle: 4, Outcome: look.OutcomeDropped, Reason: "stopped"}
	delete(l.records, 11)
	a := l.balance(map[string][]string{
		"whole": {"All well."}, "again": {"All of", "All of it in the new room."}, "part": {"It came"}, "no end": {"Never closed."},
	}, []span{{at(31), at(32)}}, at(80))
	require.Equal(t, 2, a.delivered)
	require.Equal(t, 2, a.cut)
	require.Equal(t, 1, a.inFlight)
	require.Equal(t, 1, a.missed)
	require.Len(t, a.lost, 3)
	require.Contains(t, a.lost[0]+a.lost[1]+a.lost[2], `cycle 11 at `)
	require.Contains(t, a.lost[0]+a.lost[1]+a.lost[2], `without a record`)
}

func TestAway(t *testing.T) {
	l := newLedger()
	for _, activity := range []string{
		agent.ActivityReconnecting, agent.ActivityReconnecting, agent.ActivityWatching, agent.ActivitySpeaking, agent.ActivityReconnecting,
	} {
		l.State(agent.Status{Activity: activity})
	}
	require.Len(t, l.away, 2)
	require.False(t, l.away[0].to.IsZero())
	require.True(t, l.away[1].to.IsZero())
}

// TestBalanceForgets: comments that ended before a moment are settled once.
func TestBalanceForgets(t *testing.T) {
	at := func(s int64) time.Time { return time.Unix(1000+s, 0) }
	l := newLedger()
	for i := range int64(4) {
		segment := string('a' + rune(i))
		l.comments[segment] = &published{segment, uint64(i), segment, at(200 * i), at(200*i + 2), true}
		l.Record(look.Record{Cycle: uint64(i), Outcome: look.OutcomeSpoken, InferenceStart: at(200*i - 2)})
	}
	got := map[string][]string{"a": {"a"}, "c": {"c"}, "d": {"d"}}
	a := l.balance(got, nil, at(450))
	require.Equal(t, []int{2, 1}, []int{a.delivered, len(a.lost)})
	require.Len(t, l.comments, 1)
	require.Len(t, l.records, 2)
	a = l.balance(got, nil, at(700))
	require.Equal(t, []int{3, 1}, []int{a.delivered, len(a.lost)})
	require.Empty(t, l.comments)
	require.Equal(t, 4, l.outcomes[look.OutcomeSpoken])
}

func TestFit(t *testing.T) {
	var all []sample
	for i := range 40 {
		s := sample{usage: usage{at: time.Unix(int64(i)*360, 0)}, heap: 20 + float64(i), files: 30 + i%2}
		if i < 10 {
			s.heap = 90 // before it settles; does not count
		}
		all = append(all, s)
	}
	slope, half := fit(all, func(s sample) float64 { return s.heap })
	require.InDelta(t, 10, slope, 1e-6)
	require.InDelta(t, 0, half, 1e-6)
	slope, half = fit(all, func(s sample) float64 { return float64(s.files) })
	require.Less(t, math.Abs(slope), half, "a figure that goes up and down is flat")
	require.Positive(t, half)
	slope, _ = fit(all[:2], func(sample) float64 { return 1 })
	require.Zero(t, slope)
}
