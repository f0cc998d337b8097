package sight

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestCheckRule(t *testing.T) {
	for _, when := range append(RuleNames(), "Two people come in.", "3 dogs leave to the left", "at least two cars on the right",
		"exactly 2 people", "there are more than six people", "no car for 30 s", "there is nobody", "nobody in the middle for 10 seconds",
		"no one is in view", "a woman enters", "someone waits on the left side for 1 minute", "an animal appears", "two buses",
		"the score is 2-1", `the board says "FULL TIME"`, "motion in 0,0,50,50", "a truck drives in from the right",
	) {
		require.NoError(t, CheckRule(when, nil), when)
	}
	for _, when := range []string{
		"", "no", "a", "person", "two enter", "somebody falls", "a goal is scored", "a person wearing a hat enters", "a man enters by the door",
		"a cup appears", "more than people", "nobody for a while", "the score", "somebody people",
	} {
		require.ErrorContains(t, CheckRule(when, nil), "a person enters from the left", when)
	}
}

func TestParseRule(t *testing.T) {
	for when, want := range map[string]rule{
		"A person enters from the left.":         {form: "enters", n: 1, name: person, side: leftSide},
		"two dogs leave on the right":            {form: "leaves", n: 2, name: "dog", side: rightSide},
		"somebody is there":                      {form: "count", how: "at least", n: 1, name: person},
		"more than 3 people on the left":         {form: "count", how: "more than", n: 3, name: person, place: "left"},
		"nobody for 5 minutes":                   {form: "none", n: 1, name: person, lasts: 5 * time.Minute},
		"a player stands in the centre for 20 s": {form: "stays", n: 1, name: person, word: "player", place: "middle", lasts: 20 * time.Second},
		"the text reads 2 - 1":                   {form: "text", n: 1, name: person, text: "2 - 1"},
	} {
		got, ok := parseRule(when)
		require.True(t, ok, when)
		require.Equal(t, want, got, when)
	}
}

// TestRulesOnAClip evaluates rules after each look, and compares the times of the events with the list.
func TestRulesOnAClip(t *testing.T) {
	w := newTestWatcher(1)
	began := map[string][]time.Duration{}
	rules := []string{
		"a person enters", "a person leaves", "more than 6 people", "nobody is there", "a dog appears", "two cars", "somebody is there",
	}
	recorded(t, "vtest").play(w, func(now time.Duration) {
		for _, when := range rules {
			f, holds := w.Holds(when)
			event := f.PTS < now // others hold again and again
			if holds && (!event && len(began[when]) == 0 || event && !slices.Contains(began[when], f.PTS)) {
				began[when] = append(began[when], f.PTS)
				require.NotEmpty(t, f.Reason)
				t.Logf("%5.1f %s: %s", now.Seconds(), when, f.Reason)
			}
		}
	})
	list := listOf(t)
	near := func(at time.Duration, what string) bool {
		for _, l := range list {
			if l.what == what && (l.at-at).Abs() <= 3*time.Second {
				return true
			}
		}
		return false
	}
	require.GreaterOrEqual(t, len(began["a person enters"]), 10)
	for _, at := range began["a person enters"] {
		require.True(t, near(at, "arrives"), at)
	}
	for _, at := range began["a person leaves"] {
		require.True(t, near(at, "leaves"), at)
	}
	require.NotEmpty(t, began["more than 6 people"])
	require.Len(t, began["somebody is there"], 1)
	require.Empty(t, began["nobody is there"])
	require.Empty(t, began["a dog appears"])
}

func TestRulesOfText(t *testing.T) {
	w := newTestWatcher(1)
	push := func(ms int, l Look) {
		l.PTS = time.Duration(ms) * time.Millisecond
		w.Push(l)
	}
	for ms := 0; ms < 3000; ms += 400 {
		push(ms, Look{Texts: []string{"ARS 0–0 CHE"}})
	}
	_, ok := w.Holds("the score changes")
	require.False(t, ok)
	_, ok = w.Holds("the text reads 0-0")
	require.True(t, ok)
	scored := BoardChange{PTS: 3 * time.Second, Old: "ARS 0–0 CHE", New: "ARS 1–0 CHE", Score: true}
	push(3200, Look{Texts: []string{"ARS 1–0 CHE"}, Lines: []BoardChange{scored}})
	f, ok := w.Holds("the score changes")
	require.True(t, ok)
	require.Equal(t, 3*time.Second, f.PTS)
	require.Contains(t, f.Reason, "ARS 1–0 CHE")
	_, ok = w.Holds("nobody for 3 s")
	require.True(t, ok)
}
