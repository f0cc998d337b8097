package agent

import (
	"context"
	"errors"
	"strings"
	"time"

	"touchline/agent/prompt"
	"touchline/inference"
	"touchline/media"
)

// receive stores one step of an answer and returns the audio that may go to the voice now.
func (s *Session) receive(u *utterance, c inference.Chunk, now time.Time) []inference.Chunk {
	s.mu.Lock()
	defer s.mu.Unlock()
	if u.replaced != nil {
		return nil
	}
	if c.Text != "" {
		if u.text == "" {
			u.rec.FirstWordSec = now.Sub(u.anchor.Arrival).Seconds()
		}
		u.text += c.Text
		u.rec.Tokens++
	}
	if len(c.Audio) > 0 && u.spoken && !u.wasCut {
		u.held = append(u.held, c)
	}
	if inference.Judge(u.text, u.complete) != inference.Says {
		return nil
	}
	if u.announced && !u.released {
		s.deliver.Set() // it may wait for these words
	}
	if !u.spoken {
		s.announceLocked(u, now)
		return nil
	}
	return s.releaseAudioLocked(u)
}

// releaseAudioLocked returns the audio held so far and prepares the utterance for it.
func (s *Session) releaseAudioLocked(u *utterance) []inference.Chunk {
	held := u.held
	u.held = nil
	if len(held) > 0 && u.speech == nil {
		u.speech = s.opts.Audio.NewUtterance(s.speechEvents(u))
	}
	return held
}

// writeAudio writes audio to the voice. Converting a sentence takes milliseconds, so the lock is not held meanwhile:
// the voice's goroutine needs it to report what it played.
func (s *Session) writeAudio(u *utterance, held []inference.Chunk) {
	for _, c := range held {
		pcm := media.PCM{Rate: c.AudioRate, Samples: c.Audio}
		audible, err := u.speech.Write(pcm)
		w := written{audible: audible, lead: u.speech.LeadTrimmed(), length: pcm.Duration(), words: c.Words}
		if s.placeAudio(u, w, err, time.Now()) {
			s.log.Warn().Err(err).Uint64("cycle", u.rec.Cycle).Msg("audio not written")
		}
	}
}

// placeAudio places the words of written audio, and announces the comment with its first sound. It reports
// whether err matters: after a cut the voice refuses the rest.
func (s *Session) placeAudio(u *utterance, w written, err error, now time.Time) (matters bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if u.replaced != nil || !u.spoken {
		return false
	}
	if err != nil {
		return !u.wasCut && !u.silenced
	}
	u.wrote(w)
	if u.audible == 0 {
		return false
	}
	if !u.ready {
		u.rec.FirstAudioSec = now.Sub(u.anchor.Arrival).Seconds()
		s.announceLocked(u, now)
	} else {
		s.followVoiceLocked(u)
	}
	return false
}

// announceLocked queues a comment that is ready to be published and updates the
// target delay.
func (s *Session) announceLocked(u *utterance, now time.Time) {
	s.queueLocked(u)
	if u.ready {
		return
	}
	u.ready = true
	ready := now.Sub(u.anchor.Arrival)
	u.rec.ReadySec = ready.Seconds()
	s.delays.Observe(ready)
	s.line.SetTarget(s.delays.Target())
	s.deliver.Set()
}

// queueLocked queues a comment, which waits for its first sound there if it has none yet: comments are said in the order of their
// texts.
func (s *Session) queueLocked(u *utterance) {
	if u.announced {
		return
	}
	u.announced = true
	s.queue = append(s.queue, u)
	s.showFramesLocked(u)
	s.deliver.Set()
}

// showFramesLocked passes the pictures of a comment to the outputs and releases
// them: the comment may wait for seconds, and needs only their times.
func (s *Session) showFramesLocked(u *utterance) {
	cycle, frames := u.rec.Cycle, make([]SeenFrame, len(u.frames))
	for i, f := range u.frames {
		frames[i] = SeenFrame{ID: f.ID, Frame: f.VideoFrame}
	}
	if len(frames) == 0 {
		return // shown with the first try
	}
	u.frames, u.anchor.Pix = nil, nil
	s.work.Go(func() error {
		for _, t := range s.opts.Texts {
			if fo, ok := t.(FrameOutput); ok {
				fo.Frames(cycle, frames)
			}
		}
		return nil
	})
}

// endLook ends the look of a cycle; cause is nil when the answer's text is complete. It reports whether there is a comment, whose
// sound is wanted. Another call does nothing.
func (s *Session) endLook(u *utterance, cause error) (said bool) {
	if u.complete {
		return false
	}
	s.writeAudio(u, s.lastAudio(u, cause))
	said = s.closeLook(u, cause, time.Now())
	u.changed.Set()
	s.deliver.Set()
	s.wake.Set()
	return said
}

// endSound ends a cycle after its last sound; cause is nil when all of it came. Without a comment it publishes the record.
func (s *Session) endSound(u *utterance, cause error) {
	var audible time.Duration
	if u.speech != nil {
		audible = u.speech.End()
	}
	rec, publish := s.closeSound(u, cause, audible, time.Now())
	u.changed.Set()
	s.deliver.Set()
	s.wake.Set()
	if publish {
		s.publishRecord(rec)
	}
}

