package settings

import (
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"

	"touchline/internal/check"
)

// The modes of Hearing: whose speech is recognized, and for what.
const (
	// HearingOff recognizes no speech.
	HearingOff = "off"
	// HearingOrders hears people for orders: after a wake word, and while they hold the page's microphone button. People without the
	// right are recognized only for comparison with orders.
	HearingOrders = "orders"
	// HearingCaptions shows what people say, as captions of each speaker.
	HearingCaptions = "captions"
	// HearingAll is both.
	HearingAll = "all"
)

// The values of Hearing.BargeIn: what the voice does while an authorised participant speaks.
const (
	BargeInTalk      = "talk"      // it goes on
	BargeInDuck      = "duck"      // it is lower
	BargeInWait      = "wait"      // the next comment waits
	BargeInInterrupt = "interrupt" // it stops
)

// Hearing sets whose speech is recognized in the room.
type Hearing struct {
	// Mode is off, orders, captions or all.
	Mode string `yaml:"mode" env:"MODE"`
	// WakeWords begin a spoken order, such as "hey touchline".
	WakeWords []string `yaml:"wake_words" env:"WAKE_WORDS"`
	// Remarks quotes people's speech to the commentator, which does not treat it as an instruction.
	Remarks bool `yaml:"remarks" env:"REMARKS"`
	// Camera makes captions of the sound of the watched camera too, which come with the delayed picture.
	Camera bool `yaml:"camera" env:"CAMERA"`
	// Confirm says what was understood of a spoken order, or why it is refused.
	Confirm bool `yaml:"confirm" env:"CONFIRM"`
	// BargeIn is talk, duck, wait or interrupt.
	BargeIn string `yaml:"manners" env:"MANNERS"`
	// MaxWait bounds how long a comment waits for people to end, with BargeInWait.
	MaxWait time.Duration `yaml:"max_wait" env:"MAX_WAIT"`
	// MaxSpeakers is the number of microphones recognized at once: people that may instruct first, then the loudest. Silent ones of
	// those people take at most half of the places.
	MaxSpeakers int `yaml:"max_speakers" env:"MAX_SPEAKERS"`
}

// DefaultHearing returns the default settings, with recognition off.
func DefaultHearing() Hearing {
	return Hearing{
		Mode: HearingOff, WakeWords: []string{"hey touchline"}, Confirm: true, BargeIn: BargeInDuck, MaxWait: 5 * time.Second, MaxSpeakers: 12,
	}
}

// maxWakeWords and maxWakeWord bound Hearing.WakeWords, the second in letters.
const (
	maxWakeWords = 8
	maxWakeWord  = 40
)

func hearingModes() []string {
	return []string{HearingOff, HearingOrders, HearingCaptions, HearingAll}
}

func bargeInValues() []string {
	return []string{BargeInTalk, BargeInDuck, BargeInWait, BargeInInterrupt}
}

// Rules of settings, in words.
const (
	hearingRule   = "off, orders, captions or all"
	bargeInRule   = "talk, duck, wait or interrupt"
	wakeWordsRule = "1 to 8 names of at least two syllables' length (4 to 40 letters)"
)

// Validate is Config.Validate for the settings below "hearing".
func (c Hearing) Validate() error {
	var s check.Settings
	s.That(slices.Contains(hearingModes(), c.Mode), "mode", hearingRule, fmt.Sprintf("%q", c.Mode))
	s.That(areWakeWords(c.WakeWords), "wake_words", wakeWordsRule, fmt.Sprintf("%q", c.WakeWords))
	s.That(slices.Contains(bargeInValues(), c.BargeIn), "manners", bargeInRule, fmt.Sprintf("%q", c.BargeIn))
	s.That(check.Within(c.MaxWait, 0, time.Minute), "max_wait", "between 0s and 1m", c.MaxWait)
	s.That(check.Within(c.MaxSpeakers, 1, 64), "max_speakers", "between 1 and 64", c.MaxSpeakers)
	return s.Err()
}

// areWakeWords reports whether each is long enough not to be said by chance.
func areWakeWords(list []string) bool {
	return len(list) >= 1 && len(list) <= maxWakeWords && !slices.ContainsFunc(list, func(w string) bool {
		n := utf8.RuneCountInString(Fold(w))
		return n < 4 || n > maxWakeWord
	})
}

// Orders reports whether spoken orders act.
func (c Hearing) Orders() bool { return c.Mode == HearingOrders || c.Mode == HearingAll }

// Captions reports whether what people say is shown.
func (c Hearing) Captions() bool { return c.Mode == HearingCaptions || c.Mode == HearingAll }

// wakeWords is the kind of the setting of that name.
func wakeWords() kind[[]string] {
	return kind[[]string]{
		field: func(v *Settings) **[]string { return &v.WakeWords }, same: slices.Equal[[]string],
		get: func(f *InForce) *[]string { return new(slices.Clone(f.Agent.Hearing.WakeWords)) },
		set: func(f *InForce, v []string) { f.Agent.Hearing.WakeWords = v },
		check: func(v []string) (string, any) {
			if areWakeWords(v) {
				return "", nil
			}
			return wakeWordsRule, fmt.Sprintf("%.80q", v)
		},
	}
}

// Fold returns a text in lower case, without accents and punctuation, its words one space apart.
func Fold(text string) string {
	var b strings.Builder
	for _, r := range norm.NFKD.String(text) {
		switch {
		case unicode.IsLetter(r) || unicode.IsDigit(r):
			b.WriteRune(unicode.ToLower(r))
		case unicode.IsMark(r) || r == '\'' || r == '’':
		default:
			b.WriteByte(' ')
		}
	}
	return strings.Join(strings.Fields(b.String()), " ")
}
