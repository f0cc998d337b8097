package look

import (
	"context"
	"errors"
	"fmt"
	"time"

	"touchline/agent/prompt"
	"touchline/agent/settings"
	"touchline/inference"
	"touchline/internal/rescue"
	"touchline/media"
	"touchline/media/window"
	"touchline/pacing"
)

// Cycle is one look, and the comment that comes of it. Its exported fields do not change once it has a comment. Unmarked fields belong to
// the goroutine of the look until the text has ended, and do not change afterwards.
type Cycle struct {
	Number   uint64
	Anchor   window.Frame // the newest picture, without its pixels; an answer may move the comment's own anchor
	Language string       // BCP 47

	l       *Loop
	forgets uint64                  // Loop.forgets at its begin
	cancel  context.CancelCauseFunc // ends its generation
	comment Comment                 // nil before its prompt
	past    []prompt.PastComment    // that the comment must not repeat, when it was asked for

	rec      Record
	frames   []window.Frame // for the outputs; nil once they have them
	written  time.Time      // of the prompt
	looked   []window.Frame // for the look with alert rules that follows the cycle
	retries  bool           // the engine is asked once more if it repeats a comment
	text     string
	passed   int               // bytes of text that the comment has
	held     []inference.Chunk // audio that waits until the text has words
	ready    bool              // it has its first sound, or text
	complete bool              // its text has ended
	repeated bool              // it repeats a comment, and was withdrawn
	answered bool              // the engine answered to the end

	// Guarded by Loop.mu.
	spoken     bool  // sound is made of its text
	replaced   error // why its answer is not wanted
	superseded bool  // a new instruction came, but the comment continues to its end
}

// Record returns the result of the cycle, after the end of its text.
func (c *Cycle) Record() Record { return c.rec }

// Cancel ends the answer: its sound is not wanted.
func (c *Cycle) Cancel(cause error) { c.cancel(cause) }

// replace ends the answer of a cycle in flight, unless there is none or its comment is spoken to the end; cut ends that as well.
// The Loop is locked.
func (c *Cycle) replace(cause error, cut bool) {
	switch {
	case c == nil:
	case !cut && c.comment != nil && c.comment.Began():
		c.superseded = true // its generation continues
	default:
		c.replaced = cause // closeLook reports it
		c.cancel(cause)
	}
}

// drop ends a cycle in flight that has nothing to say yet, if there is one. The Loop is locked.
func (c *Cycle) drop(cause error) {
	if c != nil && c.replaced == nil && (c.comment == nil || !c.comment.Ready()) {
		c.replaced = cause
		c.cancel(cause)
	}
}

// Begun lets the next comment wait in the queue, because this one has started or was dropped.
func (c *Cycle) Begun() {
	c.l.mu.Lock()
	defer c.l.mu.Unlock()
	if err := c.l.gate.Release(); err != nil {
		c.l.log.Error().Err(err).Uint64("cycle", c.Number).Msg("comment released out of turn")
	}
}

// nothingNewer is the wait for a picture newer than the last cycle's.
const nothingNewer = 10 * time.Millisecond

// latestTimeout bounds the wait for the decoder's newest picture.
const latestTimeout = time.Second

// think runs each cycle and each look with alert rules when it is due, one at a time, until ctx ends.
func (l *Loop) think(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		facts := l.engine.Capabilities().Facts
		judges := !facts && l.judges(time.Now())
		if !facts && !judges {
			l.judge.keep(false) // no look may follow
		}
		l.sensing.tend(l.now().Agent.LookWhen == settings.LookByFacts, judges)
		look, c, next := l.beginCycle(ctx, time.Now())
		if c != nil {
			l.opts.Output.Changed()
			err := c.runCycle(look)
			l.opts.Output.Changed()
			if _, crash := rescue.Of(err); crash {
				return err
			}
			if err := l.followCycle(ctx, c); err != nil {
				return err
			}
			if ctx.Err() != nil {
				return ctx.Err()
			}
			continue
		}
		alert := l.nextAlertLook(time.Now())
		if !alert.IsZero() && !alert.After(time.Now()) {
			if err := l.lookForRules(ctx); err != nil {
				return err
			}
			alert = time.Now().Add(nothingNewer)
		}
		if next = pacing.Earliest(next, alert); next.IsZero() {
			timer.Stop() // an event wakes the loop
		} else {
			timer.Reset(time.Until(next))
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-l.wake:
		case <-timer.C:
		}
	}
}

// beginCycle begins a cycle if one is due, and returns it with its context. Otherwise it returns the time of the next check; zero to wait
// for an event.
func (l *Loop) beginCycle(ctx context.Context, now time.Time) (look context.Context, c *Cycle, next time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if next, due := l.nextCycleLocked(now); !due {
		return nil, nil, next
	}
	if err := l.gate.Begin(now); err != nil {
		l.log.Error().Err(err).Msg("cycle out of turn")
	}
	l.sensing.begin(now)
	look, cancel := context.WithCancelCause(ctx)
	l.number++
	l.inFlight = &Cycle{
		Number: l.number, l: l, forgets: l.forgets, cancel: cancel, spoken: l.task.Spoken,
		rec: Record{
			Type: "cycle_end", Cycle: l.number, Instruction: l.task.Instruction, InstructionBy: l.task.InstructionBy,
			Profile: l.task.Profile.Name, Engine: l.engine.Name(), InferenceStart: now,
		},
	}
	return look, l.inFlight, time.Time{}
}

