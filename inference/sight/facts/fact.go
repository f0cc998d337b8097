package facts

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"touchline/inference"
)

// Constants of the facts. Distances and speeds are in heights of the thing.
const (
	settleTime   = 2 * time.Second // after a new view, in which things count as already there
	calmTime     = 2 * time.Second // after the camera moved, until what comes and goes counts again
	nearEdge     = 0.06            // gap of a first or last box that came or left at a side
	reachesEdge  = 1.5             // seconds in which its speed takes it there
	speedSpan    = 1400 * time.Millisecond
	quietView    = 3                       // people up to which one comes "into view"
	crowdLooks   = 1300 * time.Millisecond // between looks, above which more people are not told apart
	arriveWait   = 1600 * time.Millisecond // for others who come along
	arriveJoin   = 2400 * time.Millisecond // between those who came together
	edgeReach    = 0.5                     // of another one, within which a first box at the picture's edge is no arrival
	leaveAge     = 2500 * time.Millisecond
	returnTime   = 4 * time.Second // in which a lost track comes back
	returnReach  = 2.0
	returnLap    = 800 * time.Millisecond  // in which both have boxes
	seenTime     = 500 * time.Millisecond  // since its last box, in which a thing is counted
	numberHolds  = 2500 * time.Millisecond // before a number is told
	doubtedShare = 0.5                     // of a box that others cover, which is then not told as a person
	coveredShare = 0.6                     // the same of the most covered box, which then does not count for rules
	paceSpan     = 2 * time.Second
	restSpeed    = 0.10 // a second
	restGrowth   = 0.04 // a second
	walkSpeed    = 0.25
	runSpeed     = 1.9
	stopHolds    = 1500 * time.Millisecond
	standReach   = 0.6
	goReach      = 0.4 // from where it stood, within which nothing sets off
	crossShare   = 0.5 // of the width
	pairHolds    = 2500 * time.Millisecond
	pairForgets  = 10 * time.Minute
	pairSpan     = 1600 * time.Millisecond
	panSpeed     = 0.08 // of nearly all that is followed, in widths a second
	crowdTime    = 15 * time.Second
	crowdEvents  = 4 // above which they are summed up
	sumEvery     = 10 * time.Second
	sumTime      = 30 * time.Second
	logTime      = 10 * time.Minute
	logMost      = 300
)

// standTimes are the times after which standing is told.
func standTimes() []time.Duration {
	return []time.Duration{
		10 * time.Second, 30 * time.Second, 2 * time.Minute, 5 * time.Minute, 15 * time.Minute, time.Hour,
	}
}

// kind is a kind of facts, and the key of its wordings.
type kind string

const (
	viewFact     kind = "view"
	enterFact    kind = "enter"
	appearFact   kind = "appear"
	leaveFact    kind = "leave"
	stopFact     kind = "stop"
	goFact       kind = "go"
	runFact      kind = "run"
	crossFact    kind = "cross"
	standFact    kind = "stand"
	togetherFact kind = "together"
	numberFact   kind = "number"
	crowdFact    kind = "crowd"
	boardFact    kind = "board"
	scoreFact    kind = "score"
	cutFact      kind = "cut"
	panFact      kind = "pan"
	lightFact    kind = "light"
	zoneInFact   kind = "enter zone" // these are for rules, and not told
	zoneOutFact  kind = "leave zone"
	lineFact     kind = "cross line"
)

// fact is one measured event.
type fact struct {
	kind   kind
	at     time.Duration // of the event
	due    time.Duration // when it was certain
	rank   int           // the least is told first
	tracks []*track
	side   side
	lasts  time.Duration
	n, out int    // a number; of a crowd, those that came and left
	text   string // what a board reads; "brighter" or "darker"; the region's name in quotes
	region *ground
	way    side // up or down over a line
	told   bool // or summed up
}

// String returns the fact for people who check it.
func (f *fact) String() string {
	names := make([]string, 0, len(f.tracks))
	for _, t := range f.tracks {
		names = append(names, fmt.Sprintf("%s %d", t.name(), t.id))
	}
	out := string(f.kind) + ": " + strings.Join(names, ", ")
	switch {
	case f.side != noSide:
		out += " " + string(f.side)
	case f.lasts > 0:
		out += " " + f.lasts.String()
	case f.kind == numberFact:
		out += fmt.Sprint(f.n, " people")
	case f.kind == crowdFact:
		out += fmt.Sprintf("%d in, %d out", f.n, f.out)
	}
	return strings.TrimSpace(out + " " + f.text)
}

