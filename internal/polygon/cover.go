package polygon

import (
	"cmp"
	"math"
	"slices"
)

// Masks are the parts of a picture that nothing may show.
type Masks struct {
	// Version differs between any two values.
	Version uint32
	// All covers the whole picture.
	All bool
	// Shapes are polygons. One that does not fit a picture covers all of it.
	Shapes []Shape
}

// Any reports whether there is anything to cover.
func (m Masks) Any() bool { return m.All || len(m.Shapes) > 0 }

// Whole reports whether the masks cover a whole picture because they do not fit it.
func (m Masks) Whole(width, height int) bool {
	return m.All || slices.ContainsFunc(m.Shapes, func(s Shape) bool { return !s.Fits(width, height) })
}

// Run is a series of covered pixels of a row, from X0 to X1-1.
type Run struct{ Y, X0, X1 int }

// margin is how far masks reach over their edge, in pixels: scaling and coding mix neighbours.
const margin = 1

// Cover returns the covered pixels of a picture, row by row, none of them twice.
func (m Masks) Cover(width, height int) []Run {
	all := m.Whole(width, height)
	var out []Run
	for y := range height {
		if all {
			out = append(out, Run{y, 0, width})
			continue
		}
		out = append(out, m.row(y, width, height)...)
	}
	return out
}

// row returns the covered pixels of a row.
func (m Masks) row(y, width, height int) []Run {
	var parts []Run
	add := func(x0, x1 float64) {
		from, to := max(int(math.Floor(x0))-margin, 0), min(int(math.Ceil(x1))+margin, width)
		if from < to {
			parts = append(parts, Run{y, from, to})
		}
	}
	top, bottom, middle := float64(y-margin), float64(y+1+margin), float64(y)+0.5
	for _, s := range m.Shapes {
		var inside []float64 // where edges cross the middle of the row
		for _, e := range s.edges(true) {
			e.a[0], e.a[1] = e.a[0]*float64(width), e.a[1]*float64(height)
			e.b[0], e.b[1] = e.b[0]*float64(width), e.b[1]*float64(height)
			if (e.a[1] > middle) != (e.b[1] > middle) {
				inside = append(inside, e.at(middle))
			}
			if x0, x1, ok := e.within(top, bottom); ok {
				add(x0, x1)
			}
		}
		slices.Sort(inside)
		for i := 0; i+1 < len(inside); i += 2 {
			add(inside[i], inside[i+1])
		}
	}
	return merge(parts)
}

// within returns the extent of the part of an edge between two heights.
func (e edge) within(top, bottom float64) (x0, x1 float64, ok bool) {
	if max(e.a[1], e.b[1]) < top || min(e.a[1], e.b[1]) > bottom {
		return 0, 0, false
	}
	x0, x1 = e.a[0], e.b[0]
	if e.a[1] != e.b[1] {
		x0, x1 = e.at(min(max(e.a[1], top), bottom)), e.at(min(max(e.b[1], top), bottom))
	}
	return min(x0, x1), max(x0, x1), true
}

// merge joins the runs of a row that touch.
func merge(parts []Run) []Run {
	slices.SortFunc(parts, func(a, b Run) int { return cmp.Compare(a.X0, b.X0) })
	var out []Run
	for _, p := range parts {
		if n := len(out); n > 0 && p.X0 <= out[n-1].X1 {
			out[n-1].X1 = max(out[n-1].X1, p.X1)
			continue
		}
		out = append(out, p)
	}
	return out
}
