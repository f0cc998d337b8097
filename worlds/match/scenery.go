package match

import (
	"math"

	"touchline/worlds/paint"
)

// Metres beyond the far touchline: the boards, the foot of the stand, its top.
const (
	boardsY     = pitchWidth + 5
	boardsH     = 1.9
	standY      = pitchWidth + 8
	standRise   = 0.62 // metres up per metre back
	standDepth  = 34.0
	seat        = 1.15
	stripes     = 18
	lineWidth   = 0.26 // wider than on a real pitch, for visibility
	circleR     = 9.15
	boxDepth    = 16.5
	boxHalf     = 20.16
	goalBoxDeep = 5.5
	goalBoxHalf = 9.16
	goalHalf    = 4.6 // wider than a real goal
	goalHeight  = 3.6
	spotX       = 11.0
)

// kit returns the clothes of the two teams.
type kit struct {
	name, code            string
	shirt, sleeve, shorts paint.RGB
}

func kits() [][2]kit {
	white, black := paint.RGB{244, 244, 240}, paint.RGB{26, 26, 32}
	red := kit{"Red", "RED", paint.RGB{214, 38, 46}, paint.RGB{238, 226, 222}, white}
	blue := kit{"Blue", "BLU", paint.RGB{38, 84, 206}, paint.RGB{240, 240, 244}, paint.RGB{20, 38, 110}}
	yellow := kit{"Yellow", "YEL", paint.RGB{248, 206, 40}, paint.RGB{30, 60, 120}, paint.RGB{24, 52, 120}}
	snow := kit{"White", "WHT", white, paint.RGB{30, 30, 40}, black}
	violet := kit{"Violet", "VIO", paint.RGB{124, 56, 176}, paint.RGB{240, 220, 250}, white}
	sky := kit{"Sky", "SKY", paint.RGB{116, 186, 236}, white, black}
	orange := kit{"Orange", "ORA", paint.RGB{246, 126, 30}, black, black}
	return [][2]kit{{red, blue}, {blue, yellow}, {red, snow}, {yellow, violet}, {orange, blue}, {red, sky}, {snow, violet}}
}

// bake paints the static part of a shot.
func (m *Match) bake(s Shot) []byte {
	buf := make([]byte, paint.I420Size(m.width, m.height))
	c := paint.NewCanvas(buf, m.width, m.height)
	if s == ShotCrowd {
		m.bakeCrowd(&c)
		return buf
	}
	cam := s.camera()
	inv := 1 / float64(m.width)
	chroma := make([][2]uint16, (m.width/2)*(m.height/2)) // sums of four pixels
	for py := range m.height {
		for px := range m.width {
			x := (float64(px) + 0.5 - float64(m.width)/2) * inv
			y := (float64(py) + 0.5 - float64(m.height)/2) * inv
			k := m.scene(cam, cam.Ray(x, y), inv).YUV()
			c.Y.Pix[py*m.width+px] = k.Y
			if q := py/2*(m.width/2) + px/2; px/2 < m.width/2 && py/2 < m.height/2 {
				chroma[q][0] += uint16(k.U)
				chroma[q][1] += uint16(k.V)
			}
		}
	}
	for i, k := range chroma {
		c.U.Pix[i], c.V.Pix[i] = uint8((k[0]+2)/4), uint8((k[1]+2)/4)
	}
	m.bakeBoards(&c, cam)
	m.bakeGoals(&c, cam)
	return buf
}

// scene returns the colour that a ray meets; pixel is a pixel's size on the picture.
func (m *Match) scene(cam paint.Camera, d paint.Vec, pixel float64) paint.RGB {
	boards := cam.Eye.Add(d.Scale((boardsY - cam.Eye.Y) / d.Y))
	if boards.Z > boardsH || d.Z >= 0 {
		return m.stand(cam, d)
	}
	if boards.Z > 0 {
		n := int(math.Floor((boards.X + 60) / boardPanel))
		return boardColours()[n%3][0]
	}
	t := -cam.Eye.Z / d.Z
	p := cam.Eye.Add(d.Scale(t))
	// The part of the ground that a pixel covers, along x and along y.
	fx := t * pixel
	fy := fx * math.Sqrt(d.Dot(d)) / math.Abs(d.Z)
	grass := paint.RGB{52, 132, 62}
	band := p.X / (pitchLength / stripes)
	if int(math.Floor(band))%2 != 0 {
		grass = paint.RGB{44, 116, 54}
	}
	if p.X < -3.5 || p.X > pitchLength+3.5 || p.Y < -3.5 || p.Y > pitchWidth+3.5 {
		grass = paint.RGB{38, 92, 50}
	}
	// The lamps stand over the middle.
	away := math.Hypot((p.X-midX)/75, (p.Y-midY)/60)
	grass = grass.Mix(paint.RGB{18, 58, 34}, min(0.5, 0.28*away*away))
	grass = grass.Mix(paint.RGB{96, 168, 84}, 0.22*max(0, 1-away))
	return grass.Mix(paint.RGB{240, 246, 238}, 0.94*marking(p.X, p.Y, fx, fy))
}

