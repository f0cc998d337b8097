package agent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"touchline/agent/prompt"
	"touchline/agent/speech"
	"touchline/inference"
	"touchline/internal/rescue"
	"touchline/media"
	"touchline/media/window"
)

// nothingNewer is the wait for a picture newer than the last cycle's.
const nothingNewer = 10 * time.Millisecond

// latestTimeout bounds the wait for the decoder's newest picture.
const latestTimeout = time.Second

// think runs each cycle and each look with alert rules when it is due, one at a time, until ctx ends.
func (s *Session) think(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		look, c, next := s.beginCycle(ctx, time.Now())
		if c != nil {
			s.publishStatus()
			err := s.runCycle(look, c)
			s.publishStatus()
			if _, crash := rescue.Of(err); crash {
				return err
			}
			if err := s.followCycle(ctx, c); err != nil {
				return err
			}
			if ctx.Err() != nil {
				return ctx.Err()
			}
			continue
		}
		alert := s.nextAlertLook(time.Now())
		if !alert.IsZero() && !alert.After(time.Now()) {
			if err := s.lookForRules(ctx); err != nil {
				return err
			}
			alert = time.Now().Add(nothingNewer)
		}
		if next = earliest(next, alert); next.IsZero() {
			timer.Stop() // an event wakes the loop
		} else {
			timer.Reset(time.Until(next))
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-s.wake:
		case <-timer.C:
		}
	}
}

// earliest returns the earlier of two times; the zero time is never.
func earliest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// beginCycle begins a cycle that is due, with its context, or returns when one may be due; zero if an event brings it.
func (s *Session) beginCycle(ctx context.Context, now time.Time) (look context.Context, c *cycle, next time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if next, due := s.nextCycleLocked(now); !due {
		return nil, nil, next
	}
	look, cancel := context.WithCancelCause(ctx)
	return look, s.beginCycleLocked(cancel, now), time.Time{}
}

// nextCycleLocked reports whether the next cycle may start now, or when to look again; zero for after an event.
func (s *Session) nextCycleLocked(now time.Time) (next time.Time, due bool) {
	source := s.picture.source()
	if !s.active || !source.fresh(now) || s.picture.buffered() == 0 || !s.engineTakesLooks() {
		return time.Time{}, false
	}
	if now.Before(s.retryAt) {
		return s.retryAt, false
	}
	if s.cycled && !s.gate.Urgent() && source.epoch == s.lastEpoch && source.pts <= s.lastPTS {
		return now.Add(nothingNewer), false
	}
	if s.cycled && !s.gate.Urgent() && source.stopped(now) {
		return now.Add(nothingNewer), false // the comment would be late by the age of the picture
	}
	at, ok := s.gate.Next(now, s.speech.VoiceEnd(now), s.delayAheadLocked(now), s.paceLocked())
	if !ok {
		return time.Time{}, false
	}
	return now.Add(speech.Approach(at.Sub(now))), !at.After(now)
}

