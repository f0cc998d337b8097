package yard

import (
	"math"

	"touchline/worlds/paint"
)

// block is a piece of a car: a floor and a smaller roof, in metres from the
// car's middle; l runs forwards.
type block struct {
	back, front, wide, low         float64 // the floor
	topBack, topFront, topWide, up float64 // the roof
}

// chassis is the lower part of a car.
func chassis() block {
	return block{-carHalf, carHalf, carWide, 0.27, -carHalf + 0.1, carHalf - 0.16, carWide - 0.12, 0.88}
}

// cabin is the upper part of a car.
func cabin() block {
	return block{-1.72, 0.98, carWide - 0.13, 0.86, -1.1, 0.2, carWide - 0.3, 1.46}
}

// body converts a car's own coordinates to coordinates of the yard.
type body struct {
	*stage
	p carPose
}

// at returns the place l forwards, w to the left, and up.
func (b body) at(l, w, z float64) [3]float64 {
	return [3]float64{b.p.x + l*b.p.dx - w*b.p.dy, b.p.y + l*b.p.dy + w*b.p.dx, z}
}

// faces reports whether the camera sees a side whose outward direction in the car's own axes is given.
func (b body) faces(l, w, dl, dw float64) bool {
	q := b.at(l, w, 0.8)
	nx, ny := dl*b.p.dx-dw*b.p.dy, dl*b.p.dy+dw*b.p.dx
	eye := b.yard.camera.Eye
	return (eye.X-q[0])*nx+(eye.Y-q[1])*ny > 0
}

func (s *stage) car(c *car, p carPose) {
	y, b := s.yard, body{s, p}
	dark := 1 - float64(s.now.day)/daySteps
	px, py, m := y.project(p.x, p.y, 0)
	long := carHalf * (math.Abs(p.dx) + 0.45*math.Abs(p.dy))
	s.c.Light = y.lightAt(s.now.sky, p.x, p.y)
	s.c.Ellipse(px, py+0.1*m, (long+0.25)*m, (0.3+0.35*math.Abs(p.dy))*m, paint.RGB{18, 22, 24}, 0.5)
	if dark > 0.3 && p.doing != parked { // the beam on the ground
		q := b.at(carHalf+1.5, 0, 0)
		lx, ly, lm := y.project(q[0], q[1], 0)
		s.c.Light = paint.Daylight()
		s.c.Ellipse(lx, ly, (0.9+0.7*math.Abs(p.dx))*lm, 0.36*lm, paint.RGB{255, 244, 206}, 0.25*dark)
		s.c.Light = y.lightAt(s.now.sky, p.x, p.y)
	}
	colour := carColours()[c.colour]
	b.shell(chassis(), colour)
	b.wheels(p.rolled / wheelR)
	b.shell(cabin(), colour)
	b.windows()
	b.lights(p.doing, dark)
	b.openDoor(colour)
}

// shell paints the visible sides of a block.
func (b body) shell(k block, colour paint.RGB) {
	white, black := paint.RGB{255, 255, 255}, paint.RGB{0, 0, 0}
	quad := func(col paint.RGB, c ...[3]float64) { b.quad(col, 1, [4][3]float64{c[0], c[1], c[2], c[3]}) }
	for _, side := range []float64{-1, 1} {
		if b.faces(0, side*k.wide, 0, side) {
			quad(colour.Mix(black, 0.07), b.at(k.back, side*k.wide, k.low), b.at(k.front, side*k.wide, k.low),
				b.at(k.topFront, side*k.topWide, k.up), b.at(k.topBack, side*k.topWide, k.up))
		}
	}
	if b.faces(k.front, 0, 1, 0) {
		quad(colour.Mix(black, 0.16), b.at(k.front, -k.wide, k.low), b.at(k.front, k.wide, k.low),
			b.at(k.topFront, k.topWide, k.up), b.at(k.topFront, -k.topWide, k.up))
	}
	if b.faces(k.back, 0, -1, 0) {
		quad(colour.Mix(black, 0.2), b.at(k.back, -k.wide, k.low), b.at(k.back, k.wide, k.low),
			b.at(k.topBack, k.topWide, k.up), b.at(k.topBack, -k.topWide, k.up))
	}
	quad(colour.Mix(white, 0.2), b.at(k.topBack, -k.topWide, k.up), b.at(k.topFront, -k.topWide, k.up),
		b.at(k.topFront, k.topWide, k.up), b.at(k.topBack, k.topWide, k.up))
}

// windows paints the glass of the cabin.
func (b body) windows() {
	k := cabin()
	glass, shade := paint.RGB{62, 78, 94}, paint.RGB{84, 104, 122}
	// pane returns a part of a side of the cabin: from one length to another, at a share of its height.
	pane := func(side, l0, l1 float64) [4][3]float64 {
		edge := func(l, up float64) [3]float64 {
			lo, hi := k.back+(k.front-k.back)*l, k.topBack+(k.topFront-k.topBack)*l
			return b.at(lo+(hi-lo)*up, side*(k.wide+(k.topWide-k.wide)*up+0.005), k.low+(k.up-k.low)*up)
		}
		return [4][3]float64{edge(l0, 0.12), edge(l1, 0.12), edge(l1, 0.86), edge(l0, 0.86)}
	}
	for _, side := range []float64{-1, 1} {
		if b.faces(0, side*k.wide, 0, side) {
			b.quad(glass, 1, pane(side, 0.07, 0.44))
			b.quad(shade, 1, pane(side, 0.5, 0.93))
		}
	}
	for _, end := range []struct{ way, lo, hi float64 }{{1, k.front, k.topFront}, {-1, k.back, k.topBack}} {
		if b.faces(end.lo, 0, end.way, 0) {
			at := func(w, up float64) [3]float64 {
				return b.at(end.lo+(end.hi-end.lo)*up, w*(k.wide+(k.topWide-k.wide)*up), k.low+(k.up-k.low)*up)
			}
			b.quad(glass, 1, [4][3]float64{at(-0.86, 0.1), at(0.86, 0.1), at(0.84, 0.9), at(-0.84, 0.9)})
		}
	}
}

