package match

import (
	"math"
	"sort"

	"touchline/media/toyworld/paint"
)

// Every figure's place is a function of the time alone, so that any frame can
// be drawn without those before it.

const (
	teamSize = 11
	figures  = 2 * teamSize
	passMS   = 900 // between two passes
	flightMS = 420 // of a pass
	shotMS   = 700 // of a shot at the goal
)

// footballer is what does not change about a figure.
type footballer struct {
	team           int
	keeper         bool
	homeX, homeY   float64 // metres from the middle of the pitch
	lag            int64   // how late it follows play, ms
	swing          float64 // metres of its own wandering
	rateX, rateY   float64 // rad/s
	phaseX, phaseY float64
}

// line-up: a back four, a middle four and two strikers.
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
	for i := range out {
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

// at finds the passage of a moment.
func (s *script) at(t int64) *passage {
	i := sort.Search(len(s.passages), func(i int) bool { return s.passages[i].end > t })
	return &s.passages[min(i, len(s.passages)-1)]
}

// ease goes from 0 to 1 at even speed, gentle for the first and last 400 ms.
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

// anchor is the place play is about, and the seconds of motion so far.
func (s *script) anchor(t int64) (x, y, played float64) {
	p := s.at(max(t, 0))
	if !p.moving {
		return p.x0, p.y0, p.played
	}
	k := p.ease(t)
	return p.x0 + (p.x1-p.x0)*k, p.y0 + (p.y1-p.y0)*k, p.played + k*float64(p.end-p.start)/1000
}

// place of a figure on the pitch, and how high it jumps.
func (s *script) place(f *footballer, t int64) paint.Vec {
	now := s.at(t)
	when := t - f.lag
	if now.kickOff || when < 0 {
		when = t
	} else if then := s.at(when); then.kickOff && !now.kickOff {
		when = max(when, then.end-1)
	}
	x, y, played := s.anchor(when)
	k, ky := 0.72, 0.45
	if f.keeper {
		k, ky = 0.06, 0.25
	}
	p := paint.At(
		midX+f.homeX+k*(x-midX)+f.swing*math.Sin(played*f.rateX+f.phaseX),
		midY+f.homeY+ky*(y-midY)+f.swing*math.Sin(played*f.rateY+f.phaseY),
		0)
	p.X, p.Y = max(1, min(pitchLength-1, p.X)), max(2, min(pitchWidth-2, p.Y))
	if now.joy && now.team == f.team && !f.keeper {
		hop := math.Abs(math.Sin(float64(t-now.start)/1000*7 + f.phaseX))
		p.Z = 1.3 * hop
	}
	return p
}

func (p *passage) passes() int64 { return (p.end - p.start + passMS - 1) / passMS }

// receiver of the pass with the given number; the one before the first is the
// carrier at the passage's start.
func (p *passage) receiver(n int64) int {
	if n < 0 || !p.moving {
		return p.carrier
	}
	return p.team*teamSize + 1 + int(paint.Chance(p.number, uint64(n), 77)*float64(teamSize-1))
}

func (p *passage) lastCarrier() int {
	if !p.moving {
		return p.carrier
	}
	return p.receiver(p.passes() - 1)
}

// ball at a moment.
func (m *Match) ball(t int64) paint.Vec {
	p := m.script.at(t)
	feet := func(i int) paint.Vec {
		f := &m.team[i]
		q := m.script.place(f, t)
		ahead := 1.1
		if f.team == 1 {
			ahead = -ahead
		}
		return paint.At(q.X+ahead, q.Y-0.4, 0.3)
	}
	mouth := func(dir int) paint.Vec {
		if dir > 0 {
			return paint.At(pitchLength+1, midY-1.5, 0.6)
		}
		return paint.At(-1, midY-1.5, 0.6)
	}
	switch {
	case p.kickOff:
		return paint.At(midX, midY, 0.3)
	case p.joy:
		dir := 1
		if p.team == 1 {
			dir = -1
		}
		return mouth(dir)
	}
	n := (t - p.start) / passMS
	from, to, k := feet(p.receiver(n-1)), feet(p.receiver(n)), 1.0
	if n == 0 && p.fromCentre {
		from = paint.At(midX, midY, 0.3)
	}
	if !p.moving {
		from, to = feet(p.carrier), feet(p.carrier)
	}
	if into := t - p.start - n*passMS; into < flightMS && p.moving {
		k = float64(into) / flightMS
	}
	if p.goal && t > p.end-shotMS {
		from, to, k = feet(p.receiver((p.end-shotMS-p.start)/passMS)), mouth(p.dir), float64(t-p.end+shotMS)/shotMS
	}
	out := from.Add(to.Sub(from).Scale(k))
	out.Z += 5 * k * (1 - k)
	return out
}
