package agent

import (
	"cmp"
	"time"

	"touchline/agent/command"
	"touchline/agent/look"
	"touchline/agent/prompt"
	"touchline/agent/speech"
)

// Heard is a participant's speech: the text so far, or all of it.
type Heard struct {
	// Segment names the utterance; a later text of it replaces an earlier one.
	Segment string `json:"segment"`
	// Identity and Name of the speaker, and the microphone's track SID.
	Identity string `json:"identity"`
	Name     string `json:"name,omitempty"`
	Track    string `json:"track,omitempty"`
	Text     string `json:"text"`
	// Language is the BCP 47 tag of the text; "" if unknown.
	Language string `json:"language,omitempty"`
	// Final is set if the text will not change.
	Final bool `json:"final"`
	// Began and Ended bound the speech; Ended is set for a final text only.
	Began time.Time `json:"began"`
	Ended time.Time `json:"ended,omitzero"`
	// Caption is set if the text is shown to the whole room; otherwise it is only an order.
	Caption bool `json:"caption"`
	// Order is the result of a final text that is an order; nil for any other text.
	Order *SpokenOrder `json:"order,omitempty"`
}

// SpokenOrder is the result of a voice command.
type SpokenOrder struct {
	// Text without the wake word.
	Text string `json:"text"`
	// Command is the executed command; "" for an instruction.
	Command command.Command `json:"command,omitempty"`
	// Effect is the effect, in a sentence; Refused the reason for none.
	Effect  string `json:"effect,omitempty"`
	Refused string `json:"refused,omitempty"`
}

// Microphone is the microphone of a participant.
type Microphone struct {
	// Identity and Name of its participant, and its track SID.
	Identity, Name, Track string
	// Instructs is set if its participant may instruct the commentator.
	Instructs bool
	// Link is the id of the link that its participant joined by; "" for none.
	Link string
	// Watched is set if its participant's picture is the watched one.
	Watched bool
	Muted   bool
	// Level is the loudness of its participant, 0 to 1, as the server reports it; 0 if unknown.
	Level float64
}

// HeardOutput is an optional interface of a TextOutput: it receives what people say. It must not block.
type HeardOutput interface {
	Heard(h Heard)
}

// HeardForgetter is an optional interface of a TextOutput that keeps what people say.
type HeardForgetter interface {
	// ForgetHeard deletes the speech of an identity, or of all if it is "".
	ForgetHeard(by string)
}

// Hear sends a participant's speech to the outputs. With the setting Remarks, final texts are also quoted to the commentator. Speech that
// began before its deletion has no words.
func (s *Session) Hear(h Heard) {
	s.heardMu.Lock()
	defer s.heardMu.Unlock()
	if s.forgotten.has(h) {
		h.Text, h.Order = "", nil
	}
	if h.Final && h.Caption && h.Order == nil {
		s.Looks.Remark(prompt.Remark{By: cmp.Or(h.Name, h.Identity), Text: h.Text, At: h.Ended, Identity: h.Identity})
	}
	for _, t := range s.opts.Texts {
		if out, ok := t.(HeardOutput); ok {
			out.Heard(h)
		}
	}
}

// ForgetHeard deletes the speech of an identity, or of all if it is "", from prompts, looks and outputs, also what is being said now.
// Instructions that were given in the room are taken back, as in command.Steering.
func (s *Session) ForgetHeard(by string) {
	s.Steering.ForgetHeard(by) // first: a look that begins now must not quote them
	s.heardMu.Lock()
	defer s.heardMu.Unlock()
	s.forgotten.add(by, time.Now())
	s.Looks.ForgetHeard(by)
	for _, t := range s.opts.Texts {
		if out, ok := t.(HeardForgetter); ok {
			out.ForgetHeard(by)
		}
	}
}

// forgotten has the times of deletions of speech, by identity; "" is all.
type forgotten map[string]time.Time

// maxForgotten bounds the identities. Beyond it, all speech that has begun is deleted.
const maxForgotten = 100

func (f *forgotten) add(by string, now time.Time) {
	if *f == nil || len(*f) >= maxForgotten {
		if len(*f) >= maxForgotten {
			by = ""
		}
		*f = forgotten{}
	}
	(*f)[by] = now
}

func (f forgotten) has(h Heard) bool { return h.Began.Before(f[""]) || h.Began.Before(f[h.Identity]) }

// took reports whether the instruction of a cycle was taken back after the cycle's begin.
func (f forgotten) took(r look.Record) bool {
	for by, at := range f {
		if r.InferenceStart.Before(at) && prompt.GaveInRoom(r.InstructionBy, by) {
			return true
		}
	}
	return false
}

// Floor sets whether a person speaks. With barge-in "interrupt" the voice pauses in doubt, resumes if it was its own echo, and is cut if a
// person speaks.
func (s *Session) Floor(f speech.Floor, now time.Time) { s.speech.Floor(f, now) }
