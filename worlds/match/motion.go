package match

import (
	"math"
	"sort"

	"touchline/worlds/paint"
)

// The place of each figure is a function of time alone, so that any frame can be drawn without the
// frames before it.

const (
	teamSize = 11
	referee  = 2 * teamSize // the last figure
	figures  = referee + 1
	passMS   = 900 // between two passes
	flightMS = 420 // of a pass
	longMS   = 650 // a first pass from an empty spot
	shotMS   = 700 // a shot at the goal
	heldMS   = 150 // minimum time of a player with the ball before a shot or a turn
	raiseMS  = 300 // the referee's arm goes up, or down
)

// official is the team of the referee.
const official = -1

// footballer holds the constants of a figure.
type footballer struct {
	team           int
	keeper         bool
	homeX, homeY   float64 // metres from the middle of the pitch
	lag            int64   // how late it follows play, ms
	swing          float64 // metres of individual movement
	rateX, rateY   float64 // rad/s
	phaseX, phaseY float64
}

// lineUp is a back four, a middle four and two strikers; and the referee, who runs behind play, beyond the ball as seen from the camera.
func lineUp(seed uint64) [figures]footballer {
	homes := [teamSize][2]float64{
		{-48, 0},
		{-24, -22},
		{-27, -8},
		{-27, 8},
		{-24, 22},
		{-7, -25},
		{-11, -8},
		{-11, 9},
		{-6, 24},
		{11, -9},
		{12, 11},
	}
	var out [figures]footballer
	out[referee] = footballer{team: official, homeY: 6, lag: 2 * lagMS, swing: 0.8, rateX: 0.7, rateY: 0.8}
	for i := range referee {
		n := i % teamSize
		f := footballer{team: i / teamSize, keeper: n == 0}
		roll := func(k uint64) float64 { return paint.Chance(seed, uint64(i), k) }
		f.homeX = homes[n][0] + 3*(roll(1)-0.5)
		f.homeY = homes[n][1] + 4*(roll(2)-0.5)
		if f.keeper {
			f.homeX, f.homeY = -50, 0
		}
		if f.team == 1 {
			f.homeX, f.homeY = -f.homeX, -f.homeY
		}
		f.lag = int64(2 * lagMS * roll(3))
		f.swing = 0.5 + 0.8*roll(4)
		f.rateX, f.rateY = 0.5+0.5*roll(5), 0.5+0.6*roll(6)
		f.phaseX, f.phaseY = 6.28*roll(7), 6.28*roll(8)
		out[i] = f
	}
	return out
}

// at returns the passage of a moment.
func (s *script) at(t int64) *passage {
	i := sort.Search(len(s.passages), func(i int) bool { return s.passages[i].end > t })
	return &s.passages[min(i, len(s.passages)-1)]
}

// ease goes from 0 to 1 at even speed, with a soft start and end of 400 ms each.
func (p *passage) ease(t int64) float64 {
	total := float64(p.end-p.start) / 1000
	u := max(0, min(total, float64(t-p.start)/1000))
	const soft = 0.4
	v := 1 / (total - soft)
	switch {
	case u < soft:
		return v * u * u / (2 * soft)
	case u > total-soft:
		w := total - u
		return 1 - v*w*w/(2*soft)
	}
	return v * (u - soft/2)
}

// anchor returns the centre of play, and the seconds of motion so far.
func (s *script) anchor(t int64) (x, y, played float64) {
	p := s.at(max(t, 0))
	if !p.moving() {
		return p.x0, p.y0, p.played
	}
	k := p.ease(t)
	return p.x0 + (p.x1-p.x0)*k, p.y0 + (p.y1-p.y0)*k, p.played + k*float64(p.end-p.start)/1000
}

// place returns a figure's place on the pitch, and the height of its jump.
func (s *script) place(figure int, t int64) paint.Vec {
	f := &s.team[figure]
	now := s.at(t)
	when := t - f.lag
	if now.phase == AtKickOff || when < 0 {
		when = t
	} else if then := s.at(when); then.phase == AtKickOff && now.phase != AtKickOff {
		when = max(when, then.end-1)
	}
	x, y, played := s.anchor(when)
	k, ky := 0.72, 0.45
	switch {
	case f.keeper:
		k, ky = 0.06, 0.25
	case f.team == official:
		k, ky = 1, 1
	}
	p := paint.At(
		midX+f.homeX+k*(x-midX)+f.swing*math.Sin(played*f.rateX+f.phaseX),
		midY+f.homeY+ky*(y-midY)+f.swing*math.Sin(played*f.rateY+f.phaseY),
		0)
	if f.keeper {
		shift, _ := s.dive(f.team, t)
		p.Y += shift
	}
	p.X, p.Y = max(1, min(pitchLength-1, p.X)), max(2, min(pitchWidth-2, p.Y))
	if now.phase == Celebration && now.team == f.team && !f.keeper {
		hop := math.Abs(math.Sin(float64(t-now.start)/1000*7 + f.phaseX))
		p.Z = 1.3 * hop
	}
	return p
}

