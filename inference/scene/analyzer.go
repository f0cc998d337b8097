package scene

import (
	"math"
	"slices"
	"time"

	"touchline/inference"
)

// Thresholds, tuned on seeds 1 to 10 of the toy world after encoding at low rates.
const (
	maxGap       = 1500 * time.Millisecond // longest interval of pictures compared for movement
	cutShare     = 0.45                    // of the cells unexplained
	cutAlike     = 0.85                    // best fit of a cut
	cutSpread    = 0.6                     // of the picture's parts
	cutCells     = 0.6                     // of all cells changed, for Camera
	cutRest      = 300 * time.Millisecond  // shortest interval of two cuts
	flashRise    = 28.0                    // of the mean luma, from one picture to the next
	flashOff     = 0.25                    // mean deviation of cells from a white veil, relative to the rise
	flashRest    = 1000 * time.Millisecond // after a flash, in which other changes are ignored
	coverShift   = 6.0                     // mean change of the cells outside a graphic
	coverMost    = 8 * time.Second         // after which a graphic belongs to the view
	panShare     = 0.5                     // of the textured cells
	lightRatio   = 0.15                    // of the mean luma
	lightStep    = 8.0                     // of the mean luma
	pastAge      = 1700 * time.Millisecond // of the grids kept to find graphics
	recentAge    = 1200 * time.Millisecond // of the recent grid for light and colour
	colourStep   = 6.0                     // of mean Cb and Cr
	sameView     = 0.58                    // least fit of two pictures whose light is compared
	agreeing     = 0.6                     // of the cells, for a change of light
	steadyStep   = 2.5                     // largest change of a settled light between two pictures
	windowFrames = 3                       // of the movement's window
	minVotes     = 4                       // moving cells per picture on average
	turnFrames   = 2                       // that confirm a turn, beyond the window
	rarely       = 0.3                     // of the last pictures in which a cell changed
	stopAfter    = 800 * time.Millisecond  // without movement
	startLate    = 1500 * time.Millisecond // after which a start counts as motion
	motionEvery  = 3 * time.Second         // shortest interval of statements about continued movement
	keepPending  = 4 * time.Second
)

// Analyzer measures a sequence of pictures. Push adds a picture, Take returns the
// statements. It keeps a few seconds of coarse grids, no pictures, and is not
// safe for concurrent use.
type Analyzer struct {
	epoch   uint32
	frames  int // since the last reset
	now     *view
	before  *view
	comp    comparison
	past    []grid    // of the last pastAge, oldest first
	busy    []float32 // share of the last pictures in which a cell changed
	skip    []bool    // flickering cells
	pending []Statement

	// The references for light and colour.
	calm   *grid // at the last statement or cut
	recent *grid

	flashAt   time.Duration
	flashed   bool
	cutAt     time.Duration
	wasCut    bool
	stopCut   time.Duration // the last cut before a stated stop
	covered   *grid         // the picture under a graphic; nil without one
	coverArea area
	coverAt   time.Duration

	// The time of the last movement, in the picture and in each cell, for alert rules.
	movedAt   time.Duration
	cellMoved []time.Duration

	window     []tally
	main       Direction // of the main movement, when moving
	moving     bool
	run        Direction // candidate and how long it has held
	runs       int
	runSince   time.Duration
	restFrom   time.Duration
	resting    bool
	stirs      int
	active     bool // there is movement in any direction
	activeFrom time.Duration
	said       Statement // the last statement about movement
	saidAny    bool
}

// grid is a coarse copy of a view.
type grid struct {
	at                time.Duration
	bright, blue, red []float32
	meanBright        float64
	flash             bool
}

// NewAnalyzer returns an analyzer without pictures.
func NewAnalyzer() *Analyzer { return &Analyzer{now: &view{}, before: &view{}} }

// Push measures one picture. It ignores a picture that is not newer than the
// last, too small, or incomplete. A new epoch resets the analyzer.
func (a *Analyzer) Push(f inference.Frame) {
	if !usable(f) {
		return
	}
	if a.frames > 0 && f.Epoch == a.epoch && f.PTS <= a.now.at {
		return
	}
	a.before, a.now = a.now, a.before
	look(f, a.now)
	if a.frames == 0 || f.Epoch != a.epoch || a.now.w != a.before.w || a.now.h != a.before.h {
		a.reset(f.Epoch)
		return
	}
	a.frames++
	compare(a.before, a.now, a.skip, a.coverArea, &a.comp)
	a.learnFlicker()
	gap := a.now.at - a.before.at
	flash, cut := a.flash(), false
	if !flash {
		cut = a.cut()
	}
	a.noteMovement(!flash && !cut)
	switch {
	case flash, cut:
	case gap > maxGap:
		a.settle()
	default:
		a.graphic()
		a.lightAndColour()
		a.movement(gap)
	}
	a.remember()
}

