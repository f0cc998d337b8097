package match

import (
	"cmp"
	"math"
	"slices"
	"strconv"

	"touchline/worlds/paint"
)

// Everything that moves.

// figureHeight is in metres: larger than life, for visibility.
const figureHeight = 4.4

// figure on the picture, in pixels.
type figure struct {
	x, y, size float64 // feet, and height
	hop        float64
	index      int
	stride     float64 // -1 to 1
	signal     float64 // height of the raised right arm, 0 to 1
	lean       float64 // angle to the right, in radians
}

// spot returns the place on the picture of a point of the figure, given to the right of its feet
// and upwards while it stands.
func (f *figure) spot(right, up float64) (x, y float64) {
	sin, cos := math.Sincos(f.lean)
	return f.x + right*cos + up*sin, f.y - f.hop - up*cos + right*sin
}

// Heights of parts of a figure, as shares of its height.
const (
	torsoUp = 0.55
	lying   = 1.3 // radians
)

// The raised hand, in shares of the figure's height to its right and upwards. The arm is larger than life, as everything is.
const (
	handRight = 0.2
	handUp    = 1.42
)

// cast places all figures of a moment on the picture.
func (m *Match) cast(cam paint.Camera, t int64) []figure {
	out := make([]figure, 0, figures)
	size := float64(m.width)
	for i := range m.team {
		p := m.script.place(i, t)
		x, y, metre := cam.Project(paint.At(p.X, p.Y, 0))
		f := figure{index: i, x: x*size + size/2, y: y*size + float64(m.height)/2, size: figureHeight * metre * size}
		f.hop = p.Z / figureHeight * f.size
		if m.team[i].keeper {
			_, lean := m.script.dive(m.team[i].team, t)
			f.lean = lying * lean * float64(attacks(m.team[i].team))
		}
		if m.script.at(t).moving() {
			_, _, played := m.script.anchor(t - m.team[i].lag)
			f.stride = math.Sin(played*9 + m.team[i].phaseX)
		}
		if i == referee {
			f.signal = m.script.signal(t)
		}
		out = append(out, f)
	}
	slices.SortStableFunc(out, func(a, b figure) int { return cmp.Compare(a.y, b.y) })
	return out
}

// drawPlay draws players and ball.
func (m *Match) drawPlay(c *paint.Canvas, s Shot, t int64) {
	cam := s.camera()
	size := float64(m.width)
	cast := m.cast(cam, t)
	for _, f := range cast {
		c.Ellipse(f.x+f.size*0.16, f.y, f.size*0.34, f.size*0.1, paint.RGB{12, 40, 22}, 0.45)
	}
	ball := m.script.ballAt(t)
	gx, gy, metre := cam.Project(paint.At(ball.X, ball.Y, 0))
	bx, by, _ := cam.Project(ball)
	h := float64(m.height) / 2
	r := max(1.2, 0.62*metre*size)
	drawn := false
	drawBall := func() {
		c.Ellipse(gx*size+size/2, gy*size+h, r*1.1, r*0.5, paint.RGB{10, 34, 18}, 0.5)
		c.Ellipse(bx*size+size/2, by*size+h-r*0.5, r*1.12, r*1.12, paint.RGB{40, 44, 48}, 0.9)
		c.Ellipse(bx*size+size/2, by*size+h-r*0.5, r, r, paint.RGB{255, 255, 255}, 1)
		drawn = true
	}
	for _, f := range cast {
		if !drawn && f.y > gy*size+h {
			drawBall()
		}
		m.drawFigure(c, f)
	}
	if !drawn {
		drawBall()
	}
}

// kit is a figure's clothes.
func (m *Match) kit(who *footballer) kit {
	if who.team == official {
		black := paint.RGB{16, 16, 20}
		return kit{shirt: black, sleeve: black, shorts: black}
	}
	k := m.kits[who.team]
	if who.keeper {
		k.shirt, k.sleeve, k.shorts = paint.RGB{54, 196, 120}, paint.RGB{20, 90, 50}, paint.RGB{20, 60, 40}
		if who.team == 1 {
			k.shirt = paint.RGB{250, 150, 200}
		}
	}
	return k
}

func (m *Match) drawFigure(c *paint.Canvas, f figure) {
	k := m.kit(&m.team[f.index])
	skin := []paint.RGB{{232, 190, 160}, {196, 146, 110}, {120, 82, 60}}[f.index%3]
	s, step, lift := f.size, 0.1*f.stride, 0.0
	if f.hop > 0 {
		lift = 0.42
	}
	limb := func(right0, up0, right1, up1, r float64, col paint.RGB) {
		x0, y0 := f.spot(right0*s, up0*s)
		x1, y1 := f.spot(right1*s, up1*s)
		c.Capsule(x0, y0, x1, y1, r*s, col, 1)
	}
	// Legs, shorts, shirt, arms, head.
	limb(-0.05, 0.40, -0.07-step, 0.03, 0.05, skin.Mix(paint.RGB{30, 30, 40}, 0.15))
	limb(0.05, 0.40, 0.07+step, 0.03, 0.05, skin)
	limb(-0.06, 0.36, 0.06, 0.36, 0.085, k.shorts)
	limb(-0.13, 0.68, -0.21+step*0.6, 0.45+lift, 0.045, k.sleeve)
	handX, handY, sleeve := 0.21-step*0.6, 0.45+lift, 0.045
	if f.signal > 0 {
		handX, handY, sleeve = handX+(handRight-handX)*f.signal, handY+(handUp-handY)*f.signal, 0.045+0.04*f.signal
	}
	limb(0.13, 0.68, handX, handY, sleeve, k.sleeve)
	limb(0, 0.67, 0, 0.46, 0.145, k.shirt)
	if s >= numberFrom*float64(m.width) && s >= numberLeast && f.lean == 0 && f.index != referee {
		m.drawNumber(c, f, k.shirt)
	}
	x, y := f.spot(0, 0.87*s)
	c.Ellipse(x, y, 0.105*s, 0.115*s, skin, 1)
	x, y = f.spot(0, 0.925*s)
	c.Ellipse(x, y, 0.1*s, 0.06*s, paint.RGB{44, 32, 28}, 1)
}

