package agent

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"touchline/agent/command"
	"touchline/agent/prompt"
	"touchline/agent/speech"
	"touchline/inference"
	"touchline/internal/check"
)

// The modes of HearingConfig: who is heard, and for what.
const (
	// HearingOff hears nobody.
	HearingOff = "off"
	// HearingOrders hears people for orders: after a wake word, and while they hold the page's microphone button.
	HearingOrders = "orders"
	// HearingCaptions shows what people say, as captions of each speaker.
	HearingCaptions = "captions"
	// HearingAll is both.
	HearingAll = "all"
)

// The manners of HearingConfig: what the voice does while somebody speaks who may instruct it.
const (
	MannersTalk      = "talk"      // it goes on
	MannersDuck      = "duck"      // it is lower
	MannersWait      = "wait"      // the next comment waits
	MannersInterrupt = "interrupt" // it stops
)

// HearingConfig sets who is heard in the room.
type HearingConfig struct {
	// Mode is off, orders, captions or all.
	Mode string `yaml:"mode" env:"MODE"`
	// WakeWords begin a spoken order, such as "hey touchline".
	WakeWords []string `yaml:"wake_words" env:"WAKE_WORDS"`
	// Remarks quotes what people say to the commentator; it takes nothing in it for an instruction.
	Remarks bool `yaml:"remarks" env:"REMARKS"`
	// Camera hears the sound of the watched camera too; its captions come with the delayed picture.
	Camera bool `yaml:"camera" env:"CAMERA"`
	// Confirm says what was understood of a spoken order, or why it is refused.
	Confirm bool `yaml:"confirm" env:"CONFIRM"`
	// Manners is talk, duck, wait or interrupt.
	Manners string `yaml:"manners" env:"MANNERS"`
	// MaxWait bounds how long a comment waits for people to end, with manners wait.
	MaxWait time.Duration `yaml:"max_wait" env:"MAX_WAIT"`
	// MaxSpeakers is how many people are heard at once, the loudest first.
	MaxSpeakers int `yaml:"max_speakers" env:"MAX_SPEAKERS"`
}

// DefaultHearing returns the settings of a room where nobody is heard.
func DefaultHearing() HearingConfig {
	return HearingConfig{
		Mode: HearingOff, WakeWords: []string{"hey touchline"}, Confirm: true, Manners: MannersDuck, MaxWait: 5 * time.Second, MaxSpeakers: 12,
	}
}

// maxWakeWords and maxWakeWord bound HearingConfig.WakeWords, the second in letters.
const (
	maxWakeWords = 8
	maxWakeWord  = 40
)

func hearingModes() []string {
	return []string{HearingOff, HearingOrders, HearingCaptions, HearingAll}
}

func hearingManners() []string {
	return []string{MannersTalk, MannersDuck, MannersWait, MannersInterrupt}
}

// Rules of settings, in words.
const (
	hearingRule   = "off, orders, captions or all"
	mannersRule   = "talk, duck, wait or interrupt"
	wakeWordsRule = "1 to 8 names of at least two syllables' length (4 to 40 letters)"
)

// Validate is Config.Validate for the settings below "hearing".
func (c HearingConfig) Validate() error {
	var s check.Settings
	s.That(slices.Contains(hearingModes(), c.Mode), "mode", hearingRule, fmt.Sprintf("%q", c.Mode))
	s.That(areWakeWords(c.WakeWords), "wake_words", wakeWordsRule, fmt.Sprintf("%q", c.WakeWords))
	s.That(slices.Contains(hearingManners(), c.Manners), "manners", mannersRule, fmt.Sprintf("%q", c.Manners))
	s.That(check.Within(c.MaxWait, 0, time.Minute), "max_wait", "between 0s and 1m", c.MaxWait)
	s.That(check.Within(c.MaxSpeakers, 1, 64), "max_speakers", "between 1 and 64", c.MaxSpeakers)
	return s.Err()
}

// areWakeWords reports whether each is long enough not to be said by chance.
func areWakeWords(list []string) bool {
	return len(list) >= 1 && len(list) <= maxWakeWords && !slices.ContainsFunc(list, func(w string) bool {
		n := utf8.RuneCountInString(command.Fold(w))
		return n < 4 || n > maxWakeWord
	})
}

// Orders reports whether spoken orders act.
func (c HearingConfig) Orders() bool { return c.Mode == HearingOrders || c.Mode == HearingAll }

// Captions reports whether what people say is shown.
func (c HearingConfig) Captions() bool { return c.Mode == HearingCaptions || c.Mode == HearingAll }

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

// SpokenOrder is an order that somebody spoke.
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
	next := s.agent.Hearing
	next.change(v)
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
	return &RangeError{"hearing", fmt.Sprintf("another mode, as %v", err), fmt.Sprintf("%q", next.Mode)}
}

// change sets what is set in v.
func (c *HearingConfig) change(v Settings) {
	set(&c.Mode, v.Hearing)
	set(&c.WakeWords, v.WakeWords)
	set(&c.Remarks, v.Remarks)
	set(&c.Camera, v.HearCamera)
	set(&c.Confirm, v.ConfirmOrders)
	set(&c.Manners, v.Manners)
	setSeconds(&c.MaxWait, v.MaxWait)
}

// Hearing returns who is heard now.
func (s *Session) Hearing() HearingConfig {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := s.agent.Hearing
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
	if !s.agent.Hearing.Remarks || inference.Judge(text, true) != inference.Says {
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
	if !s.agent.Hearing.Remarks {
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

// behaveLocked sets what the voice does while somebody speaks, and its level.
func (s *Session) behaveLocked() {
	h := s.agent.Hearing
	manners := map[string]speech.Manners{
		MannersTalk: speech.Talk, MannersDuck: speech.Duck, MannersWait: speech.Wait, MannersInterrupt: speech.Interrupt,
	}
	s.speech.Behave(manners[h.Manners], h.MaxWait, s.gain)
}
