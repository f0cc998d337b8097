package agent

import (
	"cmp"
	"time"

	"touchline/agent/command"
	"touchline/agent/speech"
)

// Heard is a participant's speech: the text so far, or all of it.
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

// Hear sends a participant's speech to the outputs; a final remark is quoted to the commentator where that is set.
func (s *Session) Hear(h Heard) {
	if h.Final && h.Caption && h.Order == nil {
		s.Looks.Remark(cmp.Or(h.Name, h.Identity), h.Text, h.Ended)
	}
	for _, t := range s.opts.Texts {
		if out, ok := t.(HeardOutput); ok {
			out.Heard(h)
		}
	}
}

// Floor sets whether a person speaks. With barge-in "interrupt" the voice pauses in doubt, resumes if it was its own echo, and is cut if a
// person speaks.
func (s *Session) Floor(f speech.Floor, now time.Time) { s.speech.Floor(f, now) }
