package speech

import (
	"slices"
	"time"

	"touchline/pacing"
)

const (
	// lead is how early speech is passed to the voice, so that the first sample is on time.
	lead = 100 * time.Millisecond
	// maxLateness is the lateness above which a comment is dropped.
	maxLateness = 10 * time.Second
	// wordLead is how long before its sound a word is shown, about the time of its delivery.
	wordLead = 20 * time.Millisecond
	// duckedBy is the attenuation of the voice while a person speaks, in dB.
	duckedBy = 12
)

// Do is the kind of an Action.
type Do uint8

// The actions.
const (
	Make        Do = iota // begin to make an announcement
	Cancel                // end the work of the maker, for Action.Cause
	Begin                 // tell the maker that the utterance left the queue
	StartVoice            // start its sound, at Action.At
	PauseVoice            // pause its sound
	ResumeVoice           // go on with its sound
	CutVoice              // cut its sound
	Show                  // show Action.Step
	End                   // give the maker Action.Result
)

// Action is a step for the Scheduler to carry out.
type Action struct {
	Do     Do
	U      *Utterance
	At     time.Time
	Cause  error
	Step   Step
	Result Result
	// Dropped is set for Begin if the utterance is dropped unspoken.
	Dropped bool

	sound Sound // of the utterance when it was decided
}

// Core schedules the utterances. Its methods get the time as an argument; events change its state, and Step returns the resulting actions.
// It is not safe for concurrent use.
type Core struct {
	line    Line // nil without a delayed picture
	delays  *pacing.DelayEstimator
	pause   time.Duration // after speech
	rate    rate
	clock   pacing.PlaybackClock
	bargeIn BargeIn
	maxWait time.Duration
	gain    float64 // dB

	floor      Floor
	floorSince time.Time // when a person began to speak

	seq   uint64
	queue []*Utterance // not started, in speaking order
	voice voice
	air   []*Utterance // started, without their End
	acts  []Action
}

// voice is the started sound that has not ended, oldest first.
type voice []*Utterance

// newest returns the sound that started last, nil without any.
func (v voice) newest() *Utterance {
	if len(v) == 0 {
		return nil
	}
	return v[len(v)-1]
}

// leave removes an utterance from the voice.
func (v *voice) leave(u *Utterance) {
	*v = slices.DeleteFunc(*v, func(o *Utterance) bool { return o == u })
}

// NewCore returns a Core without utterances. line is the delayed picture; nil shows comments as soon as they are ready.
func NewCore(line Line, cfg pacing.Config) *Core {
	return &Core{line: line, delays: pacing.NewDelayEstimator(cfg), pause: cfg.PauseAfter}
}

// Step returns the actions that are due, in order, and when Step is due again unless an event comes before; zero for never.
func (c *Core) Step(now time.Time) (acts []Action, next time.Time) {
	for moved := true; moved; {
		next = c.captions(now)
		var at time.Time
		at, moved = c.advance(now)
		next = pacing.Earliest(next, at)
	}
	acts, c.acts = c.acts, nil
	return acts, next
}

func (c *Core) do(a Action) {
	a.sound = a.U.sound
	c.acts = append(c.acts, a)
}

// captions shows the words that are due, and ends utterances.
func (c *Core) captions(now time.Time) (next time.Time) {
	c.air = slices.DeleteFunc(c.air, func(u *Utterance) bool {
		if !u.final {
			delta, final, at := u.step(now)
			next = pacing.Earliest(next, at)
			if u.final = final; delta != "" || final {
				u.emitted += len(delta)
				c.do(Action{Do: Show, U: u, Step: Step{Delta: delta, Text: u.text[:u.emitted], Final: final, Spoken: u.Spoken}})
			}
		}
		if !u.ended() {
			return false
		}
		if u.state != Cut {
			u.state = Done
		}
		c.do(Action{Do: End, U: u, Result: u.result(c.line, now)})
		return true
	})
	return next
}

