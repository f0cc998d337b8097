package facts

import (
	"fmt"
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
	scored := TextChange{Text: "ARS 1–0 CHE", Score: true}
	push(3200, Look{Texts: []string{"ARS 1–0 CHE"}, Lines: []TextChange{scored}})
	f, ok := w.Holds("the score changes")
	require.True(t, ok)
	require.Equal(t, 3200*time.Millisecond, f.PTS)
	require.Contains(t, f.Reason, "ARS 1–0 CHE")
	_, ok = w.Holds("nobody for 3 s")
	require.True(t, ok)
}

// TestRulesAfterACut: until the new view is told, rules are unknown and do not end an alert.
func TestRulesAfterACut(t *testing.T) {
	w := newTestWatcher(1)
	unknown := 0
	for i := range 30 {
		w.Push(Look{PTS: time.Duration(i) * 400 * time.Millisecond, Boxes: []Box{walker(0.5, 0, 0)}, Cut: i == 15})
		f, ok := w.Holds("somebody is there")
		require.NotEqual(t, ok, f.Unknown)
		if f.Unknown && i >= 15 {
			unknown++
		}
	}
	require.InDelta(t, settleTime/(400*time.Millisecond), unknown, 2)
}

// TestReasonTellsNothing: the reason of a rule leaves the names that are told as they are.
func TestReasonTellsNothing(t *testing.T) {
	w := newTestWatcher(1)
	for i := range 12 {
		w.push(Look{PTS: time.Duration(i) * 400 * time.Millisecond, Boxes: []Box{walker(0.5, 0, 0)}}, func(area) string { return "red" })
	}
	seen := w.seen()
	require.Len(t, seen, 1)
	require.Contains(t, w.reason(&fact{kind: enterFact, tracks: seen, side: leftSide}), "red")
	require.Empty(t, w.telling.handles)
}

// TestRulesAgainstTheList compares rules about arrivals, presence and numbers with what was listed by eye, for the clip, mirrored and
// backwards. Of an event that fired, one of its kind is listed within 3 s. A number, or presence, of a still is found if the rule holds at
// some time within 3 s after it.
func TestRulesAgainstTheList(t *testing.T) {
	list, clip := listOf(t), recorded(t, "vtest")
	var enters, numbers, crowds tally
	for _, c := range []struct {
		name string
		r    recording
		list []listed
	}{
		{"vtest", clip, list},
		{"mirrored", recorded(t, "mirrored"), mirrored(list)},
		{"backwards", clip.backwards(), backwards(list, 79400*time.Millisecond)},
	} {
		enters.add(enteringOf(t, c.name, c.r, c.list))
		numbers.add(numbersOfStills(t, c.name, c.r, c.list, 1, exactMost))
		crowds.add(numbersOfStills(t, c.name, c.r, c.list, exactMost+1, exactMost+2))
	}
	t.Logf("figures: a person enters: %v; presence and numbers to %d: %v; above: %v", enters, exactMost, numbers, crowds)
	require.GreaterOrEqual(t, enters.right(), 0.95)
	require.GreaterOrEqual(t, enters.recall(), 0.95)
	require.GreaterOrEqual(t, numbers.right(), 0.95)
	require.GreaterOrEqual(t, numbers.recall(), 0.95)
	require.GreaterOrEqual(t, crowds.right(), 0.95, "lower bounds")
}

// tally counts rules that held, those that were right, those that the list asks for, and those of them that were found.
type tally struct{ held, true, listed, found int }

func (c *tally) add(o tally) {
	c.held, c.true, c.listed, c.found = c.held+o.held, c.true+o.true, c.listed+o.listed, c.found+o.found
}

func (c *tally) right() float64  { return float64(c.true) / float64(max(c.held, 1)) }
func (c *tally) recall() float64 { return float64(c.found) / float64(max(c.listed, 1)) }

func (c tally) String() string {
	return fmt.Sprintf("%d of %d right (%.2f), found %d of %d (%.2f)", c.true, c.held, c.right(), c.found, c.listed, c.recall())
}

