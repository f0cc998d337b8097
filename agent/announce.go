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

	"touchline/agent/speech"
	"touchline/inference"
	"touchline/internal/check"
	"touchline/internal/rescue"
	"touchline/media"
	"touchline/media/window"
)

// Causes of speech cut by an announcement.
var (
	errInterrupted = errors.New("an alert interrupted it")
	errAgain       = errors.New("the last comment was asked for again")
	errAnnounced   = errors.New("an announcement interrupted it")
)

// MaxSaid is the longest text and MaxReason the longest reason of an Announcement, in characters.
const (
	MaxSaid   = 1000
	MaxReason = 128
)

// ErrTooMuchToSay is returned by Say while too many announcements wait: 16 of one client, or 64 of all.
var ErrTooMuchToSay = speech.ErrFull

// Announcement is a text that is said without a look at the picture, and does not wait for one.
type Announcement struct {
	Text string `json:"text"`
	// Reason is why it is said, for the record.
	Reason string `json:"reason,omitempty"`
	// Interrupt cuts what is being said, unless that interrupts too; else it waits for the end.
	Interrupt bool `json:"interrupt,omitempty"`
	// Language of the text (BCP 47); "" is that of the comments.
	Language string `json:"-"`
}

// check returns the errors of an announcement, joined.
func (a Announcement) check() error {
	var errs []error
	if n := utf8.RuneCountInString(a.Text); n == 0 || n > MaxSaid || !utf8.ValidString(a.Text) {
		errs = append(errs, &RangeError{Name: "text", Want: fmt.Sprintf("1 to %d characters", MaxSaid), Got: n})
	} else if inference.ClassifyAnswer(a.Text, true) != inference.HasWords {
		errs = append(errs, &RangeError{Name: "text", Want: "at least one word", Got: fmt.Sprintf("%.40q", a.Text)})
	}
	if a.Reason != "" && (!check.Name(a.Reason) || len(a.Reason) > MaxReason) {
		want := fmt.Sprintf("at most %d printable characters", MaxReason)
		errs = append(errs, &RangeError{Name: "reason", Want: want, Got: fmt.Sprintf("%.40q", a.Reason)})
	}
	return errors.Join(errs...)
}

// ReasonOrder is the reason of an announcement that answers a spoken order.
const ReasonOrder = "order"

// Reasons of the session's own announcements, and of one without a reason.
const (
	reasonAlert = "alert"
	reasonAgain = "again"
	reasonSaid  = "said"
)

// announcement is an Announcement with what the session knows of it. It is a speech.Maker.
type announcement struct {
	Announcement

	s      *Session
	by     string        // the client; "" for the session itself
	alert  string        // its id; "" for none
	anchor *window.Frame // without its picture; nil for none

	// Set when it is made.
	rec      Record
	language string
}

// cause returns the cause of speech that the announcement cuts.
func (a *announcement) cause() error {
	switch a.Reason {
	case reasonAlert:
		return errInterrupted
	case reasonAgain:
		return errAgain
	}
	return errAnnounced
}

// rank returns the priority of an announcement, and that below which it cuts what is said. An answer to somebody in the room cuts
// comments only: the announcement of somebody else is heard to its end.
func (a *announcement) rank() (priority, cuts speech.Priority) {
	switch {
	case a.alert != "":
		return speech.Alert, speech.Alert
	case !a.Interrupt:
		return speech.Announcement, speech.Comment
	case a.Reason == reasonAgain || a.Reason == ReasonOrder:
		return speech.Interjection, speech.Announcement
	}
	return speech.Interjection, speech.Interjection
}

// Say queues an announcement, which has captions and a record as a comment has. Without speech it is a caption alone. The
// error joins a *RangeError for each bad part, or is ErrTooMuchToSay.
func (s *Session) Say(a Announcement, by string) error {
	a.Text = strings.TrimSpace(a.Text)
	if err := a.check(); err != nil {
		return err
	}
	a.Reason = cmp.Or(a.Reason, reasonSaid)
	if err := s.queueAnnouncement(announcement{Announcement: a, by: by}); err != nil {
		return err
	}
	s.log.Info().Str("by", by).Str("reason", a.Reason).Bool("interrupt", a.Interrupt).Msg("announcement")
	return nil
}

// queueAnnouncement queues one; ErrTooMuchToSay if too many wait.
func (s *Session) queueAnnouncement(a announcement) error {
	a.s = s
	priority, cuts := a.rank()
	return s.speech.Add(speech.New(speech.Options{
		Maker: &a, Priority: priority, Cuts: cuts, Cause: a.cause(), Author: a.by, Text: a.Text, Spoken: true,
	}))
}

// announceAlert gives the reason of an alert to be said.
func (s *Session) announceAlert(a Alert, anchor window.Frame) {
	var speaks bool
	s.locked(func() { speaks = s.speaksLocked() })
	if !speaks {
		return
	}
	said := Announcement{Text: a.Reason, Reason: reasonAlert, Interrupt: true}
	err := s.queueAnnouncement(announcement{Announcement: said, alert: a.ID, anchor: &anchor})
	if err != nil {
		s.log.Warn().Err(err).Str("alert", a.ID).Msg("alert not spoken")
	}
}

// Make implements speech.Maker: it makes the speech. Without a voice, or with one that fails, the caption comes alone. The
// error is a panic.
func (a *announcement) Make(ctx context.Context, u *speech.Utterance) error {
	err := a.speak(ctx, u)
	a.s.speech.EndSound(u, nil)
	if _, crash := rescue.Of(err); crash {
		return err
	}
	if err != nil && ctx.Err() == nil {
		a.s.log.Warn().Err(err).Str("reason", a.Reason).Msg("announcement not spoken")
	}
	return nil
}

func (a *announcement) speak(ctx context.Context, u *speech.Utterance) error {
	engine, release := a.s.engine.hold()
	defer release()
	for c, err := range a.begin(ctx, engine, time.Now()) {
		if err != nil || ctx.Err() != nil {
			return err
		}
		if len(c.Audio) > 0 {
			a.s.speech.Sound(u, media.PCM{Rate: c.AudioRate, Samples: c.Audio}, c.Words)
		}
	}
	return nil
}

// begin gives it a number and a record, as a comment has, and returns its speech: none without a voice.
func (a *announcement) begin(ctx context.Context, engine Engine, now time.Time) iter.Seq2[inference.Chunk, error] {
	s := a.s
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cycle++
	a.rec = Record{
		Type: "cycle_end", Cycle: s.cycle, Announced: a.Reason, Alert: a.alert, Again: a.Reason == reasonAgain,
		FrameIDs: []uint64{}, Engine: engine.Name(), Profile: s.profile.Name, InferenceStart: now, InferenceEnd: now,
	}
	a.language = cmp.Or(a.Language, s.live.Inference.Voice.Language)
	if a.anchor != nil { // the engine's own words
		a.rec.describeFrames([]window.Frame{*a.anchor})
		a.language = engine.Capabilities().AnswersIn(a.language)
	}
	if !s.speaksLocked() {
		return func(func(inference.Chunk, error) bool) {}
	}
	return engine.Speak(ctx, a.Text, s.live.Voice, a.language)
}

// Begun implements speech.Maker.
func (*announcement) Begun(bool) {}

// Caption implements speech.Maker.
func (a *announcement) Caption(step speech.Step) { a.s.caption(a.rec.Cycle, a.language, step) }

// Ended implements speech.Maker.
func (a *announcement) Ended(r speech.Result) { a.s.publishRecord(a.s.measure(a.rec, r)) }
