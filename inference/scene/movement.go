package scene

import (
	"math"
	"time"
)

// tally sums up one picture's votes.
type tally struct {
	at                 time.Duration
	n                  int
	sumX, sumY, sumAbs float64 // picture widths a second
	columns            [3]float64
}

// movement evaluates the votes of the last pictures.
func (a *Analyzer) movement(gap time.Duration) {
	t, w, least := a.count(gap)
	if len(a.window) < windowFrames {
		return
	}
	unsure := a.afterFlash() || a.covered != nil
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

// differs reports whether two statements about movement differ in words.
func (s Statement) differs(t Statement) bool {
	return s.Where != t.Where || s.Pace != t.Pace || s.Direction != t.Direction
}

// rest handles a picture with too little movement. After stopAfter it is a stop.
func (a *Analyzer) rest(votes int) {
	if votes >= minVotes {
		a.resting = false
		return
	}
	if !a.resting {
		a.resting, a.restFrom, a.stirs = true, a.now.at, 0
	}
	// One picture with changes in new places may be a key frame; more are movement on the spot.
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

// fresh counts the changed cells that rarely change.
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

// where returns the area with most of the movement.
func (t tally) where() Area {
	all := t.columns[0] + t.columns[1] + t.columns[2]
	for i, n := range t.columns {
		if n > 0.55*all {
			return LeftSide + Area(i)
		}
	}
	return Across
}