// dive returns how far a team's goalkeeper has moved sideways for a shot, in metres, and the lean,
// from 0 to 1.
func (s *script) dive(team int, t int64) (shift, lean float64) {
	const step = 1.9 // metres
	a := s.attemptAt(t)
	if a == nil || a.team == team || s.at(t).phase == AtKickOff {
		return 0, 0
	}
	ease := func(from, to int64) float64 {
		u := max(0, min(1, float64(t-a.at-from)/float64(to-from)))
		return u * u * (3 - 2*u)
	}
	shift = a.side * step * a.reach * (ease(-380, -20) - ease(900, 1700))
	return shift, a.reach * (ease(-260, 40) - ease(900, 1400))
}

// signal returns the position of the referee's arm, from 0 to 1: from the whistle for a free kick until the ball is touched again, as for
// an indirect one.
func (s *script) signal(t int64) float64 {
	p := s.at(t)
	if p.phase == AtFreeKick {
		return min(1, float64(t-p.start)/raiseMS)
	}
	if p.start > 0 && p.moving() && s.at(p.start-1).phase == AtFreeKick {
		return max(0, min(1, float64(p.start+flightMS+raiseMS-t)/raiseMS))
	}
	return 0
}

// lastPass returns the number of the last pass: its receiver has the ball shortly before play turns or a shot is struck.
func (p *passage) lastPass() int64 {
	end := p.end
	if p.shooter >= 0 {
		end -= shotMS
	}
	return max(0, (end-p.start-flightMS-heldMS)/passMS)
}

// receiver returns the receiver of a pass; for a number before the first, the carrier at the
// passage's start.
func (p *passage) receiver(n int64) int {
	switch {
	case n < 0 || !p.moving():
		return p.carrier
	case p.shooter >= 0 && n == p.lastPass():
		return p.shooter
	case n == 0 && p.first >= 0:
		return p.first
	}
	return p.team*teamSize + 1 + int(paint.Chance(p.number, uint64(n), 77)*float64(teamSize-1))
}

// pass returns the pass of a moment in a stretch of play: its number, and the ball's progress, 1 at the receiver's feet.
func (p *passage) pass(t int64) (n int64, k float64) {
	n = min((t-p.start)/passMS, p.lastPass())
	flight := int64(flightMS)
	if n == 0 && p.from != atFeet {
		flight = longMS
	}
	return n, min(1, float64(t-p.start-n*passMS)/float64(flight))
}

// feet returns the ball's place at a figure's feet.
func (s *script) feet(figure int, t int64) paint.Vec {
	q := s.place(figure, t)
	return paint.At(q.X+1.1*float64(attacks(figure/teamSize)), q.Y-0.4, ballHeight)
}

// hands returns the ball's place in a goalkeeper's hands, lying or standing.
func (s *script) hands(keeper int, t int64) paint.Vec {
	q := s.place(keeper, t)
	_, lean := s.dive(keeper/teamSize, t)
	return paint.At(q.X+(0.8+2.6*lean)*float64(attacks(keeper/teamSize)), q.Y-0.3, 2.3-1.6*lean)
}

// arrival returns where the ball of a shot arrives.
func (s *script) arrival(a *attempt) paint.Vec {
	if a.outcome == Saved {
		return s.hands(a.keeper(), a.at)
	}
	return a.target
}

// ballAt returns the ball's place at a moment.
func (s *script) ballAt(t int64) paint.Vec {
	p := s.at(t)
	if !p.moving() {
		return s.resting(p, t)
	}
	if a := s.endOf(p); a != nil && t >= a.struck {
		return between(s.feet(a.figure, t), s.arrival(a), float64(t-a.struck)/shotMS)
	}
	n, k := p.pass(t)
	from := s.feet(p.receiver(n-1), t)
	if n == 0 {
		from = s.origin(p, t)
	}
	return between(from, s.feet(p.receiver(n), t), k)
}

// origin returns where the first ball of a passage comes from.
func (s *script) origin(p *passage, t int64) paint.Vec {
	switch p.from {
	case inHands:
		return s.hands(p.carrier, t)
	case onSpot:
		return p.spot
	case atFeet:
	}
	return s.feet(p.carrier, t)
}

// resting returns the ball's place during a stop of play.
func (s *script) resting(p *passage, t int64) paint.Vec {
	from := s.origin(p, t)
	part := func(start, long int64) float64 { return max(0, min(1, float64(t-p.start-start)/float64(long))) }
	switch p.phase {
	case AtFreeKick:
		return between(from, s.feet(p.carrier, t), part(0, carriedMS))
	case AtGoalKick:
		switch {
		case t-p.start < viaMS:
			return from.Add(p.via.Sub(from).Scale(part(0, viaMS)))
		case t-p.start < outMS:
			return p.via.Add(p.out.Sub(p.via).Scale(part(viaMS, rollOut)))
		}
		return between(p.out, s.feet(p.carrier, t), part(outMS, fetchMS))
	case Play, AtKickOff, Celebration, AfterSave, AtHalfTime, AtFullTime:
	}
	return from
}

// between returns the place of a flying ball at the fraction k of its way. It rises by up to 1.25 m.
func between(from, to paint.Vec, k float64) paint.Vec {
	out := from.Add(to.Sub(from).Scale(k))
	out.Z += 5 * k * (1 - k)
	return out
}
