package scene

import (
	"math"
	"slices"
	"time"

	"touchline/inference"
)

// Limits of the measurements. They were set on seeds 1 to 10 of the toy
// world, sent through encoders at low rates.
const (
	maxGap       = 1500 * time.Millisecond // pictures farther apart are not compared for movement
	cutShare     = 0.45                    // of the cells unexplained
	cutAlike     = 0.85                    // a better fit than this is no cut
	cutSpread    = 0.6                     // of the picture's parts
	cutRest      = 300 * time.Millisecond  // between two cuts at least
	flashRise    = 28.0                    // of the mean luma, from one picture to the next
	flashOff     = 0.25                    // how far cells may be from what a white veil makes, in parts of the rise
	flashRest    = 1000 * time.Millisecond // other changes are not believed so long
	coverShift   = 6.0                     // mean change of the cells beside a graphic
	coverMost    = 8 * time.Second         // after which a graphic belongs to the view
	lightRatio   = 0.15                    // of the mean luma
	lightStep    = 8.0                     // and at least this
	pastAge      = 1700 * time.Millisecond // of the grids kept to find graphics
	recentAge    = 1200 * time.Millisecond // of the lights that the present is compared with
	colourStep   = 6.0                     // of mean Cb and Cr
	sameView     = 0.58                    // least fit of two pictures whose lights are compared
	agreeing     = 0.6                     // of the cells, for a change of light
	steadyStep   = 2.5                     // a light that still changes more than this is not settled
	windowFrames = 3                       // over which movement is judged
	minVotes     = 4                       // cells that move, in each picture on average
	turnFrames   = 2                       // that confirm a turn, beyond the window
	rarely       = 0.3                     // of the last pictures in which a cell changed
	stopAfter    = 800 * time.Millisecond  // without movement
	startLate    = 1500 * time.Millisecond // a start that was not clear by then is not stated as one
	motionEvery  = 3 * time.Second         // at most, for movement that only goes on
	keepPending  = 4 * time.Second
)

// Analyzer measures a sequence of pictures. Push shows it one; Take says what
// it found. It keeps a few seconds of coarse grids, no pictures, and is not
// safe for concurrent use.
type Analyzer struct {
	epoch   uint32
	frames  int // since the last reset
	now     *view
	before  *view
	comp    comparison
	past    []grid // coarse grids of the last pastAge, oldest first
	busy    []float32
	skip    []bool
	pending []Statement

	// Light and colour are compared with how they were when last settled.
	calm   *grid // when last stated, or cut
	recent *grid // a moment ago

	flashAt   time.Duration
	flashed   bool
	cutAt     time.Duration
	wasCut    bool
	stopCut   time.Duration // the last cut after which a stop was stated
	covered   *grid         // the picture under a graphic, while there is one
	coverArea area
	coverAt   time.Duration

	window     []tally
	main       Direction // of the main movement, when moving
	moving     bool
	run        Direction // candidate and how long it has held
	runs       int
	runSince   time.Duration
	restFrom   time.Duration
	resting    bool
	stirs      int
	active     bool // something moves, in whatever direction
	activeFrom time.Duration
	said       Statement // last movement that was stated
	saidAny    bool
}

// grid is a coarse copy of a view.
type grid struct {
	at                time.Duration
	bright, blue, red []float32
	means             view // only the means and sizes
	flash             bool
}

// tally sums up one picture's votes.
type tally struct {
	at                 time.Duration
	n                  int
	sumX, sumY, sumAbs float64 // picture widths a second
	columns            [3]float64
}

// NewAnalyzer returns an analyzer that has seen nothing.
func NewAnalyzer() *Analyzer { return &Analyzer{now: &view{}, before: &view{}} }

// Push measures one picture. Pictures must come in order of PTS; one that is
// not newer than the last, or too small or incomplete to be measured, is
// ignored. A new epoch starts afresh.
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
	switch {
	case a.flash():
	case a.cut():
	case gap > maxGap:
		a.settle()
	default:
		a.graphic()
		a.lightAndColour()
		a.movement(gap)
	}
	a.remember()
}

// Take returns what was found since the last call, the most important first,
// and forgets it.
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
	a.settle()
	a.moving, a.resting, a.active, a.saidAny = false, false, false, false
	a.past = nil
	a.remember()
}

