package facts

import (
	"bufio"
	"cmp"
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"touchline/inference"
)

// testRegions returns a zone on the right, a line up through the middle and a level line to the right.
func testRegions() []inference.Region {
	return []inference.Region{
		{Name: "Back Yard", Corners: [][2]float64{{0.6, 0.2}, {1, 0.2}, {1, 1}, {0.6, 1}}},
		{Name: "gate", Line: true, Corners: [][2]float64{{0.5, 0.95}, {0.5, 0.3}}},
		{Name: "fence", Line: true, Corners: [][2]float64{{0, 0.6}, {1, 0.6}}},
	}
}

func TestCheckRuleOfRegions(t *testing.T) {
	for when, want := range map[string]string{
		`a person enters the zone "Back Yard"`:                   "",
		`A person enters the zone "back  yard".`:                 "",
		`two people enter zone "back yard"`:                      "",
		`a dog leaves the zone "back yard"`:                      "",
		`a car crosses the line "gate"`:                          "",
		`a car crosses the line "gate" to the left`:              "",
		`somebody crosses the line "fence" up`:                   "",
		`nobody in the zone "back yard" for 10 s`:                "",
		`nobody is in the zone "back yard"`:                      "",
		`no car in the zone "back yard" for 5 minutes`:           "",
		`more than 2 people in the zone "back yard"`:             "",
		`somebody is in the zone "back yard"`:                    "",
		`somebody stands in the zone "back yard" for 20 seconds`: "",
		`a person enters the zone "garden"`:                      `the room has no zone "garden"; it has "Back Yard"`,
		`a person crosses the line "door"`:                       `the room has no line "door"; it has "gate", "fence"`,
		`a person enters the zone "gate"`:                        `"gate" is a line, and the rule needs a zone`,
		`nobody in the zone "gate"`:                              `"gate" is a line, and the rule needs a zone`,
		`a person crosses the line "back yard"`:                  `"Back Yard" is a zone, and the rule needs a line`,
		`a person enters the line "back yard"`:                   `"Back Yard" is a zone: write the zone "Back Yard"`,
		`a person enters the zone "back yard" from the left`:     `a person enters the zone "yard"`,
		`a person enters the zone`:                               `a person enters the zone "yard"`,
		`a person enters "back yard"`:                            `a person enters the zone "yard"`,
		`a person climbs over the line "fence"`:                  `crosses the line "gate" to the left`,
		`nobody crosses the line "gate"`:                         `crosses the line "gate" to the left`,
	} {
		err := CheckRule(when, testRegions())
		if want == "" {
			require.NoError(t, err, when)
			continue
		}
		require.ErrorContains(t, err, want, when)
	}
	require.ErrorContains(t, CheckRule(`a person enters the zone "yard"`, nil), `the room has no zone "yard", and no other; draw it first`)
}

// stander is a person whose feet are at a place.
func stander(x, y float64) Box {
	return Box{Class: person, Score: 0.9, X0: float32(x - 0.03), Y0: float32(y - 0.3), X1: float32(x + 0.03), Y1: float32(y)}
}