// pace is how a thing moves.
type pace int

const (
	noPace pace = iota
	resting
	walking
	running
)

// stand is a time at one place.
type stand struct {
	since time.Duration
	box   area
	told  int // of standTimes
}

// motion returns the mean speed and the growth a second; false if the track is too young.
func (t *track) motion(span time.Duration, aspect float64) (vx, vy, growth float64, ok bool) {
	old, ok := t.since(span)
	if !ok {
		return 0, 0, 0, false
	}
	dt := (t.at - old.at).Seconds()
	x, y := t.box.centre()
	ox, oy := old.box.centre()
	h := max((t.box.height()+old.box.height())/2, 1e-3)
	growth = math.Pow(max(t.box.height(), 1e-3)/max(old.box.height(), 1e-3), 1/dt) - 1
	return (x - ox) * aspect / h / dt, (y - oy) / h / dt, growth, true
}

// edge returns the side that an area comes from, or goes to if its speed is reversed: it is near it, or its speed takes it there soon.
func (w *watch) edge(a, v area) side {
	within := max(reachesEdge, w.tracker.gap.Seconds()*1.4) // its speed may be measured too low
	best, soonest := noSide, math.Inf(1)
	for _, g := range a.gaps(v) {
		if g.departing <= 0.01 {
			continue
		}
		takes := max(g.size, 0) / g.departing
		if (g.size < nearEdge || takes < within) && takes < soonest-0.15 {
			best, soonest = g.side, takes
		}
	}
	return best
}

// returns reports whether a track that begins is one that was lost a moment ago. What left and what now comes in there, or walks the other
// way, are two.
func (w *watch) returns(t *track, old lost) bool {
	o := old.track
	if o.group != t.group || w.now-old.at >= returnTime || o.at-t.born > returnLap || o.box.alike(t.box) <= 0.6 {
		return false
	}
	from, to := t.startSpeed(), o.endSpeed()
	came, _ := from.centre()
	went, _ := to.centre()
	out := w.edge(o.box, area{}.plus(-1, to))
	if out != noSide && w.edge(t.first, from) == out || came*went < 0 && w.walking(came, t) && w.walking(went, o) {
		return false
	}
	// Its way leads on to where the new one began, and the new one's way comes from where it was lost.
	before := t.first.plus(-min(t.born-o.at, time.Second).Seconds(), from)
	reach := returnReach * t.box.height()
	return o.expected(t.born).distance(t.first, w.aspect) < reach && before.distance(o.box, w.aspect) < reach
}

// walking reports whether a speed in widths a second is a walk of what a track follows.
func (w *watch) walking(v float64, t *track) bool {
	return math.Abs(v)*w.aspect > walkSpeed*t.box.height()
}

// begin takes a track that is believed now.
func (w *watch) begin(t *track) {
	for i, old := range slices.Backward(w.gone) {
		o := old.track
		if w.returns(t, old) {
			w.gone = slices.Delete(w.gone, i, i+1)
			withdrawn := func(f *fact) bool { return f.kind == leaveFact && slices.Contains(f.tracks, o) }
			for _, list := range []*[]*fact{&w.pending, &w.untold, &w.log} {
				*list = slices.DeleteFunc(*list, withdrawn)
			}
			t.continues(o)
			if t.box.distance(o.box, w.aspect) > standReach*t.box.height() {
				t.pace, t.stood = noPace, stand{} // it walked unseen
			}
			return
		}
	}
	late := t.born-w.viewAt >= settleTime || w.edge(t.first, t.startSpeed()) != noSide
	if w.viewTold && late && w.steady() {
		w.arrivals = append(w.arrivals, t)
	}
}

