package facts

import "math"

// area is a part of the picture, in shares of it; also a speed of its sides, in shares a second.
type area struct{ x0, y0, x1, y1 float64 }

func areaOf(b Box) area { return area{float64(b.X0), float64(b.Y0), float64(b.X1), float64(b.Y1)} }

func (a area) width() float64  { return a.x1 - a.x0 }
func (a area) height() float64 { return a.y1 - a.y0 }
func (a area) size() float64   { return max(0, a.width()) * max(0, a.height()) }

func (a area) centre() (x, y float64) { return (a.x0 + a.x1) / 2, (a.y0 + a.y1) / 2 }

// plus returns a + k*b.
func (a area) plus(k float64, b area) area {
	return area{a.x0 + k*b.x0, a.y0 + k*b.y0, a.x1 + k*b.x1, a.y1 + k*b.y1}
}

// mixed returns the mean of a and b, in which b has a share.
func (a area) mixed(share float64, b area) area {
	return area{}.plus(1-share, a).plus(share, b)
}

func (a area) limited(most float64) area {
	limit := func(v float64) float64 { return min(max(v, -most), most) }
	return area{limit(a.x0), limit(a.y0), limit(a.x1), limit(a.y1)}
}

// grown returns a with every side moved out by a share of its size.
func (a area) grown(share float64) area {
	w, h := share*a.width(), share*a.height()
	return area{a.x0 - w, a.y0 - h, a.x1 + w, a.y1 + h}
}

// common returns the size of what a and b share.
func (a area) common(b area) float64 {
	return area{max(a.x0, b.x0), max(a.y0, b.y0), min(a.x1, b.x1), min(a.y1, b.y1)}.size()
}

// iou returns the intersection of a and b over their union.
func (a area) iou(b area) float64 {
	both := a.common(b)
	return both / (a.size() + b.size() - both + 1e-9)
}

// distance returns the distance of the centres in heights of the picture.
func (a area) distance(b area, aspect float64) float64 {
	ax, ay := a.centre()
	bx, by := b.centre()
	return math.Hypot((ax-bx)*aspect, ay-by)
}

func (a area) alike(b area) float64 {
	return min(a.height(), b.height()) / max(a.height(), b.height(), 1e-6)
}

// side is a side of the picture.
type side string

const (
	noSide     side = ""
	leftSide   side = "left"
	rightSide  side = "right"
	topSide    side = "top"
	bottomSide side = "bottom"

	upWay   side = "up" // over a line
	downWay side = "down"
)

// gaps are the distances of an area from the sides, and its speeds away from them.
func (a area) gaps(v area) [4]gap {
	vx, vy := v.centre()
	return [4]gap{{leftSide, a.x0, vx}, {rightSide, 1 - a.x1, -vx}, {bottomSide, 1 - a.y1, -vy}, {topSide, a.y0, vy}}
}

type gap struct {
	side      side
	size      float64
	departing float64
}
