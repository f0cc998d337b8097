package match

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"touchline/worlds/paint"
)

// passage is a stretch of the match with one kind of motion. Times are integers, in milliseconds
// since the start, so that every machine computes the same.
type passage struct {
	start, end int64
	phase      Phase
	dir        int // +1 right, -1 left, 0 none
	x0, x1     float64
	y0, y1     float64
	played     float64 // seconds of motion before it
	team       int     // in possession
	number     uint64  // counts passages: the seed of the passes
	carrier    int     // the figure with the ball when it begins, or to which it comes
	from       whence  // where the ball is when it begins
	spot       paint.Vec
	via        paint.Vec // first target of a ball on its way out: straight on, or back from the post
	out        paint.Vec // where a ball stops outside the pitch
	first      int       // who gets the first pass, -1 for anybody
	shooter    int       // who ends it with a shot at the goal, -1 for nobody
}

// whence is the ball's position at the start of a passage.
type whence uint8

const (
	atFeet  whence = iota // of the carrier
	inHands               // of the carrier, a keeper
	onSpot                // the passage's spot
)

// moving reports whether the players run.
func (p *passage) moving() bool { return p.phase == Play }

// whistle is a signal of the referee.
type whistle struct {
	at    int64
	blows int
}

// script is the whole match, generated as far as it was needed.
type script struct {
	rng      *rand.Rand
	busy     bool // more free kicks, and all players shoot equally often
	team     *[figures]footballer
	names    [2]string
	passages []passage
	whistles []whistle
	number   uint64

	scoreboard
	broadcast
}

const (
	leadMS   = 2000 // kick-off at the start
	lagMS    = 300  // how late the average player follows
	settleMS = 800  // after which the last player has stopped
	standMS  = 2800 // before a kick-off
	bounce   = 13   // metres that the ball comes back from the post, for visibility
	forever  = int64(1) << 50
)

func newScript(seed uint64, still bool, team *[figures]footballer, names [2]string) *script {
	s := &script{rng: rand.New(rand.NewPCG(seed, 0x746f79776f726c64)), team: team, names: names}
	s.broadcast = newBroadcast()
	first := kickOff(0, leadMS, s.rng.IntN(2))
	if still {
		first.end = forever
	}
	s.passages = []passage{first}
	s.scoreboard = scoreboard{still: still, halves: []half{{start: leadMS, number: 1, kicker: first.team}}}
	return s
}

// kickOff places all players, and the ball on the centre spot for a team.
func kickOff(start, end int64, team int) passage {
	return passage{
		start: start, end: end, phase: AtKickOff, x0: midX, x1: midX, y0: midY, y1: midY, team: team,
		carrier: team*teamSize + 9, from: onSpot, spot: paint.At(midX, midY, ballHeight), first: -1, shooter: -1,
	}
}

// until generates the match to beyond the given time.
func (s *script) until(ms int64) {
	for s.last().end <= ms+20000 {
		s.extend()
	}
}

func (s *script) last() *passage { return &s.passages[len(s.passages)-1] }

func (s *script) between(lo, hi float64) float64 { return lo + (hi-lo)*s.rng.Float64() }

// room returns the distance from x to the limit of play in the shot, in a direction, in metres.
func (s Shot) room(x float64, dir int) float64 {
	lo, hi := 13.0, 92.0
	switch s {
	case ShotLeft:
		lo, hi = 12, 50
	case ShotRight:
		lo, hi = 55, 93
	case ShotWide, ShotCrowd, ShotReplayLeft, ShotReplayRight:
	}
	if dir > 0 {
		return hi - x
	}
	return x - lo
}

// attacks returns the direction in which a team plays.
func attacks(team int) int { return 1 - 2*team }

// extend adds a stretch of play and its result.
func (s *script) extend() {
	prev := *s.last()
	whole := s.half().end()
	if prev.end >= whole {
		s.interval()
		return
	}
	p := s.stretch(prev, whole)
	s.add(p)
	s.begin(prev, *s.last())
	s.incident(*s.last())

	near := p.dir > 0 && p.x1 > 76 || p.dir < 0 && p.x1 < 29
	pick := s.rng.IntN(100)
	switch outcome := pickOutcome(pick); {
	case p.end >= whole:
	case near && outcome != noOutcome:
		s.attempt(outcome)
	case pick >= 74, s.busy && pick >= 40:
		s.freeKick()
	}
}

// stretch returns a stretch of play after another passage. It stays within the half, but is long
// enough for a look.
func (s *script) stretch(prev passage, whole int64) passage {
	const least = 3000
	speed := s.between(7.5, 9.5)
	if s.shot() != ShotWide {
		speed = s.between(5, 6)
	}
	dir := attacks(prev.team)
	if prev.moving() {
		dir = -prev.dir
	}
	length := min(s.shot().room(prev.x1, dir), speed*s.between(5.2, 7.2))
	dur := max(int64(length/speed*1000), least)
	if rest := max(whole-prev.end, least); dur > rest {
		length *= float64(rest) / float64(dur)
		dur = rest
	}
	p := passage{
		start: prev.end, end: prev.end + dur, phase: Play, dir: dir,
		x0: prev.x1, x1: prev.x1 + float64(dir)*length, y0: prev.y1, y1: s.between(24, 44),
		first: -1, shooter: -1,
	}
	if dir < 0 {
		p.team = 1
	}
	p.carrier = s.carrierAfter(&prev)
	switch prev.phase {
	case AtKickOff:
		p.from, p.spot = onSpot, prev.spot
		p.first = p.team*teamSize + 9 + s.rng.IntN(2)
	case AfterSave:
		p.from = inHands
	case Play:
		if a := s.endOf(&prev); a != nil { // back from the post
			p.from, p.spot = onSpot, a.target
			p.first = s.nearest(p.team, a.target, bounce, p.start)
		}
	case AtFreeKick, AtGoalKick, Celebration, AtHalfTime, AtFullTime:
	}
	return p
}

