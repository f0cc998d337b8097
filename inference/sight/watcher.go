package sight

import (
	"math/rand/v2"
	"time"

	"touchline/inference"
)

// Look is what was found in one picture.
type Look struct {
	// PTS is the picture's media time; later than that of the last look.
	PTS   time.Duration
	Boxes []Box
	// Frame is the picture, for the colours that people wear; nil without.
	Frame *inference.Frame
	// Cut and Pan are set if the view changed at once, or the camera moved, since the last look.
	Cut, Pan bool
	// Light is 1 if the picture became clearly brighter since the last look, -1 if darker.
	Light int
	// Lines are the changes of text since the last look, Texts all that can be read now without the Clock.
	Lines []BoardChange
	Texts []string
	Clock string
}

// Watcher follows what looks show, and tells what happened. Not safe for concurrent use.
type Watcher struct {
	random *rand.Rand
}

// TellOptions are the wishes of a prompt.
type TellOptions struct {
	// Language of the sentences, BCP 47; "" means English.
	Language string
	// Register of the wordings; "" means plain.
	Register Register
	// MaxSentences of an answer; 0 means two.
	MaxSentences int
	// Instruction is the viewer's, which may hold orders and questions.
	Instruction string
}

// Register is a manner of wording.
type Register string

// The registers.
const (
	Brief  Register = "brief"
	Plain  Register = "plain"
	Lively Register = "lively"
)

// Told is an answer.
type Told struct {
	// Text has the sentences; "" for silence.
	Text string
	// Newest is the PTS of the newest fact.
	Newest time.Duration
	Facts  []inference.Fact
}

// NewWatcher returns a Watcher; the random numbers choose wordings.
func NewWatcher(random *rand.Rand) *Watcher { return &Watcher{random: random} }

// Reset forgets the view, for another source. The order in force stays.
func (w *Watcher) Reset() {}

// Push takes the next look.
func (w *Watcher) Push(Look) {}

// Tell returns sentences about the facts that were not told yet.
func (w *Watcher) Tell(TellOptions) Told { return Told{} }

// Sight returns what is followed and was seen in the last look, and the facts of the last half minute; without an epoch.
func (w *Watcher) Sight() inference.Sight { return inference.Sight{} }
