package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"time"
	"unicode/utf8"

	"touchline/inference"
	"touchline/internal/check"
	"touchline/internal/rescue"
	"touchline/internal/wake"
	"touchline/media"
	"touchline/media/window"
)

// Causes of a comment cut by an announcement.
var (
	errInterrupted = errors.New("an alert interrupted it")
	errAgain       = errors.New("the last comment was asked for again")
	errAnnounced   = errors.New("an announcement interrupted it")
)

// maxAnnouncements bounds those that wait for the voice; the rest are refused.
const maxAnnouncements = 16

// MaxSaid is the longest text and MaxReason the longest reason of an Announcement, in characters.
const (
	MaxSaid   = 1000
	MaxReason = 128
)

// ErrTooMuchToSay is returned by Say while too many announcements wait.
var ErrTooMuchToSay = errors.New("too much waits to be said; try again when some of it was heard")

// Announcement is a text that is said without a look at the picture, and does not wait for one.
type Announcement struct {
	Text string `json:"text"`
	// Reason is why it is said, for the record.
	Reason string `json:"reason,omitempty"`
	// Interrupt cuts the comment that is being said; else the announcement waits for its end.
	Interrupt bool `json:"interrupt,omitempty"`
	// Language of the text (BCP 47); "" is that of the comments.
	Language string `json:"-"`
}

// check returns the errors of an announcement, joined.
func (a Announcement) check() error {
	var errs []error
	if n := utf8.RuneCountInString(a.Text); n == 0 || n > MaxSaid || !utf8.ValidString(a.Text) {
		errs = append(errs, &RangeError{"text", fmt.Sprintf("1 to %d characters", MaxSaid), n})
	} else if inference.Judge(a.Text, true) != inference.Says {
		errs = append(errs, &RangeError{"text", "at least one word", fmt.Sprintf("%.40q", a.Text)})
	}
	if a.Reason != "" && (!check.Name(a.Reason) || len(a.Reason) > MaxReason) {
		errs = append(errs, &RangeError{"reason", fmt.Sprintf("at most %d printable characters", MaxReason), fmt.Sprintf("%.40q", a.Reason)})
	}
	return errors.Join(errs...)
}

// Reasons of the session's own announcements, and of one without a reason.
const (
	reasonAlert = "alert"
	reasonAgain = "again"
	reasonSaid  = "said"
)

// announcement is an Announcement with what the session knows of it.
type announcement struct {
	Announcement

	alert  string        // its id; "" for none
	anchor *window.Frame // without its picture; nil for none
}

// cause returns the cause of a comment that the announcement cuts.
func (a announcement) cause() error {
	switch a.Reason {
	case reasonAlert:
		return errInterrupted
	case reasonAgain:
		return errAgain
	}
	return errAnnounced
}

// Say queues an announcement, which has captions and a record as a comment has. Without speech it is a caption alone. The
// error joins a *RangeError for each bad part, or is ErrTooMuchToSay.
func (s *Session) Say(a Announcement, by string) error {
	a.Text = strings.TrimSpace(a.Text)
	if err := a.check(); err != nil {
		return err
	}
	a.Reason = cmp.Or(a.Reason, reasonSaid)
	if err := s.queueAnnouncement(announcement{Announcement: a}); err != nil {
		return err
	}
	s.log.Info().Str("by", by).Str("reason", a.Reason).Bool("interrupt", a.Interrupt).Msg("announcement")
	return nil
}

// queueAnnouncement queues one for announce.
func (s *Session) queueAnnouncement(a announcement) error {
	select {
	case s.spoken <- a:
		return nil
	default:
		return ErrTooMuchToSay
	}
}

// announceAlert gives the reason of an alert to announce.
func (s *Session) announceAlert(a Alert, anchor window.Frame) {
	var speaks bool
	s.locked(func() { speaks = s.infer.Voice.Enabled && s.opts.Audio != nil })
	if !speaks {
		return
	}
	err := s.queueAnnouncement(announcement{Announcement{Text: a.Reason, Reason: reasonAlert, Interrupt: true}, a.ID, &anchor})
	if err != nil {
		s.log.Warn().Err(err).Str("alert", a.ID).Msg("alert not spoken")
	}
}

// announce says announcements, one after another, until ctx ends. They do not wait for their frame on the delayed picture.
func (s *Session) announce(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case a := <-s.spoken:
			if !a.Interrupt && !s.awaitVoice(ctx) {
				return ctx.Err()
			}
			err := s.say(ctx, a)
			s.locked(func() { s.holding = false })
			s.deliver.Set()
			if _, crash := rescue.Of(err); crash {
				return err
			}
			if err != nil && ctx.Err() == nil {
				s.log.Warn().Err(err).Str("reason", a.Reason).Msg("announcement not spoken")
			}
		}
	}
}

// awaitVoice lets no further comment start, and waits for the end of the one that is spoken; false when ctx ended.
func (s *Session) awaitVoice(ctx context.Context) bool {
	s.locked(func() { s.holding = true })
	for {
		var free bool
		s.locked(func() { free = s.speaking == nil })
		if free {
			return true
		}
		select {
		case <-ctx.Done():
			return false
		case <-s.unspoken:
		case <-time.After(recheck):
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
	return s.engine.Speak(ctx, u.text, s.voiceNow(), language)
}

// newAnnouncement returns the utterance of an announcement, and its language. It has a number and a record as a comment has.
func (s *Session) newAnnouncement(a announcement, now time.Time) (*utterance, string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cycle++
	u := &utterance{
		changed: wake.New(), spoken: true, announced: true, released: true, text: a.Text,
		rec: Record{
			Type: "cycle_end", Cycle: s.cycle, Announced: a.Reason, Alert: a.alert, Again: a.Reason == reasonAgain,
			FrameIDs: []uint64{}, Engine: s.engine.Name(), Profile: s.profile.Name, InferenceStart: now, InferenceEnd: now,
		},
	}
	u.language = cmp.Or(a.Language, s.infer.Voice.Language)
	if a.anchor != nil { // the engine's own words
		u.frames = []window.Frame{*a.anchor}
		u.describeFrames()
		u.language = s.engine.Capabilities().AnswersIn(u.language)
	}
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
	default:
		s.followVoiceLocked(u)
	}
	return true
}
