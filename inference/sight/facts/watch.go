package facts

import (
	"math"
	"slices"
	"time"
)

// never is before all looks.
const never = -time.Hour

// watch is what is followed and measured.
type watch struct {
	tracker tracker
	aspect  float64
	now     time.Duration
	started bool

	// The view: since when, whether it was told, and whether the camera moves.
	viewAt   time.Duration
	viewTold bool
	movedAt  time.Duration
	pan      float64
	shaken   time.Duration // the last look that was not steady
	panTold  time.Duration

	arrivals []*track
	gone     []lost
	pairs    map[[2]int]walk
	counters map[string]*counter // by their keys: see counter
	number   int                 // that was told last; -1 before

	pending []*fact // that must still hold when they are due
	untold  []*fact
	log     []*fact // of the last minutes
	things  map[string]*sighting
	regions []*ground
	texts   []string
	clock   string
}

func (w *watch) newView(at time.Duration) {
	w.tracker.tracks, w.viewAt, w.viewTold = nil, at, false
	w.arrivals, w.gone, w.pending, w.number = nil, nil, nil, -1
	w.pairs, w.things = map[[2]int]walk{}, map[string]*sighting{}
	w.counters = map[string]*counter{person: {seenAt: never}}
}

func (w *watch) push(l Look, colour func(area) string) {
	if w.started && l.PTS <= w.now {
		return
	}
	w.now = l.PTS
	if !w.started {
		w.started, w.viewAt = true, w.now
	}
	w.camera(l)
	began, ended := w.tracker.push(w.now, l.Boxes)
	seen := slices.DeleteFunc(slices.Clone(w.tracker.tracks), func(t *track) bool { return !t.sure || t.at != w.now })
	if w.measurePan(seen); !w.steady() {
		w.shaken = w.now
	}
	for _, t := range ended {
		w.end(t)
	}
	for _, t := range began { // after those that ended: one may be the same
		w.begin(t)
	}
	for _, t := range seen {
		w.follow(t)
		w.pass(t)
		if t.group == person && !t.hidden {
			t.wears.vote(colour(t.box))
		}
	}
	w.walks(slices.DeleteFunc(seen, func(t *track) bool { return t.group != person }))
	w.count()
	w.noteThings(l.Boxes)
	w.tellView()
	w.arrive()
	w.tellNumber()
	w.board(l)
	w.settle()
}

// camera takes cuts, movements of the camera and changes of light.
func (w *watch) camera(l Look) {
	switch {
	case l.Cut:
		w.untold = slices.DeleteFunc(w.untold, func(f *fact) bool { return f.kind != boardFact && f.kind != scoreFact })
		w.newView(w.now)
		w.movedAt = never
		w.add(fact{kind: cutFact, at: w.now, rank: 2})
	case l.Pan:
		if w.now-w.movedAt > 4*calmTime && w.now-w.viewAt > settleTime {
			w.panTold = never // a new movement
		}
		w.movedAt = w.now
		if w.panTold == never && w.now-w.viewAt > settleTime {
			w.panTold = w.now
			w.add(fact{kind: panFact, at: w.now, rank: 5})
		}
		for _, t := range w.tracker.tracks { // ways and rests are measured anew
			t.first, t.path, t.pace = t.box, t.path[len(t.path)-1:], noPace
		}
	}
	if l.Light != 0 && !l.Cut {
		text := "brighter"
		if l.Light < 0 {
			text = "darker"
		}
		w.add(fact{kind: lightFact, at: w.now, rank: 4, text: text})
	}
}

// measurePan notes the median speed of what is followed: if nearly all goes one way, the camera turns.
func (w *watch) measurePan(seen []*track) {
	var vx, vy []float64
	for _, t := range seen {
		if len(t.path) > 3 && (t.group == person || t.group == vehicle) {
			vx, vy = append(vx, t.speed.x0), append(vy, t.speed.y0)
		}
	}
	w.pan *= 0.8
	if len(vx) >= 3 {
		w.pan = max(w.pan, math.Hypot(median(vx), median(vy)))
	}
}

func median(v []float64) float64 {
	slices.Sort(v)
	return (v[(len(v)-1)/2] + v[len(v)/2]) / 2
}

// steady reports whether what comes, goes or walks is not the camera's movement.
func (w *watch) steady() bool { return w.pan < panSpeed && w.now-w.movedAt > calmTime }

// seen returns what is seen now. A track that waits for its next box is not.
func (w *watch) seen() []*track {
	return slices.DeleteFunc(slices.Clone(w.tracker.tracks), func(t *track) bool { return !t.sure || w.now-t.at > seenTime })
}

// present returns what of a group, or of a class, is seen now.
func (w *watch) present(name string) []*track {
	return slices.DeleteFunc(w.seen(), func(t *track) bool { return t.group != name && t.name() != name })
}

// covered returns the share of a track's box that others of its group cover.
func (t *track) covered(others []*track) (share float64) {
	for _, o := range others {
		if o != t && o.group == t.group {
			share += t.box.common(o.box) / max(t.box.size(), 1e-9)
		}
	}
	return share
}

