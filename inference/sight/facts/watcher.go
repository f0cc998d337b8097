// Package facts follows the things that looks at a room's pictures found, states as facts what they do, tells facts in sentences, answers
// questions about them and decides alert rules by them. It knows neither networks nor clocks: looks, times and randomness are arguments.
package facts

import (
	"math/rand/v2"
	"time"

	"touchline/inference"
)

// Box is one thing that the detector found in a picture. Coordinates are shares of the picture, 0 to 1, from the top left corner.
type Box struct {
	Class string  `json:"class"` // a name of COCO's 80 classes
	Score float32 `json:"score"` // 0 to 1
	X0    float32 `json:"x0"`
	Y0    float32 `json:"y0"`
	X1    float32 `json:"x1"`
	Y1    float32 `json:"y1"`
}

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
	Lines []TextChange
	Texts []string
	Clock string
}

// TextChange is a line whose reading was confirmed for the first time, or changed.
type TextChange struct {
	Text  string // without clocks
	Score bool   // it has a score that rose by one to three
}

// Watcher follows what looks show, and tells what happened. Not safe for concurrent use.
type Watcher struct {
	watch
	telling telling
}

// TellOptions are the wishes of a prompt.
type TellOptions struct {
	// Language of the sentences, BCP 47; "" means English.
	Language string
	// Register of the wordings; "" means plain.
	Register Register
	// MaxSentences of an answer; 0 means two.
	MaxSentences int
	// Instruction is the viewer's, which may hold orders and questions. InstructionBy is the viewer; "" if not known.
	Instruction, InstructionBy string
	// InstructionNumber is another one when the same instruction is given again.
	InstructionNumber uint64
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
func NewWatcher(random *rand.Rand) *Watcher {
	w := &Watcher{telling: newTelling(random)}
	w.Reset()
	return w
}

// Reset forgets all but the order in force and the zones and lines, for another source. No number of a track comes again.
func (w *Watcher) Reset() {
	regions, last := w.regions, w.tracker.last
	w.watch = watch{aspect: 16.0 / 9, movedAt: never, panTold: never, shaken: never}
	w.tracker.last = last
	w.newView(0)
	for _, r := range regions {
		w.regions = append(w.regions, &ground{Region: r.Region, shape: r.shape})
	}
	w.telling.forget()
}

// Push takes the next look. A look that is not newer than the last one is ignored.
func (w *Watcher) Push(l Look) {
	colour := func(area) string { return "" }
	if f := l.Frame; f != nil && f.Width > 0 && f.Height > 0 {
		w.aspect = float64(f.Width) / float64(f.Height)
		colour = func(a area) string { return plainColour(f, a) }
	}
	w.push(l, colour)
}

// Sight returns what is followed and was seen in the last look, and the facts of the last half minute; without an epoch.
func (w *Watcher) Sight() inference.Sight {
	out := inference.Sight{PTS: w.now, Texts: w.texts}
	for _, f := range w.log {
		if w.now-f.due <= sumTime {
			out.Facts = append(out.Facts, inferenceFact(f))
		}
	}
	for _, t := range w.seen() {
		out.Things = append(out.Things, inference.Thing{
			Name: t.name(), Track: t.id, Score: t.score,
			Box: inference.Box{X0: float32(t.box.x0), Y0: float32(t.box.y0), X1: float32(t.box.x1), Y1: float32(t.box.y1)},
		})
	}
	return out
}