// TestPassages draws ways of one person, a box each 0.4 s, and counts the facts of regions.
func TestPassages(t *testing.T) {
	type place struct{ at, x, y float64 } // seconds; x < 0 is not seen
	tests := []struct {
		name string
		way  []place
		want []string
	}{
		{"to the right", []place{{0, 0.3, 0.8}, {4, 0.3, 0.8}, {8, 0.55, 0.8}, {10, 0.55, 0.8}}, []string{`cross line: person 1 right "gate"`}},
		{"to the left", []place{{0, 0.55, 0.8}, {4, 0.55, 0.8}, {8, 0.3, 0.8}, {10, 0.3, 0.8}}, []string{`cross line: person 1 left "gate"`}},
		{"and back", []place{{0, 0.4, 0.8}, {4, 0.55, 0.8}, {8, 0.4, 0.8}, {10, 0.4, 0.8}}, []string{
			`cross line: person 1 right "gate"`, `cross line: person 1 left "gate"`,
		}},
		{"for a moment only", []place{{0, 0.45, 0.8}, {3.6, 0.45, 0.8}, {4, 0.55, 0.8}, {4.4, 0.45, 0.8}, {9, 0.45, 0.8}}, nil},
		{"past the end of the line", []place{{0, 0.3, 0.25}, {8, 0.55, 0.25}, {10, 0.55, 0.25}}, nil},
		{"starts on the line", []place{{0, 0.5, 0.8}, {4, 0.5, 0.8}, {6, 0.4, 0.8}, {8, 0.4, 0.8}}, nil},
		{"into the zone", []place{{0, 0.55, 0.8}, {4, 0.55, 0.8}, {6, 0.8, 0.8}, {9, 0.8, 0.8}}, []string{`enter zone: person 1 "Back Yard"`}},
		{"out of the zone", []place{{0, 0.8, 0.8}, {4, 0.8, 0.8}, {6, 0.55, 0.8}, {9, 0.55, 0.8}}, []string{`leave zone: person 1 "Back Yard"`}},
		{"is in the zone at first", []place{{0, 0.8, 0.8}, {9, 0.8, 0.8}}, nil},
		{"up", []place{{0, 0.2, 0.8}, {3, 0.2, 0.8}, {7, 0.2, 0.5}, {9, 0.2, 0.5}}, []string{`cross line: person 1 left "fence"`}},
		{
			"lost on one side and found on the other",
			[]place{{0, 0.4, 0.8}, {4, 0.48, 0.8}, {4.4, -1, 0}, {6.4, -1, 0}, {6.8, 0.55, 0.8}, {9, 0.58, 0.8}},
			[]string{`cross line: person 1 right "gate"`},
		},
		{
			"lost before the way back",
			[]place{
				{0, 0.42, 0.8},
				{3.2, 0.42, 0.8},
				{4, 0.56, 0.8},
				{4.8, 0.56, 0.8},
				{5.2, -1, 0},
				{7.3, -1, 0},
				{7.6, 0.56, 0.8},
				{8.4, 0.56, 0.8},
				{8.8, 0.45, 0.8},
				{11, 0.45, 0.8},
			},
			[]string{`cross line: person 1 right "gate"`, `cross line: person 1 left "gate"`},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newTestWatcher(1)
			w.SetRegions(testRegions())
			for s := 0.0; s <= tt.way[len(tt.way)-1].at; s += 0.4 {
				l := Look{PTS: time.Duration(s * float64(time.Second))}
				i := slices.IndexFunc(tt.way, func(p place) bool { return p.at >= s })
				p, before := tt.way[i], tt.way[max(i-1, 0)]
				if share := (s - before.at) / max(p.at-before.at, 1e-9); i > 0 && before.x >= 0 && p.x >= 0 {
					p.x, p.y = before.x+share*(p.x-before.x), before.y+share*(p.y-before.y)
				}
				if p.x >= 0 {
					l.Boxes = []Box{stander(p.x, p.y)}
				}
				w.Push(l)
				_, two := w.Holds(`two people cross the line "gate"`)
				require.False(t, two, "it is one person, also there and back")
			}
			require.Equal(t, tt.want, regionFacts(w))
		})
	}
}

func regionFacts(w *Watcher) (out []string) {
	for _, f := range w.log {
		if f.region != nil {
			out = append(out, f.String())
		}
	}
	return out
}

// TestJitter has a person who stands on a line, with boxes that shake by a twentieth of the height, and then goes over it.
func TestJitter(t *testing.T) {
	w := newTestWatcher(1)
	w.SetRegions(testRegions())
	for i := range 100 {
		x := 0.5 + 0.015*math.Sin(float64(i*i))/w.aspect
		switch {
		case i < 10:
			x = 0.4
		case i > 90:
			x = 0.56
		}
		w.Push(Look{PTS: time.Duration(i) * 400 * time.Millisecond, Boxes: []Box{stander(x, 0.8)}})
	}
	require.Equal(t, []string{`cross line: person 1 right "gate"`}, regionFacts(w))
}

