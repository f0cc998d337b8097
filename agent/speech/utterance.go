package speech

import (
	"time"

	"touchline/pacing"
)

// supply is how much of an utterance its maker has delivered.
type supply uint8

const (
	untouched supply = iota // an announcement that is not made yet
	writing                 // text and sound come
	sounding                // the text is complete, sound may come
	made
)

// Options of an Utterance.
type Options struct {
	Maker    Maker
	Priority Priority
	// Cuts is the priority below which it cuts the current speech; it waits for the end of other speech. Comment cuts nothing.
	Cuts Priority
	// Cause is the cause of the end of utterances that it cuts.
	Cause error
	// Author identifies the client, for MaxPerAuthor; "" for the commentator itself.
	Author string
	// Anchor is the frame of a comment; nil waits for no frame.
	Anchor *Anchor
	// Text is the text of an announcement. A comment gets its text by Core.Text.
	Text string
	// Spoken is set if sound is made of the text.
	Spoken bool
	// Guard reports whether a comment may begin with its words so far; nil allows all.
	Guard func(words string, now time.Time) bool
	// Cancel ends the work of a comment's maker, whose sound is not wanted. An announcement's context ends instead.
	Cancel func(cause error)
}

// Utterance is one text to speak or show. The Core that it is added to owns all of it.
type Utterance struct {
	Options

	words

	s      *Scheduler // set by Scheduler.Add
	seq    uint64     // order of age
	state  State
	supply supply
	sound  Sound // nil before the first audio

	cause   error // of its end
	failure error
	dropped bool // before it began
	hushed  bool // its sound is not wanted any more; its text is shown
	final   bool // the last step of its caption is out

	audible           time.Duration
	ready, firstSound time.Time
	startAt           time.Time
	onset, endAt      time.Time
	pausedAt          time.Time
	rested            time.Duration // in pauses
	lost              time.Duration // by frames that the voice skipped
	delay, target     time.Duration
}

// New returns an utterance for Add.
func New(o Options) *Utterance {
	u := &Utterance{Options: o}
	u.text = o.Text
	if o.Priority == Comment {
		u.supply = writing
	}
	return u
}

// started reports whether it left the queue to be spoken or shown.
func (u *Utterance) started() bool { return u.state != Queued && u.state != Waiting && !u.dropped }

// ended reports whether nothing more becomes of it.
func (u *Utterance) ended() bool { return u.dropped || u.final && u.supply == made }

// wanted reports whether more sound of it is wanted.
func (u *Utterance) wanted() bool {
	return u.Spoken && !u.hushed && u.state != Cut && u.state != Done && u.supply != made
}

// expected returns the length of its speech when all of its text is said, with the rest at a rate.
func (u *Utterance) expected(r rate) time.Duration {
	if u.supply == made {
		return u.audible
	}
	return u.audible + r.time(len(u.text)-u.placed)
}

// ends returns the end of the sound that the voice has.
func (u *Utterance) ends() time.Time { return u.startAt.Add(u.audible + u.lost) }

// before orders the queue.
func (u *Utterance) before(o *Utterance) int {
	if u.Priority != o.Priority {
		return int(o.Priority) - int(u.Priority)
	}
	if u.seq < o.seq {
		return -1
	}
	return 1
}

// due returns when the delayed picture shows its frame; zero without one.
func (u *Utterance) due(line Line, now time.Time) time.Time {
	if line == nil || u.Anchor == nil {
		return time.Time{}
	}
	due, ok := line.Due(u.Anchor.Epoch, u.Anchor.PTS, now)
	if !ok {
		return time.Time{}
	}
	return due
}

// startOf returns the start of a comment, given the end of the voice before it.
func (u *Utterance) startOf(line Line, now, voiceEnd time.Time, pause time.Duration) time.Time {
	if !u.Spoken {
		voiceEnd = time.Time{}
	}
	return pacing.Release(now, u.due(line, now), voiceEnd, pause)
}

// dueWords returns the words that are due and not shown, and the time of the next one; zero if that is not known.
func (u *Utterance) dueWords(now time.Time) (delta string, next time.Time) {
	if u.onset.IsZero() {
		return "", time.Time{}
	}
	if !u.pausedAt.IsZero() {
		now = u.pausedAt
	}
	from := u.onset.Add(u.rested + u.lost)
	delta, at, more := u.words.due(now.Sub(from))
	if !more || !u.pausedAt.IsZero() {
		return delta, time.Time{}
	}
	return delta, from.Add(at)
}

// step returns the text to show now, whether it is the last, and when the next is due; zero if an event brings it.
func (u *Utterance) step(now time.Time) (delta string, final bool, next time.Time) {
	switch {
	case !u.Spoken:
		return u.rest(), u.supply == made, time.Time{}
	case u.onset.IsZero() && u.endAt.IsZero():
		return "", false, time.Time{} // the voice has not begun
	case !u.endAt.IsZero() && !now.Before(u.endAt):
		if u.state == Cut {
			delta, _ = u.dueWords(now) // only the words heard
			return delta, true, time.Time{}
		}
		// Without a voice, the rest follows as text.
		return u.rest(), u.supply == made, time.Time{}
	}
	delta, next = u.dueWords(now)
	return delta, false, pacing.Earliest(next, u.endAt)
}

// result returns its result so far.
func (u *Utterance) result(line Line, now time.Time) Result {
	r := Result{
		Outcome: Spoken, Cause: u.cause, Failure: u.failure, Text: u.text[:u.emitted], Spoken: u.Spoken,
		Started: u.onset, Ended: u.endAt, Ready: u.ready, FirstSound: u.firstSound, Delay: u.delay, Target: u.target,
	}
	switch {
	case u.dropped:
		r.Outcome, r.Text, r.Spoken = Dropped, u.text, false
	case u.state == Cut:
		r.Outcome = Silenced
	case !u.Spoken:
		r.Outcome = Shown
	}
	if u.supply == made || r.Spoken {
		r.Audible = u.audible
	}
	if !u.dropped && !u.Spoken {
		r.Ended = now
	}
	if line != nil && u.Anchor != nil {
		r.ShownAt, _ = line.Shown(u.Anchor.Epoch, u.Anchor.PTS)
	}
	return r
}
