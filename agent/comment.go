package agent

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"touchline/agent/prompt"
	"touchline/agent/speech"
	"touchline/inference"
	"touchline/media"
	"touchline/media/delay"
	"touchline/media/window"
)

// cycle is one look, and the comment that comes of it. What is not marked belongs to the goroutine of the look until the text
// has ended, and is read only afterwards.
type cycle struct {
	s      *Session
	cancel context.CancelCauseFunc // ends its generation

	rec      Record
	frames   []window.Frame // for the outputs; nil once they have them
	looked   []window.Frame // for the look with alert rules that follows the cycle
	anchor   media.VideoFrame
	language string // BCP 47

	retries  bool // the engine is asked once more if it repeats a comment
	text     string
	passed   int               // bytes of text that are said
	held     []inference.Chunk // audio that waits until the text has words
	ready    bool              // it has what it begins with: its first sound, or text
	complete bool              // its text has ended
	repeated bool              // it repeats a comment, and was withdrawn

	// Guarded by Session.mu.
	spoken     bool              // sound is made of its text
	said       *speech.Utterance // nil before its prompt
	replaced   error             // a new instruction came during its generation
	superseded bool              // a new instruction came, but the comment continues to its end
}

func (r *Record) describeFrames(frames []window.Frame) {
	first, last := frames[0], frames[len(frames)-1]
	for _, f := range frames {
		r.FrameIDs = append(r.FrameIDs, f.ID)
		r.FrameAt = append(r.FrameAt, f.Arrival)
	}
	r.OldestFrameAt, r.NewestFrameAt = first.Arrival, last.Arrival
	r.PTSFrom, r.PTSTo = first.PTS.Seconds(), last.PTS.Seconds()
	r.AnchorPTS = last.PTS.Seconds()
}

// utteranceLocked returns what is said of a cycle. A comment may not begin with words that repeat an earlier one.
func (s *Session) utteranceLocked(c *cycle, now time.Time) *speech.Utterance {
	said := s.comparedLocked(now)
	return speech.New(speech.Options{
		Maker: c, Priority: speech.Comment, Spoken: c.spoken, Cancel: c.cancel,
		Anchor: &speech.Anchor{Epoch: c.anchor.Epoch, PTS: c.anchor.PTS, Arrival: c.anchor.Arrival},
		Guard:  func(words string, now time.Time) bool { return !mayRepeat(s.lexicon, fresh(said, now), words) },
	})
}

// Make implements speech.Maker. A comment is made by its look.
func (*cycle) Make(context.Context, *speech.Utterance) error { return nil }

// Begun implements speech.Maker.
func (c *cycle) Begun(dropped bool) {
	s := c.s
	s.locked(func() {
		if err := s.gate.Release(); err != nil {
			s.log.Error().Err(err).Uint64("cycle", c.rec.Cycle).Msg("comment released out of turn")
		}
		if !dropped {
			s.latest = c
		}
	})
}

// Caption implements speech.Maker.
func (c *cycle) Caption(step speech.Step) { c.s.caption(c.rec.Cycle, c.language, step) }

// Ended implements speech.Maker.
func (c *cycle) Ended(r speech.Result) { c.s.publishRecord(c.s.measure(c.rec, r)) }

// caption publishes a step of the words of a cycle.
func (s *Session) caption(cycle uint64, language string, step speech.Step) {
	caption := Caption{
		Segment: s.segmentID(cycle), Cycle: cycle, Delta: step.Delta, Text: step.Text,
		Final: step.Final, Spoken: step.Spoken, Language: language,
	}
	for _, t := range s.opts.Texts {
		t.Caption(caption)
	}
}

// speechChanged follows each change of what is said.
func (s *Session) speechChanged() {
	s.wake.Set()
	s.publishStatus()
}

// shownPicture is the delayed picture as speech sees it. If it is not published, no frame is due or shown.
type shownPicture struct {
	*delay.Line

	published bool
}

// Due implements speech.Line.
func (p shownPicture) Due(epoch uint32, pts time.Duration, now time.Time, arrival ...time.Time) (time.Time, bool) {
	if !p.published {
		return time.Time{}, false
	}
	return p.Line.Due(epoch, pts, now, arrival...)
}

// Shown implements speech.Line.
func (p shownPicture) Shown(epoch uint32, pts time.Duration) (time.Time, bool) {
	if !p.published {
		return time.Time{}, false
	}
	return p.Line.Shown(epoch, pts)
}

// alignedMemory is the number of alignment errors kept for the p95.
const alignedMemory = 100

// lateBy is the alignment error above which a comment counts as late.
const lateBy = 100 * time.Millisecond

// timed adds the times of an utterance to its record.
func (r *Record) timed(said speech.Result) {
	if since := func(t time.Time) float64 { return t.Sub(r.NewestFrameAt).Seconds() }; r.Announced == "" {
		if !said.Ready.IsZero() {
			r.ReadySec = since(said.Ready)
		}
		if !said.FirstSound.IsZero() {
			r.FirstAudioSec = since(said.FirstSound)
		}
	}
	r.Delay, r.TargetDelay, r.AudioSec = said.Delay.Seconds(), said.Target.Seconds(), said.Audible.Seconds()
}

// measure completes the record of what was said or dropped.
func (s *Session) measure(r Record, said speech.Result) Record {
	r.timed(said)
	r.Text = strings.TrimSpace(said.Text)
	if said.Failure != nil && r.Reason == "" && r.Announced == "" {
		r.Reason = said.Failure.Error()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if said.Outcome == speech.Dropped {
		r.Outcome, r.Reason = OutcomeDropped, said.Cause.Error()
		s.forgetSaidLocked(r.Text, said.Cause)
		s.counters.dropped++
		return r
	}
	r.Spoken, r.StartedAt, r.EndedAt = said.Spoken, said.Started, said.Ended
	switch {
	case said.Outcome == speech.Silenced:
		r.Outcome, r.Reason = OutcomeCut, said.Cause.Error()
	case s.room != "":
		// A room that returns before the end gets the words from the beginning.
		r.Outcome, r.Reason = OutcomeCut, s.room
	case said.Outcome == speech.Shown:
		r.Outcome = OutcomeShown
	default:
		r.Outcome = OutcomeSpoken
	}
	if r.Announced == "" && !said.ShownAt.IsZero() && !r.StartedAt.IsZero() {
		off := r.StartedAt.Sub(said.ShownAt)
		r.ShownAt, r.AlignmentError, r.Aligned = said.ShownAt, off.Seconds(), true
		if r.Late = off.Abs() > lateBy; r.Late {
			s.counters.late++
		}
		if len(s.aligned) == alignedMemory {
			s.aligned = slices.Delete(s.aligned, 0, 1)
		}
		s.aligned = append(s.aligned, off.Abs())
	}
	s.counters.comments++
	return r
}

// forgetSaidLocked forgets a comment that was too late to be heard.
func (s *Session) forgetSaidLocked(text string, cause error) {
	if errors.Is(cause, speech.ErrTooLate) {
		s.said = slices.DeleteFunc(slices.Clone(s.said), func(c prompt.PastComment) bool { return c.Text == text })
	}
}
