package facts

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"touchline/inference"
)

const (
	factAge      = 3500 * time.Millisecond // after which an event is not told any more
	lastingAge   = 8 * time.Second         // the same of what still holds
	exactTraffic = 2                       // the largest number of a summary that is exact
	twoSentences = 2
	recentTexts  = 2                // wordings of a fact that are not used again at once
	makesOneIn   = 3                // arrivals are told with the number
	anotherTime  = 10 * time.Second // after a departure, in which the next one on that side is another
)

// again returns how long a fact of a kind is not told again on the same side.
func again(k kind) time.Duration {
	switch k {
	case crossFact:
		return 12 * time.Second
	case stopFact, togetherFact:
		return 10 * time.Second
	case goFact, lightFact:
		return 15 * time.Second
	case standFact:
		return 8 * time.Second
	default:
		return 0
	}
}

// telling is what was told.
type telling struct {
	repeats

	random      *rand.Rand
	recent      map[string][]string // wordings by key
	handles     map[string]int      // the track that was told by a colour
	instruction string
	order       order
	askedBy     string                   // who gave the instruction
	number      uint64                   // of the instruction
	asked       map[string]time.Duration // what happened, by asker
}

// repeats has the times of facts that are not told again soon.
type repeats struct {
	last     map[string]time.Duration
	summed   time.Duration // the last summary of a crowd
	unsummed bool          // events of the crowd since then
}

func (r *repeats) forget() { *r = repeats{last: map[string]time.Duration{}, summed: never} }

// soon reports whether a fact of its kind and side was told a short time ago; told is called for each that is told.
func (r *repeats) soon(f *fact, now time.Duration) bool {
	at, ok := r.last[string(f.kind)+string(f.side)]
	return ok && now-at < again(f.kind)
}

func (r *repeats) told(f *fact, now time.Duration) {
	r.last[string(f.kind)+string(f.side)] = now
	if f.kind == crowdFact {
		r.summed, r.unsummed = now, false
	}
}

func newTelling(random *rand.Rand) telling {
	return telling{random: random, recent: map[string][]string{}, asked: map[string]time.Duration{}}
}

// forget forgets what belongs to a source.
func (t *telling) forget() {
	t.repeats.forget()
	t.handles = map[string]int{}
	clear(t.asked)
}

// Tell returns sentences about the facts that were not told yet, the most important first, after the answer to a new instruction. Facts
// beyond MaxSentences wait for the next call while they hold.
func (w *Watcher) Tell(o TellOptions) Told {
	l := languageOf(o.Language)
	most := cmp.Or(max(o.MaxSentences, 0), twoSentences)
	var out Told
	t := &w.telling
	if o.Instruction != t.instruction || o.InstructionBy != t.askedBy || o.InstructionNumber != t.number {
		t.instruction, t.askedBy, t.number = o.Instruction, o.InstructionBy, o.InstructionNumber
		if out.Text = w.instruct(l, o.Instruction); out.Text != "" {
			out.Newest = w.now
			most--
		}
	}
	register := cmp.Or(w.telling.order.register, o.Register, Plain)
	for _, f := range w.due() {
		if most == 0 {
			break
		}
		w.take(f)
		if w.telling.soon(f, w.now) {
			continue
		}
		text := w.word(l, f, register)
		if text == "" {
			continue
		}
		if out.Text != "" {
			out.Text += " "
		}
		w.telling.told(f, w.now)
		out.Text += text
		out.Newest = max(out.Newest, f.at)
		out.Facts = append(out.Facts, inferenceFact(f))
		most--
	}
	return out
}

// due returns the facts that can be told now, the most important first.
func (w *Watcher) due() []*fact {
	all := slices.Clone(w.untold)
	w.untold = slices.DeleteFunc(w.untold, func(f *fact) bool {
		return f.outdated(all) || w.now-f.at > factAge && (!f.kind.lasting() || w.now-f.due > lastingAge)
	})
	var gone, due []*fact
	w.untold, gone = w.sumUp(w.untold)
	for _, f := range gone {
		f.told = true
	}
	for _, f := range w.untold {
		about := *f
		about.tracks = slices.DeleteFunc(slices.Clone(f.tracks), func(t *track) bool { return !w.wanted(t) })
		if len(about.tracks) > 0 || f.kind.plain() && (f.kind != numberFact || w.telling.order.wants(person, person)) {
			due = append(due, &about)
		}
	}
	due = append(joined(due), w.summary()...)
	slices.SortStableFunc(due, func(a, b *fact) int { return cmp.Or(cmp.Compare(a.rank, b.rank), cmp.Compare(a.at, b.at)) })
	return due
}