// stroke returns the share of a pixel of the given footprint that a line at distance d covers.
func stroke(d, foot float64) float64 {
	d = math.Abs(d)
	lo := max(d-foot/2, -lineWidth/2)
	hi := min(d+foot/2, lineWidth/2)
	return max(0, min(1, (hi-lo)/foot))
}

// marking returns the share of a pixel that the lines cover, from 0 to 1.
func marking(x, y, fx, fy float64) float64 {
	within := func(v, lo, hi float64) bool { return v >= lo-lineWidth/2 && v <= hi+lineWidth/2 }
	best := 0.0
	along := func(lineY, end float64) {
		if within(x, 0, end) {
			best = max(best, stroke(y-lineY, fy))
		}
	}
	across := func(lineX, lo, hi float64) {
		if within(y, lo, hi) {
			best = max(best, stroke(x-lineX, fx))
		}
	}
	ring := func(cx, cy, r float64) {
		dx, dy := x-cx, y-cy
		d := math.Hypot(dx, dy)
		if d < r-3 || d > r+3 {
			return
		}
		foot := math.Hypot(fx*dx/d, fy*dy/d)
		best = max(best, stroke(d-r, foot))
	}
	spot := func(cx, cy, r float64) {
		d := math.Hypot((x-cx)/(r+fx/2), (y-cy)/(r+fy/2))
		best = max(best, min(1, max(0, 2-2*d)))
	}
	along(0, pitchLength)
	along(pitchWidth, pitchLength)
	across(0, 0, pitchWidth)
	across(pitchLength, 0, pitchWidth)
	across(midX, 0, pitchWidth)
	ring(midX, midY, circleR)
	spot(midX, midY, 0.5)
	mx := min(x, pitchLength-x) // both halves are alike
	if mx < boxDepth+circleR && mx > -1 {
		x = mx
		across(boxDepth, midY-boxHalf, midY+boxHalf)
		along(midY-boxHalf, boxDepth)
		along(midY+boxHalf, boxDepth)
		across(goalBoxDeep, midY-goalBoxHalf, midY+goalBoxHalf)
		along(midY-goalBoxHalf, goalBoxDeep)
		along(midY+goalBoxHalf, goalBoxDeep)
		spot(spotX, midY, 0.5)
		if x > boxDepth {
			ring(spotX, midY, circleR)
		}
		if x > 0 && y > 0 && y < pitchWidth {
			ring(0, 0, 1.5)
			ring(0, pitchWidth, 1.5)
		}
	}
	return best
}

// stand returns the far side: seats full of people, a roof, the night.
func (m *Match) stand(cam paint.Camera, d paint.Vec) paint.RGB {
	// The plane z = rise * (y - standY).
	den := d.Z - standRise*d.Y
	t := (standRise*(cam.Eye.Y-standY) - cam.Eye.Z) / den
	p := cam.Eye.Add(d.Scale(t))
	back := p.Y - standY
	if t <= 0 || back > standDepth {
		return paint.RGB{14, 18, 34}
	}
	if back < 0 {
		return paint.RGB{40, 46, 60}
	}
	if back > standDepth-1.6 {
		return paint.RGB{70, 78, 96}
	}
	return m.fan(p.X, back)
}

