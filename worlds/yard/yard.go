// Package yard is a generated view of a security camera: a yard with a gate, a house door, a
// parking place and a lamp, by day and by night. It owns its script, its pictures, its sound, and
// the truth about them.
//
// A seed determines the events. Everything is a function of time alone: any moment can be drawn
// without the moments before it. The package keeps no time and paints into buffers of others.
package yard

import (
	"math"
	"time"

	"touchline/worlds/paint"
)

// Yard is one yard. It is not safe for concurrent use.
type Yard struct {
	width, height int
	seed          uint64
	began         time.Time     // what the camera's clock shows at the start
	shift         time.Duration // of the clock, for training

	script  *script
	weather *weather
	camera  paint.Camera

	plain [2][]byte // the static background in full light: dry and wet
	pool  []uint8   // the lamp's share of the light on each 2x2 pixels
	damp  layer     // dry and wet mixed
	lit   layer     // under the light of the moment
}

// layer is a background and the sky it was made for.
type layer struct {
	sky  sky
	made bool
	pix  []byte
}

// New makes a yard for pictures of the given even size. In a still yard nothing ever happens, and
// only the camera's clock runs. It draws nothing yet.
func New(seed uint64, width, height int, still bool) *Yard {
	y := &Yard{
		width: width, height: height, seed: seed,
		script: newScript(seed, still), weather: newWeather(seed, still), camera: viewpoint(),
	}
	minutes := time.Duration(paint.Chance(seed, 5, 1)*365*24*60) * time.Minute
	y.began = time.Date(2024, 1, 1, 0, 0, int(60*paint.Chance(seed, 5, 2)), 0, time.UTC).Add(minutes)
	return y
}

// ShiftClock advances the camera's clock by a time, and nothing else. Training pictures use it to
// show times other than the scene's.
func (y *Yard) ShiftClock(by time.Duration) { y.shift = by }

// Hurry removes long pauses between acts, so that several people are often present. Call it first.
func (y *Yard) Hurry() { y.script.busy = true }

// shows returns the time on the camera's clock.
func (y *Yard) shows(at time.Duration) time.Time { return y.began.Add(at + y.shift) }

// viewpoint is the camera under the eaves of a house outside the picture.
func viewpoint() paint.Camera {
	return paint.NewCamera(paint.At(9.2, -9, 6), paint.At(9.2, 4.5, 0.75), 16)
}

// pictureEdges returns the x of the picture's left and right edge on the ground, y metres from the front.
func pictureEdges(y float64) (left, right float64) {
	_, _, m := viewpoint().Project(paint.At(9.2, y, 0))
	return 9.2 - 0.5/m, 9.2 + 0.5/m
}

// Draw paints the picture of a moment.
func (y *Yard) Draw(at time.Duration, c *paint.Canvas) {
	t := at.Milliseconds()
	y.script.until(t)
	y.weather.until(t)
	now := y.weather.at(t)
	c.Copy(y.background(now.sky))
	s := stage{yard: y, c: c, now: now, t: t}
	s.play()
	s.rain()
	c.Light = paint.Daylight()
	y.clock(c, at)
}

// Prepare paints background n before its first use. It reports whether there is one.
func (y *Yard) Prepare(n int) bool {
	if n != 0 {
		return false
	}
	y.weather.until(0)
	y.background(y.weather.at(0).sky)
	return true
}

// background returns the static part of the yard under the given sky.
func (y *Yard) background(now sky) []byte {
	size := paint.I420Size(y.width, y.height)
	if y.pool == nil {
		y.plain[0], y.plain[1] = y.bake(false), y.bake(true)
		y.pool = y.bakePool()
		y.damp.pix, y.lit.pix = make([]byte, size), make([]byte, size)
	}
	if y.lit.made && y.lit.sky == now {
		return y.lit.pix
	}
	from := y.plain[0]
	if now.wet > 0 {
		from = y.damp.pix
		if !y.damp.made || y.damp.sky.wet != now.wet {
			mixInto(from, y.plain[0], y.plain[1], now.wet)
		}
		y.damp.made, y.damp.sky = true, now
	}
	y.illuminate(y.lit.pix, from, now)
	y.lit.made, y.lit.sky = true, now
	c := paint.NewCanvas(y.lit.pix, y.width, y.height)
	y.glow(&c, now)
	y.caption(&c)
	return y.lit.pix
}

// mixInto blends two pictures; k/wetSteps is the second one's share.
func mixInto(dst, a, b []byte, k int) {
	for i := range dst {
		dst[i] = uint8((int(a[i])*(wetSteps-k) + int(b[i])*k + wetSteps/2) / wetSteps)
	}
}

// illuminate lights every pixel by its share of the lamp.
func (y *Yard) illuminate(dst, src []byte, now sky) {
	var tables [poolSteps + 1][3][256]byte
	for p := range tables {
		l := now.light(p)
		for i := range 256 {
			k := l.Apply(paint.YUV{Y: uint8(i), U: uint8(i), V: uint8(i)})
			tables[p][0][i], tables[p][1][i], tables[p][2][i] = k.Y, k.U, k.V
		}
	}
	w, n, m := y.width, y.width*y.height, len(y.pool)
	half := w / 2
	for i, p := range y.pool {
		table := &tables[p]
		at := i/half*2*w + i%half*2
		for _, j := range [4]int{at, at + 1, at + w, at + w + 1} {
			dst[j] = table[0][src[j]]
		}
		dst[n+i], dst[n+m+i] = table[1][src[n+i]], table[2][src[n+m+i]]
	}
}

// lightAt returns the light on a person at a place.
func (y *Yard) lightAt(now sky, px, py float64) paint.Light {
	return now.light(pool(px, py, 0.6))
}

// pool returns the lamp's share of the light at a place, of poolSteps.
func pool(x, y, z float64) int {
	d := math.Hypot(x-lampX, y-lampY) + 0.4*max(0, z-1)
	return int(poolSteps*(1-smooth(max(0, min(1, (d-1)/10)))) + 0.5)
}

// project returns a place on the picture and the pixels per metre there.
func (y *Yard) project(x, d, z float64) (px, py, metre float64) {
	px, py, metre = y.camera.Project(paint.At(x, d, z))
	w := float64(y.width)
	return px*w + w/2, py*w + float64(y.height)/2, metre * w
}

// point is project without the scale.
func (y *Yard) point(x, d, z float64) paint.Point {
	px, py, _ := y.project(x, d, z)
	return paint.Point{X: px, Y: py}
}

// caption is the constant part of the camera's line of text.
func (y *Yard) caption(c *paint.Canvas) {
	u := float64(y.width) / 100
	c.Rect(1.6*u, 1.6*u, 49.8*u, 5.4*u, paint.RGB{0, 0, 0}, 0.45)
	c.Text(2.4*u, 2.5*u, 2*u, "CAM 1", paint.RGB{255, 255, 255}, 0.085)
}

// clock returns the date and time in the camera's line of text.
func (y *Yard) clock(c *paint.Canvas, at time.Duration) {
	u := float64(y.width) / 100
	c.Text(14*u, 2.5*u, 2*u, y.shows(at).Format(time.DateOnly), paint.RGB{255, 255, 255}, 0.085)
	c.Text(34*u, 2.5*u, 2*u, y.shows(at).Format(time.TimeOnly), paint.RGB{255, 255, 255}, 0.085)
}