// engineTakesLooks reports whether the engine can be asked, perhaps after loading on demand.
func (s *Session) engineTakesLooks() bool {
	phase := s.engine.Status().Phase
	return phase == inference.PhaseReady || phase == inference.PhaseUnloaded
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

func (s *Session) beginCycleLocked(cancel context.CancelCauseFunc, now time.Time) *cycle {
	if err := s.gate.Begin(now); err != nil {
		s.log.Error().Err(err).Msg("cycle out of turn")
	}
	s.cycle++
	c := &cycle{
		s: s, cancel: cancel, spoken: s.speaksLocked(),
		rec: Record{
			Type: "cycle_end", Cycle: s.cycle, Instruction: s.instruction, Profile: s.profile.Name,
			Engine: s.engine.Name(), InferenceStart: now,
		},
	}
	s.inFlight = c
	return c
}

// runCycle runs one cycle: newest picture, scene check, prompt, answer. It returns when the look has ended, with the engine's
// error; the sound of the answer goes on behind it.
func (s *Session) runCycle(ctx context.Context, c *cycle) error {
	ended := make(chan error, 1)
	s.work.Go(func() error {
		defer s.packLooks()
		err := rescue.Call(func() error { return s.answer(ctx, c, func() { ended <- nil }) })
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
func (s *Session) answer(ctx context.Context, c *cycle, looked func()) error {
	defer c.cancel(nil)
	if limit := s.opts.Agent.CycleTimeout; limit > 0 {
		defer s.limitCycle(ctx, c, time.Now(), limit).Stop()
	}
	p, err := s.prepare(ctx, c)
	if err != nil || c.rec.Skipped {
		s.endLook(c, err)
		s.endSound(c, nil)
		return nil
	}
	again := false
	first := func() (goOn bool) {
		if again = s.retries(c); !again {
			goOn = s.endLook(c, nil)
			looked()
		}
		return goOn
	}
	err = s.generate(ctx, c, LookComment, p, first)
	if long := new(inference.TooLongError); errors.As(err, &long) {
		p = s.promptAfresh(c, long)
		err = s.generate(ctx, c, LookComment, p, first)
	}
	if again = again || err == nil && ctx.Err() == nil && s.retries(c); again {
		p.Text += prompt.RetryHint
		err = s.generate(ctx, c, LookRetry, p, func() (goOn bool) {
			goOn = s.endLook(c, nil)
			looked()
			return goOn
		})
	}
	cause := causeOf(ctx, err)
	if err == nil {
		cause = causeOf(ctx, ctx.Err())
	}
	s.endLook(c, cause)
	s.endSound(c, cause)
	return err
}

// generate passes one answer of the engine on. Where sound may follow its text, it calls complete after the text, which reports
// whether the sound is wanted. It returns the engine's error.
func (s *Session) generate(ctx context.Context, c *cycle, kind string, p inference.Prompt, complete func() bool) error {
	engine, release := s.engine.hold()
	defer release()
	for chunk, err := range s.ask(ctx, engine, kind, c.rec.Cycle, c.looked, p) {
		if err != nil {
			return err
		}
		if ctx.Err() != nil {
			return nil
		}
		s.receive(c, chunk, time.Now())
		if chunk.TextEnds && !c.complete && !complete() {
			return nil
		}
	}
	return nil
}

// limitCycle ends a cycle whose answer is not complete in time, and looks at it after a while. Loading a model does not count.
func (s *Session) limitCycle(ctx context.Context, c *cycle, began time.Time, after time.Duration) *time.Timer {
	limit := s.opts.Agent.CycleTimeout
	return time.AfterFunc(after, func() {
		defer rescue.Guard(s.work.Fail)
		if ctx.Err() != nil {
			return
		}
		left := limit
		if s.engine.Status().Phase == inference.PhaseReady {
			s.locked(func() { left = max(time.Until(began.Add(limit)), time.Until(s.readyAt.Add(limit))) })
		}
		if left > 0 {
			s.limitCycle(ctx, c, began, left)
			return
		}
		c.cancel(fmt.Errorf("the %s engine did not finish its answer within %v (agent.cycle_timeout)", s.engine.Name(), limit))
	})
}

func causeOf(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); err != nil && cause != nil {
		return cause
	}
	return err
}

// prepare adds the newest picture to the sampled ones, selects the window and
// writes the prompt.
func (s *Session) prepare(ctx context.Context, c *cycle) (inference.Prompt, error) {
	lctx, cancel := context.WithTimeout(ctx, latestTimeout)
	defer cancel()
	newest, err := s.dec.Latest(lctx)
	if err != nil {
		return inference.Prompt{}, causeOf(ctx, fmt.Errorf("get the newest picture: %w", err))
	}
	if !s.selectFrames(c, newest) {
		return inference.Prompt{}, errSourceChanged
	}
	return s.prompt(c, window.Sign(c.looked[len(c.looked)-1].VideoFrame)) // it reads the whole picture: without the lock
}

// selectFrames sets the window of a cycle, with the newest picture in it; false without any picture.
func (s *Session) selectFrames(c *cycle, newest media.VideoFrame) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	frames := s.newestFramesLocked(newest)
	if len(frames) == 0 {
		return false
	}
	c.frames, c.looked = frames, frames
	c.anchor = frames[len(frames)-1].VideoFrame
	c.anchor.Pix = nil
	s.lastEpoch, s.lastPTS, s.cycled = c.anchor.Epoch, c.anchor.PTS, true
	c.rec.describeFrames(frames)
	return true
}

// newestFramesLocked returns the pictures of a look, with the newest one among them.
func (s *Session) newestFramesLocked(newest media.VideoFrame) []window.Frame {
	s.picture.add(newest)
	frames := s.picture.look(s.live.Agent.Frames, s.live.Agent.Stride)
	if len(frames) > 0 && s.opts.Alerts != nil {
		s.rememberLookLocked(frames)
	}
	return frames
}

// prompt compares the newest picture, by its signature, with the last cycle's, and writes the prompt. What comes of it has its
// place among all that is said from here on.
func (s *Session) prompt(c *cycle, sign *window.Signature) (inference.Prompt, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case c.replaced != nil:
		return inference.Prompt{}, c.replaced
	case c.anchor.Epoch != s.picture.source().epoch:
		return inference.Prompt{}, errSourceChanged
	}
	s.lastChange = window.Difference(s.lastSign, sign)
	c.rec.SceneDiff = s.lastChange.Mean
	if s.unchangedLocked(s.lastChange) {
		c.rec.Skipped = true
		return inference.Prompt{}, nil
	}
	s.lastSign = sign

	now := time.Now()
	p := s.promptLocked(c.looked, s.lastChange, c.spoken, now)
	c.language, c.retries = p.Language, s.live.Agent.Repeats == RepeatsRetry
	c.said = s.utteranceLocked(c, now)
	if err := s.speech.Add(c.said); err != nil { // comments have no bound
		return inference.Prompt{}, err
	}
	s.log.Debug().Uint64("cycle", c.rec.Cycle).Str("system", p.System).Str("prompt", p.Text).
		Int("pictures", len(p.Frames)).Msg("prompt")
	return p, nil
}

// promptAfresh forgets what was said, and writes a prompt that was too long again without it.
func (s *Session) promptAfresh(c *cycle, long error) inference.Prompt {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.log.Warn().Err(long).Int("comments", len(s.said)).Int("remarks", len(s.remarks)).Msg("the last comments do not fit into the prompt")
	s.said, s.remarks = nil, nil
	return s.promptLocked(c.looked, s.lastChange, c.spoken, time.Now())
}

// unchangedLocked reports whether a change is too small to ask the engine.
func (s *Session) unchangedLocked(change window.Change) bool {
	limit := s.thresholdLocked()
	return limit > 0 && change.Below(limit)
}

// speaksLocked reports whether the comment of a cycle that begins now is spoken.
func (s *Session) speaksLocked() bool { return s.live.Inference.Voice.Enabled && s.opts.Audio != nil }

// voiceNow returns the voice in force, as in inference.Prompt.
func (s *Session) voiceNow() (voice string) {
	s.locked(func() { voice = s.live.Voice })
	return voice
}

// promptLocked writes the prompt of a cycle.
func (s *Session) promptLocked(frames []window.Frame, change window.Change, spoken bool, now time.Time) inference.Prompt {
	p := prompt.Look{
		System: s.profile.Prompt, Background: s.background, Instruction: s.instruction, Spoken: spoken, Change: change.Mean,
		Longer: s.talkLocked().longer, Past: s.said, Remarks: s.remarksLocked(now), Now: now, Frames: Pictures(frames),
	}.Prompt(s.live.Inference, s.engine.Capabilities())
	p.Sampling, p.Voice, p.VoiceNow = s.live.Sampling, s.live.Voice, s.voiceNow
	return p
}

// Newest returns the newest decoded picture, for snapshots.
func (s *Session) Newest(ctx context.Context) (media.VideoFrame, error) {
	return s.dec.Latest(ctx)
}
