package agent

import (
	"cmp"
	"context"
	"iter"
	"strings"
	"time"

	"touchline/agent/alert"
	"touchline/agent/look"
	"touchline/agent/speech"
	"touchline/inference"
	"touchline/internal/rescue"
	"touchline/media"
	"touchline/media/window"
)

// announcement is a Notice with its author, alert and record. It is a speech.Maker.
type announcement struct {
	speech.Notice

	s      *Session
	by     string        // the client; "" for the session itself
	alert  string        // its id; "" for none
	anchor *window.Frame // without its picture; nil for none

	// Set by begin.
	rec      look.Record
	language string
}

// Say queues an announcement, which has captions and a record as a comment has. Without speech it is a caption alone. The
// error joins a *settings.RangeError for each bad part, or is speech.ErrFull.
func (s *Session) Say(a speech.Notice, by string) error {
	a.Text = strings.TrimSpace(a.Text)
	if err := a.Check(); err != nil {
		return err
	}
	a.Reason = cmp.Or(a.Reason, speech.ReasonSaid)
	if err := s.queueAnnouncement(announcement{Notice: a, by: by}); err != nil {
		return err
	}
	s.log.Info().Str("by", by).Str("reason", a.Reason).Bool("interrupt", a.Interrupt).Msg("announcement")
	return nil
}

// queueAnnouncement queues an announcement. It returns speech.ErrFull if too many wait.
func (s *Session) queueAnnouncement(a announcement) error {
	a.s = s
	return s.speech.Add(a.Utterance(&a, a.by))
}

// announceAlert queues the reason of an alert as an announcement.
func (s *Session) announceAlert(a alert.Alert, anchor window.Frame) {
	if !s.speaks(s.State().InForce) {
		return
	}
	said := speech.Notice{Text: a.Reason, Reason: speech.ReasonAlert, Interrupt: true}
	err := s.queueAnnouncement(announcement{Notice: said, alert: a.ID, anchor: &anchor})
	if err != nil {
		s.log.Warn().Err(err).Str("alert", a.ID).Msg("alert not spoken")
	}
}

// Make implements speech.Maker. Without a voice, or if the voice fails, only the caption is published. The returned
// error is always a panic.
func (a *announcement) Make(ctx context.Context, u *speech.Utterance) error {
	err := a.speak(ctx, u)
	u.EndSound(nil)
	if _, crash := rescue.Of(err); crash {
		return err
	}
	if err != nil && ctx.Err() == nil {
		a.s.log.Warn().Err(err).Str("reason", a.Reason).Msg("announcement not spoken")
	}
	return nil
}

func (a *announcement) speak(ctx context.Context, u *speech.Utterance) error {
	for c, err := range a.begin(ctx, time.Now()) {
		if err != nil || ctx.Err() != nil {
			return err
		}
		if len(c.Audio) > 0 {
			u.Sound(media.PCM{Rate: c.AudioRate, Samples: c.Audio}, c.Words)
		}
	}
	return nil
}

// begin gives the announcement a number and a record, as a comment has, and returns its speech, which is empty without a voice.
func (a *announcement) begin(ctx context.Context, now time.Time) iter.Seq2[inference.Chunk, error] {
	s, state := a.s, a.s.State()
	a.rec = look.Record{
		Type: "cycle_end", Cycle: s.Looks.Number(), Announced: a.Reason, Alert: a.alert, Again: a.Reason == speech.ReasonAgain,
		FrameIDs: []uint64{}, Engine: s.engine.Name(), Profile: state.Profile.Name, InferenceStart: now, InferenceEnd: now,
	}
	a.language = cmp.Or(a.Language, state.Inference.Voice.Language)
	if a.anchor != nil { // the engine's own words
		a.rec.Show([]window.Frame{*a.anchor})
		a.language = s.engine.Capabilities().AnswersIn(a.language)
	}
	if !s.speaks(state.InForce) {
		return func(func(inference.Chunk, error) bool) {}
	}
	return s.engine.Speak(ctx, a.Text, state.Voice, a.language)
}

// Begun implements speech.Maker.
func (*announcement) Begun(bool) {}

// Caption implements speech.Maker.
func (a *announcement) Caption(step speech.Step) { a.s.caption(a.rec.Cycle, a.language, step) }

// Ended implements speech.Maker.
func (a *announcement) Ended(r speech.Result) { a.s.publishRecord(a.s.measure(a.rec, r)) }
