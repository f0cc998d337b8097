package toyworld

import (
	"math"
	"slices"
)

// Everything that moves.

// figureHeight in metres: larger than life, so that it shows.
const figureHeight = 4.4

// figure on the picture, in pixels.
type figure struct {
	x, y, size float64 // feet, and height
	hop        float64
	index      int
	stride     float64 // -1 to 1
}

// cast places all figures of a moment on the picture.
func (w *World) cast(cam camera, t int64) []figure {
	out := make([]figure, 0, figures)
	size := float64(w.width)
	for i := range w.team {
		p := w.script.place(&w.team[i], t)
		x, y, m := cam.project(vec{p.x, p.y, 0})
		f := figure{index: i, x: x*size + size/2, y: y*size + float64(w.height)/2, size: figureHeight * m * size}
		f.hop = p.z / figureHeight * f.size
		if w.script.at(t).moving {
			_, _, played := w.script.anchor(t - w.team[i].lag)
			f.stride = math.Sin(played*9 + w.team[i].phaseX)
		}
		out = append(out, f)
	}
	slices.SortStableFunc(out, func(a, b figure) int {
		switch {
		case a.y < b.y:
			return -1
		case a.y > b.y:
			return 1
		}
		return 0
	})
	return out
}

// drawPlay draws players and ball.
func (w *World) drawPlay(c *canvas, s Shot, t int64) {
	cam := s.camera()
	size := float64(w.width)
	cast := w.cast(cam, t)
	for _, f := range cast {
		c.ellipse(f.x+f.size*0.16, f.y, f.size*0.34, f.size*0.1, rgb{12, 40, 22}, 0.45)
	}
	ball := w.ball(t)
	gx, gy, m := cam.project(vec{ball.x, ball.y, 0})
	bx, by, _ := cam.project(ball)
	h := float64(w.height) / 2
	r := max(1.2, 0.62*m*size)
	drawn := false
	drawBall := func() {
		c.ellipse(gx*size+size/2, gy*size+h, r*1.1, r*0.5, rgb{10, 34, 18}, 0.5)
		c.ellipse(bx*size+size/2, by*size+h-r*0.5, r*1.12, r*1.12, rgb{40, 44, 48}, 0.9)
		c.ellipse(bx*size+size/2, by*size+h-r*0.5, r, r, rgb{255, 255, 255}, 1)
		drawn = true
	}
	for _, f := range cast {
		if !drawn && f.y > gy*size+h {
			drawBall()
		}
		w.drawFigure(c, f)
	}
	if !drawn {
		drawBall()
	}
}

func (w *World) drawFigure(c *canvas, f figure) {
	who := &w.team[f.index]
	k := w.kits[who.team]
	if who.keeper {
		k.shirt, k.sleeve, k.shorts = rgb{54, 196, 120}, rgb{20, 90, 50}, rgb{20, 60, 40}
		if who.team == 1 {
			k.shirt = rgb{250, 150, 200}
		}
	}
	skin := []rgb{{232, 190, 160}, {196, 146, 110}, {120, 82, 60}}[f.index%3]
	s, x, y := f.size, f.x, f.y-f.hop
	step := 0.1 * s * f.stride
	hip, neck := y-0.40*s, y-0.74*s
	// Legs, shorts, shirt, arms, head.
	c.capsule(x-0.05*s, hip, x-0.07*s-step, y-0.03*s, 0.05*s, skin.mix(rgb{30, 30, 40}, 0.15), 1)
	c.capsule(x+0.05*s, hip, x+0.07*s+step, y-0.03*s, 0.05*s, skin, 1)
	c.capsule(x-0.06*s, hip+0.04*s, x+0.06*s, hip+0.04*s, 0.085*s, k.shorts, 1)
	lift := 0.0
	if f.hop > 0 {
		lift = -0.42 * s
	}
	c.capsule(x-0.13*s, neck+0.06*s, x-0.21*s+step*0.6, hip-0.05*s+lift, 0.045*s, k.sleeve, 1)
	c.capsule(x+0.13*s, neck+0.06*s, x+0.21*s-step*0.6, hip-0.05*s+lift, 0.045*s, k.sleeve, 1)
	c.capsule(x, neck+0.07*s, x, hip-0.06*s, 0.145*s, k.shirt, 1)
	c.ellipse(x, y-0.87*s, 0.105*s, 0.115*s, skin, 1)
	c.ellipse(x, y-0.925*s, 0.1*s, 0.06*s, rgb{44, 32, 28}, 1)
}

