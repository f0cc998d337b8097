// Package worlds is a small generated world: a picture to show without a camera, and a test input with known events. Its worlds are a
// football match (package match) and a yard under a security camera (package yard).
//
// A seed determines a world. The same seed gives the same events and the same pictures, on any machine and in any order of calls.
// Pictures are I420, the format of encoders; Events and Truth describe them. On request, a machine-readable frame counter in the lower
// right corner survives encoding and scaling.
//
// Sound matches the pictures, such as the crowd and the whistle, or wind and engines.
//
// It encodes nothing and sends nothing.
package worlds

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"touchline/internal/ticks"
	"touchline/worlds/match"
	"touchline/worlds/paint"
	"touchline/worlds/yard"
)

// Match is the name of the world with the football match, Yard of the world with the yard
// under a security camera.
const (
	Match = "match"
	Yard  = "yard"
)

// Worlds lists the names of the worlds; the first is the default.
func Worlds() []string { return []string{Match, Yard} }

// Options are the options of a world. The zero value of each field has a default.
type Options struct {
	// World is one of Worlds; Match by default.
	World string
	// Seed determines the events.
	Seed uint64
	// Width and Height are in pixels, even; 640 and 360 by default.
	Width, Height int
	// FPS is the number of frames a second; 30 by default.
	FPS int
	// Still makes a world in which nothing ever moves, except its clock and the frame counter.
	Still bool
	// Counter draws the frame counter.
	Counter bool
}

// scene is the content of a world. Calls come one at a time, moments in any order.
type scene interface {
	// Draw paints the whole picture of a moment.
	Draw(at time.Duration, c *paint.Canvas)
	// Sound generates one channel of SoundRate samples per second, from the given sample on. The
	// same arguments give the same samples.
	Sound(from int64, pcm []int16)
	// Prepare paints background n before its first use and reports whether there is one.
	Prepare(n int) bool
	// Hurry makes events more frequent. Call it first.
	Hurry()
	// events lists the events in [from, to), in order.
	events(from, to time.Duration) []Event
	// truth sets the content of the picture at a moment.
	truth(at time.Duration, out *Truth)
}

// SoundRate is the sample rate of a world's sound.
const SoundRate = match.SoundRate

// World is one world. All methods are safe for concurrent use; pictures are
// drawn one at a time.
type World struct {
	width, height, fps int
	name               string
	counter            bool

	mu    sync.Mutex
	scene scene
}

// New makes a world. It draws nothing yet.
func New(o Options) (*World, error) {
	o.World = cmp.Or(o.World, Match)
	o.Width = cmp.Or(o.Width, 640)
	o.Height = cmp.Or(o.Height, 360)
	o.FPS = cmp.Or(o.FPS, 30)
	var errs []error
	if o.Width < 160 || o.Width > 7680 || o.Width%2 != 0 {
		errs = append(errs, fmt.Errorf("width: must be even and between 160 and 7680, is %d", o.Width))
	}
	if o.Height < 90 || o.Height > 4320 || o.Height%2 != 0 {
		errs = append(errs, fmt.Errorf("height: must be even and between 90 and 4320, is %d", o.Height))
	}
	if o.FPS < 1 || o.FPS > 240 {
		errs = append(errs, fmt.Errorf("fps: must be between 1 and 240, is %d", o.FPS))
	}
	w := &World{width: o.Width, height: o.Height, fps: o.FPS, name: o.World, counter: o.Counter}
	if !slices.Contains(Worlds(), o.World) {
		errs = append(errs, fmt.Errorf("world: must be one of %s, is %q", strings.Join(Worlds(), ", "), o.World))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("make a world: %w", err)
	}
	switch o.World {
	case Match:
		w.scene = matchScene{match.New(o.Seed, o.Width, o.Height, o.Still)}
	case Yard:
		w.scene = yardScene{yard.New(o.Seed, o.Width, o.Height, o.Still)}
	}
	return w, nil
}

// Name returns the name of the world, one of Worlds.
func (w *World) Name() string { return w.name }

// Size returns the size of the pictures in pixels.
func (w *World) Size() (width, height int) { return w.width, w.height }

// FPS returns the number of frames per second.
func (w *World) FPS() int { return w.fps }

// I420Size returns the length of a picture in bytes: the luma plane, then both chroma planes at
// half the width and height, without padding.
func (w *World) I420Size() int { return paint.I420Size(w.width, w.height) }

// PTS returns the time of a frame since the start.
func (w *World) PTS(n uint32) time.Duration {
	return ticks.Duration(int64(n), int64(w.fps))
}

// Frame draws frame n into a new buffer. Render does the same without allocating.
func (w *World) Frame(n uint32) []byte {
	buf := make([]byte, w.I420Size())
	w.render(n, buf)
	return buf
}

// Render draws frame n into dst, which must hold I420Size bytes.
func (w *World) Render(n uint32, dst []byte) error {
	if len(dst) != w.I420Size() {
		return fmt.Errorf("render frame %d: expected a buffer of %d bytes for %dx%d, got %d",
			n, w.I420Size(), w.width, w.height, len(dst))
	}
	w.render(n, dst)
	return nil
}

func (w *World) render(n uint32, dst []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	c := paint.NewCanvas(dst, w.width, w.height)
	w.scene.Draw(w.PTS(n), &c)
	if w.counter {
		writeCounter(c, n)
	}
}

// prepare paints a background before its first use. It reports whether there is one.
func (w *World) prepare(n int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.scene.Prepare(n)
}

// ShiftClock advances the clock in the picture by a time, and nothing else; a match's clock stays within the half and moves while it
// runs. Training pictures use it to show other times than the play's.
func (w *World) ShiftClock(by time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if s, ok := w.scene.(interface{ ShiftClock(by time.Duration) }); ok {
		s.ShiftClock(by)
	}
}

// Hurry makes events more frequent, for training; see match.Match and yard.Yard. Call it first.
func (w *World) Hurry() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.scene.Hurry()
}

// ShiftScore adds to the displayed goals and shots of a match, and changes nothing else; see
// ShiftClock.
func (w *World) ShiftScore(goals, shots [2]int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if s, ok := w.scene.(interface{ ShiftScore(goals, shots [2]int) }); ok {
		s.ShiftScore(goals, shots)
	}
}

// Sound generates the world's sound, in one channel of SoundRate samples per second. from counts
// samples since the start. The same arguments give the same samples.
func (w *World) Sound(from int64, pcm []int16) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.scene.Sound(from, pcm)
}