// TestRulesOfRegions has a person who walks in from the left, over the line and into the zone, stands there and leaves.
func TestRulesOfRegions(t *testing.T) {
	w := newTestWatcher(1)
	rules := []string{
		`a person enters the zone "back yard"`, `a person leaves the zone "back yard"`, `a person crosses the line "gate"`,
		`a person crosses the line "gate" to the right`, `a person crosses the line "gate" to the left`,
		`a person crosses the line "fence" down`, `a car crosses the line "gate"`, `somebody is in the zone "back yard"`,
		`nobody in the zone "back yard" for 10 s`, `more than 1 person in the zone "back yard"`,
		`somebody stands in the zone "back yard" for 20 seconds`, `two people cross the line "gate"`,
	}
	began, reasons := map[string]float64{}, map[string]string{}
	w.SetRegions(testRegions())
	for i := range 225 {
		now := time.Duration(i) * 400 * time.Millisecond
		l := Look{PTS: now}
		switch s := now.Seconds(); {
		case s < 14:
		case s < 24: // in from the left
			l.Boxes = []Box{stander(0.02+0.08*(s-14), 0.8)}
		case s < 60:
			l.Boxes = []Box{stander(0.82, 0.8)}
		case s < 63: // and out on the right
			l.Boxes = []Box{stander(0.82+0.08*(s-60), 0.8)}
		}
		w.Push(l)
		for _, when := range rules {
			require.NoError(t, CheckRule(when, testRegions()))
			if f, ok := w.Holds(when); ok && began[when] == 0 {
				began[when], reasons[when] = now.Seconds(), f.Reason
			}
		}
	}
	for when, at := range map[string]float64{
		rules[0]: 22.4, rules[1]: 64, rules[2]: 20.8, rules[3]: 20.8, rules[7]: 23, rules[8]: 10, rules[10]: 46,
	} {
		require.InDelta(t, at, began[when], 2.1, "%s: %v", when, began)
		delete(began, when)
	}
	require.Empty(t, began)
	require.Equal(t, `A person enters the zone "Back Yard".`, reasons[rules[0]])
	require.Equal(t, `A person crosses the line "gate" to the right.`, reasons[rules[3]])
	require.Equal(t, `No people in the zone "back yard" for 10 seconds.`, reasons[rules[8]])

	_, ok := w.Holds(rules[8])
	require.True(t, ok)
	changed := testRegions()
	changed[0].Corners[0][0] = 0.5
	w.SetRegions(changed)
	_, ok = w.Holds(rules[8])
	require.False(t, ok, "a changed zone begins anew")
	w.SetRegions(nil)
	for _, when := range rules {
		_, ok = w.Holds(when)
		require.False(t, ok, "a region that rests")
	}
}

// TestRegionsAfterAPan: while the camera moves, and for a second after it, the number of people in a zone is unknown.
func TestRegionsAfterAPan(t *testing.T) {
	w := newTestWatcher(1)
	w.SetRegions(testRegions())
	unknown, wrong := 0, 0
	for i := range 40 {
		w.Push(Look{PTS: time.Duration(i) * 400 * time.Millisecond, Boxes: []Box{stander(0.8, 0.8)}, Pan: i == 15})
		for _, when := range []string{`nobody in the zone "back yard"`, `at most 0 people in the zone "back yard"`} {
			f, ok := w.Holds(when)
			require.False(t, ok, when)
			if f.Unknown && i >= 15 {
				unknown++
			}
		}
		f, ok := w.Holds(`somebody is in the zone "back yard"`)
		if !ok && !f.Unknown {
			wrong++
		}
	}
	require.LessOrEqual(t, wrong, 1)
	require.InDelta(t, (calmTime+countHolds)/(400*time.Millisecond), unknown/2, 2)
}

