package match

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"touchline/media/toyworld/paint"
)

// Direction of movement on the picture, as a record has it: 1, -1 or 0.
type Direction int

// The directions that play takes; None stands for no common direction.
const (
	Left  Direction = -1
	None  Direction = 0
	Right Direction = 1
)

// String returns the direction in lower case.
func (d Direction) String() string {
	switch d {
	case Left:
		return "left"
	case Right:
		return "right"
	case None:
	}
	return "none"
}

// Shot is what the camera shows.
type Shot uint8

// The shots. Replays show the last seconds before a goal again, slower.
const (
	ShotWide Shot = iota
	ShotLeft
	ShotRight
	ShotCrowd
	ShotReplayLeft
	ShotReplayRight
)

// String names the shot in plain words.
func (s Shot) String() string {
	switch s {
	case ShotWide:
		return "wide"
	case ShotLeft:
		return "left half"
	case ShotRight:
		return "right half"
	case ShotCrowd:
		return "crowd"
	case ShotReplayLeft, ShotReplayRight:
		return "replay"
	}
	return "unknown"
}

// shotNames are the names of shots in records.
func shotNames() []string {
	return []string{"wide", "left", "right", "crowd", "replay_left", "replay_right"}
}

// MarshalText returns the name in records.
func (s Shot) MarshalText() ([]byte, error) {
	if names := shotNames(); int(s) < len(names) {
		return []byte(names[s]), nil
	}
	return nil, fmt.Errorf("name shot %d: no such shot", s)
}

// UnmarshalText reads the name in records.
func (s *Shot) UnmarshalText(text []byte) error {
	n := slices.Index(shotNames(), string(text))
	if n < 0 {
		return fmt.Errorf("read shot %q: no such shot", text)
	}
	*s = Shot(n) //nolint:gosec // one of six
	return nil
}

// Outcome of a shot at the goal.
type Outcome string

// InGoal is the outcome of a shot that is a goal.
const InGoal Outcome = "goal"

// Kind of event.
type Kind string

// The kinds of events. Every one of them shows in the picture.
const (
	// Goal: a flash fills the picture, a banner comes, play stops.
	Goal Kind = "goal"
	// Cut: the camera changes from one frame to the next.
	Cut Kind = "cut"
	// Turn: the other team has the ball, and the players stream the other way.
	Turn Kind = "turn"
	// StillStart: nothing moves from here on, except the match clock and the frame counter.
	StillStart Kind = "still"
	// StillEnd: play begins again.
	StillEnd Kind = "play_on"
	// Dim and Brighten: the floodlights change within 0.6 s.
	Dim      Kind = "dim"
	Brighten Kind = "brighten"
	// Tint: the floodlights' colour changes within 0.6 s.
	Tint Kind = "tint"
)

// Kinds lists all kinds of events.
func Kinds() []Kind {
	return []Kind{Goal, Cut, Turn, StillStart, StillEnd, Dim, Brighten, Tint}
}

// Event is one thing that happens, for tests to compare with.
type Event struct {
	// At is the time since the world's start at which it begins to show.
	At   time.Duration `json:"-"`
	Kind Kind          `json:"kind"`
	// Direction of play from then on (Turn, StillEnd, Goal: the way of the shot).
	Direction Direction `json:"direction,omitempty"`
	// Player who scored (Goal).
	Player *Player `json:"player,omitempty"`
	// Shot after a Cut.
	Shot *Shot `json:"camera,omitempty"`
	// Where it shows: a word of a 3x3 grid such as "top left" or "centre"; "" means the whole picture.
	Where string `json:"where,omitempty"`
	// Text in plain words.
	Text string `json:"text"`
}

// passage is a stretch of the match with one kind of motion. Times are in
// milliseconds since the start, so that every machine computes the same.
type passage struct {
	start, end int64
	moving     bool
	dir        int // +1 right, -1 left, 0 none
	x0, x1     float64
	y0, y1     float64
	played     float64 // seconds of motion before it
	team       int     // in possession
	number     uint64  // counts passages: the seed of the passes
	carrier    int     // the figure with the ball when it begins
	goal       bool    // the last second is a shot into the goal
	joy        bool    // the team's celebration after a goal
	kickOff    bool    // ball and players in their places
	fromCentre bool    // the first pass is the kick-off
}