// wheelR is the radius of a wheel in metres.
const wheelR = 0.34

// wheels paints the visible wheels, turned by an angle.
func (b body) wheels(turned float64) {
	const r = wheelR
	for _, side := range []float64{-1, 1} {
		if !b.faces(0, side*carWide, 0, side) {
			continue
		}
		for _, l := range []float64{-1.28, 1.3} {
			var tyre, rim [10]paint.Point
			for i := range tyre {
				a := float64(i) * math.Pi / 5
				q := b.at(l+r*math.Cos(a), side*(carWide+0.01), r+r*math.Sin(a))
				tyre[i] = b.yard.point(q[0], q[1], q[2])
				q = b.at(l+0.55*r*math.Cos(a), side*(carWide+0.02), r+0.55*r*math.Sin(a))
				rim[i] = b.yard.point(q[0], q[1], q[2])
			}
			b.c.Polygon(tyre[:], paint.RGB{26, 26, 30}, 1)
			b.c.Polygon(rim[:], paint.RGB{168, 172, 178}, 1)
			for i := range 2 { // spokes
				a := -turned + float64(i)*math.Pi/2
				dl, dz := 0.5*r*math.Cos(a), 0.5*r*math.Sin(a)
				p, q := b.at(l+dl, side*(carWide+0.02), r+dz), b.at(l-dl, side*(carWide+0.02), r-dz)
				u, v := b.yard.point(p[0], p[1], p[2]), b.yard.point(q[0], q[1], q[2])
				_, _, m := b.yard.project(p[0], p[1], p[2])
				b.c.Capsule(u.X, u.Y, v.X, v.Y, 0.035*m, paint.RGB{96, 100, 106}, 1)
			}
		}
	}
}

// lights paints the lights at both ends.
func (b body) lights(doing string, dark float64) {
	on := doing != parked
	ends := []struct {
		l, way   float64
		off, lit paint.RGB
	}{
		{carHalf, 1, paint.RGB{222, 224, 214}, paint.RGB{255, 250, 222}},
		{-carHalf, -1, paint.RGB{126, 24, 26}, paint.RGB{250, 44, 38}},
	}
	for _, e := range ends {
		col := e.off
		light := b.c.Light
		if on {
			col = e.lit
			b.c.Light = paint.Daylight()
		}
		for _, side := range []float64{-1, 1} {
			if b.faces(e.l, 0, e.way, 0) {
				w := side * (carWide - 0.1)
				b.quad(col, 1, [4][3]float64{
					b.at(e.l, w, 0.5), b.at(e.l, w-side*0.34, 0.5),
					b.at(e.l-0.04*e.way, w-side*0.34, 0.7), b.at(e.l-0.04*e.way, w, 0.7),
				})
			}
			if b.faces(0, side*carWide, 0, side) { // round the corner
				b.quad(col, 1, [4][3]float64{
					b.at(e.l, side*carWide, 0.5), b.at(e.l-0.22*e.way, side*(carWide+0.01), 0.5),
					b.at(e.l-0.24*e.way, side*(carWide-0.01), 0.68), b.at(e.l-0.04*e.way, side*(carWide-0.02), 0.68),
				})
			}
			if on && dark > 0.3 && b.faces(e.l, 0, e.way, 0) {
				q := b.at(e.l, side*(carWide-0.26), 0.6)
				px, py, m := b.yard.project(q[0], q[1], q[2])
				b.c.Ellipse(px, py, 0.34*m, 0.28*m, e.lit, 0.3*dark)
			}
		}
		b.c.Light = light
	}
}

// openDoor paints the driver's door, on the right.
func (b body) openDoor(colour paint.RGB) {
	if b.p.door <= 0.02 || !b.faces(0, -carWide, 0, -1) {
		return
	}
	const hinge, long = 0.62, 0.95
	a := 1.1 * b.p.door
	tip := func(z float64) [3]float64 { return b.at(hinge-long*math.Cos(a), -carWide-long*math.Sin(a), z) }
	root := func(z float64) [3]float64 { return b.at(hinge, -carWide, z) }
	inner := func(z float64) [3]float64 { return b.at(hinge-long, -carWide, z) }
	b.quad(paint.RGB{30, 30, 34}, 1, [4][3]float64{inner(0.34), root(0.34), root(0.84), inner(0.84)})
	b.quad(colour.Mix(paint.RGB{0, 0, 0}, 0.3), 1, [4][3]float64{tip(0.34), root(0.34), root(0.84), tip(0.84)})
	b.quad(paint.RGB{96, 116, 134}, 0.8, [4][3]float64{tip(0.84), root(0.84), root(1.25), tip(1.25)})
}