// advance generates or starts the next utterance and reports whether it did. Otherwise it returns the time of the next check; zero to wait
// for an event.
func (c *Core) advance(now time.Time) (next time.Time, moved bool) {
	next = c.lose(now)
	for _, u := range c.queue {
		if u.Priority > Comment {
			if c.announce(u, now) {
				return time.Time{}, true
			}
			continue
		}
		at, moved := c.comment(u, now) // those behind it wait for it
		return pacing.Earliest(next, at), moved
	}
	return next, false
}

// announce makes or starts an announcement if it is its turn.
func (c *Core) announce(u *Utterance, now time.Time) (moved bool) {
	if above, busy := c.announcing(u); busy && (above > u.Priority || u.supply == untouched && (u.Cuts == Comment || above == u.Priority)) {
		return false
	}
	switch {
	case u.supply == untouched:
		if u.Cuts == Comment && len(c.voice) > 0 {
			return false
		}
		u.supply = sounding
		c.do(Action{Do: Make, U: u})
		return true
	case u.state != Waiting:
		return false // its first sound is still made
	case u.Spoken && !c.clear(u, now):
		return false
	}
	c.start(u, now, now)
	return true
}

// announcing returns the highest priority of the other announcements that are generated or spoken now.
func (c *Core) announcing(but *Utterance) (above Priority, busy bool) {
	look := func(u *Utterance) {
		if u != but && u.Priority > Comment && u.supply != untouched && u.state != Cut {
			above, busy = max(above, u.Priority), true
		}
	}
	for _, u := range c.queue {
		look(u)
	}
	for _, u := range c.air {
		look(u)
	}
	return above, busy
}

// clear reports whether the voice is free for an announcement, and cuts the speech that the announcement may cut.
func (c *Core) clear(u *Utterance, now time.Time) bool {
	if len(c.voice) > 0 && u.Cuts == Comment {
		return false
	}
	if slices.ContainsFunc(c.voice, func(v *Utterance) bool { return v.state != Cut && v.Priority >= u.Cuts }) {
		return false
	}
	c.cutVoice(u.Cause, now)
	return true
}

// comment starts the first comment if it is due.
func (c *Core) comment(u *Utterance, now time.Time) (next time.Time, moved bool) {
	if u.state == Queued {
		return time.Time{}, false // its first sound or text is still made
	}
	at := u.startOf(c.line, now, c.clock.End(), c.pause)
	start := at
	if u.Spoken {
		start = at.Add(-lead)
	}
	if wait := start.Sub(now); wait > 0 {
		return now.Add(pacing.Approach(wait)), false
	}
	if u.Spoken {
		if until, blocked := c.blocked(now); blocked {
			return until, false
		}
	}
	if u.supply == writing && u.Guard != nil && !u.Guard(u.text, now) {
		return time.Time{}, false
	}
	if c.line != nil {
		u.delay, u.target = c.line.Delay(), c.line.Target()
	}
	if due := u.due(c.line, now); !due.IsZero() && at.Sub(due) > maxLateness {
		c.drop(u, ErrTooLate, now)
		c.remove(u)
		return time.Time{}, true
	}
	c.start(u, at, now)
	return time.Time{}, true
}

// blocked reports whether no speech of a comment may start, and until when if no event ends it.
func (c *Core) blocked(now time.Time) (until time.Time, blocked bool) {
	holds := func(u *Utterance) bool { return u.Priority > Comment && u.Cuts == Comment && u.state != Cut }
	if slices.ContainsFunc(c.queue, holds) || slices.ContainsFunc(c.air, holds) {
		return time.Time{}, true
	}
	switch {
	case c.bargeIn == Interrupt && c.floor != FloorFree:
		return time.Time{}, true
	case c.bargeIn == Wait && c.floor == FloorTaken:
		if until := c.floorSince.Add(c.maxWait); now.Before(until) {
			return until, true
		}
	}
	// On an overloaded machine the voice falls behind: the time of the next comment is known when the last has ended.
	return time.Time{}, len(c.voice) > 0
}

// lose ends speech whose end the voice does not report. It returns the time of the next check.
func (c *Core) lose(now time.Time) (next time.Time) {
	for _, u := range slices.Clone(c.voice) {
		if u.supply != made || u.state == Paused {
			continue
		}
		at := u.ends().Add(2 * maxLateness)
		if at.After(now) {
			next = pacing.Earliest(next, at)
			continue
		}
		c.do(Action{Do: CutVoice, U: u})
		if u.state != Cut {
			u.state, u.cause = Cut, ErrVoiceLost
		}
		c.VoiceEnded(u, now, true)
	}
	return next
}