// shotSpan is one camera shot, until the next begins.
type shotSpan struct {
	start  int64
	shot   Shot
	replay int64 // what moment is shown at its start; 0 = live
}

// lightSpan is a change of the lights, in force until the next.
type lightSpan struct {
	start    int64
	from, to paint.Light
	text     string
}

// goalMark is a goal and the score after it.
type goalMark struct {
	at     int64
	team   int
	scorer int
	dir    int
	score  [2]int
}

// script is the whole match, made up as far as anybody asked.
type script struct {
	rng      *rand.Rand
	still    bool
	passages []passage
	shots    []shotSpan
	lights   []lightSpan
	goals    []goalMark
	events   []Event
	number   uint64
}

const (
	leadMS     = 2000 // kick-off at the start
	rampMS     = 600  // of a light
	lagMS      = 300  // how late the average player follows
	settleMS   = 800  // after which the last player has stopped
	slowMotion = 0.75
	forever    = int64(1) << 50
)

func newScript(seed uint64, still bool) *script {
	s := &script{rng: rand.New(rand.NewPCG(seed, 0x746f79776f726c64)), still: still}
	s.shots = []shotSpan{{}}
	s.lights = []lightSpan{{from: paint.Daylight(), to: paint.Daylight()}}
	first := passage{end: leadMS, x0: midX, x1: midX, y0: midY, y1: midY, kickOff: true, carrier: 9}
	if still {
		first.end = forever
	}
	s.passages = []passage{first}
	return s
}

// until makes up the match to beyond the given time.
func (s *script) until(ms int64) {
	for s.last().end <= ms+20000 {
		s.extend()
	}
}

func (s *script) last() *passage { return &s.passages[len(s.passages)-1] }

func (s *script) shot() Shot { return s.shots[len(s.shots)-1].shot }

func (s *script) between(lo, hi float64) float64 { return lo + (hi-lo)*s.rng.Float64() }

// reach is how far play may go in the shot, in metres.
func (s Shot) reach() (lo, hi float64) {
	switch s {
	case ShotLeft:
		return 12, 50
	case ShotRight:
		return 55, 93
	case ShotWide, ShotCrowd, ShotReplayLeft, ShotReplayRight:
	}
	return 13, 92
}

// extend adds a stretch of play and what comes of it.
func (s *script) extend() {
	prev := *s.last()
	lo, hi := s.shot().reach()
	speed := s.between(7.5, 9.5)
	if s.shot() != ShotWide {
		speed = s.between(5, 6)
	}
	dir := -prev.dir
	if dir == 0 {
		dir = 1
		if s.rng.IntN(2) == 0 {
			dir = -1
		}
	}
	room := func(d int) float64 {
		if d > 0 {
			return hi - prev.x1
		}
		return prev.x1 - lo
	}
	if prev.dir == 0 && room(dir) < room(-dir) {
		dir = -dir
	}
	length := min(room(dir), speed*s.between(5.2, 7.2))
	dur := max(int64(length/speed*1000), 3000)
	p := passage{
		start: prev.end, end: prev.end + dur, moving: true, dir: dir,
		x0: prev.x1, x1: prev.x1 + float64(dir)*length,
		y0: prev.y1, y1: s.between(24, 44),
	}
	p.team = 0
	if dir < 0 {
		p.team = 1
	}
	s.add(p)
	way := Right
	if dir < 0 {
		way = Left
	}
	switch {
	case prev.dir != 0:
		s.event(Event{At: ms(p.start + lagMS), Kind: Turn, Direction: way, Text: "play turns to the " + way.String()})
	default:
		s.event(Event{At: ms(p.start), Kind: StillEnd, Direction: way, Text: "play goes on to the " + way.String()})
	}
	s.incident(*s.last())

	near := dir > 0 && p.x1 > 76 || dir < 0 && p.x1 < 29
	switch pick := s.rng.IntN(100); {
	case near && pick < 30:
		s.score(way)
	case pick >= 82:
		s.freeKick()
	}
}

func (s *script) add(p passage) {
	if n := len(s.passages); n > 0 {
		q := s.passages[n-1]
		p.played = q.played
		if q.moving {
			p.played += float64(q.end-q.start) / 1000
		}
		p.carrier, p.fromCentre = q.lastCarrier(), q.kickOff
	}
	s.number++
	p.number = s.number
	s.passages = append(s.passages, p)
}

func (s *script) event(e Event) { s.events = append(s.events, e) }