// take marks the facts that f stands for as told.
func (w *Watcher) take(f *fact) {
	w.untold = slices.DeleteFunc(w.untold, func(u *fact) bool {
		u.told = u.kind == f.kind && u.side == f.side && u.text == f.text && (u.kind.plain() || u.about(f.tracks))
		return u.told
	})
}

// plain reports whether facts of a kind have no tracks.
func (k kind) plain() bool {
	return slices.Contains([]kind{numberFact, crowdFact, boardFact, scoreFact, cutFact, panFact, lightFact}, k)
}

// lasting reports whether facts of a kind are about a state, which can be told later.
func (k kind) lasting() bool {
	return slices.Contains([]kind{standFact, numberFact, boardFact, scoreFact}, k)
}

// outdated reports whether another fact says more: what left has not also crossed, what goes on does not stand, and a number is told by
// what comes and goes.
func (f *fact) outdated(all []*fact) bool {
	return slices.ContainsFunc(all, func(o *fact) bool {
		switch {
		case o == f:
		case f.kind == numberFact:
			return o.arrives() || o.kind == leaveFact || o.kind == viewFact || o.kind == numberFact && o.at > f.at
		case o.kind == leaveFact:
			return !f.arrives() && f.kind != leaveFact && f.kind != viewFact && f.about(o.tracks)
		case f.kind == stopFact || f.kind == standFact:
			return (o.kind == goFact || o.kind == standFact) && o.at >= f.at && f.about(o.tracks)
		}
		return false
	})
}

// about reports whether a fact is about one of some tracks.
func (f *fact) about(tracks []*track) bool {
	return slices.ContainsFunc(f.tracks, func(t *track) bool { return slices.Contains(tracks, t) })
}

// joined puts those together that came or left on one side.
func joined(due []*fact) []*fact {
	var out []*fact
	for _, f := range due {
		i := slices.IndexFunc(out, func(o *fact) bool {
			moves := f.kind == leaveFact || f.kind == enterFact && f.at-o.at <= arriveJoin
			return moves && o.kind == f.kind && o.side == f.side && o.tracks[0].group == f.tracks[0].group
		})
		if i < 0 {
			out = append(out, f)
			continue
		}
		both := *out[i]
		both.tracks, both.at = slices.Concat(both.tracks, f.tracks), max(both.at, f.at)
		out[i] = &both
	}
	return out
}

// sumUp takes the single events of a crowd, but for those of a person with a colour of their own, out of facts: they are left to the
// next summary.
func (w *Watcher) sumUp(facts []*fact) (rest, summedUp []*fact) {
	came, left := w.traffic(w.now - crowdTime)
	if came+left <= crowdEvents || w.now-w.viewAt < sumTime {
		return facts, nil
	}
	for _, f := range facts {
		if summed(f.kind) && (len(f.tracks) != 1 || w.colour(f.tracks[0]) == "") {
			summedUp = append(summedUp, f)
		} else {
			rest = append(rest, f)
		}
	}
	w.telling.unsummed = w.telling.unsummed || len(summedUp) > 0
	return rest, summedUp
}

// summary returns the fact of a crowd if it is due.
func (w *Watcher) summary() []*fact {
	if !w.telling.unsummed || w.now-w.telling.summed < sumEvery {
		return nil
	}
	came, left := w.traffic(w.now - sumTime)
	return []*fact{{kind: crowdFact, at: w.now, due: w.now, rank: 1, n: came, out: left}}
}

// summed reports whether facts of a kind are summed up in a crowd.
func summed(k kind) bool {
	return slices.Contains([]kind{enterFact, appearFact, leaveFact, crossFact, togetherFact, stopFact, goFact}, k)
}

// traffic returns how many came and left since a time.
func (w *Watcher) traffic(since time.Duration) (came, left int) {
	for _, f := range w.log {
		n := 0
		for _, t := range f.tracks {
			if w.wanted(t) {
				n++
			}
		}
		switch {
		case f.at < since:
		case f.kind == enterFact || f.kind == appearFact:
			came += n
		case f.kind == leaveFact:
			left += n
		}
	}
	return came, left
}

