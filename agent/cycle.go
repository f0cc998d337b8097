package agent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"touchline/agent/prompt"
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

// think runs each cycle and each look with alert rules when it is due, one at a time, until ctx ends.
func (s *Session) think(ctx context.Context) error {
	for {
		u, wait := s.beginCycle(time.Now())
		if u != nil {
			s.publishStatus()
			err := s.runCycle(ctx, u)
			s.publishStatus()
			if _, crash := rescue.Of(err); crash {
				return err
			}
			if err := s.followCycle(ctx, u); err != nil {
				return err
			}
			if ctx.Err() != nil {
				return ctx.Err()
			}
			continue
		}
		until := s.untilAlertLook(time.Now())
		if until == 0 {
			if err := s.lookForRules(ctx); err != nil {
				return err
			}
			until = nothingNewer
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-s.wake:
		case <-time.After(min(wait, until, recheck)):
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
	source := s.picture.source()
	if !s.active || !source.fresh(now) || s.picture.buffered() == 0 {
		return recheck
	}
	switch s.engine.Status().Phase {
	case inference.PhaseReady, inference.PhaseUnloaded:
	case inference.PhaseLoading, inference.PhaseWarming, inference.PhaseFailed:
		return recheck
	}
	if d := s.retryAt.Sub(now); d > 0 {
		return d
	}
	if s.cycled && !s.gate.Urgent() && source.epoch == s.lastEpoch && source.pts <= s.lastPTS {
		return nothingNewer
	}
	if s.cycled && !s.gate.Urgent() && source.stopped(now) {
		return nothingNewer // the comment would be late by the age of the picture
	}
	at, ok := s.gate.Next(now, s.voiceEndLocked(now), s.delayAheadLocked(now), s.paceLocked())
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
	source := s.picture.source()
	due, ok := s.line.Due(source.epoch, source.pts, now)
	if !ok {
		return s.line.Delay()
	}
	return due.Sub(source.arrival)
}

// voiceEndLocked returns the end of the last spoken or queued comment; zero when
// there is none.
func (s *Session) voiceEndLocked(now time.Time) time.Time {
	end := s.clock.End()
	if u := s.speaking; u != nil && u.complete && !u.generated {
		if at := u.startAt.Add(u.expected(s.rate) + u.lost); at.After(end) {
			end = at
		}
	}
	if end.After(now) {
		end = now.Add(s.clock.Expect(end.Sub(now)))
	}
	for _, u := range s.queue {
		if u.spoken {
			end = s.startOfLocked(u, now, end).Add(s.clock.Expect(u.expected(s.rate)))
		}
	}
	return end
}

func (s *Session) beginCycleLocked(now time.Time) *utterance {
	if err := s.gate.Begin(now); err != nil {
		s.log.Error().Err(err).Msg("cycle out of turn")
	}
	s.cycle++
	u := &utterance{
		changed: wake.New(),
		spoken:  s.speaksLocked(),
		rec: Record{
			Type: "cycle_end", Cycle: s.cycle, Instruction: s.instruction, Profile: s.profile.Name,
			Engine: s.engine.Name(), InferenceStart: now,
		},
	}
	s.inFlight = u
	return u
}

// runCycle runs one cycle: newest picture, scene check, prompt, answer. It returns when the look has ended, with the engine's
// error; the sound of the answer goes on behind it.
func (s *Session) runCycle(ctx context.Context, u *utterance) error {
	ended := make(chan error, 1)
	s.work.Go(func() error {
		defer s.packLooks()
		err := rescue.Call(func() error { return s.answer(ctx, u, func() { ended <- nil }) })
		select {
		case ended <- err:
			return nil
		default: // the look had ended before
		}
		if _, crash := rescue.Of(err); crash {
			return err
		}
		return nil
	})
	return <-ended
}

// answer runs one cycle to the last sound of its answer. It calls looked if the look ends before that, and returns the engine's
// error.
func (s *Session) answer(ctx context.Context, u *utterance, looked func()) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	s.locked(func() {
		u.cancel = cancel
		if u.replaced != nil {
			cancel(u.replaced)
		}
	})
	s.work.Go(func() error { s.limitCycle(ctx, cancel); return nil })
	p, err := s.prepare(ctx, u)
	switch {
	case err != nil:
		s.endLook(u, err)
		s.endSound(u, nil)
		return nil
	case u.rec.Skipped:
		s.endLook(u, nil)
		s.endSound(u, nil)
		return nil
	}
	again := false
	first := func() (goOn bool) {
		if again = s.retries(u); !again {
			goOn = s.endLook(u, nil)
			looked()
		}
		return goOn
	}
	err = s.generate(ctx, u, LookComment, p, first)
	if long := new(inference.TooLongError); errors.As(err, &long) {
		p = s.promptAfresh(u, long)
		err = s.generate(ctx, u, LookComment, p, first)
	}
	if again = again || err == nil && ctx.Err() == nil && s.retries(u); again {
		p.Text += prompt.RetryHint
		err = s.generate(ctx, u, LookRetry, p, func() (goOn bool) {
			goOn = s.endLook(u, nil)
			looked()
			return goOn
		})
	}
	cause := causeOf(ctx, err)
	if err == nil {
		cause = causeOf(ctx, ctx.Err())
	}
	s.endLook(u, cause)
	s.endSound(u, cause)
	return err
}

// generate passes one answer of the engine on. Where sound may follow its text, it calls complete after the text, which reports
// whether the sound is wanted. It returns the engine's error.
func (s *Session) generate(ctx context.Context, u *utterance, kind string, p inference.Prompt, complete func() bool) error {
	for chunk, err := range s.ask(ctx, s.engine, kind, u.rec.Cycle, u.looked, p) {
		if err != nil {
			return err
		}
		if ctx.Err() != nil {
			return nil
		}
		s.writeAudio(u, s.receive(u, chunk, time.Now()))
		u.changed.Set()
		if chunk.TextEnds && !u.complete && !complete() {
			return nil
		}
	}
	return nil
}

// limitCycle ends a cycle whose answer is not complete in time. Loading a model does not count.
func (s *Session) limitCycle(ctx context.Context, cancel context.CancelCauseFunc) {
	limit := s.opts.Agent.CycleTimeout
	if limit <= 0 {
		return
	}
	for s.engine.Status().Phase != inference.PhaseReady {
		select {
		case <-ctx.Done():
			return
		case <-time.After(recheck):
		}
	}
	select {
	case <-ctx.Done():
	case <-time.After(limit):
		cancel(fmt.Errorf("the %s engine did not finish its answer within %v (agent.cycle_timeout)", s.engine.Name(), limit))
	}
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

// selectFrames sets the window of a cycle, with the newest picture in it; false without any picture.
func (s *Session) selectFrames(u *utterance, newest media.VideoFrame) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	frames := s.newestFramesLocked(newest)
	if len(frames) == 0 {
		return false
	}
	u.frames, u.looked = frames, frames
	u.anchor = frames[len(frames)-1].VideoFrame
	s.lastEpoch, s.lastPTS, s.cycled = u.anchor.Epoch, u.anchor.PTS, true
	u.describeFrames()
	return true
}

// newestFramesLocked returns the pictures of a look, with the newest one among them.
func (s *Session) newestFramesLocked(newest media.VideoFrame) []window.Frame {
	s.picture.add(newest)
	frames := s.picture.look(s.agent.Frames, s.agent.Stride)
	if len(frames) > 0 && s.opts.Alerts != nil {
		s.rememberLookLocked(frames)
	}
	return frames
}

// prompt compares the newest picture, by its signature, with the last cycle's, and writes the prompt.
func (s *Session) prompt(u *utterance, sign *window.Signature) (inference.Prompt, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case u.replaced != nil:
		return inference.Prompt{}, u.replaced
	case u.anchor.Epoch != s.picture.source().epoch:
		return inference.Prompt{}, errSourceChanged
	}
	s.lastChange = window.Difference(s.lastSign, sign)
	u.rec.SceneDiff = s.lastChange.Mean
	if s.unchangedLocked(s.lastChange) {
		u.rec.Skipped = true
		return inference.Prompt{}, nil
	}
	s.lastSign = sign

	p := s.promptLocked(u.frames, s.lastChange, u.spoken, time.Now())
	u.language = p.Language
	s.log.Debug().Uint64("cycle", u.rec.Cycle).Str("system", p.System).Str("prompt", p.Text).
		Int("pictures", len(p.Frames)).Msg("prompt")
	return p, nil
}