// start begins an utterance at a time.
func (c *Core) start(u *Utterance, at, now time.Time) {
	c.remove(u)
	u.state, u.startAt = Playing, at
	c.air = append(c.air, u)
	c.do(Action{Do: Begin, U: u})
	if !u.Spoken {
		u.onset = now
		return
	}
	c.clock.Start(at, u.audible)
	c.voice = append(c.voice, u)
	c.do(Action{Do: StartVoice, U: u, At: at})
}

func (c *Core) remove(u *Utterance) {
	c.queue = slices.DeleteFunc(c.queue, func(q *Utterance) bool { return q == u })
}

// drop ends an utterance before its first sound. One whose text is not complete is reported by its maker.
func (c *Core) drop(u *Utterance, cause error, now time.Time) {
	u.state, u.dropped, u.cause = Done, true, cause
	c.hush(u, cause)
	if u.supply == writing {
		return
	}
	c.do(Action{Do: Begin, U: u, Dropped: true})
	c.do(Action{Do: End, U: u, Result: u.result(c.line, now)})
}

// hush ends the rest of its sound, for a cause that may be nil. A text that is not complete continues.
func (c *Core) hush(u *Utterance, cause error) {
	if u.supply == sounding {
		c.do(Action{Do: Cancel, U: u, Cause: cause})
	}
	c.do(Action{Do: CutVoice, U: u})
}

// cutVoice silences what the voice has. With a nil cause, its text is still shown in full.
func (c *Core) cutVoice(cause error, now time.Time) {
	for _, u := range slices.Clone(c.voice) {
		if u.state == Cut || u.hushed && cause == nil {
			continue
		}
		if u.state == Paused {
			u.startAt = u.startAt.Add(now.Sub(u.pausedAt)) // the voice has as long to report its end as without the pause
		}
		if cause != nil {
			u.state, u.cause = Cut, cause
		} else {
			u.state, u.hushed = Playing, true
		}
		c.hush(u, cause)
		c.clock.Cut(now)
		if u.onset.IsZero() { // it never began, so no end is reported
			u.endAt = now
			c.voice.leave(u)
		}
	}
}

// follow updates the end of speech from the sound that was really sent.
func (c *Core) follow(u *Utterance) {
	if c.voice.newest() == u && u.state != Cut && !u.hushed {
		c.clock.Finish(u.ends())
	}
}

// becomeReady lets an utterance wait for its start. The target of the delay follows a comment's time.
func (c *Core) becomeReady(u *Utterance, now time.Time, learn bool) {
	if u.state != Queued {
		return
	}
	u.state, u.ready = Waiting, now
	if u.Anchor == nil || !learn {
		return
	}
	c.delays.Observe(now.Sub(u.Anchor.Arrival))
	c.retarget()
}

func (c *Core) retarget() {
	if c.line != nil {
		c.line.SetTarget(c.delays.Target())
	}
}

// behave pauses the voice or lets it go on.
func (c *Core) behave(now time.Time) {
	quiet := c.floor == FloorDoubtful && c.bargeIn == Interrupt
	for _, u := range c.voice {
		switch {
		case quiet && u.state == Playing && !u.hushed:
			u.state, u.pausedAt = Paused, now
			c.do(Action{Do: PauseVoice, U: u})
		case !quiet && u.state == Paused:
			by := now.Sub(u.pausedAt)
			u.state, u.pausedAt, u.startAt = Playing, time.Time{}, u.startAt.Add(by)
			if !u.onset.IsZero() { // else it begins now
				u.rested += by
			}
			c.follow(u)
			c.do(Action{Do: ResumeVoice, U: u})
		}
	}
}

// Level returns the level of the voice in dB: lower while a participant speaks, with the barge-in behaviour Duck.
func (c *Core) Level() float64 {
	if c.floor == FloorTaken && c.bargeIn == Duck {
		return c.gain - duckedBy
	}
	return c.gain
}
