package toyworld

import (
	"math"
)

// rgb is a colour as people write it.
type rgb struct{ r, g, b uint8 }

// yuv is a colour in BT.601, limited range, which is what WebRTC's encoders expect of I420.
type yuv struct{ y, u, v uint8 }

// yuv converts by the BT.601 matrix.
func (c rgb) yuv() yuv {
	r, g, b := int(c.r), int(c.g), int(c.b)
	return yuv{
		y: uint8((66*r+129*g+25*b+128)>>8 + 16),
		u: uint8((-38*r-74*g+112*b+128)>>8 + 128),
		v: uint8((112*r-94*g-18*b+128)>>8 + 128),
	}
}

// mix goes from c to d, a from 0 to 1.
func (c rgb) mix(d rgb, a float64) rgb {
	f := func(p, q uint8) uint8 { return uint8(math.Round(float64(p) + (float64(q)-float64(p))*a)) }
	return rgb{f(c.r, d.r), f(c.g, d.g), f(c.b, d.b)}
}

// light is the state of the floodlights: how bright, and towards which colour.
// It is part of a cache's key, so it holds small integers only.
type light struct {
	level  int16 // 256 = full
	du, dv int16 // chroma shift
}

// daylight changes nothing.
func daylight() light { return light{level: 256} }

// apply lights one colour.
func (l light) apply(c yuv) yuv {
	if l == daylight() {
		return c
	}
	lv := int(l.level)
	return yuv{
		y: clamp8(16 + (int(c.y)-16)*lv>>8),
		u: clamp8(128 + (int(c.u)-128+int(l.du))*lv>>8),
		v: clamp8(128 + (int(c.v)-128+int(l.dv))*lv>>8),
	}
}

func clamp8(v int) uint8 { return uint8(max(0, min(255, v))) }

// canvas paints anti-aliased shapes straight into I420.
type canvas struct {
	w, h    int
	y, u, v plane
	light   light
}

// plane is one of the three parts of an I420 picture.
type plane struct {
	w, h int
	pix  []byte
}

// newCanvas lays the three planes over buf, which must hold i420Size bytes.
func newCanvas(buf []byte, w, h int) canvas {
	n, c := w*h, (w/2)*(h/2)
	return canvas{
		w: w, h: h, light: daylight(),
		y: plane{w, h, buf[:n]},
		u: plane{w / 2, h / 2, buf[n : n+c]},
		v: plane{w / 2, h / 2, buf[n+c : n+2*c]},
	}
}

// i420Size is the number of bytes of a picture with even sides.
func i420Size(w, h int) int { return w*h + 2*(w/2)*(h/2) }

// snap rounds to sixteenths of a pixel, so that the last bit of a float, which
// may differ between processors, does not show in the picture.
func snap(v float64) float64 { return math.Round(v*16) / 16 }

// ellipse fills one with centre (cx, cy) and half-axes rx, ry.
func (c *canvas) ellipse(cx, cy, rx, ry float64, col rgb, alpha float64) {
	k := c.light.apply(col.yuv())
	a := int(alpha*256 + 0.5)
	cx, cy, rx, ry = snap(cx), snap(cy), snap(rx), snap(ry)
	c.y.ellipse(cx, cy, rx, ry, k.y, a)
	c.u.ellipse(cx/2, cy/2, rx/2, ry/2, k.u, a)
	c.v.ellipse(cx/2, cy/2, rx/2, ry/2, k.v, a)
}

// capsule fills a thick line with round ends.
func (c *canvas) capsule(x0, y0, x1, y1, r float64, col rgb, alpha float64) {
	k := c.light.apply(col.yuv())
	a := int(alpha*256 + 0.5)
	x0, y0, x1, y1, r = snap(x0), snap(y0), snap(x1), snap(y1), snap(r)
	c.y.capsule(x0, y0, x1, y1, r, k.y, a)
	c.u.capsule(x0/2, y0/2, x1/2, y1/2, r/2, k.u, a)
	c.v.capsule(x0/2, y0/2, x1/2, y1/2, r/2, k.v, a)
}

