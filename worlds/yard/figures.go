package yard

import (
	"math"

	"touchline/worlds/paint"
)

// Sizes in metres: a little larger than life, for visibility.
const (
	personTall = 1.98
	parcelWide = 0.94
	parcelTall = 0.74
)

// Coats returns the names of the coats' colours.
func Coats() []string {
	return []string{"red", "blue", "green", "yellow", "white", "black", "orange"}
}

// coatColours are the colours of Coats.
func coatColours() []paint.RGB {
	return []paint.RGB{{214, 36, 44}, {36, 84, 206}, {28, 140, 66}, {250, 212, 40}, {246, 246, 242}, {24, 24, 28}, {244, 122, 24}}
}

// carNames are the colours of cars.
func carNames() []string { return []string{"white", "red", "blue", "black", "silver"} }

func carColours() []paint.RGB {
	return []paint.RGB{{244, 244, 242}, {200, 34, 40}, {36, 80, 182}, {34, 36, 42}, {170, 178, 186}}
}

// article puts "a" or "an" before a word.
func article(word string) string {
	switch word[0] {
	case 'a', 'e', 'i', 'o', 'u':
		return "an " + word
	}
	return "a " + word
}

func skins() []paint.RGB { return []paint.RGB{{232, 190, 160}, {196, 146, 110}, {120, 82, 60}} }
func hairs() []paint.RGB {
	return []paint.RGB{{44, 32, 28}, {96, 62, 36}, {196, 160, 96}, {120, 120, 124}}
}

// furs are the colours of an animal.
func furs(kind string) []paint.RGB {
	if kind == "cat" {
		return []paint.RGB{{226, 140, 60}, {150, 150, 158}, {238, 234, 226}}
	}
	return []paint.RGB{{156, 96, 48}, {228, 206, 166}, {96, 88, 86}}
}

// person paints a person.
func (s *stage) person(l look, q pose) {
	px, py, m := s.yard.project(q.x, q.y, 0)
	h := personTall * m * q.size
	s.c.Light = s.yard.lightAt(s.now.sky, q.x, q.y)
	s.c.Ellipse(px+0.1*h, py, 0.26*h, 0.06*h, paint.RGB{24, 30, 30}, 0.4)
	f := figure{stage: s, x: px, y: py, h: h, look: l, pose: q, coat: coatColours()[l.coat], side: 1}
	if q.dx < -0.3 {
		f.side = -1
	}
	f.step = math.Sin(q.walked * 4.6)
	f.lift = math.Cos(q.walked * 4.6)
	if !q.moving {
		f.step, f.lift = 0, 0
	}
	f.paint()
}

// figure is a person on the picture, in pixels.
type figure struct {
	*stage
	x, y, h    float64 // between the feet; height
	look       look
	pose       pose
	coat       paint.RGB
	side       float64 // 1 looks to the right
	step, lift float64 // of the walk
}

func (f *figure) paint() {
	h, sideways := f.h, math.Abs(f.pose.dx)
	f.legs(sideways)
	bob := 0.012 * h * math.Abs(f.lift)
	// Shoulders and head go forwards and down when the person bends.
	lean := f.pose.bend * f.side
	hip := f.y - 0.46*h - bob
	nx, ny := f.x+0.26*h*lean, f.y-(0.8-0.2*f.pose.bend)*h-bob
	carried := f.pose.parcel
	if carried && f.pose.dy > 0.5 {
		f.parcel(nx, ny) // mostly hidden by the body, so it is carried at the side
	}
	hem := f.y - 0.3*h - bob
	dark := f.coat.Mix(paint.RGB{0, 0, 0}, 0.2)
	if f.look.coat == 5 {
		dark = paint.RGB{52, 52, 60} // sleeves of a black coat
	}
	f.arm(nx, ny, hip, -f.side, dark)
	if f.pose.bend > 0.2 {
		f.c.Capsule(f.x, hip+0.04*h, f.x, hem-0.07*h, 0.13*h, f.coat, 1)
		f.c.Capsule(f.x, hip, nx, ny+0.08*h, 0.125*h, f.coat, 1)
	} else {
		f.c.Polygon([]paint.Point{
			{X: nx - 0.13*h, Y: ny + 0.05*h}, {X: nx + 0.13*h, Y: ny + 0.05*h}, {X: f.x + 0.165*h, Y: hem}, {X: f.x - 0.165*h, Y: hem},
		}, f.coat, 1)
		f.c.Capsule(nx-0.075*h, ny+0.065*h, nx+0.075*h, ny+0.065*h, 0.07*h, f.coat, 1)
		f.c.Capsule(f.x-0.14*h, hip+0.02*h, f.x+0.14*h, hip+0.02*h, 0.014*h, dark, 1)
		if sideways < 0.5 && f.pose.dy < 0.5 {
			f.c.Capsule(nx, ny+0.08*h, f.x, hem-0.03*h, 0.008*h, dark, 1) // buttons
		}
	}
	f.head(nx, ny, sideways)
	f.arm(nx, ny, hip, f.side, dark)
	if carried && f.pose.dy <= 0.5 {
		f.parcel(nx, ny)
	}
}

