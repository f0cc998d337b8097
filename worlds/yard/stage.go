package yard

import (
	"cmp"
	"math"
	"slices"

	"touchline/worlds/paint"
)

// stage paints the moving parts.
type stage struct {
	yard *Yard
	c    *paint.Canvas
	now  outlook
	t    int64
}

// actor is something to paint; farther actors come first.
type actor struct {
	depth float64
	paint func()
}

// hole is an opening in pixels through which things behind it are visible.
type hole struct{ tl, tr, bl, br paint.Point }

// play paints all moving things.
func (s *stage) play() {
	y := s.yard
	var street, hall, yard []actor
	for p, q := range y.people(s.t) {
		a := actor{q.y, func() { s.person(p.look, q) }}
		switch {
		case q.y > houseY && q.x > houseX:
			hall = append(hall, a)
		case q.y > wallY:
			street = append(street, a)
		default:
			if q.inCar() {
				a.depth = bayY + 0.01 // still in the car
			}
			yard = append(yard, a)
		}
	}
	for c, q := range y.vehicles(s.t) {
		a := actor{q.y, func() { s.car(c, q) }}
		if q.y > wallY {
			street = append(street, a)
		} else {
			yard = append(yard, a)
		}
	}
	for _, p := range y.lying(s.t) {
		yard = append(yard, actor{spotY, func() { s.box(spotX(p.spot), spotY, 0, 1) }})
	}
	for b, q := range y.beasts(s.t) {
		if b.wall {
			s.c.Light = y.lightAt(s.now.sky, q.x, q.y)
			s.beast(b, q, wallH+0.05)
			s.restore(q.x, q.y, wallH, 1, y.corner())
			continue
		}
		yard = append(yard, actor{q.y, func() { s.beast(b, q, 0) }})
	}
	yard = append(yard, actor{lampY, s.lamp})

	s.gate(street)
	s.door(hall)
	show(yard)
}

// show paints from the back to the front.
func show(all []actor) {
	slices.SortStableFunc(all, func(a, b actor) int { return cmp.Compare(b.depth, a.depth) })
	for _, a := range all {
		a.paint()
	}
}

// gap returns the hole of the gate.
func (y *Yard) gap() hole {
	return hole{y.point(gateX0, wallY, wallH+3), y.point(gateX1, wallY, wallH+3), y.point(gateX0, wallY, 0), y.point(gateX1, wallY, 0)}
}

// corner returns the area to the left of the house.
func (y *Yard) corner() hole {
	h := hole{tr: y.point(houseX, houseY, 6), br: y.point(houseX, houseY, 0)}
	h.tl, h.bl = paint.Point{X: -1, Y: h.tr.Y}, paint.Point{X: -1, Y: h.br.Y}
	return h
}

// restore copies the background back around a hole after something of the given size in metres was
// painted behind it.
func (s *stage) restore(x, y, z, size float64, h hole) {
	px, py, m := s.yard.project(x, y, z)
	x0, x1 := int(px-size*m)&^1, int(px+size*m)+2
	y0, y1 := int(py-size*1.3*m)&^1, int(py+size*0.7*m)+2
	back := paint.NewCanvas(s.yard.background(s.now.sky), s.c.W, s.c.H)
	for row := max(0, y0); row < min(s.c.H, y1); row++ {
		k := (float64(row) + 0.5 - h.tl.Y) / (h.bl.Y - h.tl.Y)
		if k > 1 {
			break // on the ground before it
		}
		left, right := int(h.tl.X+(h.bl.X-h.tl.X)*k), int(h.tr.X+(h.br.X-h.tr.X)*k)
		s.copyRow(&back, row, x0, min(x1, left))
		s.copyRow(&back, row, max(x0, right), x1)
	}
}

