package speech

import (
	"slices"
	"time"

	"touchline/pacing"
)

// Add queues an utterance. It returns ErrFull when its author, or all together, have too many that wait.
func (c *Core) Add(u *Utterance) error {
	if u.Priority > Comment && c.full(u.Author) {
		return ErrFull
	}
	c.seq++
	u.seq = c.seq
	at, _ := slices.BinarySearchFunc(c.queue, u, (*Utterance).before)
	c.queue = slices.Insert(c.queue, at, u)
	return nil
}

// full reports whether too many announcements of an author, or of all people, wait for their turn.
func (c *Core) full(author string) bool {
	_, turn := c.announcing(nil) // else the next has its turn, and waits for the voice alone
	own, all := 0, 0
	for _, u := range c.queue {
		switch {
		case u.Priority == Comment || u.supply != untouched:
			continue
		case !turn:
			turn = true
			continue
		case u.Author == author:
			own++
		}
		if u.Author != "" {
			all++
		}
	}
	return own >= MaxPerAuthor || author != "" && all >= MaxWaiting
}

// Text adds to the text of a comment. It reports whether the comment is ready, or has begun.
func (c *Core) Text(u *Utterance, delta string, now time.Time) (ready bool) {
	if u.dropped || u.supply != writing {
		return false
	}
	u.text += delta
	if !u.Spoken {
		c.becomeReady(u, now, true)
	}
	return u.state != Queued
}

// Sound places the words of sound that the voice took. It reports whether the utterance is ready, or has begun.
func (c *Core) Sound(u *Utterance, w Written, now time.Time) (ready bool) {
	if u.dropped || !u.Spoken || u.supply == made {
		return false
	}
	u.audible = w.Audible
	u.wrote(w)
	if u.audible > 0 && u.state == Queued {
		u.firstSound = now
		c.becomeReady(u, now, true)
	}
	c.follow(u)
	return u.state != Queued
}

// EndText ends the text of a comment. said is false if this drops the comment: before it began, without keep, or because its maker failed
// before it was ready. Its maker then reports it. sound reports whether its sound is wanted.
func (c *Core) EndText(u *Utterance, keep, failed bool, now time.Time) (said, sound bool) {
	switch {
	case u.dropped || u.supply != writing:
		return false, false
	case !u.started() && (!keep || failed && u.state == Queued):
		c.discard(u)
		return false, false
	}
	u.supply = sounding
	if !u.Spoken {
		c.becomeReady(u, now, true)
	}
	return true, u.wanted()
}

// EndSound ends the sound of an utterance; audible is its length. Without sound, only its text is shown. err is why
// it ends early.
func (c *Core) EndSound(u *Utterance, audible time.Duration, err error, now time.Time) {
	if u.supply == made {
		return
	}
	learn := u.wanted() && u.Priority == Comment && err == nil && audible > 0
	u.supply = made
	if u.sound != nil {
		u.audible = audible
	}
	switch {
	case u.dropped:
		return
	case learn:
		c.rate.learn(len(u.text), audible)
	}
	if !u.hushed && u.state != Cut {
		u.failure = err
	}
	if u.state == Queued {
		u.Spoken = false
		c.becomeReady(u, now, true)
	}
}

// Withdraw takes a comment that has not begun out of the queue, or, to be written again, empties it. It reports whether
// that was possible.
func (c *Core) Withdraw(u *Utterance, again bool) bool {
	if u.dropped || u.started() || u.supply != writing {
		return false
	}
	if !again {
		c.discard(u)
		return true
	}
	c.do(Action{Do: CutVoice, U: u})
	u.words, u.state, u.sound, u.audible = words{}, Queued, nil, 0
	return true
}

// discard drops a comment that its maker reports.
func (c *Core) discard(u *Utterance) {
	u.state, u.dropped = Done, true
	c.remove(u)
	c.do(Action{Do: CutVoice, U: u})
	u.sound, u.audible = nil, 0
}

// Clear drops all comments that have not begun and, with cut, silences the voice.
func (c *Core) Clear(cause error, cut bool, now time.Time) {
	for _, u := range c.queue {
		if u.Priority == Comment {
			c.drop(u, cause, now)
		}
	}
	c.queue = slices.DeleteFunc(c.queue, func(u *Utterance) bool { return u.dropped })
	if cut {
		c.cutVoice(cause, now)
	}
}