// lastAudio returns the audio held until the end of an answer of few letters.
func (s *Session) lastAudio(u *utterance, cause error) []inference.Chunk {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !u.spoken || !u.keptLocked(cause) {
		return nil
	}
	return s.releaseAudioLocked(u)
}

// keptLocked reports whether an answer is a comment: an error keeps one that is announced, a new instruction drops
// the others.
func (u *utterance) keptLocked(cause error) bool {
	return inference.Judge(u.text, true) == inference.Says && u.replaced == nil && !u.repeated && (cause == nil || u.announced)
}

// closeLook ends the cycle's text. It reports whether there is a comment.
func (s *Session) closeLook(u *utterance, cause error, now time.Time) (said bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	u.rec.InferenceEnd = now
	u.rec.InferenceSec = now.Sub(u.rec.InferenceStart).Seconds()
	if !u.anchor.Arrival.IsZero() {
		u.rec.LatencySec = now.Sub(u.anchor.Arrival).Seconds()
	}
	s.inFlight = nil

	if u.replaced != nil {
		cause = u.replaced
	}
	if cause == nil && !u.rec.Skipped {
		s.stepPresetLocked(now.Sub(u.rec.InferenceStart), now)
	}
	u.repeated = s.endsInRepeatLocked(u, now)
	if u.keptLocked(cause) {
		if !u.spoken {
			s.announceLocked(u, now)
		}
		s.queueLocked(u)
	}
	u.complete = true
	if err := s.gate.Finish(u.announced); err != nil {
		s.log.Error().Err(err).Msg("cycle ended out of turn")
	}
	if !u.announced {
		s.nothingSaidLocked(u, cause, now)
		return false
	}
	s.quiet, s.failures = "", 0
	if u.replaced == nil && !u.superseded && u.anchor.Epoch == s.picture.source().epoch {
		s.said = append(s.said[max(0, len(s.said)+1-keptComments):], prompt.PastComment{Text: strings.TrimSpace(u.text), At: now})
	}
	if cause != nil {
		u.rec.Reason = cause.Error()
	}
	return !u.silenced
}

// closeSound ends the cycle's sound. publish is set when there is no comment, so that its record is complete.
func (s *Session) closeSound(u *utterance, cause error, audible time.Duration, now time.Time) (rec Record, publish bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	u.generated = true
	if u.speech != nil {
		u.audible = audible
		u.rec.AudioSec = audible.Seconds()
		if cause == nil && audible > 0 && u.announced && !u.silenced && !u.wasCut {
			s.rate.learn(len(u.text), audible)
		}
	}
	if !u.announced {
		return u.rec, true
	}
	if u.spoken && !u.ready && !u.silenced {
		u.spoken = false // without audio: text
		s.announceLocked(u, now)
	}
	if cause != nil && !u.silenced && u.rec.Reason == "" {
		u.rec.Reason = cause.Error()
	}
	return u.rec, false
}

// Retry times after a failed cycle.
const (
	retryFirst = time.Second
	retryMost  = 10 * time.Second
)

// sceneUnchanged is the reason of OutcomeSkipped.
const sceneUnchanged = "the scene did not change"

func (s *Session) nothingSaidLocked(u *utterance, cause error, now time.Time) {
	switch {
	case errors.Is(cause, errReplaced), errors.Is(cause, errStopped), errors.Is(cause, errSourceChanged), errors.Is(cause, errEngineChanged):
		u.rec.Outcome, u.rec.Reason = OutcomeDropped, cause.Error()
		s.counters.dropped++
	case errors.Is(cause, context.Canceled):
		u.rec.Outcome, u.rec.Reason = OutcomeDropped, "the session ends"
	case cause != nil:
		u.rec.Outcome, u.rec.Reason = OutcomeFailed, cause.Error()
		s.counters.failed++
		s.quiet = cause.Error()
		s.failures++
		s.retryAt = now.Add(min(retryFirst<<min(s.failures-1, 4), retryMost))
		s.log.Warn().Err(cause).Uint64("cycle", u.rec.Cycle).Time("retry_at", s.retryAt).Msg("cycle failed")
	case u.rec.Skipped:
		u.rec.Outcome, u.rec.Reason = OutcomeSkipped, sceneUnchanged
		s.quiet = u.rec.Reason
		s.counters.skipped++
	case u.repeated:
		u.rec.Outcome, u.rec.Reason, u.rec.Text = OutcomeRepeated, "skipped: it repeats a recent comment", strings.TrimSpace(u.text)
		s.quiet = u.rec.Reason
		s.counters.repeated++
		s.failures = 0
	default:
		u.rec.Outcome, u.rec.Reason = OutcomeSilent, "nothing new to say"
		u.rec.Text = ""
		s.quiet = u.rec.Reason
		s.counters.silent++
		s.failures = 0
	}
	if u.speech != nil {
		u.speech.Cut()
	}
}
