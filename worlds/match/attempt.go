package match

import (
	"fmt"
	"sort"

	"touchline/worlds/paint"
)

// attempt is a shot at the goal.
type attempt struct {
	struck, at int64 // when the ball leaves the foot, and when it arrives
	figure     int   // who shoots
	team, dir  int
	outcome    Outcome
	target     paint.Vec // where the ball arrives, unless the goalkeeper holds it
	side       float64   // the way the keeper dives, +1 away from the camera
	reach      float64   // how far, from 0 to 1
	match      int       // counts matches
	shots      [2]int    // of the match, with this one
	score      [2]int    // of the match, after this one
}

// keeper returns the figure in the attacked goal.
func (a *attempt) keeper() int { return (1 - a.team) * teamSize }

const (
	mostGoals  = 9 // per team, so that the score has single digits
	mostShots  = 99
	plateInMS  = 200
	plateOutMS = 3200
	replaySpan = 3400 // of a replay after a save or post
	replayFrom = 1800 // before the ball arrived
	goalReplay = 4000
	carriedMS  = 600  // in which a ball is brought to its place
	outMS      = 1200 // until a ball out of play is fetched
	fetchMS    = 700  // in which it comes
	ballHeight = 0.3
	viaMS      = 450  // in which a ball on its way out gets to via
	rollOut    = 550  // in which it then stops
	newsMS     = 3000 // after the ball's arrival, during which a shot is news
)

// pickOutcome converts a number from 0 to 99 to the outcome of a chance.
func pickOutcome(pick int) Outcome {
	switch {
	case pick < 30:
		return InGoal
	case pick < 54:
		return Saved
	case pick < 76:
		return AtPost
	case pick < 98:
		return WideOfIt
	}
	return noOutcome
}

// attempt ends the last stretch of play with a shot at the goal.
func (s *script) attempt(outcome Outcome) {
	q := s.last()
	a := attempt{
		struck: q.end - shotMS, at: q.end, team: q.team, dir: q.dir, outcome: outcome,
		match: s.half().match, side: 1 - 2*float64(s.rng.IntN(2)), reach: 1,
	}
	if last := s.attemptAt(q.end); last != nil && last.match == a.match {
		a.shots, a.score = last.shots, last.score
	}
	if outcome == InGoal && a.score[a.team] == mostGoals {
		a.outcome = Saved
	}
	who := []int{5, 6, 7, 8, 8, 9, 9, 9, 10, 10, 10} // mostly the strikers
	if s.busy {
		who = []int{5, 6, 7, 8, 9, 10}
	}
	a.figure = q.team*teamSize + who[s.rng.IntN(len(who))]
	q.shooter = a.figure
	a.shots[a.team]++
	s.aim(&a)
	s.attempts = append(s.attempts, a)
	s.event(Event{
		At: ms(a.struck), Kind: ShotAtGoal, Team: new(a.team), Number: player(a.figure).Number, Outcome: a.outcome,
		Direction: Direction(a.dir), Where: Direction(a.dir).String(), Text: s.nameOf(a.figure) + " shoots",
	})
	switch a.outcome {
	case InGoal:
		s.scored(&s.attempts[len(s.attempts)-1])
	case Saved:
		s.arrived(&a, Save, fmt.Sprintf("the keeper of %s saves the shot of %s", s.names[1-a.team], s.nameOf(a.figure)))
		s.saved(&a)
	case AtPost:
		s.arrived(&a, Post, s.nameOf(a.figure)+" hits the post")
		if s.rng.IntN(100) < 40 {
			s.goalKick(&a, s.rng.IntN(100) < 60)
		}
	case WideOfIt:
		s.arrived(&a, Wide, s.nameOf(a.figure)+" shoots wide")
		s.goalKick(&a, false)
	case noOutcome:
	}
}

// aim chooses the ball's target.
func (s *script) aim(a *attempt) {
	line := 0.0
	if a.dir > 0 {
		line = pitchLength
	}
	far := 1 - 2*float64(s.rng.IntN(2)) // the far or the near post
	switch a.outcome {
	case InGoal:
		a.target = paint.At(line+float64(a.dir), midY+far*s.between(1, 3.6), s.between(0.5, 2.4))
		a.side = -far // the goalkeeper dives the wrong way
	case AtPost:
		a.target = paint.At(line, midY+far*goalHalf, s.between(0.5, 2.2))
		a.side = far
	case WideOfIt:
		a.target = paint.At(line+float64(a.dir), midY+far*(goalHalf+s.between(3, 6.5)), s.between(0.5, 2))
		a.side, a.reach = far, 0.4
	case Saved, noOutcome:
	}
}

// arrived records the outcome of a shot.
func (s *script) arrived(a *attempt, kind Kind, text string) {
	s.event(Event{
		At: ms(a.at), Kind: kind, Team: new(a.team), Number: player(a.figure).Number,
		Direction: Direction(a.dir), Where: Direction(a.dir).String(), Text: text,
	})
}

