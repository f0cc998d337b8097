package agent

import (
	"context"
	"strings"
	"time"

	"touchline/agent/alert"
	"touchline/agent/look"
	"touchline/media"
	"touchline/media/window"
	"touchline/pacing"
)

// ruleLooks are the alert rules as looks ask for them.
type ruleLooks struct {
	*alert.Set

	s *Session
}

// Answer implements look.Rules: it publishes the alerts that begin or end by a look.
func (r ruleLooks) Answer(ctx context.Context, a look.Answer) {
	for _, alert := range r.Set.Answer(a) {
		r.s.raise(ctx, alert, a.Anchor)
	}
}

// TryRule asks the engine whether a rule holds; see look.Loop.TryRule. The error may also be of the rule.
func (s *Session) TryRule(ctx context.Context, r alert.RuleText, past int) ([]look.Trial, error) {
	if s.opts.Alerts == nil {
		return nil, look.ErrRulesUnread
	}
	facts, err := s.opts.Alerts.Check(r)
	if err != nil {
		return nil, err
	}
	return s.Looks.TryRule(ctx, strings.TrimSpace(r.When), facts, past)
}

// raise publishes a phase of an alert from a look. A new alert is published again, as shown, when its frame is shown.
func (s *Session) raise(ctx context.Context, a alert.Alert, anchor window.Frame) {
	if a.Phase != alert.PhaseNew {
		s.publishAlert(a, nil)
		return
	}
	shown := anchor
	s.publishAlert(a, &shown)
	anchor.Pix = nil // it may wait for seconds
	if a.Interrupt {
		s.announceAlert(a, anchor)
	}
	s.work.Go(func() error {
		for {
			now := time.Now()
			wait := s.untilShown(anchor.VideoFrame, now)
			if wait <= 0 {
				a.Phase, a.At = alert.PhaseShown, now
				s.publishAlert(a, nil)
				return nil
			}
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(pacing.Approach(wait)):
			}
		}
	})
}

// untilShown returns the time until the delayed picture shows a frame; 0 without a delayed picture.
func (s *Session) untilShown(f media.VideoFrame, now time.Time) time.Duration {
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
		if a.Phase == alert.PhaseNew {
			newest, ok = s.picture.Newest()
		}
		if !ok {
			s.publishAlert(a, nil)
			continue
		}
		a.AnchorPTS, a.FrameID = newest.PTS.Seconds(), newest.ID
		s.raise(ctx, a, newest)
	}
}

func (s *Session) publishAlert(a alert.Alert, frame *window.Frame) {
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

// alertNote returns why the engine is not asked for the rules in force; "" if it is.
func (s *Session) alertNote(now time.Time) string {
	if s.opts.Alerts == nil || s.engine.Capabilities().Rules() {
		return ""
	}
	if _, rules := s.opts.Alerts.Next(now); !rules {
		return ""
	}
	return s.engine.RulesUnread()
}