// fan returns the colour of the crowd at a place of the stand.
func (m *Match) fan(x, back float64) paint.RGB {
	row := math.Floor(back / seat)
	col := math.Floor(x/seat + 0.5*math.Mod(row, 2))
	if math.Mod(col+400, 26) < 1 {
		return paint.RGB{66, 70, 80} // an aisle
	}
	roll := paint.Chance(m.seed, uint64(int64(col)+5000), uint64(int64(row)+9000))
	dark := paint.RGB{34, 38, 52}
	var shirt paint.RGB
	switch {
	case roll < 0.22:
		shirt = m.kits[0].shirt
	case roll < 0.44:
		shirt = m.kits[1].shirt
	case roll < 0.6:
		shirt = paint.RGB{190, 186, 180}
	case roll < 0.8:
		shirt = paint.RGB{84, 88, 104}
	default:
		shirt = dark
	}
	fx := x/seat + 0.5*math.Mod(row, 2) - col - 0.5
	fy := back/seat - row
	// Rows farther back lie deeper in the roof's shadow.
	shade := 0.34 + 0.4*back/standDepth
	if fx*fx+(fy-0.72)*(fy-0.72) < 0.045 {
		return paint.RGB{206, 164, 136}.Mix(dark, shade)
	}
	if math.Abs(fx) < 0.4 && fy < 0.6 {
		return shirt.Mix(dark, shade)
	}
	return dark
}

// boardPanel is the length of one advertisement in metres.
const boardPanel = 15.0

// boardColours are the colours and inks of the advertising boards, in turn.
func boardColours() [3][2]paint.RGB {
	return [3][2]paint.RGB{
		{{24, 40, 78}, {236, 240, 246}},
		{{226, 230, 236}, {24, 40, 78}},
		{{172, 28, 44}, {250, 236, 220}},
	}
}

// bakeBoards paints the name on the advertising boards.
func (m *Match) bakeBoards(c *paint.Canvas, cam paint.Camera) {
	size := float64(m.width)
	at := func(x, z float64) (float64, float64, float64) {
		px, py, metre := cam.Project(paint.At(x, boardsY, z))
		return px*size + size/2, py*size + float64(m.height)/2, metre * size
	}
	for n := range 15 {
		x := -60 + float64(n)*boardPanel
		ink := boardColours()[n%3][1]
		_, _, metre := at(x, 0)
		word := []string{"TOUCHLINE", "LIVE", "TOY WORLD"}[n%3]
		height := boardsH * 0.62
		left := x + (boardPanel-paint.TextWidth(word)*height*1.25)/2
		paint.Strokes(word, func(ax, ay, bx, by float64) {
			px, py, _ := at(left+ax*height*1.25, boardsH*0.82-ay*height)
			qx, qy, _ := at(left+bx*height*1.25, boardsH*0.82-by*height)
			c.Capsule(px, py, qx, qy, 0.1*metre, ink, 1)
		})
	}
}

// bakeGoals paints both goals with their nets.
func (m *Match) bakeGoals(c *paint.Canvas, cam paint.Camera) {
	size := float64(m.width)
	line := func(a, b paint.Vec, metres, alpha float64) {
		ax, ay, metre := cam.Project(a)
		bx, by, _ := cam.Project(b)
		h := float64(m.height) / 2
		c.Capsule(ax*size+size/2, ay*size+h, bx*size+size/2, by*size+h, max(0.55, metres*metre*size), paint.RGB{250, 250, 250}, alpha)
	}
	for _, g := range []struct{ x, back float64 }{{0, -3}, {pitchLength, pitchLength + 3}} {
		lo, hi := midY-goalHalf, midY+goalHalf
		for i := range 10 {
			y := lo + (hi-lo)*float64(i)/9
			line(paint.At(g.x, y, goalHeight), paint.At(g.back, y, 0), 0.02, 0.3)
		}
		for i := range 5 {
			k := float64(i) / 4
			line(paint.At(g.x+(g.back-g.x)*k, lo, goalHeight*(1-k)), paint.At(g.x+(g.back-g.x)*k, hi, goalHeight*(1-k)), 0.02, 0.3)
		}
		line(paint.At(g.x, hi, 0), paint.At(g.x, hi, goalHeight), 0.13, 1)
		line(paint.At(g.x, lo, goalHeight), paint.At(g.x, hi, goalHeight), 0.13, 1)
		line(paint.At(g.x, lo, 0), paint.At(g.x, lo, goalHeight), 0.13, 1)
	}
}
