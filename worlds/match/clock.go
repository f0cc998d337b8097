package match

import (
	"fmt"
	"sort"
)

// A match takes nine minutes of the world's time: the clock on the board runs
// clockRate times as fast as the world, as in a video game, so that a short
// look sees a half end and scores stay small.
const (
	clockRate   = 10
	halfSeconds = 45 * 60 // on the board
	halfMS      = halfSeconds * 1000 / clockRate
	breakMS     = 12200 // duration of the standing players and the banner, at half time and full time
	breakCrowd  = 3000  // of the crowd after it
)

// half is one half of a match.
type half struct {
	shown  int64 // when the board begins to show it
	start  int64 // its kick-off, when the clock starts
	number int   // 1 or 2
	match  int   // counts matches
	kicker int   // the team that kicks off
}

// scoreboard has the halves and the shots at the goal so far.
type scoreboard struct {
	still    bool // the clock of a still match never stops
	halves   []half
	attempts []attempt
}

// end returns when the clock stops.
func (h half) end() int64 { return h.start + halfMS }

// half returns the last half.
func (b *scoreboard) half() half { return b.halves[len(b.halves)-1] }

// halfAt returns the half that the board shows at a moment.
func (b *scoreboard) halfAt(t int64) half {
	i := sort.Search(len(b.halves), func(i int) bool { return b.halves[i].shown > t }) - 1
	return b.halves[max(i, 0)]
}

// clockAt returns the time on the board at a moment, in seconds. While the clock runs, shift
// advances it within the half.
func (b *scoreboard) clockAt(t, shift int64) int64 {
	if b.still {
		return t * clockRate / 1000
	}
	h := b.halfAt(t)
	run := max(0, min(halfSeconds, (t-h.start)*clockRate/1000))
	if run > 0 && run < halfSeconds {
		run = (run + shift) % halfSeconds
	}
	return int64(h.number-1)*halfSeconds + run
}

// interval ends a half: the players stand, the crowd is shown, and the next half or match begins.
func (s *script) interval() {
	prev, h := *s.last(), s.half()
	next := half{number: 2, match: h.match, kicker: 1 - h.kicker}
	phase, kind, blows, text := AtHalfTime, HalfTime, 2, "half time"
	if h.number == 2 {
		phase, kind, blows, text = AtFullTime, FullTime, 3, "full time"
		next = half{number: 1, match: h.match + 1, kicker: s.rng.IntN(2)}
	}
	score := s.scoreAt(prev.end)
	crowd := prev.end + breakMS
	back := crowd + breakCrowd
	next.shown, next.start = back, back+standMS
	p := s.stand(phase, prev.end, crowd, prev.team, s.carrierAfter(&prev))
	switch prev.phase {
	case AtKickOff:
		p.from, p.spot = onSpot, prev.spot
	case AfterSave:
		p.from = inHands
	case Play, AtFreeKick, AtGoalKick, Celebration, AtHalfTime, AtFullTime:
	}
	s.whistle(p.start, blows)
	s.event(Event{
		At: ms(p.start), Kind: kind, Score: &score,
		Text: fmt.Sprintf("%s, %s %d, %s %d", text, s.names[0], score[0], s.names[1], score[1]),
	})
	s.crowd(crowd, phase)
	s.cut(back, ShotWide)
	s.add(kickOff(crowd, next.start, next.kicker))
	s.event(Event{At: ms(back), Kind: StillStart, Text: "everybody stands for the kick-off"})
	s.halves = append(s.halves, next)
}
