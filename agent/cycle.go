package agent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"touchline/inference"
	"touchline/internal/rescue"
	"touchline/internal/wake"
	"touchline/media"
	"touchline/media/window"
)

// recheck bounds how long a loop sleeps on an estimate that may have changed:
// the delay moves, a camera stops, a model becomes ready.
const recheck = 250 * time.Millisecond

// nothingNewer is the wait for a picture newer than the last cycle's.
const nothingNewer = 10 * time.Millisecond

// latestTimeout bounds the wait for the decoder's newest picture.
const latestTimeout = time.Second

// think runs each cycle when it is due, one at a time, until ctx ends.
func (s *Session) think(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		u, wait := s.beginCycle(time.Now())
		if u != nil {
			s.publishStatus()
			err := s.runCycle(ctx, u)
			s.publishStatus()
			if _, crash := rescue.Of(err); crash {
				return err
			}
			if ctx.Err() != nil {
				return ctx.Err()
			}
			continue
		}
		timer.Reset(min(wait, recheck))
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-s.wake:
		case <-timer.C:
		}
	}
}

// beginCycle begins a cycle that is due, or returns the time until one is.
func (s *Session) beginCycle(now time.Time) (*utterance, time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if wait := s.untilCycleLocked(now); wait > 0 {
		return nil, wait
	}
	return s.beginCycleLocked(now), 0
}

// untilCycleLocked returns the time until the next cycle may start; 0 when it may start now.
func (s *Session) untilCycleLocked(now time.Time) time.Duration {
	if !s.active || !s.source.fresh(now) || s.window.Len() == 0 {
		return recheck
	}
	switch s.model.Status().Phase {
	case inference.PhaseReady, inference.PhaseUnloaded:
	case inference.PhaseLoading, inference.PhaseWarming, inference.PhaseFailed:
		return recheck
	}
	if d := s.retryAt.Sub(now); d > 0 {
		return d
	}
	if s.cycled && !s.gate.Urgent() && s.source.epoch == s.lastEpoch && s.source.pts <= s.lastPTS {
		return nothingNewer
	}
	if s.cycled && !s.gate.Urgent() && s.source.stopped(now) {
		return nothingNewer // the comment would be late by the age of the picture
	}
	at, ok := s.gate.NextLook(now, s.voiceEndLocked(now), s.delayAheadLocked(now), s.pace)
	if !ok {
		return recheck
	}
	return at.Sub(now)
}

// delayAheadLocked returns the delay of a frame that arrives now.
func (s *Session) delayAheadLocked(now time.Time) time.Duration {
	if !s.relays() {
		return 0
	}
	due, ok := s.line.Due(s.source.epoch, s.source.pts, now)
	if !ok {
		return s.line.Delay()
	}
	return due.Sub(s.source.arrival)
}

// voiceEndLocked returns the end of the last spoken or queued comment; zero when
// there is none.
func (s *Session) voiceEndLocked(now time.Time) time.Time {
	end := s.clock.End()
	for _, u := range s.queue {
		if u.spoken {
			end = s.startOfLocked(u, now, end).Add(u.audible)
		}
	}
	return end
}

func (s *Session) beginCycleLocked(now time.Time) *utterance {
	if err := s.gate.Look(now); err != nil {
		s.log.Error().Err(err).Msg("cycle out of turn")
	}
	s.cycle++
	u := &utterance{
		changed: wake.New(),
		spoken:  s.infer.Voice.Enabled && s.opts.Audio != nil,
		rec: Record{
			Type: "cycle_end", Cycle: s.cycle, Instruction: s.instruction, Profile: s.profile.Name,
			Engine: s.model.Name(), InferenceStart: now,
		},
	}
	s.inFlight = u
	return u
}

