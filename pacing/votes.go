package pacing

import (
	"math/bits"
	"time"
)

// MaxVotes is the largest number of looks that vote.
const MaxVotes = 16

// VotesConfig sets when an alert rule fires and when its alert ends.
type VotesConfig struct {
	// Need of the last Of looks must see the rule hold: 1 <= Need <= Of <= MaxVotes.
	Need, Of int
	// Pause is the shortest time between two alerts of the rule.
	Pause time.Duration
	// ClearLooks is the number of looks in a row without the rule after which its alert ends; at least 1.
	ClearLooks int
	// ClearAfter ends an alert that no look has confirmed for this time; 0 for no limit.
	ClearAfter time.Duration
}

// Verdict is the result of a look for one rule.
type Verdict uint8

// The verdicts.
const (
	VerdictOff     Verdict = iota // no alert
	VerdictNew                    // an alert begins
	VerdictOn                     // the alert goes on
	VerdictCleared                // the alert ends
)

// String returns the verdict in lower case.
func (v Verdict) String() string {
	return [...]string{VerdictOff: "off", VerdictNew: "new", VerdictOn: "on", VerdictCleared: "cleared"}[v]
}

// Votes is the state of one alert rule. An alert begins when Need of the last Of looks agree, and
// ends only after ClearLooks looks in a row without the rule. In between, looks that miss the event
// do not end the alert, and wrong looks do not begin another one.
//
// The table is for independent looks, 2 of 3 and ClearLooks 5. A look misses a true rule with
// probability m and sees a false one with probability p (20,000 simulated events; p95 in looks
// after the beginning and the end of an event):
//
//	m     p     to the alert   to its end   false alarms per 1,000 looks
//	20 %  1 %   5              5            0.18
//	2 %   2 %   2              8            0.72
//
// A false alarm is an alert that begins while the rule does not hold. The expected number of looks
// from one to the next is at least (1+p+pq)/(p(1-q²)), q = 1-p: 5125 and 1313. Two of the last
// three looks agree more often, about 3p² of the time, but these looks share alarms. At 2 %, both
// looks after the beginning of an event agree in 96.0 % of the events.
//
// If a clock is set back, the end of the pause and ClearAfter are delayed by the time between two
// looks, not by the change.
type Votes struct {
	cfg    VotesConfig
	recent uint32 // bit 0 is the last look
	on     bool
	fired  bool // an alert has begun at some time
	last   time.Time
	misses int // looks in a row without the rule

	sinceFired, sinceHeld time.Duration
}

// NewVotes returns the state of a rule without looks.
func NewVotes(cfg VotesConfig) *Votes {
	cfg.Of = min(max(cfg.Of, 1), MaxVotes)
	cfg.Need = min(max(cfg.Need, 1), cfg.Of)
	cfg.ClearLooks = max(cfg.ClearLooks, 1)
	return &Votes{cfg: cfg}
}

// Look records the result of a look: whether the rule held.
func (v *Votes) Look(now time.Time, held bool) Verdict {
	v.pass(now)
	v.recent = v.recent << 1 & (1<<v.cfg.Of - 1)
	v.misses++
	if held {
		v.recent |= 1
		v.misses, v.sinceHeld = 0, 0
	}
	switch {
	case v.on && (v.misses >= v.cfg.ClearLooks || v.expired()):
		return v.clear()
	case v.on:
		return VerdictOn
	case held && v.Agreed() >= v.cfg.Need && (!v.fired || v.sinceFired >= v.cfg.Pause):
		v.on, v.fired, v.sinceFired = true, true, 0
		return VerdictNew
	}
	return VerdictOff
}

// Wait records the time while there are no looks: ClearAfter ends the alert.
func (v *Votes) Wait(now time.Time) Verdict {
	v.pass(now)
	switch {
	case v.on && v.expired():
		return v.clear()
	case v.on:
		return VerdictOn
	}
	return VerdictOff
}

// Reset drops the looks and ends the alert, after a change of source or at the end of the rule's
// hours. The pause continues.
func (v *Votes) Reset() Verdict {
	if v.on {
		return v.clear()
	}
	v.recent = 0
	return VerdictOff
}

// Require changes how many of the last looks must agree, within the bounds of VotesConfig.
func (v *Votes) Require(need, of int) {
	v.cfg.Need, v.cfg.Of = need, of
	v.recent &= 1<<of - 1
}

// On reports whether an alert has begun and not ended.
func (v *Votes) On() bool { return v.on }

// Agreed returns how many of the last Of looks saw the rule hold.
func (v *Votes) Agreed() int { return bits.OnesCount32(v.recent) }

func (v *Votes) expired() bool { return v.cfg.ClearAfter > 0 && v.sinceHeld >= v.cfg.ClearAfter }

func (v *Votes) clear() Verdict {
	v.on, v.recent = false, 0
	return VerdictCleared
}

// pass adds the time since the last call; none when the clock was set back.
func (v *Votes) pass(now time.Time) {
	if !v.last.IsZero() {
		elapsed := max(now.Sub(v.last), 0)
		v.sinceFired += elapsed
		v.sinceHeld += elapsed
	}
	v.last = now
}