// apart returns what is seen now without what others cover, the most covered first: a pair often has a third box.
func (w *watch) apart() []*track {
	seen := w.seen()
	for {
		at, most := -1, coveredShare
		for i, t := range seen {
			if share := t.covered(seen); share >= most {
				at, most = i, share
			}
		}
		if at < 0 {
			return seen
		}
		seen = slices.Delete(seen, at, at+1)
	}
}

// count counts what is seen now: for rules by group, class and place, and the people that are told, without possible second boxes.
func (w *watch) count() {
	counts := map[string]int{}
	seen := w.seen()
	for _, t := range seen {
		if t.group == person && t.covered(seen) < doubtedShare {
			counts[person]++
		}
	}
	for _, t := range w.apart() {
		for _, place := range append(w.places(t), "") {
			counts[t.group+"@"+place]++
			if name := t.name(); name != t.group {
				counts[name+"@"+place]++
			}
		}
	}
	for key := range counts {
		w.counter(key)
	}
	for key, c := range w.counters {
		c.push(w.now, counts[key])
	}
}

// counter returns a counter: "person" of those that are told, for rules "dog@left" and, anywhere, "dog@".
func (w *watch) counter(key string) *counter {
	c, ok := w.counters[key]
	if !ok {
		c = &counter{seenAt: never}
		if people := w.counters[person]; people != nil { // none until now
			for _, x := range people.last {
				c.last = append(c.last, count{x.at, 0})
			}
		}
		w.counters[key] = c
	}
	return c
}

func (w *watch) people() int { return w.counter(person).now() }

// tellView tells what is there once things are believed, and no other one is about to be.
func (w *watch) tellView() {
	soon := slices.ContainsFunc(w.tracker.tracks, func(t *track) bool { return !t.sure && t.at == w.now })
	if w.viewTold || w.now-w.viewAt < settleTime || soon && w.now-w.viewAt < settleTime+believeGap/2 {
		return
	}
	w.viewTold = true
	if seen := w.seen(); len(seen) > 0 {
		w.number = len(w.present(person))
		w.add(fact{kind: viewFact, at: w.now, rank: 2, tracks: seen})
	}
}

// tellNumber tells a number of people that holds and that no arrival or departure has told.
func (w *watch) tellNumber() {
	n, ok := w.counter(person).holds(w.now)
	was := w.number
	least := 1
	switch {
	case was >= 0 && min(n, was) > exactMost:
		least = 3 // two lower bounds
	case was >= 0 && max(n, was) >= exactMost:
		least = 2
	}
	unclear := n > exactMost && w.knownPeople() > n+1 // others are followed, but not seen at the moment
	if !ok || unclear || !w.viewTold || max(n-was, was-n) < least || n == 0 && was < 0 {
		return
	}
	w.number = n
	w.add(fact{kind: numberFact, at: w.now, rank: 6, n: n})
}

// board takes the changes of text.
func (w *watch) board(l Look) {
	w.texts, w.clock = l.Texts, l.Clock
	for _, c := range l.Lines {
		f := fact{kind: boardFact, at: w.now, rank: 1, text: c.Text}
		if c.Score {
			f.kind, f.rank = scoreFact, 0
		}
		w.add(f)
	}
}

// add takes a fact that is certain now, or when it is due.
func (w *watch) add(f fact) {
	f.due = max(f.due, w.now)
	w.pending = append(w.pending, &f)
}

// settle moves the facts that are due, and still hold, to those that can be told.
func (w *watch) settle() {
	w.pending = slices.DeleteFunc(w.pending, func(f *fact) bool {
		if f.due > w.now {
			return false
		}
		if f.kind != stopFact || f.tracks[0].pace == resting && slices.Contains(w.tracker.tracks, f.tracks[0]) {
			w.untold, w.log = append(w.untold, f), append(w.log, f)
			if f.kind == enterFact || f.kind == appearFact || f.kind == leaveFact {
				if n := w.people(); min(n, w.number) <= exactMost {
					w.number = n
				}
			}
		}
		return true
	})
	w.untold = slices.DeleteFunc(w.untold, func(f *fact) bool { return w.now-f.due > sumTime })
	w.log = slices.DeleteFunc(w.log, func(f *fact) bool { return w.now-f.due > logTime })
	w.log = w.log[max(0, len(w.log)-logMost):]
}

// sighting is a thing that is not followed and only told when asked for.
type sighting struct {
	looks []time.Duration // in which it was sure
	box   area
}

const (
	thingScore  = 0.7
	thingLooks  = 3
	thingWithin = 3 * time.Second
)

func (w *watch) noteThings(boxes []Box) {
	seen := map[string]bool{}
	for _, b := range boxes {
		if groupOf(b.Class) != thing || b.Score < thingScore || seen[b.Class] {
			continue
		}
		seen[b.Class] = true
		if w.things[b.Class] == nil {
			w.things[b.Class] = &sighting{}
		}
		s := w.things[b.Class]
		s.looks, s.box = append(s.looks, w.now), areaOf(b)
	}
	for _, s := range w.things {
		s.looks = slices.DeleteFunc(s.looks, func(at time.Duration) bool { return w.now-at > thingWithin })
	}
}
