package tts

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"touchline/inference"
	"touchline/inference/internal/device"
)

// ErrTooLong ends a turn whose slot is full. The sound up to then is complete.
var ErrTooLong = errors.New("the answer is too long for the model's voice")

// ErrMute ends a turn for which the model drew no code: its text has no sound.
var ErrMute = errors.New("the model's voice made no sound of the text")

// ErrCancelled ends a cancelled turn.
var ErrCancelled = errors.New("cancelled")

// Piece is a part of a turn's text with the language model's states for it. The
// voice reads it at once and only knows the pieces before it.
type Piece struct {
	IDs []int32
	// Hidden is [len(IDs), hidden], after the final norm.
	Hidden []float32
	// Text that the ids completed. All together are the turn's text.
	Text string
	// Last is set if no piece follows. Such a piece may have no ids. Cut is set besides if the text stops before its end.
	Last, Cut bool
}

// Sound is a part of a turn's speech.
type Sound struct {
	// Samples are mono at Rate.
	Samples []int16
	// Words whose times became known, from the first sample on. Words of an
	// earlier sound have negative times.
	Words []inference.WordTime
}

// Rate of the samples in Hz.
const Rate = 24000

// Turn is one answer that is spoken.
type Turn struct {
	voice  string
	draw   func() float64
	behind bool

	out       device.Outbox[Sound]
	cancelled atomic.Bool

	mu      sync.Mutex
	pieces  []Piece
	changed func() // wakes the talker

	// Owned by the talker.
	slot      int
	windows   *Windows
	line      Timeline
	drawing   bool // codes of a piece, which is the last one if last is set
	last      bool
	inPiece   int       // codes of this piece, or of the one before
	complete  bool      // nothing more is handed over
	sent      int       // windows handed over
	started   time.Time // the first window was handed over
	emittedAt time.Time // the last one; before, the first piece was read
	err       error     // that the turn ends with after its last window

	left  atomic.Int32 // windows that are not sound yet
	ended atomic.Bool  // the outbox is closed

	// Owned by the sounder.
	begun    error     // of the start from the voice's template
	sounded  int       // samples
	soundsAt time.Time // of the first of them
}

// NewTurn returns a turn to submit. draw returns the random numbers, from 0 to below
// 1: equal pieces with equal numbers sound equal.
func NewTurn(voice string, draw func() float64) *Turn {
	t := &Turn{voice: voice, draw: draw, slot: -1}
	t.out.Init(32)
	return t
}

// Behind lets other turns have slots first, before it is submitted.
func (t *Turn) Behind() { t.behind = true }

// Feed adds a piece of the text.
func (t *Turn) Feed(p Piece) {
	t.mu.Lock()
	t.pieces = append(t.pieces, p)
	changed := t.changed
	t.mu.Unlock()
	if changed != nil {
		changed()
	}
}

// Cancel ends the turn within one step of the device.
func (t *Turn) Cancel() {
	t.cancelled.Store(true)
	t.mu.Lock()
	changed := t.changed
	t.mu.Unlock()
	if changed != nil {
		changed()
	}
}

// Take returns the next sound. ok is false if there is none yet; ended reports that
// none will come, and why. Wake is set when there may be something new.
func (t *Turn) Take() (s Sound, ok, ended bool, err error) { return t.out.Take() }

// Wake returns the signal of Take.
func (t *Turn) Wake() <-chan struct{} { return t.out.Wake() }

// next returns the next piece.
func (t *Turn) next() (Piece, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.pieces) == 0 {
		return Piece{}, false
	}
	p := t.pieces[0]
	t.pieces = t.pieces[1:]
	return p, true
}

func (t *Turn) hasPiece() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.pieces) > 0
}

// rank orders the turns that wait for a slot.
func (t *Turn) rank() int {
	if t.behind {
		return 1
	}
	return 0
}

// end closes the outbox, then sets ended: a caller that sees ended cannot replace the error.
func (t *Turn) end(err error) {
	t.out.End(err)
	t.ended.Store(true)
}

// ahead returns how long the codes that were handed over last from now on, if the
// first of them are played at once.
func (t *Turn) ahead(now time.Time) time.Duration {
	if t.sent == 0 {
		return 0
	}
	return t.started.Add(time.Duration(t.sent*Burst) * Duration).Sub(now)
}