// carrierAfter returns the figure with the ball after a passage.
func (s *script) carrierAfter(p *passage) int {
	if !p.moving() {
		return p.carrier
	}
	return p.receiver(p.lastPass())
}

// nearest returns a team's outfield player nearest to a place, among those at least some metres away along the pitch.
func (s *script) nearest(team int, to paint.Vec, least float64, t int64) int {
	best, at := 1e9, team*teamSize+1
	for i := team*teamSize + 1; i < (team+1)*teamSize; i++ {
		d := s.place(i, t).Sub(to)
		if far := math.Hypot(d.X, d.Y); math.Abs(d.X) >= least && far < best {
			best, at = far, i
		}
	}
	return at
}

// begin records the events with which a stretch of play begins.
func (s *script) begin(prev, p passage) {
	way := Direction(p.dir)
	if prev.moving() {
		s.event(Event{
			At: ms(p.start + lagMS), Kind: Turn, Team: new(p.team), Direction: way,
			Text: fmt.Sprintf("%s win the ball and play to the %s", s.names[p.team], way),
		})
		return
	}
	if prev.phase == AtKickOff {
		s.whistle(p.start, 1)
		s.event(Event{At: ms(p.start), Kind: KickOff, Team: new(p.team), Text: s.names[p.team] + " kick off"})
	}
	if prev.phase == AtFreeKick {
		s.whistle(p.start, 1)
	}
	s.event(Event{
		At: ms(p.start), Kind: StillEnd, Team: new(p.team), Direction: way,
		Text: fmt.Sprintf("%s play on to the %s", s.names[p.team], way),
	})
}

func (s *script) add(p passage) {
	q := s.last()
	p.played = q.played
	if q.moving() {
		p.played += float64(q.end-q.start) / 1000
	}
	s.number++
	p.number = s.number
	s.passages = append(s.passages, p)
}

func (s *script) whistle(at int64, blows int) {
	s.whistles = append(s.whistles, whistle{at: at, blows: blows})
}

// incident puts an event into the middle of a stretch of play, well away from its turns.
func (s *script) incident(p passage) {
	const margin = 2200
	if p.end-p.start < 2*margin || s.rng.IntN(100) < 15 {
		return
	}
	at := p.start + margin + s.rng.Int64N(p.end-p.start-2*margin+1)
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
		s.cut(at, next)
	case pick < 80:
		s.dimOrBrighten(at)
	default:
		s.recolour(at)
	}
}

// replay shows a shot's approach and outcome again, starting at a moment, for a time.
func (s *script) replay(at int64, a *attempt, moment int64) {
	shot := ShotReplayRight
	if a.dir < 0 {
		shot = ShotReplayLeft
	}
	s.show(shotSpan{start: at, shot: shot, replay: moment})
	s.event(Event{
		At: ms(at), Kind: Replay, Team: new(a.team), Number: player(a.figure).Number, Outcome: a.outcome,
		Text: "replay of the shot of " + s.nameOf(a.figure),
	})
}

func (s *script) dimOrBrighten(at int64) {
	lamp := s.lights[len(s.lights)-1].to
	to, kind, text := lamp, Dim, "the floodlights go down"
	if lamp.Level < 256 {
		to.Level, kind, text = 256, Brighten, "the floodlights come up"
	} else {
		to.Level = int16(130 + s.rng.IntN(30))
	}
	s.lights = append(s.lights, lightSpan{start: at, from: lamp, to: to})
	s.event(Event{At: ms(at), Kind: kind, Text: text})
}

func (s *script) recolour(at int64) {
	lamp := s.lights[len(s.lights)-1].to
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
	s.lights = append(s.lights, lightSpan{start: at, from: lamp, to: to})
	s.event(Event{At: ms(at), Kind: Tint, Tint: tint(to), Text: text})
}

// tint returns the name of a light's colour.
func tint(l paint.Light) string {
	switch {
	case l.DU > 8 && l.DV > 8:
		return "violet"
	case l.DU > 8:
		return "blue"
	case l.DV > 8:
		return "red"
	}
	return "white"
}

// freeKick stops play. The team in possession was fouled, unless there is no room left before it.
func (s *script) freeKick() {
	const roomAhead = 15
	q := *s.last()
	p := passage{
		start: q.end, end: q.end + 4000 + s.rng.Int64N(2500), phase: AtFreeKick, x0: q.x1, x1: q.x1, y0: q.y1, y1: q.y1,
		team: q.team, carrier: s.carrierAfter(&q), first: -1, shooter: -1,
	}
	if s.shot().room(q.x1, q.dir) < roomAhead {
		p.team = 1 - q.team
		p.from, p.spot = onSpot, s.ballAt(q.end-1)
		p.carrier = s.nearest(p.team, p.spot, 0, q.end-1)
	}
	s.add(p)
	s.whistle(p.start, 1)
	s.event(Event{At: ms(p.start), Kind: FreeKick, Team: new(p.team), Text: "free kick for " + s.names[p.team]})
	s.event(Event{At: ms(p.start + settleMS), Kind: StillStart, Text: "everybody stands for the free kick"})
}

// nameOf names a figure in plain words.
func (s *script) nameOf(figure int) string {
	p := player(figure)
	return fmt.Sprintf("%s number %d", s.names[p.Team], p.Number)
}

func ms(v int64) time.Duration { return time.Duration(v) * time.Millisecond }