func (f *figure) legs(sideways float64) {
	h, bob := f.h, 0.012*f.h*math.Abs(f.lift)
	trousers, shoe := paint.RGB{58, 64, 84}, paint.RGB{38, 32, 32}
	for _, leg := range []float64{-1, 1} {
		swing := 0.17 * h * f.step * leg * sideways * f.side
		up := 0.05 * h * max(0, f.lift*leg) * (0.4 + 0.6*(1-sideways))
		fx, fy := f.x+0.055*h*leg*(1-0.5*sideways)+swing, f.y-0.025*h-up
		f.c.Capsule(f.x+0.05*h*leg, f.y-0.44*h-bob, fx, fy-0.02*h, 0.056*h, trousers.Mix(paint.RGB{0, 0, 0}, 0.12*(1-leg)), 1)
		f.c.Capsule(fx-0.01*h, fy, fx+0.05*h*f.side*sideways+0.01*h, fy, 0.032*h, shoe, 1)
	}
}

// arm hangs and swings, or holds the parcel, or reaches for it.
func (f *figure) arm(nx, ny, hip, side float64, sleeve paint.RGB) {
	h := f.h
	sx, sy := nx+0.135*h*side, ny+0.07*h
	hx, hy := nx+0.17*h*side-0.11*h*f.step*side*math.Abs(f.pose.dx), hip+0.02*h
	switch {
	case f.pose.bend > 0.05:
		hx, hy = nx+0.12*h*f.side, ny+(0.36+0.12*f.pose.bend)*h
	case f.pose.parcel:
		cx, cy := f.hold(nx, ny)
		hx, hy = cx+0.1*h*side, cy-0.06*h
	}
	f.c.Capsule(sx, sy, hx, hy, 0.05*h, sleeve, 1)
	f.c.Ellipse(hx, hy+0.02*h, 0.036*h, 0.036*h, skins()[f.look.skin], 1)
}

// hold returns the middle of the lower edge of a carried parcel.
func (f *figure) hold(nx, ny float64) (x, y float64) {
	forward := 0.15*math.Abs(f.pose.dx)*f.side + 0.25*max(0, f.pose.dy)
	return nx + forward*f.h, ny + 0.36*f.h
}

func (f *figure) parcel(nx, ny float64) {
	x, y := f.hold(nx, ny)
	m := f.h / personTall / f.pose.size
	f.c.Light = f.yard.lightAt(f.now.sky, f.pose.x, f.pose.y)
	carton(f.c, x, y, m)
}