// word returns the sentence of a fact; "" if it does not hold any more.
func (w *Watcher) word(l language, f *fact, r Register) string {
	about, ok := w.holding(f)
	if !ok {
		return ""
	}
	key, n := string(f.kind), len(about)
	switch {
	case f.kind == numberFact && f.n == 0:
		key = "nobody"
	case f.kind == numberFact:
		n = f.n
	case f.kind == lightFact:
		key += "." + f.text
	}
	text := w.choose(l, key, commonGroup(about), r)
	if text == "" {
		return ""
	}
	out := sentence(fill(text, n, w.values(l, f, about))) + w.more(l, f, n, r)
	for _, t := range about {
		t.told = true
	}
	return out
}

// holding returns the tracks of a fact that are still followed; false if the fact does not hold any more.
func (w *Watcher) holding(f *fact) (about []*track, ok bool) {
	alive := slices.DeleteFunc(slices.Clone(f.tracks), func(t *track) bool { return !slices.Contains(w.tracker.tracks, t) })
	switch f.kind {
	case viewFact, appearFact:
		return alive, len(alive) > 0
	case stopFact:
		return alive, len(alive) > 0 && alive[0].pace == resting
	case goFact, runFact:
		return alive, len(alive) > 0 && alive[0].pace != resting
	case standFact, crossFact, togetherFact:
		return alive, len(alive) == len(f.tracks)
	case numberFact:
		n, ok := w.counter(person).holds(w.now)
		return nil, ok && n == f.n
	case boardFact, scoreFact:
		return nil, slices.Contains(w.texts, f.text)
	case enterFact:
		if len(alive) > 0 {
			return alive, true
		}
	default:
	}
	return f.tracks, true
}

// values returns the values of a fact's templates.
func (w *Watcher) values(l language, f *fact, about []*track) values {
	v := values{"text": f.text, "time": l.duration(int(f.lasts.Seconds())), "in": l.traffic(f.n), "out": l.traffic(f.out)}
	if f.kind == crowdFact && f.n > exactTraffic { // one that hides another counts once
		v["in"] = l.fill("about", values{"n": v["in"]})
	} else if f.kind == crowdFact && f.out > exactTraffic {
		v["out"] = l.fill("about", values{"n": v["out"]})
	}
	if f.side != noSide {
		v["from"], v["to"] = l.one("from."+string(f.side)), l.one("to."+string(f.side))
		v["out"] = l.one("out." + string(f.side))
	}
	if len(about) > 0 {
		v["who"], v["see"], v["place"] = w.name(l, f, about, false), w.name(l, f, about, true), l.placesOf(about[:1])
		if in := w.zonesOf(about[0]); len(in) == 1 && (f.kind == stopFact || f.kind == standFact) {
			v["place"] = l.fill("at.zone", values{"zone": in[0].Name})
		}
	} else if f.kind == numberFact {
		v["who"], v["see"] = l.count(f.n, person, false), l.count(f.n, person, true)
	}
	return v
}

// reason returns a sentence in English about a fact, for people who check a rule. It names things as Tell would, and tells nothing.
func (w *Watcher) reason(f *fact) string {
	handles := maps.Clone(w.telling.handles)
	defer func() { w.telling.handles = handles }()
	l := languageOf(english)
	if f.region != nil {
		return w.regionReason(f)
	}
	return sentence(fill(l.wordings(string(f.kind), commonGroup(f.tracks), Plain)[0], len(f.tracks), w.values(l, f, f.tracks)))
}

func (l language) traffic(n int) string {
	if n == 0 {
		return l.one("none")
	}
	return l.number(n)
}

// commonGroup returns the group of all tracks; "" if they differ or there are none.
func commonGroup(tracks []*track) string {
	if len(tracks) == 0 || slices.ContainsFunc(tracks, func(t *track) bool { return t.group != tracks[0].group }) {
		return ""
	}
	return tracks[0].group
}

// choose returns one of a fact's wordings that was not used just before.
func (w *Watcher) choose(l language, key, group string, r Register) string {
	all := l.wordings(key, group, r)
	recent := w.telling.recent[key]
	fresh := slices.DeleteFunc(slices.Clone(all), func(s string) bool { return slices.Contains(recent, s) })
	if len(fresh) == 0 {
		fresh = all
	}
	if len(fresh) == 0 {
		return ""
	}
	text := fresh[w.telling.random.IntN(len(fresh))]
	recent = append(recent, text)
	w.telling.recent[key] = recent[max(0, len(recent)-recentTexts):]
	return text
}