// nextCycleLocked reports whether the next cycle may start now, or else the time of the next check; zero to wait for an event.
func (l *Loop) nextCycleLocked(now time.Time) (next time.Time, due bool) {
	source := l.picture.Source()
	if !l.task.Active || !source.Fresh(now) || l.picture.Len() == 0 || !l.engine.takesLooks() {
		return time.Time{}, false
	}
	if now.Before(l.retry.at) {
		return l.retry.at, false
	}
	if l.cycled && !l.gate.Urgent() && source.Epoch == l.lastEpoch && source.PTS <= l.lastPTS {
		return now.Add(nothingNewer), false
	}
	if l.cycled && !l.gate.Urgent() && source.Stopped(now) {
		return now.Add(nothingNewer), false // the comment would be late by the age of the picture
	}
	if l.cycled && !l.gate.Urgent() && l.retry.failures == 0 {
		if due := l.sensing.due(l.task.Agent.LookMaxWait); due.After(now) {
			return due, false
		}
	}
	at, ok := l.gate.Next(now, l.opts.Speech.VoiceEnd(now), l.opts.Ahead(now), l.task.Pace())
	if !ok {
		return time.Time{}, false
	}
	return now.Add(pacing.Approach(at.Sub(now))), !at.After(now)
}

// runCycle runs one cycle: newest picture, scene check, prompt, answer. It returns when the look has ended, with the engine's
// error; the sound of the answer goes on behind it.
func (c *Cycle) runCycle(ctx context.Context) error {
	l := c.l
	ended := make(chan error, 1)
	l.work.Go(func() error {
		defer l.album.pack()
		err := rescue.Call(func() error { return c.answer(ctx, func() { ended <- nil }) })
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
func (c *Cycle) answer(ctx context.Context, looked func()) error {
	l := c.l
	defer c.cancel(nil)
	if limit := l.opts.Task.Agent.CycleTimeout; limit > 0 {
		defer c.limitCycle(ctx, time.Now(), limit).Stop()
	}
	p, err := c.prepare(ctx)
	if err != nil || c.rec.Skipped {
		c.endLook(err)
		c.endSound(nil)
		return nil
	}
	again := false
	first := func() (goOn bool) {
		if again = c.askAgain(); !again {
			goOn = c.endLook(nil)
			looked()
		}
		return goOn
	}
	err = c.generate(ctx, TraceComment, p, first)
	if long := new(inference.TooLongError); errors.As(err, &long) {
		p = c.promptAfresh(long)
		err = c.generate(ctx, TraceComment, p, first)
	}
	if again = again || err == nil && ctx.Err() == nil && c.askAgain(); again {
		p.Text += prompt.RetryHint
		err = c.generate(ctx, TraceRetry, p, func() (goOn bool) {
			goOn = c.endLook(nil)
			looked()
			return goOn
		})
	}
	cause := causeOf(ctx, err)
	if err == nil {
		cause = causeOf(ctx, ctx.Err())
	}
	c.endLook(cause)
	c.endSound(cause)
	return err
}

// generate passes on the chunks of one answer of the engine. At the end of the text, if sound may follow, it calls complete, which reports
// whether the sound is wanted. It returns the engine's error.
func (c *Cycle) generate(ctx context.Context, kind string, p inference.Prompt, complete func() bool) error {
	l := c.l
	p.Regions = l.regions()
	for chunk, err := range l.traces.ask(ctx, l.engine, l.engine.Name(), kind, c.Number, c.looked, p, c.written) {
		if err != nil {
			return err
		}
		if ctx.Err() != nil {
			return nil
		}
		c.receive(chunk, time.Now())
		if chunk.TextEnds && !c.complete && !complete() {
			return nil
		}
	}
	return nil
}

// limitCycle cancels a cycle whose answer is not complete in time. The first check is after the given time; loading a model does not count.
func (c *Cycle) limitCycle(ctx context.Context, began time.Time, after time.Duration) *time.Timer {
	l := c.l
	limit := l.opts.Task.Agent.CycleTimeout
	return time.AfterFunc(after, func() {
		defer rescue.Guard(l.work.Fail)
		if ctx.Err() != nil {
			return
		}
		left := limit
		if l.engine.Status().Phase == inference.PhaseReady {
			l.locked(func() { left = max(time.Until(began.Add(limit)), time.Until(l.readyAt.Add(limit))) })
		}
		if left > 0 {
			c.limitCycle(ctx, began, left)
			return
		}
		c.cancel(fmt.Errorf("the %s engine did not finish its answer within %v (agent.cycle_timeout)", l.engine.Name(), limit))
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
func (c *Cycle) prepare(ctx context.Context) (inference.Prompt, error) {
	l := c.l
	lctx, cancel := context.WithTimeout(ctx, latestTimeout)
	defer cancel()
	newest, err := l.opts.Newest(lctx)
	if err != nil {
		return inference.Prompt{}, causeOf(ctx, fmt.Errorf("get the newest picture: %w", err))
	}
	if err := c.selectFrames(newest); err != nil {
		return inference.Prompt{}, err
	}
	return c.prompt(window.Sign(c.looked[len(c.looked)-1].VideoFrame)) // it reads the whole picture: without the lock
}

// selectFrames sets the window of a cycle, with the newest picture in it.
func (c *Cycle) selectFrames(newest media.VideoFrame) error {
	l := c.l
	l.mu.Lock()
	defer l.mu.Unlock()
	if c.forgets != l.forgets {
		return errForgotten
	}
	frames := l.newestFramesLocked(newest)
	if len(frames) == 0 {
		return errSourceChanged
	}
	c.frames, c.looked = frames, frames
	c.Anchor = frames[len(frames)-1]
	c.Anchor.Pix = nil
	l.lastEpoch, l.lastPTS, l.cycled = c.Anchor.Epoch, c.Anchor.PTS, true
	c.rec.Show(frames)
	return nil
}

// newestFramesLocked returns the pictures of a look, with the newest one among them.
func (l *Loop) newestFramesLocked(newest media.VideoFrame) []window.Frame {
	l.picture.Add(newest)
	frames := l.picture.Select(l.task.Agent.Frames, l.task.Agent.Stride)
	if len(frames) > 0 && l.opts.Rules != nil {
		if l.engine.Capabilities().Facts {
			l.album.clear() // no rule is tried on past looks
		} else {
			l.album.add(frames)
		}
		l.judge.observe(frames[len(frames)-1])
	}
	return frames
}

// prompt compares the newest picture's signature with the last cycle's, writes the prompt and queues the comment.
func (c *Cycle) prompt(sign *window.Signature) (inference.Prompt, error) {
	l := c.l
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case c.replaced != nil:
		return inference.Prompt{}, c.replaced
	case c.Anchor.Epoch != l.picture.Source().Epoch:
		return inference.Prompt{}, errSourceChanged
	}
	l.lastChange = window.Difference(l.lastSign, sign)
	c.rec.SceneDiff = l.lastChange.Mean
	if l.unchangedLocked(l.lastChange) {
		c.rec.Skipped = true
		return inference.Prompt{}, nil
	}
	l.lastSign = sign

	now := time.Now()
	p := l.promptLocked(c.looked, l.lastChange, c.spoken, now)
	c.written = now
	c.Language, c.retries = p.Language, l.task.Agent.Repeats == settings.RepeatsRetry
	c.past = l.memory.recent(now, l.task.Agent.Repeats)
	comment, err := l.opts.Speech.Comment(c, c.spoken)
	if err != nil {
		return inference.Prompt{}, err
	}
	c.comment = comment
	l.log.Debug().Uint64("cycle", c.Number).Str("system", p.System).Str("prompt", p.Text).
		Int("pictures", len(p.Frames)).Msg("prompt")
	return p, nil
}

// promptAfresh drops the past comments and remarks of a prompt that was too long, and writes it again.
func (c *Cycle) promptAfresh(long error) inference.Prompt {
	l := c.l
	l.mu.Lock()
	defer l.mu.Unlock()
	l.log.Warn().Err(long).Int("comments", len(l.memory.past)).Int("remarks", len(l.memory.remarks)).
		Msg("the last comments do not fit into the prompt")
	l.memory = memory{}
	c.written = time.Now()
	return l.promptLocked(c.looked, l.lastChange, c.spoken, c.written)
}

// unchangedLocked reports whether a change is too small to ask the engine.
func (l *Loop) unchangedLocked(change window.Change) bool {
	limit := l.task.Threshold()
	return limit > 0 && change.Below(limit) && !l.sensing.news()
}

// promptLocked writes the prompt of a cycle.
func (l *Loop) promptLocked(frames []window.Frame, change window.Change, spoken bool, now time.Time) inference.Prompt {
	var remarks []prompt.Remark
	if l.task.Agent.Hearing.Remarks {
		remarks = l.memory.heardAt(now)
	}
	p := prompt.Look{
		System: l.task.Profile.Prompt, Background: l.task.Background, Instruction: l.task.Instruction,
		InstructionBy: l.task.InstructionBy, InstructionNumber: l.task.InstructionNumber,
		Spoken: spoken, Change: change.Mean, Longer: l.task.Longer(),
		Past: l.memory.past, Remarks: remarks, Now: now, Frames: Pictures(frames), Facts: l.sensing.facts(),
	}.Prompt(l.task.Inference, l.engine.Capabilities())
	p.Sampling, p.Voice, p.VoiceNow = l.task.Sampling, l.task.Voice, func() string { return l.now().Voice }
	return p
}