func (f *figure) head(nx, ny, sideways float64) {
	h, skin, hair := f.h, skins()[f.look.skin], hairs()[f.look.hair]
	hx, hy := nx+0.02*h*f.side*sideways+0.05*h*f.pose.bend*f.side, ny-0.075*h
	f.c.Capsule(nx, ny+0.03*h, hx, hy, 0.045*h, skin, 1)
	f.c.Ellipse(hx, hy, 0.082*h, 0.095*h, skin, 1)
	behind := f.pose.dy > 0.5 && sideways < 0.6
	if behind {
		f.c.Capsule(nx-0.04*h, ny+0.03*h, nx+0.04*h, ny+0.03*h, 0.035*h, f.coat.Mix(paint.RGB{60, 60, 66}, 0.25), 1) // the collar
		f.c.Ellipse(hx, hy-0.008*h, 0.087*h, 0.096*h, hair, 1)
	} else {
		f.c.Ellipse(hx-0.02*h*f.side*sideways, hy-0.05*h, 0.086*h, 0.058*h, hair, 1)
		f.c.Ellipse(hx-0.06*h*f.side*sideways, hy-0.02*h, 0.05*h*sideways+0.001, 0.06*h, hair, 1)
	}
	switch {
	case f.look.hat && behind:
		f.c.Ellipse(hx, hy-0.03*h, 0.092*h, 0.08*h, f.coat.Mix(paint.RGB{90, 90, 100}, 0.5), 1)
	case f.look.hat:
		wool := f.coat.Mix(paint.RGB{90, 90, 100}, 0.5)
		f.c.Ellipse(hx, hy-0.065*h, 0.09*h, 0.058*h, wool, 1)
		f.c.Capsule(hx-0.07*h, hy-0.03*h, hx+0.07*h, hy-0.03*h, 0.02*h, wool.Mix(paint.RGB{255, 255, 255}, 0.25), 1)
	}
}

// box paints a parcel on the ground.
func (s *stage) box(x, y, z, size float64) {
	px, py, m := s.yard.project(x, y, z)
	s.c.Light = s.yard.lightAt(s.now.sky, x, y)
	s.c.Ellipse(px+0.1*m, py, 0.6*m, 0.12*m, paint.RGB{24, 30, 30}, 0.4)
	carton(s.c, px, py, m*size)
}

// carton paints a brown box with tape; (x, y) is the middle of its lower edge, m the pixels per metre.
func carton(c *paint.Canvas, x, y, m float64) {
	w, tall, lid := parcelWide*m/2, (parcelTall-0.18)*m, 0.18*m
	brown := paint.RGB{178, 120, 62}
	c.Rect(x-w, y-tall, x+w, y, brown, 1)
	c.Polygon([]paint.Point{
		{X: x - w, Y: y - tall}, {X: x + w, Y: y - tall}, {X: x + w*0.92, Y: y - tall - lid}, {X: x - w*0.92, Y: y - tall - lid},
	}, paint.RGB{206, 152, 92}, 1)
	c.Rect(x-w, y-0.07*m, x+w, y, brown.Mix(paint.RGB{0, 0, 0}, 0.25), 1)
	c.Rect(x-0.08*m, y-tall-lid, x+0.08*m, y-tall*0.45, paint.RGB{236, 214, 168}, 1)
}

// beast paints a dog or a cat whose feet are z above the ground.
func (s *stage) beast(b *animal, q pose, z float64) {
	px, py, m := s.yard.project(q.x, q.y, z)
	s.c.Light = s.yard.lightAt(s.now.sky, q.x, q.y)
	side := 1.0
	if b.facesLeft(s.t) {
		side = -1
	}
	fur := furs(b.kind)[b.fur]
	if b.kind == "cat" {
		s.cat(px, py, m*1.1, side, q, fur)
		return
	}
	s.dog(px, py, m*1.2, side, q, fur)
}

// facesLeft returns the direction that the animal faces; it keeps it while it stands.
func (b *animal) facesLeft(t int64) bool {
	left := b.way[1].x < b.way[0].x
	for i := 1; i < len(b.way) && b.way[i-1].t <= t; i++ {
		if dx := b.way[i].x - b.way[i-1].x; dx != 0 {
			left = dx < 0
		}
	}
	return left
}

