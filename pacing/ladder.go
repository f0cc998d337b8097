package pacing

import (
	"fmt"
	"slices"
	"time"

	"touchline/internal/quantile"
)

const (
	// ladderUp and ladderDown are the cycles that decide a step up or down.
	ladderUp, ladderDown = 8, 4
	// ladderRoom is the share of a rung's budget that the expected time of a cycle there may reach.
	ladderRoom = 0.8
	// ladderRest is the shortest time between a step down and the next step up. It doubles with each step down soon after the last, up to
	// ladderRests times.
	ladderRest, ladderRests = time.Minute, 4
)

// Rung is a setting of a cycle's pictures.
type Rung struct {
	Name string
	// Cost of a cycle, relative to the others: its pictures.
	Cost float64
	// Budget is the median time of a cycle above which the ladder steps down; 0 for none.
	Budget time.Duration
}

// Ladder chooses the rung by the measured time of cycles: the costliest that the engine keeps up with.
type Ladder struct {
	rungs  []Rung // cheapest first
	at     int
	cycles []time.Duration // on this rung, oldest first, at most ladderUp
	downAt time.Time
	downs  int // soon after each other
}

// NewLadder returns a Ladder that starts on one of its rungs, which are in order of cost.
func NewLadder(rungs []Rung, at int) *Ladder { return &Ladder{rungs: rungs, at: at} }

// Rung returns the current rung.
func (l *Ladder) Rung() Rung { return l.rungs[l.at] }

// Observe records the time of a cycle that ended now. It reports a step, with the reason in words.
func (l *Ladder) Observe(cycle time.Duration, now time.Time) (why string, moved bool) {
	l.cycles = append(l.cycles[max(0, len(l.cycles)+1-ladderUp):], cycle)
	here := l.rungs[l.at]
	if n := len(l.cycles); n >= ladderDown && l.at > 0 && here.Budget > 0 {
		if mid := median(l.cycles[n-ladderDown:]); mid > here.Budget {
			l.step(-1)
			if now.Sub(l.downAt) > 10*l.rest() {
				l.downs = 0
			}
			l.downAt, l.downs = now, min(l.downs+1, ladderRests)
			return fmt.Sprintf("cycles of %.1f s are too slow for %s", mid.Seconds(), here.Name), true
		}
	}
	if len(l.cycles) < ladderUp || l.at == len(l.rungs)-1 || now.Sub(l.downAt) < l.rest() {
		return "", false
	}
	next, mid := l.rungs[l.at+1], median(l.cycles)
	if expected := mid.Seconds() * next.Cost / here.Cost; expected <= ladderRoom*next.Budget.Seconds() {
		l.step(1)
		return fmt.Sprintf("cycles of %.1f s leave room for %s", mid.Seconds(), next.Name), true
	}
	return "", false
}

// Stay undoes the last step up, to a rung that cannot be used, and removes that rung.
func (l *Ladder) Stay() {
	l.rungs = slices.Clone(l.rungs[:l.at])
	l.step(-1)
}

func (l *Ladder) step(by int) {
	l.at += by
	l.cycles = l.cycles[:0]
}

// rest is the time that a step up waits after a step down.
func (l *Ladder) rest() time.Duration {
	if l.downs == 0 {
		return 0
	}
	return ladderRest << (l.downs - 1)
}

func median(d []time.Duration) time.Duration { return quantile.Of(d, 0.5) }
