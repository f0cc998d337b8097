package scene

import (
	"slices"
)

// How far a cell is looked for in the picture before, in reduced pixels.
const (
	searchX = 10
	searchY = 5
)

// comparison is what changed from one view to the next.
type comparison struct {
	light   fit
	change  []float32 // mean difference of each cell's pixels, light evened out
	noise   float32   // the change of a cell in which nothing happens
	votes   []vote
	changed []bool
	// differ is the share of the cells with something in them that the picture before does not explain,
	// over all; spread is the share of the picture's ninths where that is so.
	differ, spread float64
}

// vote is one cell's opinion about where it came from.
type vote struct {
	cell   int
	dx, dy int // reduced pixels since the picture before
}

// Changes below this (of 255) are never taken for more than noise.
const quiet = 3.0

// Changes above this are never taken for noise.
const loud = 7.0

// compare two views of the same size. skip marks cells whose votes do not count;
// what lies under a known graphic is left out of what differs.
func compare(before, now *view, skip []bool, graphic area, out *comparison) {
	n := len(now.bright)
	out.light = fitLight(before, now)
	out.change, out.changed, out.votes = sized(out.change, n), sized(out.changed, n), out.votes[:0]
	lit := evenOut(before, out.light)
	for c := range n {
		x0, y0, x1, y1 := now.cell(c)
		sum := 0
		for y := y0; y < y1; y++ {
			a, b := now.luma[y*now.w+x0:y*now.w+x1], lit[y*now.w+x0:y*now.w+x1]
			for i := range a {
				sum += apart(int(a[i]), int(b[i]))
			}
		}
		out.change[c] = float32(sum) / float32((x1-x0)*(y1-y0))
	}
	sorted := slices.Clone(out.change)
	slices.Sort(sorted)
	out.noise = sorted[n/3]
	limit := min(loud, max(quiet, 2.5*out.noise+1))
	many := 0
	for c := range n {
		if out.changed[c] = out.change[c] > limit; out.changed[c] {
			many++
		}
	}
	// Where much changed, some of it is enough to tell.
	step := 1 + min(3, many*5/n)
	var seen, odd [9]float64
	for c := range n {
		if (c%now.cols+c/now.cols)%step != 0 {
			continue
		}
		grain := max(now.grain[c], before.grain[c]*float32(out.light.gain))
		if grain < 4 && out.change[c] < 12 {
			continue
		}
		q := ninth(now, c)
		if graphic.holds(c%now.cols, c/now.cols) {
			continue
		}
		seen[q]++
		if !out.changed[c] {
			continue
		}
		best, dx, dy := out.change[c], 0, 0
		if out.change[c] > 0.3*grain {
			best, dx, dy = search(lit, now, c, out.change[c])
		}
		// What is explained neither by staying nor by moving is new.
		if best > 0.55*grain {
			odd[q]++
		}
		if (dx != 0 || dy != 0) && best < 0.6*out.change[c] && now.grain[c] > 5 && !skip[c] {
			out.votes = append(out.votes, vote{c, dx, dy})
		}
	}
	out.summarise(seen, odd, float64(step), float64(n))
}

// summarise sets differ and spread from the cells seen in each ninth, those of
// them that are new, one cell in step, of n cells.
func (out *comparison) summarise(seen, odd [9]float64, step, n float64) {
	all, fresh, parts, differing := 0.0, 0.0, 0.0, 0.0
	for q := range seen {
		all += seen[q]
		fresh += odd[q]
		if seen[q]*step >= 3 {
			parts++
			if odd[q] >= partShare*seen[q] {
				differing++
			}
		}
	}
	out.differ, out.spread = fresh/max(all, 1), differing/max(parts, 1)
	if all*step < n/25 { // next to nothing to see in either
		out.differ, out.spread = 0, 0
	}
}

// partShare of a ninth's cells must be new for it to count as new.
const partShare = 0.3

// ninth numbers the cells of a 3x3 grid over the picture, row by row.
func ninth(v *view, c int) int {
	return c/v.cols*3/v.rows*3 + c%v.cols*3/v.cols
}

// area is a rectangle of cells, without its right and lower edge.
type area struct{ left, top, right, bottom int }

func (a area) holds(x, y int) bool { return x >= a.left && x < a.right && y >= a.top && y < a.bottom }

func (a area) cells() int { return (a.right - a.left) * (a.bottom - a.top) }

// evenOut gives an old view today's light.
func evenOut(v *view, l fit) []uint8 {
	var table [256]uint8
	gain := l.gain
	if l.alike < 0.7 { // not the same scene: only its level
		gain = 1
		l.offset = 0
	}
	for i := range table {
		table[i] = uint8(max(0, min(255, gain*float64(i)+l.offset+0.5)))
	}
	out := make([]uint8, len(v.luma))
	for i, p := range v.luma {
		out[i] = table[p]
	}
	return out
}

// search finds where in the old picture a cell of the new one was: the
// smallest mean difference, on every other row, near places first.
func search(old []uint8, now *view, c int, still float32) (best float32, dx, dy int) {
	x0, y0, x1, y1 := now.cell(c)
	if x1-x0 < cellSide || y1-y0 < cellSide/2 {
		return still, 0, 0
	}
	rows := 0
	for y := y0; y < y1; y += 2 {
		rows++
	}
	area := cellSide * rows
	least := int(still * float32(area))
	for my := -searchY; my <= searchY; my++ {
		if y0-my < 0 || y1-my > now.h {
			continue
		}
		for mx := -searchX; mx <= searchX; mx++ {
			if x0-mx < 0 || x1-mx > now.w || mx == 0 && my == 0 {
				continue
			}
			// A longer way must be a better match: an eighth of a level for each pixel.
			sum := (apart(mx, 0) + apart(my, 0)) * area / 8
			for y := y0; y < y1 && sum < least; y += 2 {
				a := (*[cellSide]uint8)(now.luma[y*now.w+x0:])
				b := (*[cellSide]uint8)(old[(y-my)*now.w+x0-mx:])
				for i := range a {
					sum += apart(int(a[i]), int(b[i]))
				}
			}
			if sum < least {
				least, dx, dy = sum, mx, my
			}
		}
	}
	return float32(least) / float32(area), dx, dy
}
