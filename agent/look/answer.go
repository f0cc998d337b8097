package look

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"time"

	"touchline/inference"
	"touchline/internal/redact"
	"touchline/media"
)

// receive handles a chunk of an answer. Text and sound are passed on once the text has a word.
func (c *Cycle) receive(chunk inference.Chunk, now time.Time) {
	if chunk.Text != "" && !c.complete {
		if c.text == "" {
			c.rec.FirstWordSec = now.Sub(c.Anchor.Arrival).Seconds()
			c.moveAnchor(chunk.Anchor)
			c.rec.Facts = facts(chunk.Facts)
		}
		c.text += chunk.Text
		c.rec.Tokens++
	}
	if len(chunk.Audio) > 0 {
		c.held = append(c.held, chunk)
	}
	if inference.ClassifyAnswer(c.text, c.complete) == inference.HasWords {
		c.pass()
	}
}

// moveAnchor anchors the comment at an event before the newest picture; 0 is that picture.
func (c *Cycle) moveAnchor(pts time.Duration) {
	if pts <= 0 || pts >= c.Anchor.PTS {
		return
	}
	c.rec.AnchorPTS = pts.Seconds()
	c.comment.SetAnchor(pts, c.Anchor.Arrival.Add(pts-c.Anchor.PTS))
}

// pass gives the comment the new text and the held sound.
func (c *Cycle) pass() {
	ready := false
	if rest := c.text[c.passed:]; rest != "" {
		c.passed = len(c.text)
		ready = c.comment.Write(rest)
	}
	for _, held := range c.held {
		pcm := media.PCM{Rate: held.AudioRate, Samples: held.Audio}
		ready = c.comment.Sound(pcm, held.Words) || ready
	}
	c.held = nil
	if ready {
		c.ready = true
		c.showFrames()
	}
}

// showFrames passes the pictures of a comment to the outputs and releases
// them: the comment may wait for seconds, and needs only their times.
func (c *Cycle) showFrames() {
	l := c.l
	if len(c.frames) == 0 {
		return // the outputs have them
	}
	frames := c.frames
	c.frames = nil
	if !l.forgotSince(c.forgets) {
		l.opts.Output.Frames(c.Number, frames)
	}
}

// endLook ends the look of a cycle; cause is nil when the answer's text is complete. It reports whether there is a comment, whose
// sound is wanted. Another call does nothing.
func (c *Cycle) endLook(cause error) (wanted bool) {
	l := c.l
	if c.complete {
		return false
	}
	says := inference.ClassifyAnswer(c.text, true) == inference.HasWords
	if says && (cause == nil || c.ready) {
		c.pass() // few letters are known to be words only now
	}
	now := time.Now()
	said, wanted := c.closeLook(says, cause, now)
	if c.answered {
		l.opts.Output.Took(now.Sub(c.rec.InferenceStart), now)
	}
	if said {
		c.showFrames()
	}
	l.wake.Set()
	return wanted
}

// closeLook ends the cycle's text. It reports whether there is a comment, and whether its sound is wanted.
func (c *Cycle) closeLook(says bool, cause error, now time.Time) (said, wanted bool) {
	l := c.l
	l.mu.Lock()
	defer l.mu.Unlock()
	c.rec.InferenceEnd = now
	c.rec.InferenceSec = now.Sub(c.rec.InferenceStart).Seconds()
	if !c.Anchor.Arrival.IsZero() {
		c.rec.LatencySec = now.Sub(c.Anchor.Arrival).Seconds()
	}
	l.inFlight = nil

	if c.replaced != nil {
		cause = c.replaced
	}
	c.answered = cause == nil && !c.rec.Skipped
	c.repeated = c.endsInRepeatLocked(false, now)
	if cause != nil {
		c.rec.Reason = redact.Addresses(cause.Error())
	}
	c.complete = true
	if c.comment != nil {
		said, wanted = c.comment.EndText(says && c.replaced == nil && !c.repeated, cause != nil)
	}
	if err := l.gate.Finish(said); err != nil {
		l.log.Error().Err(err).Msg("cycle ended out of turn")
	}
	if !said {
		c.nothingSaidLocked(cause, now)
		return false, false
	}
	l.quiet, l.retry.failures = "", 0
	if c.replaced == nil && !c.superseded && c.Anchor.Epoch == l.picture.Source().Epoch {
		l.memory.said(c.text, c.rec.Facts, now)
	}
	return true, wanted
}

// endSound ends a cycle after its last sound; cause is nil when all of it came. Without a comment it publishes the record.
func (c *Cycle) endSound(cause error) {
	l := c.l
	if c.comment != nil {
		c.comment.EndSound(cause)
	}
	l.wake.Set()
	if c.rec.Outcome == "" {
		return // its end follows
	}
	if c.comment != nil {
		_ = c.comment.Measure(&c.rec)
	}
	l.opts.Output.Record(c.rec)
}

// sceneUnchanged is the reason of OutcomeSkipped.
const sceneUnchanged = "the scene did not change"

// nothingSaidLocked completes the record of a cycle without a comment.
func (c *Cycle) nothingSaidLocked(cause error, now time.Time) {
	l := c.l
	var dropped error // by the queue
	if c.comment != nil {
		dropped = c.comment.Measure(&c.rec)
		cause = cmp.Or(dropped, cause)
	}
	r := &c.rec
	switch {
	case errors.Is(cause, ErrReplaced), errors.Is(cause, ErrStopped), errors.Is(cause, errSourceChanged), errors.Is(cause, errEngineChanged),
		errors.Is(cause, errForgotten), errors.Is(cause, errStoodStill):
		r.Outcome, r.Reason = OutcomeDropped, cause.Error()
		return
	case errors.Is(cause, context.Canceled):
		r.Outcome, r.Reason = OutcomeDropped, "the session ends"
		return
	case dropped != nil: // it was too late
		r.Outcome, r.Reason, r.Text = OutcomeDropped, cause.Error(), strings.TrimSpace(c.text)
		return
	case cause != nil:
		r.Outcome = OutcomeFailed
		l.quiet = r.Reason
		l.retry.fail(now)
		l.log.Warn().Err(cause).Uint64("cycle", c.Number).Time("retry_at", l.retry.at).Msg("cycle failed")
		return
	case r.Skipped:
		r.Outcome, r.Reason = OutcomeSkipped, sceneUnchanged
		l.quiet = r.Reason
		return
	case c.repeated:
		r.Outcome, r.Reason, r.Text = OutcomeRepeated, "skipped: it repeats a recent comment", strings.TrimSpace(c.text)
	default:
		r.Outcome, r.Reason, r.Text = OutcomeSilent, "nothing new to say", ""
	}
	l.quiet, l.retry.failures = r.Reason, 0
}
