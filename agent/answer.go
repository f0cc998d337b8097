package agent

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"time"

	"touchline/agent/prompt"
	"touchline/agent/speech"
	"touchline/inference"
	"touchline/media"
)

// receive takes one step of an answer. What it says is passed on once it is known to be words.
func (s *Session) receive(c *cycle, chunk inference.Chunk, now time.Time) {
	if chunk.Text != "" && !c.complete {
		if c.text == "" {
			c.rec.FirstWordSec = now.Sub(c.anchor.Arrival).Seconds()
		}
		c.text += chunk.Text
		c.rec.Tokens++
	}
	if len(chunk.Audio) > 0 {
		c.held = append(c.held, chunk)
	}
	if inference.ClassifyAnswer(c.text, c.complete) == inference.HasWords {
		s.pass(c)
	}
}

// pass has the text and the sound so far said.
func (s *Session) pass(c *cycle) {
	ready := false
	if rest := c.text[c.passed:]; rest != "" {
		c.passed = len(c.text)
		ready = s.speech.Text(c.said, rest)
	}
	for _, held := range c.held {
		pcm := media.PCM{Rate: held.AudioRate, Samples: held.Audio}
		ready = s.speech.Sound(c.said, pcm, held.Words) || ready
	}
	c.held = nil
	if ready {
		c.ready = true
		s.showFrames(c)
	}
}

// showFrames passes the pictures of a comment to the outputs and releases
// them: the comment may wait for seconds, and needs only their times.
func (s *Session) showFrames(c *cycle) {
	if len(c.frames) == 0 {
		return // the outputs have them
	}
	frames := make([]SeenFrame, len(c.frames))
	for i, f := range c.frames {
		frames[i] = SeenFrame{ID: f.ID, Frame: f.VideoFrame}
	}
	c.frames = nil
	for _, t := range s.opts.Texts {
		if fo, ok := t.(FrameOutput); ok {
			fo.Frames(c.rec.Cycle, frames)
		}
	}
}

// endLook ends the look of a cycle; cause is nil when the answer's text is complete. It reports whether there is a comment, whose
// sound is wanted. Another call does nothing.
func (s *Session) endLook(c *cycle, cause error) (wanted bool) {
	if c.complete {
		return false
	}
	says := inference.ClassifyAnswer(c.text, true) == inference.HasWords
	if says && (cause == nil || c.ready) {
		s.pass(c) // few letters are known to be words only now
	}
	said, wanted := s.closeLook(c, says, cause, time.Now())
	if said {
		s.showFrames(c)
	}
	s.wake.Set()
	return wanted
}

// closeLook ends the cycle's text. It reports whether there is a comment, and whether its sound is wanted.
func (s *Session) closeLook(c *cycle, says bool, cause error, now time.Time) (said, wanted bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c.rec.InferenceEnd = now
	c.rec.InferenceSec = now.Sub(c.rec.InferenceStart).Seconds()
	if !c.anchor.Arrival.IsZero() {
		c.rec.LatencySec = now.Sub(c.anchor.Arrival).Seconds()
	}
	s.inFlight = nil

	if c.replaced != nil {
		cause = c.replaced
	}
	if cause == nil && !c.rec.Skipped {
		s.stepPresetLocked(now.Sub(c.rec.InferenceStart), now)
	}
	c.repeated = s.endsInRepeatLocked(c, false, now)
	if cause != nil {
		c.rec.Reason = cause.Error()
	}
	c.complete = true
	if c.said != nil {
		said, wanted = s.speech.EndText(c.said, says && c.replaced == nil && !c.repeated, cause != nil)
	}
	if err := s.gate.Finish(said); err != nil {
		s.log.Error().Err(err).Msg("cycle ended out of turn")
	}
	if !said {
		s.nothingSaidLocked(c, cause, now)
		return false, false
	}
	s.quiet, s.failures = "", 0
	if c.replaced == nil && !c.superseded && c.anchor.Epoch == s.picture.source().epoch {
		s.said = append(s.said[max(0, len(s.said)+1-keptComments):], prompt.PastComment{Text: strings.TrimSpace(c.text), At: now})
	}
	return true, wanted
}

// endSound ends a cycle after its last sound; cause is nil when all of it came. Without a comment it publishes the record.
func (s *Session) endSound(c *cycle, cause error) {
	if c.said != nil {
		s.speech.EndSound(c.said, cause)
	}
	s.wake.Set()
	if c.rec.Outcome == "" {
		return // its end follows
	}
	if c.said != nil {
		c.rec.timed(s.speech.Result(c.said))
	}
	s.publishRecord(c.rec)
}

// Retry times after a failed cycle.
const (
	retryFirst = time.Second
	retryMost  = 10 * time.Second
)

// sceneUnchanged is the reason of OutcomeSkipped.
const sceneUnchanged = "the scene did not change"

// nothingSaidLocked completes the record of a cycle without a comment.
func (s *Session) nothingSaidLocked(c *cycle, cause error, now time.Time) {
	if c.said != nil {
		cause = cmp.Or(s.speech.Result(c.said).Cause, cause) // it was dropped
	}
	switch {
	case errors.Is(cause, speech.ErrTooLate):
		c.rec.Outcome, c.rec.Reason, c.rec.Text = OutcomeDropped, cause.Error(), strings.TrimSpace(c.text)
		s.counters.dropped++
	case errors.Is(cause, errReplaced), errors.Is(cause, errStopped), errors.Is(cause, errSourceChanged), errors.Is(cause, errEngineChanged):
		c.rec.Outcome, c.rec.Reason = OutcomeDropped, cause.Error()
		s.counters.dropped++
	case errors.Is(cause, context.Canceled):
		c.rec.Outcome, c.rec.Reason = OutcomeDropped, "the session ends"
	case cause != nil:
		c.rec.Outcome, c.rec.Reason = OutcomeFailed, cause.Error()
		s.counters.failed++
		s.quiet = cause.Error()
		s.failures++
		s.retryAt = now.Add(min(retryFirst<<min(s.failures-1, 4), retryMost))
		s.log.Warn().Err(cause).Uint64("cycle", c.rec.Cycle).Time("retry_at", s.retryAt).Msg("cycle failed")
	case c.rec.Skipped:
		c.rec.Outcome, c.rec.Reason = OutcomeSkipped, sceneUnchanged
		s.quiet = c.rec.Reason
		s.counters.skipped++
	case c.repeated:
		c.rec.Outcome, c.rec.Reason, c.rec.Text = OutcomeRepeated, "skipped: it repeats a recent comment", strings.TrimSpace(c.text)
		s.quiet = c.rec.Reason
		s.counters.repeated++
		s.failures = 0
	default:
		c.rec.Outcome, c.rec.Reason = OutcomeSilent, "nothing new to say"
		c.rec.Text = ""
		s.quiet = c.rec.Reason
		s.counters.silent++
		s.failures = 0
	}
}