// TestPassagesOfTheCamera: what only the camera moves over a line has not crossed it.
func TestPassagesOfTheCamera(t *testing.T) {
	w := newTestWatcher(1)
	w.SetRegions(testRegions())
	for i := range 40 {
		x := 0.05 * float64(min(max(i-15, 0), 6)) // all go right, within 2.4 s
		w.Push(Look{PTS: time.Duration(i) * 400 * time.Millisecond, Boxes: []Box{stander(0.2+x, 0.8), stander(0.35+x, 0.8), stander(0.6+x, 0.8)}})
	}
	require.Positive(t, w.shaken)
	require.Empty(t, regionFacts(w))
}

// TestRemovedRegion: what was in a zone is not in another one of its name.
func TestRemovedRegion(t *testing.T) {
	w := newTestWatcher(1)
	holds := func() (ok bool) {
		for range 10 {
			w.Push(Look{PTS: w.now + 400*time.Millisecond, Boxes: []Box{stander(0.8, 0.8)}})
		}
		_, ok = w.Holds(`somebody is in the zone "back yard"`)
		return ok
	}
	w.SetRegions(testRegions())
	require.True(t, holds())
	moved := testRegions()
	for i := range moved[0].Corners {
		moved[0].Corners[i][0] -= 0.5
	}
	w.SetRegions(moved)
	require.False(t, holds())
}

// passing is a line of testdata/zones.txt.
type passing struct {
	what   string
	at     time.Duration
	region string
	side   string
}

// presence returns the rule about whether people are in a zone that holds at the time of a listed number.
func (p passing) presence() []string {
	switch {
	case p.what != "count":
		return nil
	case p.side == "0":
		return []string{`nobody in the zone "` + p.region + `"`}
	}
	return []string{`somebody is in the zone "` + p.region + `"`}
}

// numbers returns the rules about how many people are in a zone that hold then.
func (p passing) numbers() []string {
	if p.what != "count" || p.side == "0" {
		return nil
	}
	people := p.side + ` people in the zone "` + p.region + `"`
	return []string{"at least " + people, "at most " + people}
}

// others returns the rules about the next higher and lower number of people, which do not hold then.
func (p passing) others() (out []string) {
	if p.what != "count" {
		return nil
	}
	n, _ := strconv.Atoi(p.side)
	out = append(out, fmt.Sprintf("at least %d people in the zone %q", n+1, p.region))
	if n > 0 {
		out = append(out, fmt.Sprintf("at most %d people in the zone %q", n-1, p.region))
	}
	return out
}

func zonesOf(t *testing.T) (all []inference.Region, list []passing) {
	t.Helper()
	file, err := os.Open("testdata/zones.txt")
	require.NoError(t, err)
	defer file.Close()
	number := func(s string) float64 {
		v, err := strconv.ParseFloat(s, 64)
		require.NoError(t, err)
		return v
	}
	for s := bufio.NewScanner(file); s.Scan(); {
		words := strings.Fields(s.Text())
		switch words[0] {
		case "#":
		case "line", "zone":
			r := inference.Region{Name: words[1], Line: words[0] == "line"}
			for p := range slices.Chunk(words[2:], 2) {
				r.Corners = append(r.Corners, [2]float64{number(p[0]), number(p[1])})
			}
			all = append(all, r)
		default:
			list = append(list, passing{words[0], time.Duration(number(words[1]) * float64(time.Second)), words[2], words[3]})
		}
	}
	return all, list
}

