package yard

import (
	"math/rand/v2"
	"slices"
	"sort"
	"time"
)

// Places in the yard, as Truth and Event name them.
const (
	placeGate    = "gate"
	placeDoor    = "door"
	placeParking = "parking"
	placePath    = "path"
	placeYard    = "yard"
	placeWall    = "wall"
)

// Actions of a person.
const (
	coming        = "coming"
	going         = "going"
	standing      = "standing"
	walking       = "walking"
	leavingParcel = "leaving_parcel"
	takingParcel  = "taking_parcel"
)

const (
	forever        = int64(1) << 50
	longestMS      = 120_000 // no act is longer
	longestQuietMS = 29_000  // before something new begins
	maxPeople      = 3       // at once
	maxInside      = 3       // people in the house
)

// point is a place on a person's way, and the action from there on.
type point struct {
	t      int64
	x, y   float64
	doing  string
	parcel bool
	size   float64 // 1 = upright, less while getting in and out of a car
}

// person is one visit of a person.
type person struct {
	id   int
	look look
	way  []point
}

// look is a person's appearance.
type look struct {
	coat, skin, hair int
	hat              bool
}

func (p *person) end() int64 { return p.way[len(p.way)-1].t }

// guest is a person in the house.
type guest struct {
	look
	since int64
}

// parcel is a parcel at the door.
type parcel struct {
	id, spot int
	period
}

// car is a car from its arrival until its departure.
type car struct {
	id, colour, bay int
	arrive, leave   int64    // when it begins to drive; arrive is before the start for a car that was there
	doors           []period // when its door stands open
}

// animal is an animal that runs, strolls or sits.
type animal struct {
	id, fur int
	kind    string
	wall    bool
	way     []point
}

// act is one course of events. Acts begin in order and may overlap.
type act struct {
	start, end int64
	people     []*person
	animals    []*animal
	gate, door []period // when they are open
	cars       []*car   // all that are there, until the next act
	parcels    []*parcel
	events     []Event
}

// script is the content of the yard, generated as far as it was needed.
type script struct {
	rng      *rand.Rand
	still    bool
	busy     bool // acts follow each other without long pauses
	acts     []*act
	ids      int
	inside   []guest // people in the house
	cars     []*car
	parcels  []*parcel
	laneBusy int64          // until when the lane between path and parking place is in use
	last     string         // story
	waits    map[string]int // acts since each story
}

func newScript(seed uint64, still bool) *script {
	s := &script{rng: rand.New(rand.NewPCG(seed, 0x79617264)), still: still, waits: map[string]int{}}
	first := &act{start: -longestMS}
	s.acts = []*act{first}
	s.inside = append(s.inside, guest{s.somebody(), -forever})
	if s.rng.IntN(2) == 0 || still {
		s.cars = append(s.cars, &car{id: s.id(), colour: s.rng.IntN(len(carNames())), bay: s.rng.IntN(bays), arrive: -forever, leave: forever})
	}
	first.cars = slices.Clone(s.cars)
	first.end = s.rng.Int64N(3000) - 8000
	return s
}

func (s *script) id() int {
	s.ids++
	return s.ids
}

func (s *script) between(lo, hi int64) int64  { return lo + s.rng.Int64N(hi-lo) }
func (s *script) real(lo, hi float64) float64 { return lo + (hi-lo)*s.rng.Float64() }
func (s *script) newest() *act                { return s.acts[len(s.acts)-1] }
func (s *script) event(a *act, e Event)       { a.events = append(a.events, e) }
func ms(t int64) time.Duration                { return time.Duration(t) * time.Millisecond }

// until generates the script to beyond the given time.
func (s *script) until(t int64) {
	for !s.still && s.newest().start <= t+longestMS {
		s.extend()
	}
}

// extend adds an act, after a pause, or while another continues.
func (s *script) extend() {
	prev := s.newest()
	over := prev.end
	for _, a := range s.recent(prev.start) {
		over = max(over, a.end)
	}
	t := over + s.between(18_000, 30_000)
	if s.rng.IntN(7) == 0 || s.busy && s.rng.IntN(4) > 0 {
		t = max(prev.start, 0) + s.between(4000, 10_000)
	}
	quiet := prev.end // since the last event
	if n := len(prev.events); n > 0 {
		quiet = prev.events[n-1].At.Milliseconds()
	}
	t = max(min(t, quiet+longestQuietMS), prev.start+2500)
	// At most two people are present when another one arrives.
	var ends []int64
	for _, p := range s.about(t) {
		ends = append(ends, p.end())
	}
	slices.Sort(ends)
	if n := len(ends); n >= maxPeople {
		t = ends[n-maxPeople] + 500
	}
	a := &act{start: t, end: t}
	s.cars = slices.DeleteFunc(s.cars, func(c *car) bool { return c.leave+driveMS < t })
	s.parcels = slices.DeleteFunc(s.parcels, func(p *parcel) bool { return p.end < t })
	s.play(a)
	for _, p := range a.people {
		a.end = max(a.end, p.end())
	}
	a.cars, a.parcels = slices.Clone(s.cars), slices.Clone(s.parcels)
	sort.SliceStable(a.events, func(i, j int) bool { return a.events[i].At < a.events[j].At })
	s.acts = append(s.acts, a)
}