func (s *stage) copyRow(from *paint.Canvas, row, x0, x1 int) {
	x0, x1 = max(0, x0), min(s.c.W, x1)
	if x0 >= x1 {
		return
	}
	at := row * s.c.W
	copy(s.c.Y.Pix[at+x0:at+x1], from.Y.Pix[at+x0:at+x1])
	if row%2 == 0 {
		at, x0, x1 = row/2*(s.c.W/2), (x0+1)/2, (x1+1)/2
		x1 = min(x1, s.c.W/2)
		copy(s.c.U.Pix[at+x0:at+x1], from.U.Pix[at+x0:at+x1])
		copy(s.c.V.Pix[at+x0:at+x1], from.V.Pix[at+x0:at+x1])
	}
}

// gate paints the street behind the gate and the sliding gate itself.
func (s *stage) gate(street []actor) {
	y := s.yard
	show(street)
	for _, q := range y.people(s.t) {
		if q.y > wallY && q.x < houseX {
			s.restore(q.x, q.y, 0.8, 1.4, y.gap())
		}
	}
	for _, q := range y.vehicles(s.t) {
		if q.y > wallY {
			s.restore(q.x, q.y, 0.6, 2.8, y.gap())
		}
	}
	open := y.gateOpen(s.t)
	if open >= 0.99 {
		return
	}
	s.c.Light = y.lightAt(s.now.sky, (gateX0+gateX1)/2, wallY)
	iron := paint.RGB{56, 78, 84}
	right := gateX1 - (gateX1-gateX0)*open
	rail := func(z, half float64) {
		s.quad(iron, 1, [4][3]float64{{gateX0, wallY, z - half}, {right, wallY, z - half}, {right, wallY, z + half}, {gateX0, wallY, z + half}})
	}
	rail(0.22, 0.07)
	rail(1.15, 0.05)
	rail(2.05, 0.07)
	for i := range 16 {
		x := right - 0.06 - 0.275*float64(i)
		if x < gateX0 {
			break
		}
		half := 0.035
		if i == 0 {
			half = 0.07
		}
		s.quad(iron, 1, [4][3]float64{{x - half, wallY, 0.1}, {x + half, wallY, 0.1}, {x + half, wallY, 2.1}, {x - half, wallY, 2.1}})
	}
}

// door paints the house door and the person in it.
func (s *stage) door(hall []actor) {
	y := s.yard
	open := y.doorOpen(s.t)
	if open > 0.01 {
		dark := 1 - float64(s.now.day)/daySteps
		s.c.Light = paint.Daylight()
		s.quad(paint.RGB{70, 58, 52}.Mix(paint.RGB{244, 200, 126}, 0.25+0.7*dark), 1, face(doorX0, 0, doorX1, doorH, houseY))
		show(hall)
		if len(hall) > 0 {
			s.restore(doorX, houseY+0.5, 0.8, 1.6, hole{
				y.point(doorX0, houseY, doorH), y.point(doorX1, houseY, doorH), y.point(doorX0, houseY, 0), y.point(doorX1, houseY, 0),
			})
		}
	}
	// The leaf swings inwards on its right edge.
	angle := 1.45 * open
	wide := doorX1 - doorX0
	x, d := doorX1-wide*math.Cos(angle), houseY+wide*math.Sin(angle)*0.6
	s.c.Light = y.lightAt(s.now.sky, doorX, houseY-1)
	colour := []paint.RGB{{34, 110, 116}, {150, 52, 50}, {58, 84, 132}}[int(paint.Chance(y.seed, 6, 1)*3)]
	s.quad(colour.Mix(paint.RGB{0, 0, 0}, 0.25*open), 1, [4][3]float64{{x, d, 0}, {doorX1, houseY, 0}, {doorX1, houseY, doorH}, {x, d, doorH}})
	if open < 0.5 {
		at := func(k, z float64) [3]float64 { return [3]float64{x + (doorX1-x)*k, d + (houseY-d)*k, z} }
		panel := colour.Mix(paint.RGB{255, 255, 255}, 0.14)
		s.quad(panel, 1, [4][3]float64{at(0.16, 0.25), at(0.84, 0.25), at(0.84, 1), at(0.16, 1)})
		s.quad(paint.RGB{190, 208, 214}, 1, [4][3]float64{at(0.16, 1.25), at(0.84, 1.25), at(0.84, 2.1), at(0.16, 2.1)})
		s.quad(paint.RGB{240, 212, 120}, 1, [4][3]float64{at(0.07, 1.05), at(0.13, 1.05), at(0.13, 1.2), at(0.07, 1.2)})
	}
}

