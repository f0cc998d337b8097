package yard

import "touchline/worlds/paint"

// brush paints the static parts, in metres.
type brush struct {
	*Yard
	c   *paint.Canvas
	wet bool
}

// bake paints the yard in full light.
func (y *Yard) bake(wet bool) []byte {
	buf := make([]byte, paint.I420Size(y.width, y.height))
	c := paint.NewCanvas(buf, y.width, y.height)
	b := brush{y, &c, wet}
	b.street()
	b.ground()
	b.parking()
	b.wall()
	b.sign()
	b.house()
	b.greens()
	return buf
}

// soak returns a colour of the ground, darker when it is wet.
func (b brush) soak(c paint.RGB, k float64) paint.RGB {
	if b.wet {
		return c.Mix(paint.RGB{44, 52, 68}, k)
	}
	return c
}

// floor fills a rectangle on the ground.
func (b brush) floor(x0, y0, x1, y1 float64, col paint.RGB) {
	b.c.Polygon([]paint.Point{b.point(x0, y0, 0), b.point(x1, y0, 0), b.point(x1, y1, 0), b.point(x0, y1, 0)}, b.soak(col, 0.4), 1)
}

// front fills an upright rectangle that faces the camera.
func (b brush) front(x0, z0, x1, z1, y float64, col paint.RGB) {
	b.c.Polygon([]paint.Point{b.point(x0, y, z0), b.point(x1, y, z0), b.point(x1, y, z1), b.point(x0, y, z1)}, b.soak(col, 0.14), 1)
}

// line draws from one place to another with a width in metres.
func (b brush) line(p, q paint.Vec, width float64, col paint.RGB, alpha float64) {
	ax, ay, m := b.project(p.X, p.Y, p.Z)
	bx, by, _ := b.project(q.X, q.Y, q.Z)
	b.c.Capsule(ax, ay, bx, by, max(0.4, width*m/2), col, alpha)
}

// roll returns a random number for the scenery.
func (b brush) roll(n, k int) float64 { return paint.Chance(b.seed, uint64(100+n), uint64(k)) }

// street paints the street over the wall and through the gate.
func (b brush) street() {
	w, h := float64(b.width), float64(b.height)
	b.c.Rect(0, 0, w, h, paint.RGB{78, 112, 78}, 1)
	facades := []paint.RGB{{206, 190, 166}, {186, 160, 142}, {212, 206, 196}, {190, 176, 150}, {176, 184, 188}}
	x := -16.0
	for i := range 6 {
		wide := 7 + 2*b.roll(i, 1)
		col := facades[int(b.roll(i, 2)*5)]
		b.front(x, 0, x+wide, 6, 27, col)
		for k := range 3 {
			l := x + wide*(0.12+0.3*float64(k))
			b.front(l-0.1, 1.15, l+wide*0.16+0.1, 2.85, 27, paint.RGB{236, 232, 224})
			b.front(l, 1.25, l+wide*0.16, 2.75, 27, paint.RGB{88, 104, 122})
		}
		x += wide + 0.8
	}
	b.floor(-20, 9, 40, 17, paint.RGB{124, 126, 132})
	b.floor(-20, 17, 40, 20, paint.RGB{164, 160, 152})
	for i := range 46 {
		x := -14 + float64(i)
		px, py, m := b.project(x, 19.5, 0.7+0.5*b.roll(i, 3))
		col := paint.RGB{62, 108, 62}.Mix(paint.RGB{92, 140, 70}, b.roll(i, 4))
		b.c.Ellipse(px, py, 1.1*m, (0.8+0.3*b.roll(i, 5))*m, b.soak(col, 0.14), 1)
	}
}

// ground paints lawn, asphalt and the path.
func (b brush) ground() {
	b.floor(-9, -4, 28, wallY, paint.RGB{104, 148, 84})
	for i := range 9 {
		b.floor(-9, -4+1.5*float64(i), 28, -3.25+1.5*float64(i), paint.RGB{98, 141, 79})
	}
	asphalt, kerb := paint.RGB{124, 126, 132}, paint.RGB{186, 182, 174}
	b.floor(-4, 0.55, 20, 5.65, kerb)
	b.floor(gateX0, 5.4, gateX1+0.05, wallY, kerb)
	b.floor(-4, 0.7, 20, 5.5, asphalt)
	b.floor(gateX0+0.12, 5.3, gateX1-0.1, 18, asphalt)
	paving, joint := paint.RGB{204, 196, 180}, b.soak(paint.RGB{178, 168, 152}, 0.4)
	b.floor(gateX1-0.1, 6.2, doorX1+0.3, 7.25, paving)
	b.floor(doorX0-0.3, 7.2, doorX1+0.3, houseY, paving)
	for x := gateX1; x < doorX1+0.3; x += 0.7 {
		b.line(paint.At(x, 6.2, 0), paint.At(x, 7.25, 0), 0.05, joint, 1)
	}
	for _, y := range []float64{6.55, 6.9} {
		b.line(paint.At(gateX1, y, 0), paint.At(doorX1+0.3, y, 0), 0.05, joint, 1)
	}
	b.floor(doorX0-0.1, 7.35, doorX1+0.1, houseY, paint.RGB{168, 160, 150}) // the step
	if b.wet {
		b.puddles()
	}
}

