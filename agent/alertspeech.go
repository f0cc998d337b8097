package agent

import (
	"context"
	"errors"
	"time"

	"touchline/inference"
	"touchline/internal/rescue"
	"touchline/internal/wake"
	"touchline/media"
	"touchline/media/window"
)

// errInterrupted is the cause of a comment cut by an alert.
var errInterrupted = errors.New("an alert interrupted it")

// maxSpokenAlerts bounds the alerts that wait for the voice; the rest are not spoken.
const maxSpokenAlerts = 16

// spokenAlert is an alert that may interrupt speech.
type spokenAlert struct {
	Alert

	anchor window.Frame // without its picture
}

// queueAlert gives an alert to speakAlerts.
func (s *Session) queueAlert(a spokenAlert) {
	var speaks bool
	s.locked(func() { speaks = s.infer.Voice.Enabled && s.opts.Audio != nil })
	if !speaks {
		return
	}
	select {
	case s.spoken <- a:
	default:
		s.log.Warn().Str("alert", a.ID).Msg("alert not spoken: too many at once")
	}
}

// speakAlerts speaks the reasons of alerts, one after another, until ctx ends. They do not wait for their frame on the
// delayed picture.
func (s *Session) speakAlerts(ctx context.Context) error {
	speaker, ok := s.engine.(inference.Speaker)
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case a := <-s.spoken:
			if !ok {
				continue
			}
			err := s.speakAlert(ctx, speaker, a)
			if _, crash := rescue.Of(err); crash {
				return err
			}
			if err != nil && ctx.Err() == nil {
				s.log.Warn().Err(err).Str("alert", a.ID).Msg("alert not spoken")
			}
		}
	}
}

// speakAlert speaks the reason of one alert and returns after its record is published. The current speech is cut when the
// first sound is ready, so that no silence comes between. A voice that fails leaves the caption alone.
func (s *Session) speakAlert(ctx context.Context, speaker inference.Speaker, a spokenAlert) error {
	u, language := s.newAlertUtterance(a, time.Now())
	done := make(chan struct{})
	perform := func() {
		s.work.Go(func() error {
			defer close(done)
			s.perform(ctx, u)
			return nil
		})
	}
	var failed error
	begun := false
	for c, err := range speaker.Speak(ctx, u.text, language) {
		if err != nil {
			failed = err
			break
		}
		if len(c.Audio) == 0 {
			continue
		}
		pcm := media.PCM{Rate: c.AudioRate, Samples: c.Audio}
		audible, err := u.speech.Write(pcm)
		if err != nil {
			break // it was cut
		}
		w := written{audible: audible, lead: u.speech.LeadTrimmed(), length: pcm.Duration(), words: c.Words}
		if s.voiceAlert(u, w, time.Now()) && !begun {
			begun = true
			perform()
		}
		u.changed.Set()
	}
	audible := u.speech.End()
	s.locked(func() {
		u.generated, u.audible, u.rec.AudioSec = true, audible, audible.Seconds()
		if !begun {
			u.spoken, u.onset = false, time.Now()
		}
	})
	if !begun {
		perform()
	}
	u.changed.Set()
	s.publishStatus()
	select {
	case <-done:
		return failed
	case <-ctx.Done():
		return ctx.Err()
	}
}

// newAlertUtterance returns the utterance of an alert, and its language. It has a number and a record as a comment has.
func (s *Session) newAlertUtterance(a spokenAlert, now time.Time) (*utterance, string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cycle++
	u := &utterance{
		changed: wake.New(), spoken: true, announced: true, released: true, text: a.Reason, frames: []window.Frame{a.anchor},
		rec: Record{
			Type: "cycle_end", Cycle: s.cycle, Alert: a.ID, Engine: s.model.Name(), Profile: s.profile.Name,
			InferenceStart: now, InferenceEnd: now,
		},
	}
	u.describeFrames()
	u.speech = s.opts.Audio.NewUtterance(s.speechEvents(u))
	return u, s.infer.Voice.Language
}

// voiceAlert places the words of written audio. The first sound cuts the current speech and starts the alert's; voiceAlert
// reports whether there is sound.
func (s *Session) voiceAlert(u *utterance, w written, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	u.wrote(w)
	switch {
	case u.audible == 0:
		return false
	case u.startAt.IsZero():
		if s.speaking != nil {
			s.cutLocked(s.speaking, errInterrupted, now)
		}
		u.startAt = now
		s.clock.Start(now, u.audible)
		s.speaking = u
		u.speech.Start(now)
	case u == s.speaking:
		s.clock.Finish(u.startAt.Add(u.audible))
	}
	return true
}