func (s *stage) dog(x, y, m, side float64, q pose, fur paint.RGB) {
	dark := fur.Mix(paint.RGB{0, 0, 0}, 0.3)
	s.c.Ellipse(x, y, 0.55*m, 0.09*m, paint.RGB{24, 30, 30}, 0.4)
	run, hop := 0.0, 0.0
	if q.moving {
		run, hop = math.Sin(q.walked*3.4), 0.05*m*math.Abs(math.Cos(q.walked*3.4))
	}
	at := func(ax, az float64) (float64, float64) { return x + ax*side*m, y - az*m - hop }
	limb := func(ax, az, bx, bz, r float64, col paint.RGB) {
		x0, y0 := at(ax, az)
		x1, y1 := at(bx, bz)
		s.c.Capsule(x0, y0, x1, y1, r*m, col, 1)
	}
	for i, k := range []float64{1, -1} {
		col := dark
		if i == 1 {
			col = fur
		}
		limb(0.27, 0.36, 0.3+0.22*run*k, 0.04, 0.05, col)
		limb(-0.3, 0.36, -0.32-0.22*run*k, 0.04, 0.055, col)
	}
	limb(-0.3, 0.45, 0.28, 0.47, 0.14, fur)
	wag := 0.1 * math.Sin(float64(s.t)*0.012)
	limb(-0.4, 0.5, -0.62, 0.68+wag, 0.035, dark)
	down := 0.0
	if !q.moving {
		down = 0.22 // it sniffs
	}
	limb(0.28, 0.5, 0.46, 0.66-1.3*down, 0.1, fur)
	limb(0.46, 0.7-1.6*down, 0.5, 0.68-1.6*down, 0.12, fur)
	limb(0.52, 0.66-1.6*down, 0.68, 0.62-1.6*down, 0.06, fur)
	limb(0.7, 0.64-1.6*down, 0.7, 0.64-1.6*down, 0.035, paint.RGB{24, 20, 20})
	limb(0.4, 0.78-1.6*down, 0.36, 0.62-1.6*down, 0.055, dark)
	limb(0.32, 0.6-0.6*down, 0.36, 0.48-0.6*down, 0.03, paint.RGB{206, 40, 48}) // collar
}

func (s *stage) cat(x, y, m, side float64, q pose, fur paint.RGB) {
	dark := fur.Mix(paint.RGB{0, 0, 0}, 0.28)
	s.c.Ellipse(x, y, 0.34*m, 0.06*m, paint.RGB{24, 30, 30}, 0.35)
	limb := func(ax, az, bx, bz, r float64, col paint.RGB) {
		s.c.Capsule(x+ax*side*m, y-az*m, x+bx*side*m, y-bz*m, r*m, col, 1)
	}
	head := func(ax, az float64) {
		limb(ax, az, ax+0.03, az, 0.12, fur)
		limb(ax-0.06, az+0.08, ax-0.08, az+0.17, 0.035, dark)
		limb(ax+0.08, az+0.08, ax+0.09, az+0.17, 0.035, fur)
		limb(ax+0.09, az-0.03, ax+0.1, az-0.03, 0.045, paint.RGB{240, 236, 230})
	}
	sway := math.Sin(float64(s.t) * 0.003)
	if q.doing == standing { // it sits
		limb(-0.12, 0.16, 0.0, 0.3, 0.15, fur)
		limb(0.02, 0.3, 0.06, 0.42, 0.1, fur)
		limb(0.08, 0.28, 0.11, 0.03, 0.04, fur)
		limb(-0.24, 0.06, -0.4, 0.06+0.06*(1+sway), 0.04, dark)
		head(0.1, 0.56)
		return
	}
	step := math.Sin(q.walked * 8)
	for i, k := range []float64{1, -1} {
		col := dark
		if i == 1 {
			col = fur
		}
		limb(0.2, 0.24, 0.21+0.12*step*k, 0.03, 0.035, col)
		limb(-0.22, 0.24, -0.23-0.12*step*k, 0.03, 0.04, col)
	}
	limb(-0.22, 0.31, 0.2, 0.31, 0.1, fur)
	limb(-0.3, 0.34, -0.46, 0.5+0.06*sway, 0.035, dark)
	limb(-0.46, 0.5+0.06*sway, -0.44, 0.66+0.06*sway, 0.035, dark)
	head(0.34, 0.44)
}