// passings returns how many listed passings the log has within 3 s, of how many, and how many of its facts are right, of how many.
func passings(t *testing.T, w *Watcher, list []passing) (found, events, right, told int) {
	t.Helper()
	left := slices.DeleteFunc(slices.Clone(list), func(p passing) bool { return strings.HasPrefix(p.what, "count") })
	for _, p := range left {
		if p.what != "maybe" {
			events++
		}
	}
	words := map[kind]string{lineFact: "crosses", zoneInFact: "enters", enterFact: "enters", zoneOutFact: "leaves", leaveFact: "leaves"}
	for _, f := range w.log {
		for _, k := range f.tracks {
			for _, r := range w.regions {
				what := words[f.kind]
				if what == "" || k.group != person || !w.within(rule{region: plainName(r.Name)}, f, k) {
					continue
				}
				like := func(what string) int {
					return slices.IndexFunc(left, func(p passing) bool {
						return p.what == what && p.region == r.Name && (p.at-f.at).Abs() <= 3*time.Second && (p.side == "-" || p.side == string(f.side))
					})
				}
				if i := like(what); i >= 0 {
					left, right, told = slices.Delete(left, i, i+1), right+1, told+1
				} else if like("maybe") < 0 {
					told++
					t.Logf("not listed: %.1f %s (%s)", f.at.Seconds(), f, r.Name)
				}
			}
		}
	}
	for _, p := range left {
		if p.what != "maybe" {
			t.Logf("missed: %.1f %s %s %s", p.at.Seconds(), p.what, p.region, p.side)
		}
	}
	return right, events, right, told
}

// TestZonesOnTheClip compares the clip's passings, and the presence and numbers of people in zones within a second, with the list.
func TestZonesOnTheClip(t *testing.T) {
	for _, name := range []string{"vtest", "mirrored"} {
		all, list := zonesOf(t)
		if name == "mirrored" {
			for _, r := range all {
				for i := range r.Corners {
					r.Corners[i][0] = 1 - r.Corners[i][0]
				}
			}
			for i, p := range list {
				list[i].side = cmp.Or(map[string]string{"left": "right", "right": "left"}[p.side], p.side)
			}
		}
		w := newTestWatcher(1)
		w.SetRegions(all)
		held := map[string][]time.Duration{} // the looks in which rules held
		recorded(t, name).play(w, func(now time.Duration) {
			for _, p := range list {
				for _, when := range slices.Concat(p.presence(), p.numbers(), p.others()) {
					if _, ok := w.Holds(when); ok && !slices.Contains(held[when], now) {
						held[when] = append(held[when], now)
					}
				}
			}
		})
		score := func(rules func(p passing) []string) (right, of int) {
			for _, p := range list {
				for _, when := range rules(p) {
					of++
					if slices.ContainsFunc(held[when], func(at time.Duration) bool { return (at - p.at).Abs() <= time.Second }) {
						right++
					} else {
						t.Logf("does not hold: %.1f %s", p.at.Seconds(), when)
					}
				}
			}
			return right, of
		}
		wrong, ofWrong := 0, 0 // rules with another number that hold at the time
		for _, p := range list {
			for _, when := range p.others() {
				ofWrong++
				if slices.ContainsFunc(held[when], func(at time.Duration) bool { return at >= p.at && at < p.at+400*time.Millisecond }) {
					wrong++
					t.Logf("holds: %.1f %s", p.at.Seconds(), when)
				}
			}
		}
		present, ofPresence := score(passing.presence)
		numbers, ofNumbers := score(passing.numbers)
		found, events, right, told := passings(t, w, list)
		t.Logf("figures: %s: %d of %d passings found, %d of %d told are right; presence %d of %d, numbers %d of %d, other numbers %d of %d", name,
			found, events, right, told, present, ofPresence, numbers, ofNumbers, wrong, ofWrong)
		require.GreaterOrEqual(t, float64(found)/float64(events), 0.9)
		require.GreaterOrEqual(t, float64(right)/float64(told), 0.9)
		require.GreaterOrEqual(t, float64(present)/float64(ofPresence), 0.95)
		require.GreaterOrEqual(t, float64(numbers)/float64(ofNumbers), 0.9)
		require.LessOrEqual(t, float64(wrong)/float64(ofWrong), 0.05)
	}
}
