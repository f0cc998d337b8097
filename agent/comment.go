package agent

import (
	"context"
	"errors"
	"strings"
	"time"

	"touchline/agent/look"
	"touchline/agent/speech"
	"touchline/internal/redact"
	"touchline/media/window"
)

// commentary says the comments of looks; it is their look.Speech.
type commentary struct {
	*speech.Scheduler

	s *Session
}

// comment is a queued or spoken comment: a speech.Maker, and the look.Comment of its cycle.
type comment struct {
	*speech.Utterance

	s     *Session
	cycle *look.Cycle
}

// Comment implements look.Speech. A comment may not begin with words that repeat an earlier one.
func (c commentary) Comment(cycle *look.Cycle, spoken bool) (look.Comment, error) {
	out := &comment{s: c.s, cycle: cycle}
	at := cycle.Anchor
	out.Utterance = speech.New(speech.Options{
		Maker: out, Priority: speech.Comment, Spoken: spoken, Cancel: cycle.Cancel,
		Anchor: &speech.Anchor{Epoch: at.Epoch, PTS: at.PTS, Arrival: at.Arrival}, Guard: cycle.MayBegin,
	})
	return out, c.Add(out.Utterance)
}

// Measure implements look.Comment.
func (c *comment) Measure(r *look.Record) error {
	result := c.Result()
	timed(r, result)
	return result.Cause
}

// Make implements speech.Maker. A comment is made by its look.
func (*comment) Make(context.Context, *speech.Utterance) error { return nil }

// Begun implements speech.Maker.
func (c *comment) Begun(dropped bool) {
	c.cycle.Begun()
	if !dropped {
		c.s.locked(func() { c.s.latest = c })
	}
}

// Caption implements speech.Maker.
func (c *comment) Caption(step speech.Step) { c.s.caption(c.cycle.Number, c.cycle.Language, step) }

// Ended implements speech.Maker.
func (c *comment) Ended(r speech.Result) {
	if r.Outcome == speech.Dropped && errors.Is(r.Cause, speech.ErrTooLate) {
		c.s.Looks.Unsaid(strings.TrimSpace(r.Text))
	}
	c.s.publishRecord(c.s.measure(c.cycle.Record(), r))
}

// lookOutput receives the results of looks without a comment.
type lookOutput struct{ *Session }

// Changed implements look.Output.
func (o lookOutput) Changed() { o.publishStatus() }

// Frames implements look.Output.
func (o lookOutput) Frames(cycle uint64, frames []window.Frame) {
	for _, t := range o.opts.Texts {
		if fo, ok := t.(FrameOutput); ok {
			fo.Frames(cycle, frames)
		}
	}
}

// Record implements look.Output.
func (o lookOutput) Record(r look.Record) { o.publishRecord(r) }

// caption publishes a step of the caption of a cycle.
func (s *Session) caption(cycle uint64, language string, step speech.Step) {
	caption := Caption{
		Segment: s.segmentID(cycle), Cycle: cycle, Delta: step.Delta, Text: step.Text,
		Final: step.Final, Spoken: step.Spoken, Language: language,
	}
	for _, t := range s.opts.Texts {
		t.Caption(caption)
	}
}

// speechChanged is called after each change of the speech except new words.
func (s *Session) speechChanged() {
	s.Looks.Wake()
	s.publishStatus()
}

// lateBy is the alignment error above which a comment counts as late.
const lateBy = 100 * time.Millisecond

// timed adds the times of an utterance to its record.
func timed(r *look.Record, said speech.Result) {
	if since := func(t time.Time) float64 { return t.Sub(r.NewestFrameAt).Seconds() }; r.Announced == "" {
		if !said.Ready.IsZero() {
			r.ReadySec = since(said.Ready) + (r.PTSTo - r.AnchorPTS)
		}
		if !said.FirstSound.IsZero() {
			r.FirstAudioSec = since(said.FirstSound)
		}
	}
	r.Delay, r.TargetDelay, r.AudioSec = said.Delay.Seconds(), said.Target.Seconds(), said.Audible.Seconds()
}

// measure completes the record of what was said or dropped.
func (s *Session) measure(r look.Record, said speech.Result) look.Record {
	timed(&r, said)
	r.Text = strings.TrimSpace(said.Text)
	if said.Failure != nil && r.Reason == "" && r.Announced == "" {
		r.Reason = redact.Addresses(said.Failure.Error())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if said.Outcome == speech.Dropped {
		r.Outcome, r.Reason = look.OutcomeDropped, said.Cause.Error()
		return r
	}
	r.Spoken, r.StartedAt, r.EndedAt = said.Spoken, said.Started, said.Ended
	if !r.StartedAt.IsZero() && !r.EndedAt.IsZero() { // as if the wall clock was not set meanwhile
		r.EndedAt = r.StartedAt.Add(r.EndedAt.Sub(r.StartedAt))
	}
	switch {
	case said.Outcome == speech.Silenced:
		r.Outcome, r.Reason = look.OutcomeCut, said.Cause.Error()
	case s.room != "":
		// A room that reconnects before the end gets the words from the beginning.
		r.Outcome, r.Reason = look.OutcomeCut, s.room
	case said.Outcome == speech.Shown:
		r.Outcome = look.OutcomeShown
	default:
		r.Outcome = look.OutcomeSpoken
	}
	if r.Announced == "" && !said.ShownAt.IsZero() && !r.StartedAt.IsZero() {
		off := r.StartedAt.Sub(said.ShownAt)
		r.ShownAt, r.AlignmentError, r.Aligned = r.StartedAt.Add(-off), off.Seconds(), true
		r.Late = off.Abs() > lateBy
		s.tally.align(off.Abs())
	}
	return r
}