// puddles paints puddles that mirror the sky.
func (b brush) puddles() {
	for i := range 16 {
		x, y := 1.5+15*b.roll(i, 11), 0.9+6*b.roll(i, 12)
		px, py, m := b.project(x, y, 0)
		r := (0.3 + 0.6*b.roll(i, 13)) * m
		b.c.Ellipse(px, py, r, r*0.3, paint.RGB{142, 158, 178}, 0.5)
		b.c.Ellipse(px-r*0.2, py-r*0.05, r*0.55, r*0.14, paint.RGB{188, 200, 214}, 0.5)
	}
}

// parking paints the markings of the bays.
func (b brush) parking() {
	white := b.soak(paint.RGB{240, 240, 236}, 0.25)
	for bay := range bays {
		x, near, far := bayX(bay), bayY-1.1, bayY+1.1
		for _, side := range []float64{-2.5, 2.5} {
			b.line(paint.At(x+side, near, 0), paint.At(x+side, far, 0), 0.13, white, 1)
		}
		b.line(paint.At(x-2.5, near, 0), paint.At(x+2.5, near, 0), 0.13, white, 1)
	}
}

// sign paints the sign of the parking place, on the wall.
func (b brush) sign() {
	const x, z, size = 10.05, 1.45, 0.75
	b.front(x-0.06, z-0.06, x+size+0.06, z+size+0.06, wallY-0.05, paint.RGB{246, 246, 246})
	b.front(x, z, x+size, z+size, wallY-0.06, paint.RGB{30, 84, 178})
	paint.Strokes("P", func(x0, y0, x1, y1 float64) {
		const tall = 0.52
		at := func(u, v float64) paint.Vec { return paint.At(x+0.2+u*tall, wallY-0.07, z+0.63-v*tall) }
		b.line(at(x0, y0), at(x1, y1), 0.11, paint.RGB{250, 250, 250}, 1)
	})
}

// wall paints a wall of bricks with the posts of the gate.
func (b brush) wall() {
	brick, mortar, cope := paint.RGB{190, 120, 94}, b.soak(paint.RGB{166, 100, 78}, 0.14), paint.RGB{208, 200, 186}
	for _, part := range [][2]float64{{-9, gateX0}, {gateX1, houseX + 1}} {
		b.front(part[0], 0, part[1], wallH, wallY, brick)
		for i := 1; i < 8; i++ {
			z := 0.3 * float64(i)
			b.line(paint.At(part[0], wallY, z), paint.At(part[1], wallY, z), 0.03, mortar, 1)
			for x := part[0] + 0.4*float64(i%2); x < part[1]; x += 0.8 {
				b.line(paint.At(x, wallY, z), paint.At(x, wallY, z+0.3), 0.03, mortar, 0.8)
			}
		}
		b.front(part[0], wallH-0.12, part[1], wallH+0.06, wallY-0.05, cope)
		b.front(part[0], 0, part[1], 0.12, wallY-0.02, paint.RGB{128, 92, 76})
	}
	for _, x := range []float64{gateX0 - 0.28, gateX1 + 0.28} {
		b.front(x-0.28, 0, x+0.28, wallH+0.3, wallY-0.05, paint.RGB{216, 206, 190})
		b.front(x-0.36, wallH+0.2, x+0.36, wallH+0.38, wallY-0.08, paint.RGB{188, 178, 164})
		b.front(x+0.14, 0, x+0.28, wallH+0.2, wallY-0.06, paint.RGB{196, 186, 170})
	}
}

// eavesZ is the height of the eaves in metres.
const eavesZ = 3.5