// The crowd shot: rows of people, some of whom jump and wave scarves.
const (
	crowdRows  = 7
	crowdCols  = 17
	crowdFirst = 0.16 // of the height: the back row
)

type spectator struct {
	x, y, size  float64
	shirt, skin rgb
	jumps       bool
	rate, phase float64
}

func (w *World) spectators() []spectator {
	var out []spectator
	for row := range crowdRows {
		k := float64(row) / (crowdRows - 1)
		size := float64(w.width) * (0.050 + 0.040*k)
		for col := range crowdCols {
			roll := func(n uint64) float64 { return chance(w.seed+1, uint64(row*100+col), n) }
			x := (float64(col) + 0.5*float64(row%2) + 0.25*roll(1)) / (crowdCols - 0.5) * float64(w.width)
			p := spectator{
				x: x, y: float64(w.height) * (crowdFirst + 0.9*k + 0.02*roll(2)), size: size,
				jumps: roll(3) < 0.3, rate: 4 + 4*roll(4), phase: 6.28 * roll(5),
				skin: []rgb{{232, 190, 160}, {196, 146, 110}, {120, 82, 60}}[int(roll(6)*3)],
			}
			p.shirt = w.kits[int(roll(7)*2)].shirt
			if roll(8) < 0.3 {
				p.shirt = []rgb{{90, 96, 112}, {190, 186, 180}, {54, 58, 74}}[int(roll(9)*3)]
			}
			out = append(out, p)
		}
	}
	return out
}

func (p *spectator) draw(c *canvas, scarf rgb, hop float64) {
	s, y := p.size, p.y-hop
	if p.jumps {
		c.capsule(p.x-0.26*s, y+0.55*s, p.x-0.36*s, y-0.3*s, 0.09*s, p.skin, 1)
		c.capsule(p.x+0.26*s, y+0.55*s, p.x+0.36*s, y-0.3*s, 0.09*s, p.skin, 1)
		c.capsule(p.x-0.4*s, y-0.38*s, p.x+0.4*s, y-0.38*s, 0.1*s, scarf, 1)
	}
	c.capsule(p.x-0.14*s, y+0.62*s, p.x+0.14*s, y+0.62*s, 0.28*s, p.shirt, 1)
	c.rect(p.x-0.42*s, y+0.62*s, p.x+0.42*s, y+1.6*s, p.shirt, 1)
	c.ellipse(p.x, y+0.08*s, 0.21*s, 0.25*s, p.skin, 1)
	c.ellipse(p.x, y-0.06*s, 0.22*s, 0.15*s, rgb{44, 32, 28}, 1)
}

func (w *World) bakeCrowd(c *canvas) {
	c.rect(0, 0, float64(w.width), float64(w.height), rgb{28, 30, 44}, 1)
	for row := range 5 {
		y := float64(w.height) * 0.028 * float64(row)
		c.rect(0, y, float64(w.width), y+1.5, rgb{52, 56, 74}, 1)
	}
	for i := range w.fans {
		if !w.fans[i].jumps {
			w.fans[i].draw(c, rgb{}, 0)
		}
	}
}

func (w *World) drawCrowd(c *canvas, t int64) {
	for i := range w.fans {
		p := &w.fans[i]
		if p.jumps {
			p.draw(c, w.kits[i%2].shirt, 0.3*p.size*math.Abs(math.Sin(float64(t)/1000*p.rate+p.phase)))
		}
	}
}
