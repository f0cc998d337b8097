package scene

import "slices"

// The search range of a cell in the picture before, in reduced pixels.
const (
	searchX = 10
	searchY = 5
)

// comparison is the difference of two consecutive views.
type comparison struct {
	light   fit
	change  []float32 // mean difference of each cell's pixels, corrected for light
	noise   float32   // the change of a cell without movement
	votes   []vote
	moves   []vote // votes, and those of flickering cells
	changed []bool
	// differ is the share of the textured cells that the picture before does not explain;
	// spread is the share of the picture's ninths with enough such cells.
	differ, spread float64
	// pan is the share of the textured cells that moved alike, all over the picture.
	pan float64
}

// vote is the displacement of one cell.
type vote struct {
	cell   int
	dx, dy int // reduced pixels since the picture before
}

// A change (of 255) below quiet is noise, one above loud is not.
const (
	quiet = 3.0
	loud  = 7.0
)

// compare compares two views of the same size. skip marks cells whose votes do
// not count; differ and spread omit the cells of a known graphic.
func compare(before, now *view, skip []bool, graphic area, out *comparison) {
	n := len(now.bright)
	out.light = fitLight(before, now)
	out.change, out.changed, out.votes = sized(out.change, n), sized(out.changed, n), out.votes[:0]
	out.moves = out.moves[:0]
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
	// After a large change a sample of the cells suffices.
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
		// Neither rest nor movement explains the cell: it is new.
		if best > 0.55*grain {
			odd[q]++
		}
		if (dx != 0 || dy != 0) && best < 0.6*out.change[c] && now.grain[c] > 5 {
			out.moves = append(out.moves, vote{c, dx, dy})
			if !skip[c] {
				out.votes = append(out.votes, vote{c, dx, dy})
			}
		}
	}
	out.summarise(seen, odd, float64(step), float64(n))
	out.pan = out.panned(now, seen)
}

// panned returns the share of the textured cells, of which seen has the number in each ninth, that moved like the middle one; 0 if
// they are in less than five ninths.
func (out *comparison) panned(now *view, seen [9]float64) float64 {
	if len(out.moves) == 0 {
		return 0
	}
	middle := func(of func(vote) int) int {
		all := make([]int, len(out.moves))
		for i, v := range out.moves {
			all[i] = of(v)
		}
		slices.Sort(all)
		return all[len(all)/2]
	}
	dx, dy := middle(func(v vote) int { return v.dx }), middle(func(v vote) int { return v.dy })
	alike, all := 0.0, 0.0
	var parts [9]bool
	for _, v := range out.moves {
		if apart(v.dx, dx) <= 1 && apart(v.dy, dy) <= 1 {
			alike++
			parts[ninth(now, v.cell)] = true
		}
	}
	moved := 0
	for q, cells := range seen {
		all += cells
		if parts[q] {
			moved++
		}
	}
	if moved < panParts {
		return 0
	}
	return alike / max(all, 1)
}

// panParts is the least number of ninths in which a pan moves cells.
const panParts = 5

// summarise sets differ and spread from the seen and the new (odd) cells of each
// ninth, sampled one in step of n cells.
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
	if all*step < n/25 { // too little texture in both
		out.differ, out.spread = 0, 0
	}
}

// partShare is the least share of new cells in a new ninth.
const partShare = 0.3

// ninth numbers the cells of a 3x3 grid over the picture, row by row.
func ninth(v *view, c int) int {
	return c/v.cols*3/v.rows*3 + c%v.cols*3/v.cols
}

// area is a rectangle of cells, without its right and lower edge.
type area struct{ left, top, right, bottom int }

func (a area) holds(x, y int) bool { return x >= a.left && x < a.right && y >= a.top && y < a.bottom }

func (a area) cells() int { return (a.right - a.left) * (a.bottom - a.top) }

// evenOut corrects the luma of a view by a change of light.
func evenOut(v *view, l fit) []uint8 {
	var table [256]uint8
	gain := l.gain
	if l.alike < 0.7 { // not the same scene
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

// search finds the displacement of a cell since the old picture, by the smallest
// mean difference on every other row.
func search(old []uint8, now *view, c int, still float32) (best float32, dx, dy int) {
	x0, y0, x1, y1 := now.cell(c)
	if x1-x0 < cellSide || y1-y0 < cellSide/2 {
		return still, 0, 0
	}
	area := cellSide * ((y1 - y0 + 1) / 2)
	least := int(still * float32(area))
	for my := -searchY; my <= searchY; my++ {
		if y0-my < 0 || y1-my > now.h {
			continue
		}
		for mx := -searchX; mx <= searchX; mx++ {
			if x0-mx < 0 || x1-mx > now.w || mx == 0 && my == 0 {
				continue
			}
			// A penalty of an eighth of a level per pixel of displacement.
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