// more returns a second sentence: how many there are now.
func (w *Watcher) more(l language, f *fact, n int, r Register) string {
	if commonGroup(f.tracks) != person || r == Brief {
		return ""
	}
	all := w.people()
	settled := all == w.knownPeople() && all <= exactMost
	switch {
	case f.kind == leaveFact && w.knownPeople() == 0:
		return " " + w.choose(l, "alone", "", r)
	case f.kind == enterFact && settled && all > n && w.telling.random.IntN(makesOneIn) == 0:
		return " " + sentence(fill(w.choose(l, "makes", "", r), all, values{"n": l.number(all)}))
	}
	return ""
}

// name returns what a fact is about: "a person in red", "another car", "two people and a dog".
func (w *Watcher) name(l language, f *fact, about []*track, seen bool) string {
	if len(about) == 1 {
		return w.single(l, f, about[0], seen)
	}
	counts, names := map[string]int{}, []string{}
	for _, t := range about {
		name := t.name()
		if counts[name]++; counts[name] == 1 {
			names = append(names, name)
		}
	}
	slices.SortStableFunc(names, func(a, b string) int {
		if (a == person) != (b == person) {
			return map[bool]int{true: -1, false: 1}[a == person]
		}
		return cmp.Compare(counts[b], counts[a])
	})
	if len(names) == 1 && f.arrives() && w.others(about) {
		return l.fill("more", values{"n": l.number(len(about)), "many": l.noun(names[0], formMany)})
	}
	parts := make([]string, len(names))
	for i, name := range names {
		parts[i] = l.count(counts[name], name, seen)
	}
	return l.list(parts)
}

func (f *fact) arrives() bool { return f.kind == enterFact || f.kind == appearFact }

// Numbers returns the numbers of things, people first: "3 people, 1 car".
func Numbers(things []inference.Thing) string {
	counts := map[string]int{}
	var names []string
	for _, t := range things {
		if counts[t.Name]++; counts[t.Name] == 1 {
			names = append(names, t.Name)
		}
	}
	first := func(name string) int {
		if name == person {
			return 0
		}
		return 1
	}
	slices.SortFunc(names, func(a, b string) int { return cmp.Or(first(a)-first(b), counts[b]-counts[a], cmp.Compare(a, b)) })
	for i, name := range names {
		if n := counts[name]; n > 1 {
			names[i] = fmt.Sprintf("%d %s", n, languageOf(english).noun(name, formMany))
		} else {
			names[i] = "1 " + name
		}
	}
	return strings.Join(names, ", ")
}

// others reports whether others of the group of tracks are known.
func (w *Watcher) others(tracks []*track) bool {
	return slices.ContainsFunc(w.tracker.tracks, func(t *track) bool {
		return t.sure && t.group == tracks[0].group && !slices.Contains(tracks, t)
	})
}

// leftBefore reports whether a departure on the same side was told a moment ago.
func (w *Watcher) leftBefore(f *fact) bool {
	at, ok := w.telling.last[string(f.kind)+string(f.side)]
	return ok && w.now-at < anotherTime
}

// single names one track. What was told before, and cannot be mistaken for another, is "the person".
func (w *Watcher) single(l language, f *fact, t *track, seen bool) string {
	shape := formOne
	colour := w.colour(t)
	switch {
	case colour != "" && w.telling.handles[colour] == t.id && t.told, colour == "" && t.told && !f.arrives() && !w.others([]*track{t}):
		shape = formThe
	case colour == "" && (f.arrives() && w.others([]*track{t}) || f.kind == leaveFact && w.leftBefore(f)):
		shape = formAnother
	}
	if seen && shape == formOne {
		shape = formSeen
	} else if seen && shape == formAnother {
		shape = formSeenAnother
	}
	name := l.noun(t.name(), shape)
	if colour == "" {
		return name
	}
	w.telling.handles[colour] = t.id
	return l.fill("wears", values{"who": name, "colour": l.one("colour." + colour)})
}

// colour returns what a person wears if no other one in view wears it or may.
func (w *Watcher) colour(t *track) string {
	colour := t.wears.colour()
	if colour == "" || slices.ContainsFunc(w.tracker.tracks, func(o *track) bool {
		return o != t && o.sure && o.group == person && o.wears.votes[colour] > 0
	}) {
		return ""
	}
	return colour
}

func (w *Watcher) wanted(t *track) bool { return w.telling.order.wants(t.group, t.name()) }
