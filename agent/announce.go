package agent

import (
	"context"
	"errors"
	"iter"
	"time"

	"touchline/inference"
	"touchline/internal/rescue"
	"touchline/internal/wake"
	"touchline/media"
	"touchline/media/window"
)

// Causes of a comment cut by an announcement.
var (
	errInterrupted = errors.New("an alert interrupted it")
	errAgain       = errors.New("the last comment was asked for again")
)

// maxAnnouncements bounds those that wait for the voice; the rest are not spoken.
const maxAnnouncements = 16

// announcement is a text that is said at once and interrupts speech: the reason of an alert, or the last comment again.
type announcement struct {
	text   string
	alert  string       // id; "" for the last comment
	anchor window.Frame // without its picture
}

// cause returns the cause of a comment that the announcement cuts.
func (a announcement) cause() error {
	if a.alert == "" {
		return errAgain
	}
	return errInterrupted
}

// announceAlert gives the reason of an alert to announce.
func (s *Session) announceAlert(a Alert, anchor window.Frame) {
	var speaks bool
	s.locked(func() { speaks = s.infer.Voice.Enabled && s.opts.Audio != nil })
	if !speaks {
		return
	}
	select {
	case s.spoken <- announcement{a.Reason, a.ID, anchor}:
	default:
		s.log.Warn().Str("alert", a.ID).Msg("alert not spoken: too many at once")
	}
}

// announce says announcements, one after another, until ctx ends. They do not wait for their frame on the delayed picture.
func (s *Session) announce(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case a := <-s.spoken:
			err := s.say(ctx, a)
			if _, crash := rescue.Of(err); crash {
				return err
			}
			if err != nil && ctx.Err() == nil {
				s.log.Warn().Err(err).Str("alert", a.alert).Msg("announcement not spoken")
			}
		}
	}
}

// say says one announcement and returns after its record is published. The current speech is cut when the first sound is
// ready, so that no silence comes between. Without a voice, or with one that fails, the caption comes alone.
func (s *Session) say(ctx context.Context, a announcement) error {
	u, language := s.newAnnouncement(a, time.Now())
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
	for c, err := range s.speak(ctx, u, language) {
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
		if s.voiceAnnouncement(u, w, a.cause(), time.Now()) && !begun {
			begun = true
			perform()
		}
		u.changed.Set()
	}
	var audible time.Duration
	if u.speech != nil {
		audible = u.speech.End()
	}
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

// speak yields the speech of an announcement; nothing without a voice.
func (s *Session) speak(ctx context.Context, u *utterance, language string) iter.Seq2[inference.Chunk, error] {
	if u.speech == nil {
		return func(func(inference.Chunk, error) bool) {}
	}
	var voice string
	s.locked(func() { voice = s.voice })
	return s.engine.Speak(ctx, u.text, voice, language)
}

// newAnnouncement returns the utterance of an announcement, and its language. It has a number and a record as a comment has.
func (s *Session) newAnnouncement(a announcement, now time.Time) (*utterance, string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cycle++
	u := &utterance{
		changed: wake.New(), spoken: true, announced: true, released: true, text: a.text, frames: []window.Frame{a.anchor},
		rec: Record{
			Type: "cycle_end", Cycle: s.cycle, Alert: a.alert, Again: a.alert == "", Engine: s.engine.Name(), Profile: s.profile.Name,
			InferenceStart: now, InferenceEnd: now,
		},
	}
	u.describeFrames()
	u.language = answersIn(s.engine.Capabilities(), s.infer.Voice.Language)
	if s.infer.Voice.Enabled && s.opts.Audio != nil {
		u.speech = s.opts.Audio.NewUtterance(s.speechEvents(u))
	}
	return u, u.language
}

// voiceAnnouncement places the words of written audio. The first sound cuts the current speech, for a cause, and starts the
// announcement's; voiceAnnouncement reports whether there is sound.
func (s *Session) voiceAnnouncement(u *utterance, w written, cause error, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	u.wrote(w)
	switch {
	case u.audible == 0:
		return false
	case u.startAt.IsZero():
		if s.speaking != nil {
			s.cutLocked(s.speaking, cause, now)
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