// arrive tells of the arrivals that have waited for others to come along.
func (w *watch) arrive() {
	if len(w.arrivals) == 0 || w.now-w.arrivals[0].born < arriveWait {
		return
	}
	first := w.arrivals[0]
	from := func(t *track) side { return w.edge(t.first, t.startSpeed()) }
	at := from(first)
	var same []*track
	w.arrivals = slices.DeleteFunc(w.arrivals, func(t *track) bool {
		together := t == first || t.born-first.born <= arriveJoin && from(t) == at
		if together {
			same = append(same, t)
		}
		return together
	})
	reach, along := 0.8, arriveJoin
	if at == noSide {
		reach, along = 1.5, time.Second
	}
	same = slices.DeleteFunc(same, func(t *track) bool {
		if at != noSide && touches(t.first, area{}, 0) {
			return !w.alone(t, edgeReach, along)
		}
		return !w.alone(t, reach, along)
	})
	if at == noSide && w.knownPeople() > quietView || w.blurred() || len(same) == 0 {
		return // perhaps it was there before and only seen late: the number tells it
	}
	f := fact{kind: enterFact, at: same[len(same)-1].born, rank: 2, tracks: same, side: at}
	if at == noSide {
		f.kind = appearFact
	}
	if slices.ContainsFunc(same, func(t *track) bool { return t.group == person }) {
		f.rank = 1
	}
	w.add(f)
}

// knownPeople returns the number of people whose tracks are believed.
func (w *watch) knownPeople() int {
	n := 0
	for _, t := range w.tracker.tracks {
		if t.sure && t.group == person {
			n++
		}
	}
	return n
}

// blurred reports whether looks are so rare that people in a crowd are taken for each other.
func (w *watch) blurred() bool { return w.tracker.gap > crowdLooks && w.knownPeople() > quietView }

// alone reports whether nothing of its group was near when a track began, but for what began with it: a pair that parts is no arrival.
func (w *watch) alone(t *track, reach float64, together time.Duration) bool {
	for _, o := range w.tracker.tracks {
		if o == t || !o.sure || o.group != t.group || (o.born-t.born).Abs() < together {
			continue
		}
		i := slices.IndexFunc(o.path, func(p point) bool { return (p.at - t.born).Abs() < 700*time.Millisecond })
		if i >= 0 && o.path[i].box.distance(t.first, w.aspect) < reach*max(t.first.height(), o.path[i].box.height()) {
			return false
		}
	}
	return true
}

// end takes a track that ended.
func (w *watch) end(t *track) {
	w.gone = append(slices.DeleteFunc(w.gone, func(l lost) bool { return w.now-l.at >= returnTime }), lost{t, w.now})
	w.arrivals = slices.DeleteFunc(w.arrivals, func(a *track) bool { return a == t })
	if t.at-t.born < leaveAge || !w.steady() || t.hidden || w.blurred() || w.doubled(t) {
		return
	}
	if to := w.edge(t.box, area{}.plus(-1, t.endSpeed())); to != noSide {
		w.add(fact{kind: leaveFact, at: t.at, rank: 3, tracks: []*track{t}, side: to})
	}
}

// doubled reports whether a track was a second one of another thing: its last box lay on that one's.
func (w *watch) doubled(t *track) bool {
	others := slices.Clone(w.tracker.tracks)
	for _, l := range w.gone {
		others = append(others, l.track)
	}
	return slices.ContainsFunc(others, func(o *track) bool {
		return o != t && o.sure && o.group == t.group && slices.ContainsFunc(o.path, func(p point) bool {
			return (p.at-t.at).Abs() < 500*time.Millisecond && p.box.size() >= t.box.size() && p.box.common(t.box) > 0.5*t.box.size()
		})
	})
}

// follow measures the movement of a track that has a box in this look.
func (w *watch) follow(t *track) {
	vx, vy, growth, ok := t.motion(paceSpan, w.aspect)
	if !ok || !w.steady() {
		return
	}
	v, was := math.Hypot(vx, vy), t.pace
	whole := !touches(t.box, area{}, 0, topSide, bottomSide)
	switch {
	case v < restSpeed && math.Abs(growth) < restGrowth:
		t.pace = resting
	case t.group == person && v > runSpeed && whole && t.hits > 4:
		t.pace = running
	case was == resting && t.box.distance(t.stood.box, w.aspect) < goReach*t.box.height():
	case v > walkSpeed && (t.group != person || v < 0.7*runSpeed):
		t.pace = walking
	}
	if t.pace != was {
		w.changePace(t, was)
	}
	if t.pace == resting {
		w.stands(t)
	}
	x, _ := t.box.centre()
	from, _ := t.first.centre()
	way := x - from
	if !t.crossed && math.Abs(way) > crossShare && math.Abs(x-0.5) > 0.15 && (x-0.5)*way > 0 && t.at-t.born > 1500*time.Millisecond {
		t.crossed = true
		w.add(fact{kind: crossFact, at: t.at, rank: 3, tracks: []*track{t}, side: way2side(way)})
	}
}

func way2side(way float64) side {
	if way > 0 {
		return rightSide
	}
	return leftSide
}