// Mute turns all speech into text, except announcements that are not made yet: their makers know whether there is a voice then.
func (c *Core) Mute(now time.Time) {
	for _, u := range c.queue {
		if !u.Spoken || u.supply == untouched {
			continue
		}
		c.hush(u, nil)
		u.Spoken, u.hushed = false, true
		if u.supply == sounding {
			c.becomeReady(u, now, false)
		}
	}
	c.cutVoice(nil, now)
}

// VoiceStarted notes the first audible sample.
func (c *Core) VoiceStarted(u *Utterance, onset time.Time) {
	if u.final {
		return
	}
	u.onset, u.startAt = onset, onset
	c.follow(u)
}

// VoiceSlipped notes that the rest plays later, by lost in total since the first sample, because the voice skipped frames.
func (c *Core) VoiceSlipped(u *Utterance, lost time.Duration, now time.Time) {
	u.lost = lost
	c.follow(u)
	if c.voice.newest() == u {
		c.clock.Slip(now.Sub(u.onset)-u.rested-lost, lost)
	}
}

// VoiceEnded notes the last audible sample. cut is set when the voice stopped before its end.
func (c *Core) VoiceEnded(u *Utterance, end time.Time, cut bool) {
	newest := c.voice.newest() == u
	c.voice.leave(u)
	if newest {
		c.clock.Finish(end)
		lost := u.lost
		if cut {
			lost = 0 // it may have stood still with the process
		}
		c.clock.Slip(u.audible, lost)
	}
	if u.final {
		return
	}
	u.endAt = end
	if u.state == Cut && !cut { // it was played to its end after all
		u.state, u.cause = Playing, nil
	}
}

// Floor sets whether an authorised participant speaks.
func (c *Core) Floor(f Floor, now time.Time) {
	if f == c.floor {
		return
	}
	c.floor = f
	if f == FloorTaken {
		c.floorSince = now
		if c.bargeIn == Interrupt {
			c.cutVoice(ErrTalkedOver, now)
		}
	}
	c.behave(now)
}

// Behave sets the barge-in behaviour, the maximum time that a comment waits for a speaker, and the voice's level in dB.
func (c *Core) Behave(m BargeIn, maxWait time.Duration, gain float64, now time.Time) {
	c.bargeIn, c.maxWait, c.gain = m, maxWait, gain
	c.behave(now)
}

// Pace sets the pause after speech and the settings of the delay, whose target follows at once if retarget is set.
func (c *Core) Pace(pause time.Duration, cfg pacing.Config, retarget bool) {
	c.pause = pause
	c.delays.Configure(cfg)
	if retarget {
		c.retarget()
	}
}

// Forget resets the estimates of comment times and, with voice set, of the speech rate.
func (c *Core) Forget(voice bool) {
	c.delays.Forget()
	if voice {
		c.rate = rate{}
	}
}

// VoiceEnd returns the time at which the pause before the next comment begins: the end of the last comment that is spoken or waits, as
// far as it is known, and later while speech loses time; zero without one.
func (c *Core) VoiceEnd(now time.Time) time.Time {
	end := c.clock.End()
	if u := c.voice.newest(); u != nil && u.supply == sounding {
		if at := u.startAt.Add(u.expected(c.rate) + u.lost); at.After(end) {
			end = at
		}
	}
	if end.After(now) {
		end = now.Add(c.clock.Expect(end.Sub(now)))
	}
	for _, u := range c.queue {
		if u.Priority == Comment && u.Spoken && (u.supply > writing || u.state == Waiting) {
			end = u.startOf(c.line, now, end, c.pause).Add(c.clock.Expect(u.expected(c.rate)))
		}
	}
	if end.IsZero() {
		return end
	}
	return end.Add(c.clock.Rest())
}

// Speaking reports whether the voice is audible.
func (c *Core) Speaking() bool {
	last := c.voice.newest()
	return last != nil && !last.onset.IsZero() && last.pausedAt.IsZero()
}

// Busy reports whether the voice has something to say.
func (c *Core) Busy() bool { return len(c.voice) > 0 }
