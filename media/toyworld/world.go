// Package toyworld is a small generated football match: a picture to show
// without a camera, and a test input that knows what happens in it.
//
// The match is made up from a seed. The same seed gives the same events and
// the same pictures, whatever was asked before and on any machine. Pictures
// come as I420, which is what encoders take; Events and Truth say what they
// show; a machine-readable frame counter in the lower right corner survives
// encoding and scaling.
//
// Sound is what belongs to them: the crowd and the whistle.
//
// It encodes nothing and sends nothing.
package toyworld

import (
	"errors"
	"fmt"
	"sort"
	"sync"
	"time"

	"touchline/media"
)

// Options of a world. The zero value of each field has a default.
type Options struct {
	// Seed makes up the match.
	Seed uint64
	// Width and Height in pixels, even; 640 and 360 by default.
	Width, Height int
	// FPS is the number of frames a second; 30 by default.
	FPS int
	// Still makes a world in which nothing ever moves, except the match clock and the frame counter.
	Still bool
	// NoCounter leaves the frame counter out.
	NoCounter bool
}

// World is one match. All methods are safe for concurrent use; pictures are
// drawn one at a time.
type World struct {
	width, height, fps int
	seed               uint64
	counter            bool

	team      [figures]footballer
	kits      [2]kit
	kickedOff int64 // match clock at the start, s
	fans      []spectator

	mu     sync.Mutex
	script *script
	plain  map[Shot][]byte // what never moves, unlit
	lit    map[Shot]*litScene
}

// litScene is a shot's background under the lights of the moment.
type litScene struct {
	light light
	pix   []byte
}

// New makes a world. It draws nothing yet.
func New(o Options) (*World, error) {
	if o.Width == 0 {
		o.Width = 640
	}
	if o.Height == 0 {
		o.Height = 360
	}
	if o.FPS == 0 {
		o.FPS = 30
	}
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
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("make a toy world: %w", err)
	}
	w := &World{
		width: o.Width, height: o.Height, fps: o.FPS, seed: o.Seed, counter: !o.NoCounter,
		team: lineUp(o.Seed), script: newScript(o.Seed, o.Still),
		plain: map[Shot][]byte{}, lit: map[Shot]*litScene{},
	}
	all := kits()
	w.kits = all[int(chance(o.Seed, 3, 1)*float64(len(all)))]
	w.kickedOff = int64(60 * (3 + 70*chance(o.Seed, 3, 2)))
	w.fans = w.spectators()
	return w, nil
}

// Size of the pictures in pixels.
func (w *World) Size() (width, height int) { return w.width, w.height }

// FPS is the number of frames a second.
func (w *World) FPS() int { return w.fps }

// I420Size is the length of a picture in bytes: the luma plane, then both
// chroma planes at half the width and height, without padding.
func (w *World) I420Size() int { return i420Size(w.width, w.height) }

// PTS is the time of a frame since the start.
func (w *World) PTS(n uint32) time.Duration {
	return media.TicksToDuration(int64(n), int64(w.fps))
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
	t := w.PTS(n).Milliseconds()
	w.script.until(t)
	now := w.script.showing(t)
	c := newCanvas(dst, w.width, w.height)
	c.light = now.light
	copy(dst, w.background(now.shot, now.light))
	if now.shot == ShotCrowd {
		w.drawCrowd(&c, t)
	} else {
		w.drawPlay(&c, now.shot, now.moment)
	}
	c.light = daylight() // graphics are laid over, they need no lamps
	if now.live {
		if g, ok := w.script.goalBefore(t); ok {
			if a := g.flashAt(t); a > 0 {
				c.fade(rgb{255, 255, 255}, a)
			}
			w.banner(&c, g, t)
		}
	} else if now.shot != ShotCrowd {
		w.sign(&c)
	}
	w.board(&c, t)
	if w.counter {
		writeCounter(c.y, c.u, c.v, n)
	}
}

// background is a shot without what moves, under the lights given.
func (w *World) background(s Shot, l light) []byte {
	if w.plain[s] == nil {
		w.plain[s] = w.bake(s)
	}
	if l == daylight() {
		return w.plain[s]
	}
	lit := w.lit[s]
	if lit == nil {
		lit = &litScene{pix: make([]byte, w.I420Size())}
		w.lit[s] = lit
	}
	if lit.light != l {
		lit.light = l
		n := w.width * w.height
		var y, u, v [256]byte
		for i := range 256 {
			k := l.apply(yuv{uint8(i), uint8(i), uint8(i)})
			y[i], u[i], v[i] = k.y, k.u, k.v
		}
		from := w.plain[s]
		translate(lit.pix[:n], from[:n], &y)
		translate(lit.pix[n:n+n/4], from[n:n+n/4], &u)
		translate(lit.pix[n+n/4:], from[n+n/4:], &v)
	}
	return lit.pix
}

func translate(dst, src []byte, table *[256]byte) {
	for i, b := range src {
		dst[i] = table[b]
	}
}

// showing is what the camera does at a moment.
type showing struct {
	shot   Shot
	moment int64 // of the match that is shown
	live   bool  // not a replay, not the crowd
	light  light
}

func (s *script) showing(t int64) showing {
	i := sort.Search(len(s.shots), func(i int) bool { return s.shots[i].start > t }) - 1
	span := s.shots[max(i, 0)]
	out := showing{shot: span.shot, moment: t, live: span.shot != ShotCrowd}
	if span.replay > 0 {
		out.live = false
		out.moment = span.replay + int64(float64(t-span.start)*slowMotion)
	}
	j := sort.Search(len(s.lights), func(i int) bool { return s.lights[i].start > t }) - 1
	l := s.lights[max(j, 0)]
	out.light = l.to
	if since := t - l.start; since < rampMS {
		// In eight steps, so that the lit background is redrawn eight times only.
		k := since * 8 / rampMS
		mix := func(a, b int16) int16 { return a + int16((int64(b)-int64(a))*k/8) }
		out.light = light{mix(l.from.level, l.to.level), mix(l.from.du, l.to.du), mix(l.from.dv, l.to.dv)}
	}
	return out
}

func (s *script) goalBefore(t int64) (goalMark, bool) {
	i := sort.Search(len(s.goals), func(i int) bool { return s.goals[i].at > t }) - 1
	if i < 0 {
		return goalMark{}, false
	}
	return s.goals[i], true
}

func (s *script) scoreAt(t int64) [2]int {
	g, _ := s.goalBefore(t)
	return g.score
}

// prepare draws a shot's background ahead of its first use.
func (w *World) prepare(s Shot) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.background(s, daylight())
}
