package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"touchline/agent/prompt"
	"touchline/agent/speech"
	"touchline/inference"
	"touchline/internal/rescue"
	"touchline/media"
	"touchline/media/window"
)

// alerting is the state of looks with rules, guarded by Session.mu.
type alerting struct {
	cancel   context.CancelCauseFunc // ends the look in flight; nil without one
	failures int
	retryAt  time.Time
}

// readsRules reports whether the engine can be asked for alert rules.
func (s *Session) readsRules() bool {
	return s.opts.Alerts != nil && s.engine.Capabilities().Rules()
}

// nextAlertLook returns when a look with rules must begin, because no look of the commentary came; zero if only after an
// event. Such looks do not need commenting to be on.
func (s *Session) nextAlertLook(now time.Time) time.Time {
	if !s.readsRules() {
		return time.Time{}
	}
	at, ok := s.opts.Alerts.Next(now)
	if !ok {
		return time.Time{}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	source := s.picture.source()
	if !s.mayAskLocked() || !source.fresh(now) || source.stopped(now) || s.picture.buffered() == 0 {
		return time.Time{}
	}
	if at.Before(s.alerts.retryAt) {
		return s.alerts.retryAt
	}
	return at
}

// mayAskLocked reports whether the engine may be asked for rules: a new instruction goes first.
func (s *Session) mayAskLocked() bool {
	return s.engineTakesLooks() && (!s.active || !s.gate.Urgent())
}

// followCycle takes a look with the rules that are due, on the pictures of a cycle that has ended. The commentary does
// not wait for it: at this point it waits for its own frame or voice.
func (s *Session) followCycle(ctx context.Context, c *cycle) error {
	var frames []window.Frame
	var may bool
	s.locked(func() {
		frames, c.looked = c.looked, nil
		may = len(frames) > 0 && frames[len(frames)-1].Epoch == s.picture.source().epoch && s.mayAskLocked() &&
			!time.Now().Before(s.alerts.retryAt)
	})
	if !may || !s.readsRules() {
		return nil
	}
	return s.askRules(ctx, frames)
}

// lookForRules takes a look with rules on the newest pictures.
func (s *Session) lookForRules(ctx context.Context) error {
	lctx, cancel := context.WithTimeout(ctx, latestTimeout)
	defer cancel()
	newest, err := s.dec.Latest(lctx)
	if err != nil {
		s.failAlertLook(fmt.Errorf("get the newest picture: %w", err), time.Now())
		return nil
	}
	var frames []window.Frame
	s.locked(func() { frames = s.newestFramesLocked(newest) })
	if len(frames) == 0 {
		return nil
	}
	defer s.packLooks()
	return s.askRules(ctx, frames)
}

// askRules asks for the rules that are due and publishes the alerts that begin or end. It returns a panic of the engine.
func (s *Session) askRules(ctx context.Context, frames []window.Frame) error {
	rules := s.opts.Alerts.Due(time.Now())
	if len(rules) == 0 {
		return nil
	}
	return s.askFor(ctx, rules, frames)
}

// askFor is askRules for some rules; in several looks if one prompt cannot hold them.
func (s *Session) askFor(ctx context.Context, rules []prompt.Rule, frames []window.Frame) error {
	answer, err := s.answerRules(ctx, rules, frames)
	if long := new(inference.TooLongError); errors.As(err, &long) && len(rules) > 1 {
		for half := range slices.Chunk(rules, (len(rules)+1)/2) {
			for i := range half {
				half[i].Number = i + 1
			}
			if err := s.askFor(ctx, half, frames); err != nil {
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
		s.failAlertLook(err, now)
	}
	if anchor.Epoch != s.picture.source().epoch {
		return nil // a look at the previous source votes for nothing
	}
	for _, a := range s.opts.Alerts.Answer(AlertLook{
		Rules: rules, Answer: answer, Err: err, FrameID: anchor.ID, PTS: anchor.PTS, Arrival: anchor.Arrival, Answered: now,
	}) {
		s.raise(ctx, a, anchor)
	}
	return nil
}

// answerRules returns the engine's answer about rules.
func (s *Session) answerRules(ctx context.Context, rules []prompt.Rule, frames []window.Frame) (string, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	ctx, stop := context.WithTimeoutCause(ctx, s.opts.Agent.CycleTimeout, errors.New("no answer within agent.cycle_timeout"))
	defer stop()
	var p inference.Prompt
	s.locked(func() {
		s.alerts.cancel = cancel
		p = prompt.Look{System: s.profile.Prompt, Background: s.background, Frames: Pictures(frames), Rules: rules}.
			Prompt(s.live.Inference, s.engine.Capabilities())
		p.Sampling = s.live.Sampling
	})
	defer s.locked(func() { s.alerts.cancel = nil })
	engine, release := s.engine.hold()
	defer release()
	answer, err := s.textOf(ctx, engine, LookRules, frames, p)
	if err != nil {
		return "", err
	}
	s.locked(func() { s.alerts.failures = 0 })
	s.log.Debug().Int("rules", len(rules)).Str("prompt", p.Text).Str("answer", answer).Msg("alert look")
	return answer, nil
}

// failAlertLook delays the next look. A look that a new instruction or engine ended is no failure.
func (s *Session) failAlertLook(err error, now time.Time) {
	if errors.Is(err, errReplaced) || errors.Is(err, errEngineChanged) || errors.Is(err, context.Canceled) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.alerts.failures++
	s.alerts.retryAt = now.Add(min(retryFirst<<min(s.alerts.failures-1, 4), retryMost))
	s.log.Warn().Err(err).Time("retry_at", s.alerts.retryAt).Msg("alert look failed")
}

// raise publishes an alert of a look, and of a new one when its frame is shown.
func (s *Session) raise(ctx context.Context, a Alert, anchor window.Frame) {
	if a.Phase != AlertNew {
		s.publishAlert(a, nil)
		return
	}
	s.publishAlert(a, &SeenFrame{ID: anchor.ID, Frame: anchor.VideoFrame})
	anchor.Pix = nil // it may wait for seconds
	if a.Interrupt {
		s.announceAlert(a, anchor)
	}
	s.work.Go(func() error {
		for {
			now := time.Now()
			wait := s.untilShown(anchor.VideoFrame, now)
			if wait <= 0 {
				a.Phase, a.At = AlertShown, now
				s.publishAlert(a, nil)
				return nil
			}
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(speech.Approach(wait)):
			}
		}
	})
}

// untilShown returns the time until the delayed picture shows a frame; 0 without a delayed picture.
func (s *Session) untilShown(f media.VideoFrame, now time.Time) time.Duration {
	if !s.relays() {
		return 0
	}
	if due, ok := s.line.Due(f.Epoch, f.PTS, now); ok {
		return due.Sub(now)
	}
	return 0
}

// expireAlerts publishes the phases of alerts that come without a look. A test has the newest picture.
func (s *Session) expireAlerts(ctx context.Context, now time.Time) {
	if s.opts.Alerts == nil {
		return
	}
	for _, a := range s.opts.Alerts.Expire(now) {
		var newest window.Frame
		var ok bool
		if a.Phase == AlertNew {
			newest, ok = s.picture.newest()
		}
		if !ok {
			s.publishAlert(a, nil)
			continue
		}
		a.AnchorPTS, a.FrameID = newest.PTS.Seconds(), newest.ID
		s.raise(ctx, a, newest)
	}
}

func (s *Session) publishAlert(a Alert, frame *SeenFrame) {
	s.log.Info().Str("alert", a.ID).Str("phase", a.Phase).Str("rule", a.Rule).Str("alert_level", a.Level).
		Float64("latency_s", a.LatencySec).Bool("test", a.Test).Msg("alert")
	for _, t := range s.opts.Texts {
		if out, ok := t.(AlertOutput); ok {
			out.Alert(a, frame)
		}
	}
	if s.opts.Commit != nil {
		s.opts.Commit(a, frame)
	}
}

// alertNoteLocked returns why the engine is not asked for the rules in force; "" if it is.
func (s *Session) alertNoteLocked(now time.Time) string {
	if s.opts.Alerts == nil || s.engine.Capabilities().Rules() {
		return ""
	}
	if _, rules := s.opts.Alerts.Next(now); !rules {
		return ""
	}
	return s.unreadRules()
}

// unreadRules says that the engine cannot be asked for rules, and what to do.
func (s *Session) unreadRules() string {
	return fmt.Sprintf("the %s engine reads no alert rules; choose an engine that follows instructions", s.engine.Name())
}