// enteringOf compares "a person enters" with the list.
func enteringOf(t *testing.T, name string, r recording, list []listed) (out tally) {
	t.Helper()
	var fired []time.Duration
	w := newTestWatcher(1)
	r.play(w, func(time.Duration) {
		f, ok := w.Holds("a person enters")
		if ok && !slices.Contains(fired, f.PTS) {
			fired = append(fired, f.PTS)
			require.NotNil(t, f.Box, "%s: %s", name, f.PTS)
		}
	})
	near := func(a, b time.Duration) bool { return (a - b).Abs() <= 3*time.Second }
	for _, at := range fired {
		out.held++
		if slices.ContainsFunc(list, func(l listed) bool { return (l.what == "arrives" || l.what == "appears") && near(l.at, at) }) {
			out.true++
		} else {
			t.Logf("%s: not listed: enters at %.1f", name, at.Seconds())
		}
	}
	for _, l := range list {
		if l.what != "arrives" || l.at < settleTime {
			continue
		}
		out.listed++
		if slices.ContainsFunc(fired, func(at time.Duration) bool { return near(l.at, at) }) {
			out.found++
		} else {
			t.Logf("%s: missed: enters at %.1f", name, l.at.Seconds())
		}
	}
	return out
}

// numbersOfStills compares "at least N people" with the listed stills, "somebody is there" for one.
func numbersOfStills(t *testing.T, name string, r recording, list []listed, least, most int) (out tally) {
	t.Helper()
	w := newTestWatcher(1)
	held := map[int][]time.Duration{} // times by number
	r.play(w, func(now time.Duration) {
		for n := least; n <= most; n++ {
			when := fmt.Sprintf("at least %d people", n)
			if n == 1 {
				when = "somebody is there"
			}
			if _, ok := w.Holds(when); ok {
				held[n] = append(held[n], now)
			}
		}
	})
	for _, l := range list {
		for n := least; n <= most && l.what == "count"; n++ {
			at := slices.ContainsFunc(held[n], func(at time.Duration) bool { return at >= l.at && at < l.at+400*time.Millisecond })
			soon := slices.ContainsFunc(held[n], func(at time.Duration) bool { return at >= l.at && at <= l.at+3*time.Second })
			if at {
				out.held++
			}
			if at && l.n >= n {
				out.true++
			}
			if l.n >= n {
				out.listed++
			}
			if l.n >= n && soon {
				out.found++
			} else if soon != (l.n >= n) && (at || !soon) {
				t.Logf("%s: at least %d at %.1f: listed %d, holds %v", name, n, l.at.Seconds(), l.n, soon)
			}
		}
	}
	return out
}

// FuzzCheckRule: a sentence that is understood can be evaluated.
func FuzzCheckRule(f *testing.F) {
	for _, when := range append(RuleNames(), "exactly 2 people on the right side", `the board says "FULL TIME"`, `a person enters the zone "yard"`,
		`2 cars cross the line "gate" to the left`, "no dog in the picture for 9999 h", "a a enters", "999 people", "\xff", "", "the board says \xae\xae\xb1\xb1\xb1\xb1\xb1\xb1") {
		f.Add(when)
	}
	w := newTestWatcher(1)
	for i := range 30 {
		w.Push(Look{PTS: time.Duration(i) * 400 * time.Millisecond, Boxes: []Box{walker(0.2, 0.01, 0), walker(0.5, 0, 0)}, Texts: []string{"A 2-1 B"}})
	}
	f.Fuzz(func(t *testing.T, when string) {
		if err := CheckRule(when, nil); err != nil {
			require.Less(t, len(err.Error()), 2<<10)
		}
		r, ok := parseRule(when)
		finding, holds := w.Holds(when)
		if !ok {
			require.False(t, holds)
			return
		}
		require.NotEmpty(t, r.name)
		require.GreaterOrEqual(t, r.n, 0)
		require.True(t, r.lasts >= 0 && r.lasts <= 9999*time.Hour, r.lasts)
		require.LessOrEqual(t, len(r.text), 3*len(when), "a byte that is not UTF-8 becomes a character of three bytes")
		require.True(t, !holds || finding.Reason != "")
	})
}