// runCycle runs one cycle: newest picture, scene check, prompt, answer. It returns
// the engine's error.
func (s *Session) runCycle(ctx context.Context, u *utterance) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	s.locked(func() {
		u.cancel = cancel
		if u.replaced != nil {
			cancel(u.replaced)
		}
	})
	s.work.Go(func() error { s.limitCycle(ctx, cancel); return nil })
	prompt, err := s.prepare(ctx, u)
	switch {
	case err != nil:
		s.endCycle(u, err)
		return nil
	case u.rec.Skipped:
		s.endCycle(u, nil)
		return nil
	}
	for chunk, err := range s.engine.Generate(ctx, prompt) {
		if err != nil {
			s.endCycle(u, causeOf(ctx, err))
			return err
		}
		if ctx.Err() != nil {
			break
		}
		s.addChunk(u, chunk)
		u.changed.Set()
	}
	s.endCycle(u, causeOf(ctx, ctx.Err()))
	return nil
}

// limitCycle ends a cycle whose answer is not complete in time. Loading a model does not count.
func (s *Session) limitCycle(ctx context.Context, cancel context.CancelCauseFunc) {
	limit := s.opts.Agent.CycleTimeout
	if limit <= 0 {
		return
	}
	ready := s.model.Status().Phase == inference.PhaseReady
	timer := time.NewTimer(limit)
	defer timer.Stop()
	for !ready {
		timer.Reset(recheck)
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		if ready = s.model.Status().Phase == inference.PhaseReady; ready {
			timer.Reset(limit)
		}
	}
	select {
	case <-ctx.Done():
	case <-timer.C:
		cancel(fmt.Errorf("the %s engine did not finish its answer within %v (agent.cycle_timeout)", s.model.Name(), limit))
	}
}

// addChunk adds one step of an answer.
func (s *Session) addChunk(u *utterance, chunk inference.Chunk) {
	s.writeAudio(u, s.receive(u, chunk, time.Now()))
}

func causeOf(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); err != nil && cause != nil {
		return cause
	}
	return err
}

// prepare adds the newest picture to the sampled ones, selects the window and
// writes the prompt.
func (s *Session) prepare(ctx context.Context, u *utterance) (inference.Prompt, error) {
	lctx, cancel := context.WithTimeout(ctx, latestTimeout)
	defer cancel()
	newest, err := s.dec.Latest(lctx)
	if err != nil {
		return inference.Prompt{}, causeOf(ctx, fmt.Errorf("get the newest picture: %w", err))
	}
	if !s.selectFrames(u, newest) {
		return inference.Prompt{}, errSourceChanged
	}
	return s.prompt(u, window.Sign(u.anchor)) // the signature reads the whole picture: without the lock
}

// selectFrames gives a cycle its window, with the newest picture in it; false when there is none.
func (s *Session) selectFrames(u *utterance, newest media.VideoFrame) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if newest.Epoch == s.source.epoch {
		s.window.Push(newest)
	}
	frames := s.window.Select(s.agent.Frames, s.agent.Stride)
	if len(frames) == 0 {
		return false
	}
	u.frames = frames
	u.anchor = frames[len(frames)-1].VideoFrame
	s.lastEpoch, s.lastPTS, s.cycled = u.anchor.Epoch, u.anchor.PTS, true
	u.describeFrames()
	return true
}

// prompt compares the newest picture, by its signature, with the last cycle's, and writes the prompt.
func (s *Session) prompt(u *utterance, sign *window.Signature) (inference.Prompt, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case u.replaced != nil:
		return inference.Prompt{}, u.replaced
	case u.anchor.Epoch != s.source.epoch:
		return inference.Prompt{}, errSourceChanged
	}
	s.lastChange = window.Difference(s.lastSign, sign)
	u.rec.SceneDiff = s.lastChange.Mean
	if s.agent.ChangeThreshold > 0 && s.lastChange.Below(s.agent.ChangeThreshold) {
		u.rec.Skipped = true
		return inference.Prompt{}, nil
	}
	s.lastSign = sign

	p := inference.Prompt{
		System:      s.profile.Prompt,
		Instruction: s.instruction,
		MaxTokens:   s.infer.MaxTokens,
		Speech:      u.spoken,
		Language:    s.infer.Voice.Language,
	}
	// The voice follows the engine: a speech program must not read English as Dutch.
	if c := s.model.Capabilities(); !c.Speaks(p.Language) {
		p.Language = c.Languages[0]
	}
	var hint lengthHint
	if u.spoken {
		p.MaxTokens = s.infer.Voice.MaxTokens
		hint = hintFor(s.lastChange, s.lastComment)
	}
	p.Text = promptText(s.instruction, s.lastComment, time.Since(s.lastCommentAt), hint)
	for _, f := range u.frames {
		p.Frames = append(p.Frames, engineFrame(f.VideoFrame))
	}
	s.log.Debug().Uint64("cycle", u.rec.Cycle).Str("system", p.System).Str("prompt", p.Text).
		Int("pictures", len(p.Frames)).Msg("prompt")
	return p, nil
}

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
	if judge(u.text, false) != says {
		return nil
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
	if !u.announced {
		u.rec.FirstAudioSec = now.Sub(u.anchor.Arrival).Seconds()
		s.announceLocked(u, now)
	} else if u == s.speaking {
		s.clock.Finish(u.startAt.Add(u.audible))
	}
	return false
}