// Camera reports whether the newest picture is a cut to another view, and whether the whole view moved before it, as in a pan. It is
// stricter than the statement Cut: a thing that comes close before a plain wall is none.
func (a *Analyzer) Camera() (cut, pan bool) {
	if a.wasCut && a.cutAt == a.now.at {
		changed := 0
		for _, c := range a.comp.changed {
			if c {
				changed++
			}
		}
		cut = float64(changed) >= cutCells*float64(len(a.comp.changed))
	}
	return cut, a.frames > 1 && a.comp.pan >= panShare
}

// Take returns and removes the pending statements, the most important first.
func (a *Analyzer) Take() []Statement {
	out := a.pending
	a.pending = nil
	out = slices.DeleteFunc(out, func(s Statement) bool { return a.now.at-s.At > keepPending })
	slices.SortStableFunc(out, func(x, y Statement) int { return int(x.Kind) - int(y.Kind) })
	return out
}

func (a *Analyzer) reset(epoch uint32) {
	n := len(a.now.bright)
	a.epoch, a.frames = epoch, 1
	a.busy, a.skip = make([]float32, n), make([]bool, n)
	a.flashed, a.wasCut = false, false
	a.movedAt, a.cellMoved = a.now.at, make([]time.Duration, n)
	a.settle()
	a.moving, a.resting, a.active, a.saidAny = false, false, false, false
	a.past = nil
	a.remember()
}

// settle makes the present picture the reference.
func (a *Analyzer) settle() {
	a.calm, a.recent = a.grid(), a.grid()
	a.uncover()
	a.window, a.runs = nil, 0
	a.past = nil
	a.main = Mixed
}

func (a *Analyzer) uncover() { a.covered, a.coverArea = nil, area{} }

func (a *Analyzer) grid() *grid {
	v := a.now
	return &grid{
		at: v.at, bright: slices.Clone(v.bright), blue: slices.Clone(v.blue), red: slices.Clone(v.red), meanBright: v.meanBright,
	}
}

func (a *Analyzer) remember() {
	g := a.grid()
	g.flash = a.flashed && a.now.at-a.flashAt < 600*time.Millisecond
	a.past = append(a.past, *g)
	for len(a.past) > 1 && a.now.at-a.past[0].at > pastAge {
		a.past = a.past[1:]
	}
}

func (a *Analyzer) add(s Statement) {
	s.At = a.now.at
	if s.Since == 0 {
		s.Since = s.At
	}
	if len(a.pending) >= 32 {
		a.pending = a.pending[1:]
	}
	a.pending = append(a.pending, s)
}

// learnFlicker finds cells that change all the time, such as clocks, counters
// and noise. Their votes do not count for movement.
func (a *Analyzer) learnFlicker() {
	const memory = 20 // pictures
	for c, changed := range a.comp.changed {
		v := float32(0)
		if changed {
			v = 1
		}
		a.busy[c] += (v - a.busy[c]) / memory
		a.skip[c] = a.busy[c] > 0.7
	}
}

// flash detects a sudden brightening of the whole picture towards white.
func (a *Analyzer) flash() bool {
	rise := a.now.meanBright - a.before.meanBright
	if rise < flashRise || a.now.at-a.before.at > maxGap {
		return false
	}
	// The expected picture is the one before under a veil of white.
	veil := rise / max(255-a.before.meanBright, 1)
	off := 0.0
	for c := range a.now.bright {
		p := float64(a.before.bright[c])
		off += math.Abs(float64(a.now.bright[c]) - p - veil*(255-p))
	}
	if off > flashOff*rise*float64(len(a.now.bright)) {
		return false
	}
	if !a.flashed || a.now.at-a.flashAt > flashRest {
		a.add(Statement{Kind: Flash})
	}
	a.flashed, a.flashAt = true, a.now.at
	return true
}

func (a *Analyzer) afterFlash() bool { return a.flashed && a.now.at-a.flashAt < flashRest }

// cut detects a new view: neither the picture before nor movement explains most
// cells, all over the picture.
func (a *Analyzer) cut() bool {
	if a.flashed && a.now.at-a.flashAt < flashRest*8/10 {
		return false
	}
	if a.comp.differ < cutShare || a.comp.light.alike > cutAlike || a.comp.spread < cutSpread {
		return false
	}
	if !a.wasCut || a.now.at-a.cutAt > cutRest {
		a.add(Statement{Kind: Cut})
	}
	a.wasCut, a.cutAt = true, a.now.at
	a.settle()
	a.moving, a.resting, a.active = false, false, false
	return true
}