func (w *watch) changePace(t *track, was pace) {
	stood := t.stood
	if t.pace == resting {
		t.stood = stand{since: t.at, box: t.box}
	}
	if was == noPace || t.at-t.born <= 3*time.Second {
		return
	}
	f := fact{at: t.at, rank: 4, tracks: []*track{t}}
	switch {
	case t.pace == running:
		f.kind, f.rank = runFact, 1
		w.add(f)
	case t.pace == walking && was == resting && t.at-stood.since > 4*time.Second:
		f.kind = goFact
		w.add(f)
	case t.pace == resting:
		f.kind, f.due = stopFact, t.at+stopHolds
		w.add(f)
	}
}

// stands tells how long a person or an animal has been at one place.
func (w *watch) stands(t *track) {
	if t.group != person && t.group != animal {
		return
	}
	if t.box.distance(t.stood.box, w.aspect) > standReach*t.box.height() {
		t.stood = stand{since: t.at, box: t.box}
	}
	if times := standTimes(); t.stood.told < len(times) && t.at-t.stood.since >= times[t.stood.told] {
		w.add(fact{kind: standFact, at: t.at, rank: 4, tracks: []*track{t}, lasts: times[t.stood.told]})
		t.stood.told++
	}
}

// walks tells of two people who have walked the same way side by side.
func (w *watch) walks(people []*track) {
	maps.DeleteFunc(w.pairs, func(_ [2]int, p walk) bool { return w.now-p.since > pairForgets })
	for i, a := range people {
		for _, b := range people[i+1:] {
			key := [2]int{a.id, b.id}
			p, known := w.pairs[key]
			if to := w.sideBySide(a, b); to == noSide {
				if !p.told {
					delete(w.pairs, key)
				}
			} else if !known {
				w.pairs[key] = walk{since: w.now}
			} else if !p.told && w.now-p.since >= pairHolds && w.steady() {
				w.pairs[key] = walk{since: p.since, told: true}
				w.add(fact{kind: togetherFact, at: w.now, rank: 3, tracks: []*track{a, b}, side: to})
			}
		}
	}
}

// sideBySide returns the side to which two people walk together.
func (w *watch) sideBySide(a, b *track) side {
	ax, ay, _, ok := a.motion(pairSpan, w.aspect)
	bx, by, _, ok2 := b.motion(pairSpan, w.aspect)
	near := a.box.distance(b.box, w.aspect) < 0.9*max(a.box.height(), b.box.height()) && a.box.alike(b.box) > 0.75
	if !ok || !ok2 || !near || min(math.Hypot(ax, ay), math.Hypot(bx, by)) <= walkSpeed || ax*bx <= 0 || math.Abs(ax-bx) >= 0.35 {
		return noSide
	}
	return way2side(ax)
}

// walk is a pair of people side by side.
type walk struct {
	since time.Duration
	told  bool
}

type lost struct {
	track *track
	at    time.Duration
}

// counter is a number in the last looks.
type counter struct {
	last   []count
	seenAt time.Duration // when it was not zero
}

type count struct {
	at time.Duration
	n  int
}

func (c *counter) push(now time.Duration, n int) {
	c.last = append(slices.DeleteFunc(c.last, func(x count) bool { return now-x.at > numberHolds }), count{now, n})
	if n > 0 {
		c.seenAt = now
	}
}

func (c *counter) now() int {
	if len(c.last) == 0 {
		return 0
	}
	return c.last[len(c.last)-1].n
}

// during returns the numbers of the last time, newest first; nil if the counter is younger.
func (c *counter) during(now, last time.Duration) (numbers []int) {
	for _, x := range slices.Backward(c.last) {
		if numbers = append(numbers, x.n); now-x.at >= last {
			return numbers
		}
	}
	return nil
}

// holds returns the number if it has not changed for long enough; above exactMost the least of the time, which is then a lower bound.
func (c *counter) holds(now time.Duration) (n int, ok bool) {
	numbers := c.during(now, numberHolds*8/10)
	if numbers == nil {
		return 0, false
	}
	least, most := slices.Min(numbers), slices.Max(numbers)
	return least, least == most || least > exactMost && most-least < 2
}

// exactMost is the largest number that is told as exact.
const exactMost = 4

func inferenceFact(f *fact) inference.Fact {
	return inference.Fact{PTS: f.at, Kind: string(f.kind), Text: f.String()}
}
