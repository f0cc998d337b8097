package paint

import "math"

// Vec is a place or a direction in metres: x to the right, y away from the camera, z up.
type Vec struct{ X, Y, Z float64 }

// At returns the place with the given coordinates.
func At(x, y, z float64) Vec { return Vec{x, y, z} }

// Sub returns a - b.
func (a Vec) Sub(b Vec) Vec { return Vec{a.X - b.X, a.Y - b.Y, a.Z - b.Z} }

// Add returns a + b.
func (a Vec) Add(b Vec) Vec { return Vec{a.X + b.X, a.Y + b.Y, a.Z + b.Z} }

// Scale returns a times k.
func (a Vec) Scale(k float64) Vec { return Vec{a.X * k, a.Y * k, a.Z * k} }

// Dot returns the scalar product.
func (a Vec) Dot(b Vec) float64 { return a.X*b.X + a.Y*b.Y + a.Z*b.Z }

// Cross returns the vector product.
func (a Vec) Cross(b Vec) Vec {
	return Vec{a.Y*b.Z - a.Z*b.Y, a.Z*b.X - a.X*b.Z, a.X*b.Y - a.Y*b.X}
}

// Unit returns the direction of a, with length 1.
func (a Vec) Unit() Vec { return a.Scale(1 / math.Sqrt(a.Dot(a))) }

// Camera is a pinhole camera. Lengths on the picture are in picture widths, so that it fits any
// size.
type Camera struct {
	// Eye is where the camera stands.
	Eye Vec

	right, up, forward Vec
	focal              float64 // picture widths
}

// NewCamera looks from one point to another; across is the number of metres across the picture at
// the point looked at.
func NewCamera(eye, to Vec, across float64) Camera {
	f := to.Sub(eye)
	dist := math.Sqrt(f.Dot(f))
	f = f.Unit()
	r := f.Cross(Vec{Z: 1}).Unit()
	return Camera{Eye: eye, forward: f, right: r, up: r.Cross(f), focal: dist / across}
}

// Project returns the place on the picture, from its centre in picture widths (y down), and the
// picture widths per metre there.
func (c Camera) Project(p Vec) (x, y, metre float64) {
	d := p.Sub(c.Eye)
	depth := max(d.Dot(c.forward), 1)
	k := c.focal / depth
	return d.Dot(c.right) * k, -d.Dot(c.up) * k, k
}

// Ray returns the direction through a place on the picture.
func (c Camera) Ray(x, y float64) Vec {
	return c.forward.Scale(c.focal).Add(c.right.Scale(x)).Add(c.up.Scale(-y))
}
