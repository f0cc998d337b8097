package speech

import (
	"errors"
	"fmt"
	"unicode/utf8"

	"touchline/agent/settings"
	"touchline/inference"
	"touchline/internal/check"
)

// Causes of speech cut by an announcement.
var (
	errInterrupted = errors.New("an alert interrupted it")
	errAgain       = errors.New("the last comment was asked for again")
	errAnnounced   = errors.New("an announcement interrupted it")
)

// MaxSaid is the longest text and MaxReason the longest reason of a Notice, in characters.
const (
	MaxSaid   = 1000
	MaxReason = 128
)

// Notice is an announcement: a text that needs no look at the picture and waits for none.
type Notice struct {
	Text string `json:"text"`
	// Reason is the reason of the announcement, for the record.
	Reason string `json:"reason,omitempty"`
	// Interrupt cuts the current speech, unless it interrupts too. Without Interrupt it waits for the end of the speech.
	Interrupt bool `json:"interrupt,omitempty"`
	// Language of the text (BCP 47); "" is the comments' language.
	Language string `json:"-"`
}

// Check returns the errors of an announcement, joined.
func (a Notice) Check() error {
	var errs []error
	if n := utf8.RuneCountInString(a.Text); n == 0 || n > MaxSaid || !utf8.ValidString(a.Text) {
		errs = append(errs, &settings.RangeError{Name: "text", Want: fmt.Sprintf("1 to %d characters", MaxSaid), Got: n})
	} else if inference.ClassifyAnswer(a.Text, true) != inference.HasWords {
		errs = append(errs, &settings.RangeError{Name: "text", Want: "at least one word", Got: fmt.Sprintf("%.40q", a.Text)})
	}
	if a.Reason != "" && (!check.Name(a.Reason) || len(a.Reason) > MaxReason) {
		want := fmt.Sprintf("at most %d printable characters", MaxReason)
		errs = append(errs, &settings.RangeError{Name: "reason", Want: want, Got: fmt.Sprintf("%.40q", a.Reason)})
	}
	return errors.Join(errs...)
}

// Reasons of announcements.
const (
	ReasonOrder = "order" // answers a spoken order
	ReasonAlert = "alert"
	ReasonAgain = "again"
	ReasonSaid  = "said" // none was given
)

// cause returns the cause of speech that the announcement cuts.
func (a Notice) cause() error {
	switch a.Reason {
	case ReasonAlert:
		return errInterrupted
	case ReasonAgain:
		return errAgain
	}
	return errAnnounced
}

// rank returns the priority of an announcement, and the priority below which it cuts other speech. An answer to a person in the room cuts
// comments only; announcements of other people play to their end.
func (a Notice) rank() (priority, cuts Priority) {
	switch {
	case a.Reason == ReasonAlert:
		return Alert, Alert
	case !a.Interrupt:
		return Announcement, Comment
	case a.Reason == ReasonAgain || a.Reason == ReasonOrder:
		return Interjection, Announcement
	}
	return Interjection, Interjection
}

// Utterance returns the utterance of the announcement; author identifies the client, for MaxPerAuthor.
func (a Notice) Utterance(m Maker, author string) *Utterance {
	priority, cuts := a.rank()
	return New(Options{Maker: m, Priority: priority, Cuts: cuts, Cause: a.cause(), Author: author, Text: a.Text, Spoken: true})
}