// incident lets something happen in the middle of a stretch of play, well away from its turns.
func (s *script) incident(p passage) {
	const margin = 2200
	if p.end-p.start < 2*margin || s.rng.IntN(100) < 15 {
		return
	}
	at := p.start + margin + s.rng.Int64N(p.end-p.start-2*margin+1)
	lamp := s.lights[len(s.lights)-1].to
	switch pick := s.rng.IntN(100); {
	case pick < 55:
		x := p.x0 + (p.x1-p.x0)*float64(at-p.start)/float64(p.end-p.start)
		next := ShotWide
		if s.shot() == ShotWide {
			switch {
			case max(x, p.x1) < 50 && p.x1 >= 12:
				next = ShotLeft
			case min(x, p.x1) > 55 && p.x1 <= 93:
				next = ShotRight
			default:
				return
			}
		}
		s.cut(at, next, 0)
	case pick < 80:
		to := lamp
		kind, text := Dim, "the floodlights go down"
		if lamp.Level < 256 {
			to.Level, kind, text = 256, Brighten, "the floodlights come up"
		} else {
			to.Level = int16(130 + s.rng.IntN(30))
		}
		s.lamp(at, lamp, to, kind, text)
	default:
		to, text := lamp, "the floodlights turn white again"
		if lamp.DU != 0 || lamp.DV != 0 {
			to.DU, to.DV = 0, 0
		} else {
			switch s.rng.IntN(3) {
			case 0:
				to.DU, to.DV, text = 24, -8, "the floodlights turn blue"
			case 1:
				to.DU, to.DV, text = -4, 24, "the floodlights turn red"
			default:
				to.DU, to.DV, text = 20, 16, "the floodlights turn violet"
			}
		}
		s.lamp(at, lamp, to, Tint, text)
	}
}

func (s *script) cut(at int64, to Shot, replay int64) {
	s.shots = append(s.shots, shotSpan{start: at, shot: to, replay: replay})
	s.event(Event{At: ms(at), Kind: Cut, Shot: new(to), Text: "cut to the " + to.String() + " shot"})
}

func (s *script) lamp(at int64, from, to paint.Light, kind Kind, text string) {
	s.lights = append(s.lights, lightSpan{start: at, from: from, to: to, text: text})
	s.event(Event{At: ms(at), Kind: kind, Text: text})
}

func (s *script) freeKick() {
	q := *s.last()
	p := passage{start: q.end, end: q.end + 4000 + s.rng.Int64N(2500), x0: q.x1, x1: q.x1, y0: q.y1, y1: q.y1, team: q.team}
	s.add(p)
	s.event(Event{At: ms(p.start + settleMS), Kind: StillStart, Text: "everybody stands for a free kick"})
}

func (s *script) score(way Direction) {
	q := s.last()
	q.goal = true
	scorer := q.receiver((q.end - shotMS - q.start) / passMS)
	at, team := q.end, q.team
	var score [2]int
	if n := len(s.goals); n > 0 {
		score = s.goals[n-1].score
	}
	score[team]++
	if score[team] > 9 {
		score = [2]int{} // a new match on the same evening
		score[team] = 1
	}
	s.goals = append(s.goals, goalMark{at: at, team: team, scorer: scorer, dir: q.dir, score: score})
	where, replay := "right", ShotReplayRight
	if way == Left {
		where, replay = "left", ShotReplayLeft
	}
	s.event(Event{
		At: ms(at), Kind: Goal, Direction: way, Player: new(player(scorer)), Where: where,
		Text: "goal on the " + where,
	})
	crowd, again, back := at+3400, at+6600, at+10600
	s.add(passage{start: at, end: crowd, x0: q.x1, x1: q.x1, y0: q.y1, y1: q.y1, team: team, joy: true})
	s.cut(crowd, ShotCrowd, 0)
	s.add(passage{start: crowd, end: again, x0: midX, x1: midX, y0: midY, y1: midY, kickOff: true})
	s.cut(again, replay, at-int64(float64(back-again)*slowMotion))
	s.cut(back, ShotWide, 0)
	s.add(passage{start: again, end: back + 2800, x0: midX, x1: midX, y0: midY, y1: midY, kickOff: true})
	s.event(Event{At: ms(back), Kind: StillStart, Text: "everybody stands for the kick-off"})
}

func ms(v int64) time.Duration { return time.Duration(v) * time.Millisecond }