// The minimum height of figures with numbers, in picture widths and in pixels: smaller numbers cannot be read.
const (
	numberFrom  = 0.058
	numberLeast = 26
)

func (m *Match) drawNumber(c *paint.Canvas, f figure, shirt paint.RGB) {
	const dark = 140 // luma of a shirt above which numbers are dark
	ink := paint.RGB{250, 250, 250}
	if shirt.YUV().Y > dark {
		ink = paint.RGB{16, 18, 28}
	}
	text := strconv.Itoa(player(f.index).Number)
	high := 0.23 * f.size
	wide := high
	if len(text) > 1 {
		wide *= 0.62
	}
	x, y := f.spot(0, torsoUp*f.size)
	left, top := x-paint.TextWidth(text)*wide/2, y-high*0.55
	paint.Strokes(text, func(x0, y0, x1, y1 float64) {
		c.Capsule(left+x0*wide, top+y0*high, left+x1*wide, top+y1*high, 0.085*high, ink, 1)
	})
}

// The crowd shot: rows of people, some of whom jump and wave scarves.
const (
	crowdRows  = 7
	crowdCols  = 17
	crowdFirst = 0.16 // of the height: the back row
)

type spectator struct {
	x, y, size  float64
	shirt, skin paint.RGB
	jumps       bool
	rate, phase float64
}

func (m *Match) spectators() []spectator {
	var out []spectator
	for row := range crowdRows {
		k := float64(row) / (crowdRows - 1)
		size := float64(m.width) * (0.050 + 0.040*k)
		for col := range crowdCols {
			roll := func(n uint64) float64 { return paint.Chance(m.seed+1, uint64(row*100+col), n) }
			x := (float64(col) + 0.5*float64(row%2) + 0.25*roll(1)) / (crowdCols - 0.5) * float64(m.width)
			p := spectator{
				x: x, y: float64(m.height) * (crowdFirst + 0.9*k + 0.02*roll(2)), size: size,
				jumps: roll(3) < 0.3, rate: 4 + 4*roll(4), phase: 6.28 * roll(5),
				skin: []paint.RGB{{232, 190, 160}, {196, 146, 110}, {120, 82, 60}}[int(roll(6)*3)],
			}
			p.shirt = m.kits[int(roll(7)*2)].shirt
			if roll(8) < 0.3 {
				p.shirt = []paint.RGB{{90, 96, 112}, {190, 186, 180}, {54, 58, 74}}[int(roll(9)*3)]
			}
			out = append(out, p)
		}
	}
	return out
}

func (p *spectator) draw(c *paint.Canvas, scarf paint.RGB, hop float64) {
	s, y := p.size, p.y-hop
	if p.jumps {
		c.Capsule(p.x-0.26*s, y+0.55*s, p.x-0.36*s, y-0.3*s, 0.09*s, p.skin, 1)
		c.Capsule(p.x+0.26*s, y+0.55*s, p.x+0.36*s, y-0.3*s, 0.09*s, p.skin, 1)
		c.Capsule(p.x-0.4*s, y-0.38*s, p.x+0.4*s, y-0.38*s, 0.1*s, scarf, 1)
	}
	c.Capsule(p.x-0.14*s, y+0.62*s, p.x+0.14*s, y+0.62*s, 0.28*s, p.shirt, 1)
	c.Rect(p.x-0.42*s, y+0.62*s, p.x+0.42*s, y+1.6*s, p.shirt, 1)
	c.Ellipse(p.x, y+0.08*s, 0.21*s, 0.25*s, p.skin, 1)
	c.Ellipse(p.x, y-0.06*s, 0.22*s, 0.15*s, paint.RGB{44, 32, 28}, 1)
}

func (m *Match) bakeCrowd(c *paint.Canvas) {
	c.Rect(0, 0, float64(m.width), float64(m.height), paint.RGB{28, 30, 44}, 1)
	for row := range 5 {
		y := float64(m.height) * 0.028 * float64(row)
		c.Rect(0, y, float64(m.width), y+1.5, paint.RGB{52, 56, 74}, 1)
	}
	for i := range m.fans {
		if !m.fans[i].jumps {
			m.fans[i].draw(c, paint.RGB{}, 0)
		}
	}
}

func (m *Match) drawCrowd(c *paint.Canvas, t int64) {
	for i := range m.fans {
		p := &m.fans[i]
		if p.jumps {
			p.draw(c, m.kits[i%2].shirt, 0.3*p.size*math.Abs(math.Sin(float64(t)/1000*p.rate+p.phase)))
		}
	}
}
