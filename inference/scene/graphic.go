package scene

import (
	"math"
	"time"
)

// graphic detects a wide rectangle that was replaced within a second and is
// steady now, while the rest of the picture stayed.
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

// earlier returns the oldest picture for graphic, of at least half a second ago.
func (a *Analyzer) earlier() *grid {
	for i := range a.past {
		g := &a.past[i]
		if a.wasCut && g.at-a.cutAt < 500*time.Millisecond {
			continue // encoders sharpen a new view gradually
		}
		if !g.flash && a.now.at-g.at >= 500*time.Millisecond {
			return g
		}
	}
	return nil
}

// differs reports whether a cell of the present picture differs from the same cell of g.
func (a *Analyzer) differs(c int, g *grid) bool {
	d := math.Abs(float64(a.now.bright[c]-g.bright[c])) +
		math.Abs(float64(a.now.blue[c]-g.blue[c])) + math.Abs(float64(a.now.red[c]-g.red[c]))
	return d > 22
}

// recheck ends a known graphic that has disappeared, or belongs to the view by now.
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
	// The rows in which nearly half of the cells changed, then the columns within.
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

// stands reports whether place was replaced since old and is steady, while the
// rest of the picture stayed.
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

// longest returns the longest run of counts of at least least.
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