// face is an upright rectangle that faces the camera.
func face(x0, z0, x1, z1, y float64) [4][3]float64 {
	return [4][3]float64{{x0, y, z0}, {x1, y, z0}, {x1, y, z1}, {x0, y, z1}}
}

// quad fills a rectangle in space.
func (s *stage) quad(col paint.RGB, alpha float64, corners [4][3]float64) {
	var points [4]paint.Point
	for i, k := range corners {
		points[i] = s.yard.point(k[0], k[1], k[2])
	}
	s.c.Polygon(points[:], col, alpha)
}

// lamp paints the post and its light.
func (s *stage) lamp() {
	y := s.yard
	s.c.Light = s.now.light(poolSteps / 3)
	iron := paint.RGB{62, 68, 78}
	fx, fy, m := y.project(lampX, lampY, 0)
	hx, hy, _ := y.project(lampX, lampY, lampZ)
	s.c.Ellipse(fx, fy, 0.3*m, 0.09*m, paint.RGB{20, 24, 24}, 0.4)
	s.c.Capsule(fx, fy, hx, hy, 0.07*m, iron, 1)
	s.c.Capsule(fx, fy, fx, fy-0.4*m, 0.12*m, iron, 1)
	s.c.Capsule(hx-0.24*m, hy-0.02*m, hx+0.24*m, hy-0.02*m, 0.1*m, iron, 1)
	on := float64(s.now.sky.lamp) / lampSteps
	s.c.Light = paint.Daylight()
	glass := paint.RGB{196, 202, 206}.Mix(paint.RGB{40, 46, 66}, 1-float64(s.now.day)/daySteps).Mix(paint.RGB{255, 246, 214}, on)
	if on > 0 {
		s.c.Ellipse(hx, hy+0.15*m, 0.85*m, 0.7*m, paint.RGB{255, 236, 180}, 0.13*on)
		s.c.Ellipse(hx, hy+0.14*m, 0.5*m, 0.4*m, paint.RGB{255, 240, 190}, 0.28*on)
	}
	s.c.Ellipse(hx, hy+0.1*m, 0.24*m, 0.13*m, glass, 1)
}

// rain paints falling drops and where they hit the ground.
func (s *stage) rain() {
	if s.now.rain <= 0 {
		return
	}
	const drops, splashes = 210, 60
	w, h := float64(s.c.W), float64(s.c.H)
	s.c.Light = s.now.light(2 * poolSteps / 3)
	grey := paint.RGB{226, 236, 250}
	streak := 0.75 - 0.2*float64(s.now.day)/daySteps // in the dark it would hardly be visible
	for i := range int(drops * s.now.rain) {
		fall := int64(420 + 160*paint.Chance(1, uint64(i), 1)) // ms
		at := s.t + int64(1000*paint.Chance(1, uint64(i), 2))
		k := float64(at%fall) / float64(fall)
		x := w * (1.1*paint.Chance(2, uint64(i), uint64(at/fall)) - 0.02)
		y := h * (1.25*k - 0.15)
		s.c.Capsule(x-0.012*w*k, y, x-0.012*w*k-0.005*w, y+0.055*h, 0.0016*w, grey, streak)
	}
	for i := range int(splashes * s.now.rain) {
		const life = 280
		at := s.t + int64(1000*paint.Chance(3, uint64(i), 2))
		k := float64(at%life) / life
		n := uint64(at / life)
		px, py, m := s.yard.project(18*paint.Chance(4, uint64(i), n), 7.5*paint.Chance(5, uint64(i), n)-1, 0)
		s.c.Ellipse(px, py, (0.05+0.16*k)*m, (0.02+0.05*k)*m, grey, 0.4*(1-k))
	}
}