// announceLocked queues a comment that is ready to be published and updates the
// target delay.
func (s *Session) announceLocked(u *utterance, now time.Time) {
	if u.announced {
		return
	}
	u.announced = true
	ready := now.Sub(u.anchor.Arrival)
	u.rec.ReadySec = ready.Seconds()
	s.delays.Observe(ready)
	s.line.SetTarget(s.delays.Target())
	s.queue = append(s.queue, u)
	s.showFramesLocked(u)
	s.deliver.Set()
}

// showFramesLocked passes the pictures of a comment to the outputs and releases
// them: the comment may wait for seconds, and needs only their times.
func (s *Session) showFramesLocked(u *utterance) {
	cycle, frames := u.rec.Cycle, seenFrames(u.frames)
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

// endCycle closes a cycle; cause is nil when the answer is complete.
func (s *Session) endCycle(u *utterance, cause error) {
	s.writeAudio(u, s.lastAudio(u, cause))
	var audible time.Duration
	if u.speech != nil {
		audible = u.speech.End()
	}
	rec, publish := s.closeCycle(u, cause, audible, time.Now())
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
	return judge(u.text, true) == says && u.replaced == nil && (cause == nil || u.announced)
}

// closeCycle ends the cycle's generation. publish is set when there is no comment, so that its record is complete.
func (s *Session) closeCycle(u *utterance, cause error, audible time.Duration, now time.Time) (rec Record, publish bool) {
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
	if u.keptLocked(cause) {
		u.spoken = u.spoken && u.announced // without audio: text
		s.announceLocked(u, now)
	}
	u.generated = true
	if u.speech != nil {
		u.audible = audible
		u.rec.AudioSec = audible.Seconds()
	}
	if err := s.gate.Finish(u.announced); err != nil {
		s.log.Error().Err(err).Msg("cycle ended out of turn")
	}
	if !u.announced {
		s.nothingSaidLocked(u, cause, now)
		return u.rec, true
	}
	s.quiet, s.failures = "", 0
	if u.replaced == nil && !u.superseded && u.anchor.Epoch == s.source.epoch {
		s.lastComment, s.lastCommentAt = u.text, now
	}
	if cause != nil {
		u.rec.Reason = cause.Error()
	}
	return u.rec, false
}

// Retry times after a failed cycle.
const (
	retryFirst = time.Second
	retryMost  = 10 * time.Second
)

func (s *Session) nothingSaidLocked(u *utterance, cause error, now time.Time) {
	switch {
	case errors.Is(cause, errReplaced), errors.Is(cause, errStopped), errors.Is(cause, errSourceChanged):
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
		u.rec.Outcome, u.rec.Reason = OutcomeSkipped, "the scene did not change"
		s.quiet = u.rec.Reason
		s.counters.skipped++
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

// seenFrames converts the pictures of a cycle for FrameOutput.
func seenFrames(frames []window.Frame) []SeenFrame {
	out := make([]SeenFrame, len(frames))
	for i, f := range frames {
		out[i] = SeenFrame{ID: f.ID, Frame: f.VideoFrame}
	}
	return out
}

// Newest returns the newest decoded picture, for snapshots.
func (s *Session) Newest(ctx context.Context) (media.VideoFrame, error) {
	return s.dec.Latest(ctx)
}