// settle takes the present picture for the new normal.
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
		at: v.at, bright: slices.Clone(v.bright), blue: slices.Clone(v.blue), red: slices.Clone(v.red),
		means: view{meanBright: v.meanBright, meanBlue: v.meanBlue, meanRed: v.meanRed, cols: v.cols, rows: v.rows},
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

// learnFlicker finds cells that change all the time without going anywhere:
// running clocks, counters, noise. They have no say in movement.
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

// flash: every part of the picture turned brighter at once, and paler.
func (a *Analyzer) flash() bool {
	rise := a.now.meanBright - a.before.meanBright
	if rise < flashRise || a.now.at-a.before.at > maxGap {
		return false
	}
	// A veil of white over the picture before explains this one.
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

// cut: most of what is to be seen is explained neither by the picture before
// nor by movement, all over the picture.
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

// graphic: within a second a wide rectangle of the picture was replaced while
// the rest stayed, and it stands still now.
func (a *Analyzer) graphic() {
	old := a.earlier()
	if old == nil {
		return
	}
	if a.covered != nil {
		a.recheck()
		return
	}
	place, ok := a.replaced(old)
	if !ok || !a.stands(place, old) {
		return
	}
	a.covered, a.coverArea, a.coverAt = old, place, a.now.at
	a.add(Statement{Kind: Graphic, Since: old.at})
}

// earlier returns the oldest picture that graphic compares with, of at least half a second ago.
func (a *Analyzer) earlier() *grid {
	for i := range a.past {
		g := &a.past[i]
		if a.wasCut && g.at-a.cutAt < 500*time.Millisecond {
			continue // encoders draw a new view sharp only by and by
		}
		if !g.flash && a.now.at-g.at >= 500*time.Millisecond {
			return g
		}
	}
	return nil
}

// differs reports whether a cell of the present picture differs from that of g.
func (a *Analyzer) differs(c int, g *grid) bool {
	d := math.Abs(float64(a.now.bright[c]-g.bright[c])) +
		math.Abs(float64(a.now.blue[c]-g.blue[c])) + math.Abs(float64(a.now.red[c]-g.red[c]))
	return d > 22
}

// recheck ends a known graphic that is gone again, or part of the view by now.
func (a *Analyzer) recheck() {
	same := 0
	for y := a.coverArea.top; y < a.coverArea.bottom; y++ {
		for x := a.coverArea.left; x < a.coverArea.right; x++ {
			if !a.differs(y*a.now.cols+x, a.covered) {
				same++
			}
		}
	}
	if same*10 > a.coverArea.cells()*6 || a.now.at-a.coverAt > coverMost {
		a.uncover()
		a.past = a.past[len(a.past)-1:]
		a.calm, a.recent = a.grid(), a.grid()
	}
}

// replaced returns the wide rectangle that changed since old.
func (a *Analyzer) replaced(old *grid) (area, bool) {
	cols, rows := a.now.cols, a.now.rows
	perRow := make([]int, rows)
	all := 0
	for c := range a.now.bright {
		if a.differs(c, old) {
			perRow[c/cols]++
			all++
		}
	}
	if all < len(a.now.bright)*7/100 {
		return area{}, false
	}
	// The rows in which half of the picture changed, and how wide they did.
	top, bottom := longest(perRow, cols*45/100)
	if bottom-top < 2 || bottom-top > rows*7/10 {
		return area{}, false
	}
	inCol := make([]int, cols)
	for y := top; y < bottom; y++ {
		for x := range cols {
			if a.differs(y*cols+x, old) {
				inCol[x]++
			}
		}
	}
	left, right := longest(inCol, (bottom-top+1)/2)
	return area{left, top, right, bottom}, right-left >= cols*45/100
}

// stands reports whether place was replaced as a whole since old and is steady
// now, while the rest of the picture stayed.
func (a *Analyzer) stands(place area, old *grid) bool {
	inside, steady, outside, shift := 0, 0, 0, 0.0
	for c := range a.now.bright {
		if !place.holds(c%a.now.cols, c/a.now.cols) {
			shift += math.Abs(float64(a.now.bright[c] - old.bright[c]))
			if a.differs(c, old) {
				outside++
			}
			continue
		}
		if a.differs(c, old) {
			inside++
		}
		if !a.comp.changed[c] {
			steady++
		}
	}
	rest := len(a.now.bright) - place.cells()
	return inside*100 >= place.cells()*75 && steady*100 >= place.cells()*85 &&
		outside*100 <= rest*20 && shift <= coverShift*float64(rest)
}

// longest returns the longest run of counts that reach a least count.
func longest(counts []int, least int) (from, to int) {
	start := -1
	for i := 0; i <= len(counts); i++ {
		if i < len(counts) && counts[i] >= least {
			if start < 0 {
				start = i
			}
			continue
		}
		if start >= 0 && i-start > to-from {
			from, to = start, i
		}
		start = -1
	}
	return from, to
}

// lightAndColour compares with how the same view was when it was last stated,
// and with how it was a moment ago. The first finds slow changes, the second
// also works where much of the picture moves.
func (a *Analyzer) lightAndColour() {
	if a.afterFlash() || a.covered != nil {
		return
	}
	v := a.now
	steady := math.Abs(v.meanBright-a.before.meanBright) < steadyStep &&
		math.Abs(v.meanBlue-a.before.meanBlue)+math.Abs(v.meanRed-a.before.meanRed) < 1.5
	if !steady {
		return
	}
	for _, ref := range []*grid{a.calm, a.recent} {
		if fitLight(&view{bright: ref.bright, meanBright: ref.means.meanBright}, v).alike < sameView {
			continue // the view wandered off
		}
		if a.compareLight(ref) {
			a.calm, a.recent = a.grid(), a.grid()
			return
		}
	}
	if v.at-a.recent.at > recentAge {
		a.recent = a.grid()
		if fitLight(&view{bright: a.calm.bright, meanBright: a.calm.means.meanBright}, v).alike < sameView {
			a.calm = a.recent
		}
	}
}

// compareLight states what most cells agree on.
func (a *Analyzer) compareLight(ref *grid) bool {
	n := len(a.now.bright)
	ratio, part := make([]float64, 0, n), make([]float64, n)
	for c, b := range ref.bright {
		if b > 12 {
			ratio = append(ratio, float64(a.now.bright[c]/b))
		}
	}
	if len(ratio) < n/4 {
		return false
	}
	gain := median(ratio)
	for c, b := range ref.bright {
		part[c] = float64(a.now.bright[c] - b)
	}
	step := median(part)
	stated := false
	agree := 0
	for _, p := range part {
		if p*step > step*step/3 {
			agree++
		}
	}
	if math.Abs(step) > lightStep && float64(agree) > agreeing*float64(n) && (gain < 1-lightRatio || gain > 1+lightRatio) {
		kind := Brighter
		if step < 0 {
			kind = Darker
		}
		a.add(Statement{Kind: kind, Since: ref.at})
		stated = true
	}
	// A weaker light makes all colours weaker; that alone is no change of colour.
	for c, b := range ref.blue {
		part[c] = float64(a.now.blue[c]) - gain*float64(b)
	}
	blue := median(part)
	for c, r := range ref.red {
		part[c] = float64(a.now.red[c]) - gain*float64(r)
	}
	red := median(part)
	if math.Hypot(blue, red) > colourStep {
		a.add(Statement{Kind: Colour, Since: ref.at, Hue: hueOf(blue, red)})
		stated = true
	}
	return stated
}

// median of the values, which it sorts.
func median(v []float64) float64 {
	slices.Sort(v)
	return v[len(v)/2]
}

// hueOf names the colour towards which (Cb, Cr) moved.
func hueOf(blue, red float64) string {
	angle := math.Atan2(red, blue) * 180 / math.Pi
	if angle < 0 {
		angle += 360
	}
	switch {
	case angle < 20 || angle >= 305:
		return "blue"
	case angle < 75:
		return "violet"
	case angle < 140:
		return "red"
	case angle < 200:
		return "yellow"
	case angle < 260:
		return "green"
	}
	return "cyan"
}

// movement judges the votes of the last pictures together.
func (a *Analyzer) movement(gap time.Duration) {
	t, w, least := a.count(gap)
	if len(a.window) < windowFrames {
		return
	}
	unsure := a.afterFlash() || a.covered != nil // under a graphic nothing is certain
	if w.n < minVotes*windowFrames || least < minVotes-1 {
		if !unsure {
			a.rest(t.n)
		}
		return
	}
	a.resting = false
	if !a.active {
		a.active, a.activeFrom = true, a.window[0].at
	}
	dir := w.direction()
	if a.runs == 0 || dir != a.run {
		a.run, a.runs, a.runSince = dir, 0, a.window[0].at
	}
	a.runs++
	if !unsure && dir != Mixed {
		a.report(t, w)
	}
}

// count adds the votes of the present picture to the window, and returns them,
// the sum of the window, and the fewest votes of a picture in it.
func (a *Analyzer) count(gap time.Duration) (t, w tally, least int) {
	v := a.now
	t = tally{at: v.at}
	perSecond := 1 / gap.Seconds() / float64(v.w)
	for _, vote := range a.comp.votes {
		dx, dy := float64(vote.dx)*perSecond, float64(vote.dy)*perSecond
		t.n++
		t.sumX, t.sumY, t.sumAbs = t.sumX+dx, t.sumY+dy, t.sumAbs+math.Hypot(dx, dy)
		t.columns[min(2, vote.cell%v.cols*3/v.cols)]++
	}
	a.window = append(a.window, t)
	if len(a.window) > windowFrames {
		a.window = a.window[1:]
	}
	least = t.n
	for _, t := range a.window {
		least = min(least, t.n)
		w.n += t.n
		w.sumX, w.sumY, w.sumAbs = w.sumX+t.sumX, w.sumY+t.sumY, w.sumAbs+t.sumAbs
		for i := range w.columns {
			w.columns[i] += t.columns[i]
		}
	}
	return t, w, least
}

// report states the movement of the window w, whose last picture has the votes t.
func (a *Analyzer) report(t, w tally) {
	dir := a.run
	s := Statement{Direction: dir, Speed: w.sumAbs / float64(w.n), Where: w.where(), Since: a.runSince}
	s.Pace = paceOf(s.Speed)
	switch {
	case a.main != Mixed && dir == a.main.opposite() && a.moving:
		if a.runs >= turnFrames {
			s.Kind = Turn
			a.state(s)
		}
	case !a.moving:
		if a.runs >= 3 {
			s.Kind = Start
			if a.wasCut && a.now.at-a.cutAt < 3*time.Second || !a.saidAny || a.now.at-a.activeFrom > startLate {
				s.Kind = Motion
			}
			a.state(s)
		}
	case a.runs >= 4 && t.direction() == dir && a.now.at-a.said.At >= motionEvery && s.differs(a.said):
		s.Kind = Motion
		a.state(s)
	}
}

func (a *Analyzer) state(s Statement) {
	a.add(s)
	a.said, a.saidAny = s, true
	a.said.At = a.now.at
	a.moving, a.main = true, s.Direction
}

// differs reports whether two statements about movement say different things.
func (s Statement) differs(t Statement) bool {
	return s.Where != t.Where || s.Pace != t.Pace || s.Direction != t.Direction
}

// rest: too little moves. After a while that is a stop.
func (a *Analyzer) rest(votes int) {
	if votes >= minVotes {
		a.resting = false
		return
	}
	if !a.resting {
		a.resting, a.restFrom, a.stirs = true, a.now.at, 0
	}
	// One picture with changes in new places may be a key frame; more is something that moves on the spot.
	if a.fresh() > 1 {
		if a.stirs++; a.stirs > 1 {
			a.restFrom, a.stirs = a.now.at, 0
		}
	}
	if a.now.at-a.restFrom >= stopAfter {
		a.active = false
	}
	if (a.moving || a.wasCut && a.saidAny && a.stopCut != a.cutAt) && a.now.at-a.restFrom >= stopAfter {
		a.stopCut = a.cutAt
		a.add(Statement{Kind: Stop, Since: a.restFrom})
		a.moving, a.main, a.runs = false, Mixed, 0
		a.saidAny = true
	}
}

// fresh counts the cells that changed and do not do so often.
func (a *Analyzer) fresh() int {
	n := 0
	for c, changed := range a.comp.changed {
		if changed && a.busy[c] < rarely {
			n++
		}
	}
	return n
}

func (t tally) direction() Direction {
	const plain = 0.4
	switch x, y := math.Abs(t.sumX), math.Abs(t.sumY); {
	case x >= plain*t.sumAbs && x > y:
		if t.sumX > 0 {
			return Right
		}
		return Left
	case y >= plain*t.sumAbs && y > x:
		if t.sumY > 0 {
			return Down
		}
		return Up
	}
	return Mixed
}

// where most of the movement is.
func (t tally) where() Area {
	all := t.columns[0] + t.columns[1] + t.columns[2]
	for i, n := range t.columns {
		if n > 0.55*all {
			return LeftSide + Area(i)
		}
	}
	return Across
}