// house paints the house with its door and a window.
func (b brush) house() {
	const eaves = eavesZ
	side := []paint.Point{
		b.point(houseX, houseY, 0), b.point(houseX, wallY+3, 0), b.point(houseX, wallY+3, eaves), b.point(houseX, houseY, eaves),
	}
	b.c.Polygon(side, b.soak(paint.RGB{196, 180, 154}, 0.14), 1)
	b.front(houseX, 0, 26, eaves, houseY, paint.RGB{234, 222, 196})
	for z := 0.35; z < eaves; z += 0.35 {
		b.line(paint.At(houseX, houseY, z), paint.At(26, houseY, z), 0.025, b.soak(paint.RGB{222, 208, 180}, 0.14), 1)
	}
	b.front(houseX, 0, 26, 0.3, houseY, paint.RGB{164, 150, 134})
	roof := []paint.Point{
		b.point(houseX-0.5, houseY-0.45, eaves-0.1), b.point(28, houseY-0.45, eaves-0.1),
		b.point(28, houseY+6, eaves+4), b.point(houseX-0.5, houseY+6, eaves+4),
	}
	tiles := paint.RGB{172, 88, 70}
	b.c.Polygon(roof, b.soak(tiles, 0.3), 1)
	for i := range 8 {
		k := float64(i) / 8
		y, z := houseY-0.45+6.4*k, eaves-0.1+4.1*k
		b.line(paint.At(houseX-0.5, y, z), paint.At(28, y, z), 0.06, b.soak(paint.RGB{146, 70, 56}, 0.3), 0.8)
	}
	b.front(houseX-0.5, eaves-0.22, 28, eaves-0.06, houseY-0.45, paint.RGB{240, 238, 232}) // the gutter
	b.front(houseX, eaves-0.5, 26, eaves-0.3, houseY-0.02, paint.RGB{196, 182, 156})       // its shadow
	// Frame and interior of the door.
	b.front(doorX0-0.16, 0, doorX1+0.16, doorH+0.16, houseY-0.02, paint.RGB{250, 248, 242})
	b.front(doorX0, 0, doorX1, doorH, houseY-0.03, paint.RGB{58, 48, 44})
	// A canopy over it.
	roofing := []paint.Point{
		b.point(doorX0-0.5, houseY-0.8, 2.62), b.point(doorX1+0.5, houseY-0.8, 2.62),
		b.point(doorX1+0.4, houseY, 2.95), b.point(doorX0-0.4, houseY, 2.95),
	}
	b.c.Polygon(roofing, b.soak(paint.RGB{70, 98, 112}, 0.2), 1)
	b.front(doorX0-0.5, 2.52, doorX1+0.5, 2.64, houseY-0.8, paint.RGB{238, 236, 230})
	for _, x := range windows() {
		b.front(x-0.2, windowZ-0.14, x+windowW+0.2, windowZ+windowH+0.14, houseY-0.02, paint.RGB{250, 248, 242})
		b.front(x, windowZ, x+windowW, windowZ+windowH, houseY-0.03, paint.RGB{96, 116, 136})
		b.front(x-0.3, windowZ-0.24, x+windowW+0.3, windowZ-0.12, houseY-0.1, paint.RGB{204, 196, 182})
	}
	b.muntins()
}

// windows are the left edges of the windows of the house.
func windows() []float64 { return []float64{16.8} }

// The windows in metres.
const windowW, windowH, windowZ = 1.5, 1.25, 1.05

// muntins are the bars of the windows.
func (b brush) muntins() {
	for _, x := range windows() {
		b.front(x+windowW/2-0.05, windowZ, x+windowW/2+0.05, windowZ+windowH, houseY-0.04, paint.RGB{250, 248, 242})
		b.front(x, windowZ+windowH*0.6, x+windowW, windowZ+windowH*0.6+0.08, houseY-0.04, paint.RGB{250, 248, 242})
	}
}

