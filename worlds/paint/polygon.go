package paint

import "math"

// Point is a point on the picture in pixels.
type Point struct{ X, Y float64 }

// Polygon fills a convex polygon.
func (c *Canvas) Polygon(points []Point, col RGB, alpha float64) {
	var full, half [12]Point
	n := min(len(points), len(full))
	for i, p := range points[:n] {
		full[i] = Point{snap(p.X), snap(p.Y)}
		half[i] = Point{full[i].X / 2, full[i].Y / 2}
	}
	k := c.Light.Apply(col.YUV())
	a := int(alpha*256 + 0.5)
	c.Y.polygon(full[:n], k.Y, a)
	c.U.polygon(half[:n], k.U, a)
	c.V.polygon(half[:n], k.V, a)
}

// The number of samples per row of a polygon.
const scans = 4

func (p Plane) polygon(points []Point, val uint8, alpha int) {
	lo, hi := math.Inf(1), math.Inf(-1)
	for _, q := range points {
		lo, hi = min(lo, q.Y), max(hi, q.Y)
	}
	top, bottom := span(lo, hi, p.H)
	for y := top; y < bottom; y++ {
		var from, to [scans]float64
		outerL, innerL, innerR, outerR := math.Inf(1), math.Inf(-1), math.Inf(1), math.Inf(-1)
		for i := range scans {
			l, r := chord(points, float64(y)+(float64(i)+0.5)/scans)
			from[i], to[i] = l, r
			outerL, outerR = min(outerL, l), max(outerR, r)
			innerL, innerR = max(innerL, l), min(innerR, r)
		}
		left, right := span(outerL, outerR, p.W)
		if left >= right {
			continue
		}
		row := p.Pix[y*p.W : (y+1)*p.W]
		edge := func(x0, x1 int) {
			for x := x0; x < x1; x++ {
				cov, l := 0.0, float64(x)
				for i := range scans {
					cov += max(0, min(l+1, to[i])-max(l, from[i]))
				}
				row[x] = blend(row[x], val, int(cov/scans*float64(alpha)))
			}
		}
		// The pixels between these are completely covered.
		inL, inR := right, right
		if innerR-innerL > 1 {
			inL = max(left, min(right, int(math.Ceil(innerL))))
			inR = max(inL, min(right, int(math.Floor(innerR))))
		}
		edge(left, inL)
		for x := inL; x < inR; x++ {
			row[x] = blend(row[x], val, alpha)
		}
		edge(inR, right)
	}
}

// chord returns the part of a horizontal line that lies in a convex polygon; if none does, left is beyond right.
func chord(points []Point, y float64) (left, right float64) {
	left, right = math.Inf(1), math.Inf(-1)
	last := points[len(points)-1]
	for _, q := range points {
		if (q.Y > y) != (last.Y > y) {
			x := q.X + (last.X-q.X)*(y-q.Y)/(last.Y-q.Y)
			left, right = min(left, x), max(right, x)
		}
		last = q
	}
	return left, right
}