// promptAfresh forgets what was said, and writes a prompt that was too long again without it.
func (s *Session) promptAfresh(u *utterance, long error) inference.Prompt {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.log.Warn().Err(long).Int("comments", len(s.said)).Int("remarks", len(s.remarks)).Msg("the last comments do not fit into the prompt")
	s.said, s.remarks = nil, nil
	return s.promptLocked(u.frames, s.lastChange, u.spoken, time.Now())
}

// unchangedLocked reports whether a change is too small to ask the engine.
func (s *Session) unchangedLocked(change window.Change) bool {
	limit := s.thresholdLocked()
	return limit > 0 && change.Below(limit)
}

// speaksLocked reports whether the comment of a cycle that begins now is spoken.
func (s *Session) speaksLocked() bool { return s.infer.Voice.Enabled && s.opts.Audio != nil }

// voiceNow returns the voice in force, as in inference.Prompt.
func (s *Session) voiceNow() (voice string) {
	s.locked(func() { voice = s.voice })
	return voice
}

// promptLocked writes the prompt of a cycle.
func (s *Session) promptLocked(frames []window.Frame, change window.Change, spoken bool, now time.Time) inference.Prompt {
	p := prompt.Look{
		System: s.profile.Prompt, Background: s.background, Instruction: s.instruction, Spoken: spoken, Change: change.Mean,
		Longer: s.talkLocked().longer, Past: s.said, Remarks: s.remarksLocked(now), Now: now, Frames: Pictures(frames),
	}.Prompt(s.infer, s.engine.Capabilities())
	p.Sampling, p.Voice, p.VoiceNow = s.sampling, s.voice, s.voiceNow
	return p
}

// Newest returns the newest decoded picture, for snapshots.
func (s *Session) Newest(ctx context.Context) (media.VideoFrame, error) {
	return s.dec.Latest(ctx)
}