// greens paints hedge, bushes, flowers and the bins.
func (b brush) greens() {
	bush := func(x, y, z, r, k float64) {
		px, py, m := b.project(x, y, z)
		col := paint.RGB{58, 108, 56}.Mix(paint.RGB{98, 150, 72}, k)
		b.c.Ellipse(px, py, r*m, r*0.86*m, b.soak(col, 0.2), 1)
	}
	for i := range 14 {
		x := 6.1 + 0.37*float64(i)
		px, py, m := b.project(x, 8.5, 0)
		b.c.Ellipse(px, py, 0.5*m, 0.14*m, paint.RGB{40, 60, 40}, 0.3)
	}
	for i := range 28 {
		row := float64(1 - i/14)
		bush(6.1+0.37*float64(i%14), 8.5+0.2*row, 0.3+0.4*row+0.1*b.roll(i, 21), 0.36, 0.6*row+0.4*b.roll(i, 22))
	}
	for i := range 26 { // flowers along the house
		x := 15.6 + 0.14*float64(i)
		if x > 18.9 {
			break
		}
		px, py, m := b.project(x, 7.55, 0.16+0.2*b.roll(i, 25))
		b.c.Ellipse(px, py, 0.15*m, 0.15*m, b.soak(paint.RGB{74, 122, 62}, 0.2), 1)
		petals := []paint.RGB{{232, 96, 120}, {246, 214, 96}, {240, 240, 244}}[i%3]
		b.c.Ellipse(px, py-0.1*m, 0.06*m, 0.06*m, petals, 1)
	}
	for i, col := range []paint.RGB{{52, 92, 70}, {70, 78, 88}} { // bins
		x := -0.1 + 0.7*float64(i)
		px, py, m := b.project(x, 8.2, 0)
		b.c.Ellipse(px+0.1*m, py, 0.42*m, 0.1*m, paint.RGB{30, 34, 34}, 0.35)
		b.front(x-0.3, 0, x+0.3, 0.95, 8.1, col)
		b.front(x-0.34, 0.9, x+0.34, 1.04, 8.08, col.Mix(paint.RGB{255, 255, 255}, 0.18))
		b.front(x-0.2, 0.15, x-0.12, 0.85, 8.09, col.Mix(paint.RGB{0, 0, 0}, 0.2))
	}
}

// dimPool is the lamp's share of the light beyond the yard.
const dimPool = poolSteps / 16

// bakePool returns the lamp's share of the light on each 2x2 pixels.
func (y *Yard) bakePool() []uint8 {
	w, h := y.width/2, y.height/2
	out := make([]uint8, w*h)
	inv := 2 / float64(y.width)
	eye := y.camera.Eye
	eaves := y.point(houseX, houseY-0.45, eavesZ-0.1)
	for i := range out {
		px, py := float64(i%w)+0.5, float64(i/w)+0.5
		d := y.camera.Ray((px-float64(w)/2)*inv, (py-float64(h)/2)*inv)
		along := func(far float64) paint.Vec { return eye.Add(d.Scale((far - eye.Y) / d.Y)) }
		house, wall := along(houseY), along(wallY)
		side := eye.Add(d.Scale((houseX - eye.X) / d.X))
		switch {
		case 2*py < eaves.Y:
			out[i] = dimPool // roof and street
		case house.X >= houseX && house.Z > 0:
			out[i] = uint8(pool(house.X, house.Y, house.Z))
		case side.Y > houseY && side.Y < wallY+3 && side.Z > 0 && (side.Y < wallY || wall.Z > wallH):
			out[i] = uint8(pool(side.X, side.Y, side.Z))
		case wall.Z > wallH+0.06:
			out[i] = dimPool
		case wall.Z > 0:
			out[i] = uint8(pool(wall.X, wall.Y, wall.Z))
		case d.Z < 0:
			g := eye.Add(d.Scale(-eye.Z / d.Z))
			out[i] = uint8(pool(g.X, g.Y, 0))
		}
	}
	return out
}

// glow paints the light sources of the background.
func (y *Yard) glow(c *paint.Canvas, now sky) {
	dark := 1 - float64(now.day)/daySteps
	b := brush{y, c, false}
	if dark > 0.3 {
		for _, x := range windows() {
			pane := []paint.Point{
				b.point(x, houseY-0.03, windowZ), b.point(x+windowW, houseY-0.03, windowZ),
				b.point(x+windowW, houseY-0.03, windowZ+windowH), b.point(x, houseY-0.03, windowZ+windowH),
			}
			c.Polygon(pane, paint.RGB{250, 208, 128}, (dark-0.3)*1.1)
		}
		c.Light = now.light(0)
		b.muntins()
		c.Light = paint.Daylight()
	}
	if shine := dark * float64(now.lamp*now.wet) / (lampSteps * wetSteps); shine > 0 {
		// The lamp mirrored in the wet ground.
		for i := range 5 {
			px, py, m := y.project(lampX, lampY-0.9-0.9*float64(i), 0)
			c.Ellipse(px, py, (0.5-0.05*float64(i))*m, 0.16*m, paint.RGB{255, 240, 200}, shine*(0.4-0.06*float64(i)))
		}
	}
}
