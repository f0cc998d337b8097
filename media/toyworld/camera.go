package toyworld

import "math"

// The pitch in metres: x along it from the left goal line, y away from the
// camera, z up.
const (
	pitchLength = 105.0
	pitchWidth  = 68.0
	midX        = pitchLength / 2
	midY        = pitchWidth / 2
)

type vec struct{ x, y, z float64 }

func (a vec) sub(b vec) vec       { return vec{a.x - b.x, a.y - b.y, a.z - b.z} }
func (a vec) dot(b vec) float64   { return a.x*b.x + a.y*b.y + a.z*b.z }
func (a vec) scale(k float64) vec { return vec{a.x * k, a.y * k, a.z * k} }
func (a vec) add(b vec) vec       { return vec{a.x + b.x, a.y + b.y, a.z + b.z} }
func (a vec) cross(b vec) vec {
	return vec{a.y*b.z - a.z*b.y, a.z*b.x - a.x*b.z, a.x*b.y - a.y*b.x}
}
func (a vec) unit() vec { return a.scale(1 / math.Sqrt(a.dot(a))) }

// camera is a pinhole on a tripod. Lengths on the picture are in picture
// widths, so that it fits any size.
type camera struct {
	at, right, up, forward vec
	focal                  float64 // picture widths
}

// newCamera looks from one point to another; span is how many metres fit
// across the picture at the point looked at.
func newCamera(at, to vec, across float64) camera {
	f := to.sub(at)
	dist := math.Sqrt(f.dot(f))
	f = f.unit()
	r := f.cross(vec{z: 1}).unit()
	return camera{at: at, forward: f, right: r, up: r.cross(f), focal: dist / across}
}

// project returns the place on the picture, from its centre, in picture
// widths (y down), and how many picture widths a metre takes there.
func (c camera) project(p vec) (x, y, metre float64) {
	d := p.sub(c.at)
	depth := max(d.dot(c.forward), 1)
	k := c.focal / depth
	return d.dot(c.right) * k, -d.dot(c.up) * k, k
}

// ray is the direction through a place on the picture.
func (c camera) ray(x, y float64) vec {
	return c.forward.scale(c.focal).add(c.right.scale(x)).add(c.up.scale(-y))
}

// camera of a shot.
func (s Shot) camera() camera {
	switch s {
	case ShotLeft:
		return newCamera(vec{27, -52, 50}, vec{27, 33, 0}, 62)
	case ShotRight:
		return newCamera(vec{78, -52, 50}, vec{78, 33, 0}, 62)
	case ShotReplayLeft:
		return newCamera(vec{44, -30, 30}, vec{18, 32, 0}, 46)
	case ShotReplayRight:
		return newCamera(vec{61, -30, 30}, vec{87, 32, 0}, 46)
	case ShotWide, ShotCrowd:
	}
	return newCamera(vec{midX, -88, 66}, vec{midX, 37, 0}, 119)
}