// recent lists the acts that may continue at a time.
func (s *script) recent(t int64) []*act {
	from := sort.Search(len(s.acts), func(i int) bool { return s.acts[i].start > t-longestMS })
	to := sort.Search(len(s.acts), func(i int) bool { return s.acts[i].start > t })
	return s.acts[from:max(from, to)]
}

// about lists the people of these acts who are still present.
func (s *script) about(t int64) []*person {
	var out []*person
	for _, a := range s.recent(t) {
		for _, p := range a.people {
			if p.end() > t {
				out = append(out, p)
			}
		}
	}
	return out
}

// current returns the newest act that has begun.
func (s *script) current(t int64) *act {
	i := sort.Search(len(s.acts), func(i int) bool { return s.acts[i].start > t })
	return s.acts[max(0, i-1)]
}

// story is a kind of act with its share of all acts.
type story struct {
	name   string
	weight int
	lane   bool // it crosses the lane
	ready  bool
	play   func(*act)
}

// play chooses a story that can happen now, other than the previous one.
func (s *script) play(a *act) {
	bay, parked := s.freeBay(a.start), s.parkedCar(a.start)
	laneFree := a.start > s.laneBusy
	stories := []story{
		{"visitor", 12, false, len(s.inside) < maxInside, s.visitor},
		{"outing", 14, false, s.home(a.start), s.outing},
		{"delivery", 15, false, s.freeSpot(a.start) >= 0, s.delivery},
		{"collection", 14, false, s.oldParcel(a.start) != nil, s.collection},
		{"pause", 9, false, true, s.pause},
		{"arrival", 15, true, bay >= 0, func(a *act) { s.arrival(a, bay) }},
		{"departure", 14, true, parked != nil, func(a *act) { s.departure(a, parked) }},
		{"dog", 7, true, true, s.dog},
		{"cat", 7, true, true, s.cat},
	}
	total := 0
	can := stories[:0]
	for _, x := range stories {
		// A story that has not happened for long becomes more likely.
		s.waits[x.name]++
		x.weight *= 4 + s.waits[x.name]
		if x.ready && (laneFree || !x.lane) && x.name != s.last {
			can = append(can, x)
			total += x.weight
		}
	}
	pick := s.rng.IntN(total)
	for _, x := range can {
		if pick -= x.weight; pick < 0 {
			s.last, s.waits[x.name] = x.name, 0
			x.play(a)
			if x.lane {
				for _, p := range a.people {
					a.end = max(a.end, p.end())
				}
				s.laneBusy = max(s.laneBusy, a.end)
			}
			return
		}
	}
}

// somebody draws a person. It avoids the colours of coats in the house and in the last six acts. If that excludes every colour, it avoids
// only the coats in the house and in sight.
func (s *script) somebody() look {
	used, seen := map[int]bool{}, map[int]bool{}
	for _, l := range s.inside {
		used[l.coat], seen[l.coat] = true, true
	}
	for _, a := range s.acts[max(0, len(s.acts)-6):] {
		for _, p := range a.people {
			used[p.look.coat] = true
		}
	}
	for _, p := range s.about(s.newest().start) {
		seen[p.look.coat] = true
	}
	n := len(Coats())
	coat := s.rng.IntN(n)
	if len(used) == n {
		used = seen
	}
	for i := 0; used[coat] && i < n; i++ {
		coat = (coat + 1) % n
	}
	return look{coat: coat, skin: s.rng.IntN(3), hair: s.rng.IntN(4), hat: s.rng.IntN(4) == 0}
}

// home reports whether a person in the house may come out.
func (s *script) home(t int64) bool {
	return slices.ContainsFunc(s.inside, func(g guest) bool { return g.since < t })
}

// resident takes a person out of the house.
func (s *script) resident(t int64) look {
	i := s.rng.IntN(len(s.inside))
	for s.inside[i].since >= t {
		i = (i + 1) % len(s.inside)
	}
	l := s.inside[i].look
	s.inside = slices.Delete(s.inside, i, i+1)
	return l
}

func (s *script) freeBay(t int64) int {
	used := [bays]bool{}
	for _, c := range s.cars {
		if c.leave+driveMS > t {
			used[c.bay] = true
		}
	}
	first := s.rng.IntN(bays)
	for i := range bays {
		if b := (first + i) % bays; !used[b] {
			return b
		}
	}
	return -1
}

// parkedCar returns a car that has been parked for a while and has no departure yet.
func (s *script) parkedCar(t int64) *car {
	var can []*car
	for _, c := range s.cars {
		if c.leave == forever && t > c.arrive+driveMS+25_000 {
			can = append(can, c)
		}
	}
	if len(can) == 0 {
		return nil
	}
	return can[s.rng.IntN(len(can))]
}

func (s *script) freeSpot(t int64) int {
	used := [spots]bool{}
	for _, p := range s.parcels {
		if p.end+5000 > t {
			used[p.spot] = true
		}
	}
	for i, u := range used {
		if !u {
			return i
		}
	}
	return -1
}

// oldParcel returns a parcel that has been there for a while and has no collection yet.
func (s *script) oldParcel(t int64) *parcel {
	for _, p := range s.parcels {
		if p.end == forever && p.start+15_000 < t {
			return p
		}
	}
	return nil
}
