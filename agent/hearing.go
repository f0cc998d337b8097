package agent

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"touchline/agent/command"
	"touchline/agent/prompt"
	"touchline/agent/settings"
	"touchline/agent/speech"
	"touchline/inference"
)

// Who is heard, and for what; see package settings.
const (
	HearingOff      = settings.HearingOff
	HearingOrders   = settings.HearingOrders
	HearingCaptions = settings.HearingCaptions
	HearingAll      = settings.HearingAll

	MannersTalk      = settings.MannersTalk
	MannersDuck      = settings.MannersDuck
	MannersWait      = settings.MannersWait
	MannersInterrupt = settings.MannersInterrupt
)

// HearingConfig sets who is heard in the room.
type HearingConfig = settings.Hearing

// DefaultHearing returns the settings of a room where nobody is heard.
func DefaultHearing() HearingConfig { return settings.DefaultHearing() }

// Heard is what somebody in the room said: the text so far, or all of it.
type Heard struct {
	// Segment names the utterance; a later text of it replaces an earlier one.
	Segment string `json:"segment"`
	// Identity and Name of who spoke, and the microphone's track SID.
	Identity string `json:"identity"`
	Name     string `json:"name,omitempty"`
	Track    string `json:"track,omitempty"`
	Text     string `json:"text"`
	// Language is the BCP 47 tag of the text; "" where it is not known.
	Language string `json:"language,omitempty"`
	// Final says that the text is not going to change.
	Final bool `json:"final"`
	// Began and Ended are of the speech; Ended of a final text only.
	Began time.Time `json:"began"`
	Ended time.Time `json:"ended,omitzero"`
	// Caption says that the text is for everybody in the room; else it is an order alone.
	Caption bool `json:"caption"`
	// Order is what was made of a final text that is an order; nil for any other.
	Order *SpokenOrder `json:"order,omitempty"`
}

// SpokenOrder is the result of a voice command.
type SpokenOrder struct {
	// Text without the wake word.
	Text string `json:"text"`
	// Command that acted; "" for an instruction.
	Command command.Command `json:"command,omitempty"`
	// Effect is what it did, in a sentence; Refused why it did nothing.
	Effect  string `json:"effect,omitempty"`
	Refused string `json:"refused,omitempty"`
}

// Microphone is that of a person in the room.
type Microphone struct {
	// Identity and Name of its participant, and its track SID.
	Identity, Name, Track string
	// Instructs says that its participant may instruct the commentator.
	Instructs bool
	// Watched says that its participant's picture is the watched one.
	Watched bool
	Muted   bool
	// Level is how loud its participant is, 0 to 1, as the server reports it; 0 where that is not known.
	Level float64
}

// HeardOutput is an optional interface of a TextOutput: it receives what people say. It must not block.
type HeardOutput interface {
	Heard(h Heard)
}

// Ears hear the room for a Session; package hearing has them.
type Ears interface {
	// CheckHearing returns why people cannot be heard in this way; nil if they can.
	CheckHearing(c HearingConfig) error
}

// errDeaf is the reason why nobody is heard.
var errDeaf = errors.New("nobody is heard without a recognizer: set inference.recognizer.program")

// checkHearingLocked returns the errors of a change of who is heard.
func (s *Session) checkHearingLocked(v Settings) error {
	next := s.live.Agent.Hearing
	next.Mode, next.WakeWords = *cmp.Or(v.Hearing, &next.Mode), *cmp.Or(v.WakeWords, &next.WakeWords)
	if next.Mode == HearingOff || v.Hearing == nil && v.WakeWords == nil {
		return nil
	}
	err := errDeaf
	if s.opts.Ears != nil {
		err = s.opts.Ears.CheckHearing(next)
	}
	if err == nil {
		return nil
	}
	return &RangeError{Name: "hearing", Want: fmt.Sprintf("another mode, as %v", err), Got: fmt.Sprintf("%q", next.Mode)}
}

// Hearing returns who is heard now.
func (s *Session) Hearing() HearingConfig {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := s.live.Agent.Hearing
	out.WakeWords = slices.Clone(out.WakeWords)
	return out
}

// Hear takes what somebody said, for the outputs; a final remark is quoted to the commentator where that is set.
func (s *Session) Hear(h Heard) {
	if h.Final && h.Caption && h.Order == nil {
		s.locked(func() { s.remarkLocked(h) })
	}
	for _, t := range s.opts.Texts {
		if out, ok := t.(HeardOutput); ok {
			out.Heard(h)
		}
	}
}

// Bounds of the remarks in a prompt.
const (
	keptRemarks   = 6
	remarkLetters = 200
	remarkAge     = time.Minute
)

// remarkLocked keeps a remark for the next prompts.
func (s *Session) remarkLocked(h Heard) {
	text := strings.TrimSpace(h.Text)
	if !s.live.Agent.Hearing.Remarks || inference.ClassifyAnswer(text, true) != inference.HasWords {
		return
	}
	if r := []rune(text); len(r) > remarkLetters {
		text = string(r[:remarkLetters]) + "…"
	}
	by := h.Name
	if by == "" {
		by = h.Identity
	}
	s.remarks = append(slices.Clone(s.remarks[max(0, len(s.remarks)+1-keptRemarks):]), prompt.Remark{By: by, Text: text, At: h.Ended})
}

// remarksLocked returns the remarks for a prompt.
func (s *Session) remarksLocked(now time.Time) []prompt.Remark {
	if !s.live.Agent.Hearing.Remarks {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(s.remarks), func(r prompt.Remark) bool { return now.Sub(r.At) > remarkAge })
}

// Floor is who speaks in the room of those who may instruct the commentator.
type Floor = speech.Floor

// The floors.
const (
	FloorFree     = speech.FloorFree     // nobody speaks
	FloorDoubtful = speech.FloorDoubtful // somebody speaks, or a microphone hears the voice
	FloorTaken    = speech.FloorTaken    // somebody speaks
)

// Floor takes who speaks. The voice behaves as the manners say: with "interrupt" it pauses in doubt, goes on if it was its own echo,
// and is cut if somebody speaks.
func (s *Session) Floor(f Floor, now time.Time) { s.speech.Floor(f, now) }

// behaveLocked sets what the voice does while a person speaks, and its level.
func (s *Session) behaveLocked() {
	h := s.live.Agent.Hearing
	manners := map[string]speech.Manners{
		MannersTalk: speech.Talk, MannersDuck: speech.Duck, MannersWait: speech.Wait, MannersInterrupt: speech.Interrupt,
	}
	s.speech.Behave(manners[h.Manners], h.MaxWait, s.live.Inference.Voice.Gain)
}
