// Package polygon has polygons and lines over a picture: their checks, the side of a point, and the pixels that they cover.
//
// It is pure geometry. Coordinates are shares of the picture's width and height, 0 at the left and at the top, so that they fit a
// picture of any size with the same ratio.
package polygon

import (
	"errors"
	"fmt"
	"math"
	"slices"
)

// Limits of a shape.
const (
	// MaxCorners is the largest number of corners of a polygon, and of points of a line.
	MaxCorners = 16
	// MinAspect and MaxAspect bound the ratio of width to height.
	MinAspect = 0.05
	MaxAspect = 20
	// Tolerance is the relative difference of ratios that still are the same.
	Tolerance = 0.02
)

// Point is a place in a picture: x and y, from 0 to 1.
type Point [2]float64

// Shape is a polygon or a line with the ratio of the picture that it was drawn on.
type Shape struct {
	// Aspect is the picture's width divided by its height.
	Aspect float64 `json:"aspect" yaml:"aspect" doc:"Width of the picture divided by its height."`
	// Points are the corners, in order; the last is joined to the first, except in a line.
	Points []Point `json:"points" yaml:"points" doc:"Corners as [x, y], from 0 to 1: at most 16."`
}

// Validate returns all that is wrong with a polygon, or with a line, joined.
func (s Shape) Validate(line bool) error {
	var errs []error
	if !(s.Aspect >= MinAspect && s.Aspect <= MaxAspect) { // NaN fails
		errs = append(errs, fmt.Errorf("aspect: must be width / height between %g and %g, is %g", MinAspect, float64(MaxAspect), s.Aspect))
	}
	least := 3
	if line {
		least = 2
	}
	n := len(s.Points)
	if n < least || n > MaxCorners {
		return errors.Join(append(errs, fmt.Errorf("points: must be %d to %d, are %d", least, MaxCorners, n))...)
	}
	for i, p := range s.Points {
		if !(p[0] >= 0 && p[0] <= 1 && p[1] >= 0 && p[1] <= 1) {
			errs = append(errs, fmt.Errorf("points[%d]: must be [x, y] from 0 to 1, is [%g, %g]", i, p[0], p[1]))
		}
	}
	if len(errs) > 0 {
		return errors.Join(errs...)
	}
	edges := s.edges(!line)
	for i, e := range edges {
		if math.Hypot(e.b[0]-e.a[0], e.b[1]-e.a[1]) < 1e-6 {
			return fmt.Errorf("points[%d]: is at the same place as the next point", i)
		}
	}
	for i := range edges {
		for j := i + 1; j < len(edges); j++ {
			if edges[i].crosses(edges[j], j == i+1, !line && i == 0 && j == len(edges)-1) {
				return fmt.Errorf("points: the edge from point %d crosses the edge from point %d; draw it without a crossing", i, j)
			}
		}
	}
	return nil
}

type edge struct{ a, b Point }

// edges returns the edges in order; a closed shape has one from the last point to the first.
func (s Shape) edges(closed bool) []edge {
	n := len(s.Points)
	out := make([]edge, 0, n)
	for i := range s.Points {
		if i < n-1 || closed {
			out = append(out, edge{s.Points[i], s.Points[(i+1)%n]})
		}
	}
	return out
}

// turn is positive if c is on the right of the way from a to b, as a viewer sees it, negative on the left, 0 on it.
func turn(a, b, c Point) float64 {
	return (b[0]-a[0])*(c[1]-a[1]) - (b[1]-a[1])*(c[0]-a[0])
}

// crosses reports whether two edges have more in common than the end that follows or precedes them.
func (e edge) crosses(f edge, follows, precedes bool) bool {
	switch {
	case follows && precedes: // of a shape with two edges
		return true
	case follows:
		return folded(e.a, e.b, f.b)
	case precedes:
		return folded(f.a, f.b, e.b)
	}
	d1, d2 := turn(e.a, e.b, f.a), turn(e.a, e.b, f.b)
	d3, d4 := turn(f.a, f.b, e.a), turn(f.a, f.b, e.b)
	if (d1 > 0) != (d2 > 0) && (d3 > 0) != (d4 > 0) && d1 != 0 && d2 != 0 && d3 != 0 && d4 != 0 {
		return true
	}
	return d1 == 0 && e.spans(f.a) || d2 == 0 && e.spans(f.b) || d3 == 0 && f.spans(e.a) || d4 == 0 && f.spans(e.b)
}

// folded reports whether the way from a over b to c goes back on itself.
func folded(a, b, c Point) bool {
	return turn(a, b, c) == 0 && (b[0]-a[0])*(c[0]-b[0])+(b[1]-a[1])*(c[1]-b[1]) < 0
}

// spans reports whether a point of the edge's straight line is between its ends.
func (e edge) spans(p Point) bool {
	return min(e.a[0], e.b[0]) <= p[0] && p[0] <= max(e.a[0], e.b[0]) && min(e.a[1], e.b[1]) <= p[1] && p[1] <= max(e.a[1], e.b[1])
}

// Contains reports whether a point is in the polygon. Of a point on an edge it reports either.
func (s Shape) Contains(p Point) bool {
	in := false
	for _, e := range s.edges(true) {
		if (e.a[1] > p[1]) != (e.b[1] > p[1]) && p[0] < e.at(p[1]) {
			in = !in
		}
	}
	return in
}

// at returns the x of an edge that is not level at a y.
func (e edge) at(y float64) float64 { return e.a[0] + (e.b[0]-e.a[0])*(y-e.a[1])/(e.b[1]-e.a[1]) }

// Side returns the side of a line on which a point is, looking from its first point to its last: -1 is left, 1 is right, 0 is on it.
// The nearest part of the line decides.
func (s Shape) Side(p Point) int {
	best, side := math.Inf(1), 0.0
	wide := func(q Point) Point { return Point{q[0] * s.Aspect, q[1]} } // in heights, so that distances are those of the picture
	for _, e := range s.edges(false) {
		a, b, c := wide(e.a), wide(e.b), wide(p)
		dx, dy := b[0]-a[0], b[1]-a[1]
		along := min(max(((c[0]-a[0])*dx+(c[1]-a[1])*dy)/(dx*dx+dy*dy), 0), 1)
		far := math.Hypot(c[0]-a[0]-along*dx, c[1]-a[1]-along*dy)
		t := turn(a, b, c) / math.Hypot(dx, dy)
		// At a corner both edges are equally far; the one whose straight line is farther away decides.
		if far < best-1e-12 || far < best+1e-12 && math.Abs(t) > math.Abs(side) {
			best, side = min(far, best), t
		}
	}
	switch {
	case side < 0:
		return -1
	case side > 0:
		return 1
	}
	return 0
}

// Crosses reports whether the straight way between two points meets the line.
func (s Shape) Crosses(a, b Point) bool {
	return slices.ContainsFunc(s.edges(false), func(e edge) bool { return e.crosses(edge{a, b}, false, false) })
}

// Fits reports whether a picture has the ratio that the shape was drawn for. A size in pixels differs from the ratio by half a pixel.
func (s Shape) Fits(width, height int) bool {
	if width < 1 || height < 1 {
		return false
	}
	ratio := float64(width) / float64(height) / s.Aspect
	rounding := 0.5/float64(width) + 0.5/float64(height)
	return max(ratio, 1/ratio) <= 1+Tolerance+rounding
}