// rect fills a rectangle with edges at fractions of a pixel.
func (c *canvas) rect(x0, y0, x1, y1 float64, col rgb, alpha float64) {
	k := c.light.apply(col.yuv())
	a := int(alpha*256 + 0.5)
	x0, y0, x1, y1 = snap(x0), snap(y0), snap(x1), snap(y1)
	c.y.rect(x0, y0, x1, y1, k.y, a)
	c.u.rect(x0/2, y0/2, x1/2, y1/2, k.u, a)
	c.v.rect(x0/2, y0/2, x1/2, y1/2, k.v, a)
}

// fade blends the whole picture towards a colour.
func (c *canvas) fade(col rgb, alpha float64) {
	k, a := col.yuv(), int(alpha*256+0.5)
	for _, p := range []struct {
		pix []byte
		val uint8
	}{{c.y.pix, k.y}, {c.u.pix, k.u}, {c.v.pix, k.v}} {
		var lut [256]uint8
		for i := range lut {
			lut[i] = blend(uint8(i), p.val, a)
		}
		for i, b := range p.pix {
			p.pix[i] = lut[b]
		}
	}
}

func blend(dst, src uint8, a int) uint8 {
	return uint8((int(dst)*(256-a) + int(src)*a + 128) >> 8)
}

// span is the part of a row or column that a shape can touch.
func span(lo, hi float64, n int) (int, int) {
	return max(0, int(math.Floor(lo))), min(n, int(math.Ceil(hi)))
}

func (p plane) ellipse(cx, cy, rx, ry float64, val uint8, alpha int) {
	if rx <= 0 || ry <= 0 {
		return
	}
	y0, y1 := span(cy-ry-1, cy+ry+1, p.h)
	soft := min(rx, ry)
	ix, iy := 1/rx, 1/ry
	for y := y0; y < y1; y++ {
		dy := (float64(y) + 0.5 - cy) * iy
		reach := (1+0.5/soft)*(1+0.5/soft) - dy*dy
		if reach <= 0 {
			continue
		}
		half := math.Sqrt(reach) * rx
		x0, x1 := span(cx-half-1, cx+half+1, p.w)
		row := p.pix[y*p.w : (y+1)*p.w]
		inner := (1 - 0.5/soft)
		for x := x0; x < x1; x++ {
			dx := (float64(x) + 0.5 - cx) * ix
			d2 := dx*dx + dy*dy
			a := alpha
			if inner <= 0 || d2 > inner*inner {
				cov := 0.5 + (1-math.Sqrt(d2))*soft
				if cov <= 0 {
					continue
				}
				a = int(min(cov, 1) * float64(alpha))
			}
			row[x] = blend(row[x], val, a)
		}
	}
}

func (p plane) capsule(x0, y0, x1, y1, r float64, val uint8, alpha int) {
	top, bottom := span(min(y0, y1)-r-1, max(y0, y1)+r+1, p.h)
	left, right := span(min(x0, x1)-r-1, max(x0, x1)+r+1, p.w)
	dx, dy := x1-x0, y1-y0
	length := dx*dx + dy*dy
	inv := 0.0
	if length > 0 {
		inv = 1 / length
	}
	full := alpha
	if r < 0.5 { // thinner than a pixel: paler instead
		full = int(float64(alpha) * r * 2)
		r = 0.5
	}
	for y := top; y < bottom; y++ {
		py := float64(y) + 0.5 - y0
		row := p.pix[y*p.w : (y+1)*p.w]
		for x := left; x < right; x++ {
			px := float64(x) + 0.5 - x0
			t := max(0, min(1, (px*dx+py*dy)*inv))
			ex, ey := px-t*dx, py-t*dy
			d2 := ex*ex + ey*ey
			if d2 >= (r+0.5)*(r+0.5) {
				continue
			}
			cov := min(1, r+0.5-math.Sqrt(d2))
			row[x] = blend(row[x], val, int(cov*float64(full)))
		}
	}
}

func (p plane) rect(x0, y0, x1, y1 float64, val uint8, alpha int) {
	top, bottom := span(y0, y1, p.h)
	left, right := span(x0, x1, p.w)
	for y := top; y < bottom; y++ {
		cy := min(float64(y)+1, y1) - max(float64(y), y0)
		row := p.pix[y*p.w : (y+1)*p.w]
		for x := left; x < right; x++ {
			cov := cy * (min(float64(x)+1, x1) - max(float64(x), x0))
			row[x] = blend(row[x], val, int(cov*float64(alpha)))
		}
	}
}