// stand adds a passage after an attempt in which all players stand.
func (s *script) stand(phase Phase, start, end int64, team, carrier int) *passage {
	q := s.last()
	s.add(passage{
		start: start, end: end, phase: phase, x0: q.x1, x1: q.x1, y0: q.y1, y1: q.y1,
		team: team, carrier: carrier, first: -1, shooter: -1,
	})
	return s.last()
}

// scored adds the celebration, the crowd and a replay, and the other team's kick-off.
func (s *script) scored(a *attempt) {
	a.score[a.team]++
	s.event(Event{
		At: ms(a.at), Kind: Goal, Team: new(a.team), Number: player(a.figure).Number, Score: new(a.score),
		Direction: Direction(a.dir), Where: Direction(a.dir).String(),
		Text: fmt.Sprintf("%s scores, %d-%d", s.nameOf(a.figure), a.score[0], a.score[1]),
	})
	crowd, again, back := a.at+3400, a.at+6600, a.at+10600
	p := s.stand(Celebration, a.at, crowd, a.team, a.figure)
	p.from, p.spot = onSpot, a.target
	s.crowd(crowd, Celebration)
	s.replay(again, a, a.at+300-int64(float64(goalReplay)*slowMotion))
	s.cut(back, ShotWide)
	s.add(kickOff(crowd, back+standMS, 1-a.team))
	s.event(Event{At: ms(back), Kind: StillStart, Text: "everybody stands for the kick-off"})
}

// saved lets the goalkeeper hold the ball, sometimes during a replay.
func (s *script) saved(a *attempt) {
	end := a.at + 3000 + s.rng.Int64N(900)
	if s.rng.IntN(100) < 30 {
		end = s.again(a) + 1700
	}
	s.stand(AfterSave, a.at, end, 1-a.team, a.keeper()).from = inHands
}

// goalKick returns a ball that went out of play, sometimes during a replay.
func (s *script) goalKick(a *attempt, replay bool) {
	end := a.at + 4200 + s.rng.Int64N(1200)
	if replay {
		end = s.again(a) + 1700
	}
	p := s.stand(AtGoalKick, a.at, end, 1-a.team, a.keeper())
	p.from, p.spot = onSpot, a.target
	side := 1.0
	if a.target.Y < midY {
		side = -1
	}
	dir := float64(a.dir)
	p.via = paint.At(a.target.X+3*dir, a.target.Y+side, ballHeight)
	p.out = paint.At(a.target.X+4*dir, a.target.Y+2*side, ballHeight)
	if a.outcome == AtPost { // back onto the pitch, and out beside the goal
		p.via = paint.At(a.target.X-9*dir, a.target.Y+5*side, ballHeight)
		p.out = paint.At(a.target.X+3*dir, a.target.Y+15*side, ballHeight)
	}
}

// again replays a save or post, and returns when the live picture is back.
func (s *script) again(a *attempt) int64 {
	shot := s.shot()
	start := a.at + plateOutMS + 200
	s.replay(start, a, a.at-replayFrom)
	s.cut(start+replaySpan, shot)
	return start + replaySpan
}

// attemptAt returns the last shot at the goal before a moment, or nil.
func (b *scoreboard) attemptAt(t int64) *attempt {
	i := sort.Search(len(b.attempts), func(i int) bool { return b.attempts[i].struck > t }) - 1
	if i < 0 {
		return nil
	}
	return &b.attempts[i]
}

// arrivedAt returns the last shot of the current match that arrived before a moment, or nil.
func (b *scoreboard) arrivedAt(t int64) *attempt {
	i := sort.Search(len(b.attempts), func(i int) bool { return b.attempts[i].at > t }) - 1
	if i < 0 || b.attempts[i].match != b.halfAt(t).match {
		return nil
	}
	return &b.attempts[i]
}

// goalAt returns the last goal of the current match before a moment, or nil.
func (b *scoreboard) goalAt(t int64) *attempt {
	match := b.halfAt(t).match
	i := sort.Search(len(b.attempts), func(i int) bool { return b.attempts[i].at > t }) - 1
	for ; i >= 0 && b.attempts[i].match == match; i-- {
		if b.attempts[i].outcome == InGoal {
			return &b.attempts[i]
		}
	}
	return nil
}

// endOf returns the shot that ends a stretch of play, or nil.
func (b *scoreboard) endOf(p *passage) *attempt {
	if p.shooter < 0 {
		return nil
	}
	return b.attemptAt(p.end)
}

func (b *scoreboard) scoreAt(t int64) [2]int {
	if a := b.arrivedAt(t); a != nil {
		return a.score
	}
	return [2]int{}
}

// shotsAt counts the attempts of the match up to a moment.
func (b *scoreboard) shotsAt(t int64) [2]int {
	if a := b.arrivedAt(t); a != nil {
		return a.shots
	}
	return [2]int{}
}
