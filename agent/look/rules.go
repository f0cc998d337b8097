package look

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"touchline/agent/prompt"
	"touchline/inference"
	"touchline/internal/rescue"
	"touchline/media/window"
)

// ReadsRules reports whether the engine can be asked for alert rules.
func (l *Loop) ReadsRules() bool {
	return l.opts.Rules != nil && l.engine.Capabilities().Rules()
}

// judges reports whether facts decide alert rules. Call it without the lock: the rules' checks may ask the Loop.
func (l *Loop) judges(now time.Time) bool {
	return l.opts.Rules != nil && len(l.opts.Rules.ByFacts(now)) > 0
}

// nextAlertLook returns when a look for rules alone must begin, if no look of the commentary comes before; zero to wait for an event.
// Commenting may be off.
func (l *Loop) nextAlertLook(now time.Time) time.Time {
	if !l.ReadsRules() {
		return time.Time{}
	}
	at, ok := l.opts.Rules.Next(now)
	if !ok {
		return time.Time{}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	source := l.picture.Source()
	if !l.mayAskLocked() || !source.Fresh(now) || source.Stopped(now) || l.picture.Len() == 0 {
		return time.Time{}
	}
	if at.Before(l.rulesRetry.at) {
		return l.rulesRetry.at
	}
	return at
}

// mayAskLocked reports whether the engine may be asked about rules: a new instruction has priority.
func (l *Loop) mayAskLocked() bool {
	return l.engine.takesLooks() && (!l.task.Active || !l.gate.Urgent())
}

// followCycle takes a look with the rules that are due, on the pictures of a cycle that has ended. The commentary does
// not wait for it: at this point it waits for its own frame or voice.
func (l *Loop) followCycle(ctx context.Context, c *Cycle) error {
	var frames []window.Frame
	var may bool
	l.locked(func() {
		frames, c.looked = c.looked, nil
		may = c.forgets == l.forgets && len(frames) > 0 && frames[len(frames)-1].Epoch == l.picture.Source().Epoch && l.mayAskLocked() &&
			!time.Now().Before(l.rulesRetry.at)
	})
	if !may || !l.ReadsRules() {
		return nil
	}
	return l.askRules(ctx, l.opts.Rules.Due(time.Now()), frames, c.forgets)
}

// lookForRules takes a look with rules on the newest pictures.
func (l *Loop) lookForRules(ctx context.Context) error {
	lctx, cancel := context.WithTimeout(ctx, latestTimeout)
	defer cancel()
	var forgets uint64
	l.locked(func() { forgets = l.forgets })
	newest, err := l.opts.Newest(lctx)
	if err != nil {
		l.failAlertLook(fmt.Errorf("get the newest picture: %w", err), time.Now())
		return nil
	}
	var frames []window.Frame
	l.locked(func() {
		if forgets == l.forgets {
			frames = l.newestFramesLocked(newest)
		}
	})
	if len(frames) == 0 {
		return nil
	}
	defer l.album.pack()
	return l.askRules(ctx, l.opts.Rules.Due(time.Now()), frames, forgets)
}

// forgotSince reports whether Forget was called since it had been called so many times.
func (l *Loop) forgotSince(times uint64) (forgot bool) {
	l.locked(func() { forgot = l.forgets != times })
	return forgot
}

// askRules asks the engine about rules, in several looks if one prompt cannot hold all. forgets is Loop.forgets of the pictures. A panic
// of the engine is returned as an error.
func (l *Loop) askRules(ctx context.Context, rules []prompt.Rule, frames []window.Frame, forgets uint64) error {
	if len(rules) == 0 {
		return nil
	}
	answer, err := l.answerRules(ctx, rules, frames, forgets)
	if long := new(inference.TooLongError); errors.As(err, &long) && len(rules) > 1 {
		for half := range slices.Chunk(rules, (len(rules)+1)/2) {
			for i := range half {
				half[i].Number = i + 1
			}
			if err := l.askRules(ctx, half, frames, forgets); err != nil {
				return err
			}
		}
		return nil
	}
	if _, crash := rescue.Of(err); crash {
		return err
	}
	anchor := frames[len(frames)-1]
	now := time.Now()
	if err != nil {
		l.failAlertLook(err, now)
	}
	if anchor.Epoch != l.picture.Source().Epoch || l.forgotSince(forgets) {
		return nil // a look at the previous source, or at forgotten pictures, votes for nothing
	}
	l.opts.Rules.Answer(ctx, Answer{Rules: rules, Text: answer, Err: err, Anchor: anchor, Answered: now})
	return nil
}

// answerRules returns the engine's answer about rules.
func (l *Loop) answerRules(ctx context.Context, rules []prompt.Rule, frames []window.Frame, forgets uint64) (string, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	ctx, stop := context.WithTimeoutCause(ctx, l.opts.Task.Agent.CycleTimeout, errors.New("no answer within agent.cycle_timeout"))
	defer stop()
	l.locked(func() {
		if l.rulesCancel = cancel; l.forgets != forgets {
			cancel(errForgotten)
		}
	})
	task := l.now()
	p := l.rulesPrompt(task, frames, rules)
	p.Sampling = task.Sampling
	answer, err := l.traces.text(ctx, l.engine, l.engine.Name(), TraceRules, frames, p)
	if err != nil {
		return "", err
	}
	l.locked(func() { l.rulesRetry.failures = 0 })
	l.log.Debug().Int("rules", len(rules)).Str("prompt", p.Text).Str("answer", answer).Msg("alert look")
	return answer, nil
}

// rulesPrompt writes the prompt of a look with rules.
func (l *Loop) rulesPrompt(task Task, frames []window.Frame, rules []prompt.Rule) inference.Prompt {
	return prompt.Look{System: task.Profile.Prompt, Background: task.Background, Frames: Pictures(frames), Rules: rules}.
		Prompt(task.Inference, l.engine.Capabilities())
}

// failAlertLook delays the next look. A look that a new instruction, engine or mask ended is no failure.
func (l *Loop) failAlertLook(err error, now time.Time) {
	if errors.Is(err, ErrReplaced) || errors.Is(err, errEngineChanged) || errors.Is(err, errForgotten) || errors.Is(err, errStoodStill) ||
		errors.Is(err, context.Canceled) {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rulesRetry.fail(now)
	l.log.Warn().Err(err).Time("retry_at", l.rulesRetry.at).Msg("alert look failed")
}
