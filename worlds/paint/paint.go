// Package paint is the drawing kit of the generated worlds: colours and light, anti-aliased shapes
// in I420, letters, a camera, and chance that depends on its arguments only.
//
// It knows no world, keeps no time and encodes nothing.
package paint

import (
	"math"
)

// RGB is a colour: red, green, blue, 0 to 255 each.
type RGB [3]uint8

// YUV is a colour in BT.601, limited range, which WebRTC's encoders expect of I420.
type YUV struct{ Y, U, V uint8 }

// YUV converts by the BT.601 matrix.
func (c RGB) YUV() YUV {
	r, g, b := int(c[0]), int(c[1]), int(c[2])
	return YUV{
		Y: uint8((66*r+129*g+25*b+128)>>8 + 16),
		U: uint8((-38*r-74*g+112*b+128)>>8 + 128),
		V: uint8((112*r-94*g-18*b+128)>>8 + 128),
	}
}

// Mix returns c for a = 0, d for a = 1, and colours between them.
func (c RGB) Mix(d RGB, a float64) RGB {
	f := func(p, q uint8) uint8 { return uint8(math.Round(float64(p) + (float64(q)-float64(p))*a)) }
	return RGB{f(c[0], d[0]), f(c[1], d[1]), f(c[2], d[2])}
}

// Light is the state of the lamps: brightness and tint. It can be the key of a cache, so it holds
// small integers only.
type Light struct {
	// Level is the brightness; 256 is full.
	Level int16
	// DU and DV shift the chroma.
	DU, DV int16
}

// Daylight returns the light that changes nothing.
func Daylight() Light { return Light{Level: 256} }

// Apply lights one colour.
func (l Light) Apply(c YUV) YUV {
	if l == Daylight() {
		return c
	}
	lv := int(l.Level)
	return YUV{
		Y: clamp8(16 + (int(c.Y)-16)*lv>>8),
		U: clamp8(128 + (int(c.U)-128+int(l.DU))*lv>>8),
		V: clamp8(128 + (int(c.V)-128+int(l.DV))*lv>>8),
	}
}

// Towards returns the light at k/n of the way to another.
func (l Light) Towards(to Light, k, n int64) Light {
	mix := func(a, b int16) int16 { return a + int16((int64(b)-int64(a))*k/n) }
	return Light{mix(l.Level, to.Level), mix(l.DU, to.DU), mix(l.DV, to.DV)}
}

// Relight copies an I420 picture of the given size from src to dst and applies the light.
func (l Light) Relight(dst, src []byte, width, height int) {
	n, c := width*height, (width/2)*(height/2)
	var y, u, v [256]byte
	for i := range 256 {
		k := l.Apply(YUV{uint8(i), uint8(i), uint8(i)})
		y[i], u[i], v[i] = k.Y, k.U, k.V
	}
	translate(dst[:n], src[:n], &y)
	translate(dst[n:n+c], src[n:n+c], &u)
	translate(dst[n+c:n+2*c], src[n+c:n+2*c], &v)
}

func translate(dst, src []byte, table *[256]byte) {
	for i, b := range src {
		dst[i] = table[b]
	}
}

func clamp8(v int) uint8 { return uint8(max(0, min(255, v))) }

// Canvas paints anti-aliased shapes straight into I420. Lengths are in pixels, alpha is from 0 to 1.
type Canvas struct {
	// W and H are the picture's size.
	W, H int
	// Y, U and V are its planes.
	Y, U, V Plane
	// Light applies to the shapes that are painted from now on.
	Light Light
}

// Plane is one of the three parts of an I420 picture, without padding.
type Plane struct {
	W, H int
	Pix  []byte
}

// NewCanvas lays the three planes over buf, which must hold I420Size bytes.
func NewCanvas(buf []byte, w, h int) Canvas {
	n, c := w*h, (w/2)*(h/2)
	return Canvas{
		W: w, H: h, Light: Daylight(),
		Y: Plane{w, h, buf[:n]},
		U: Plane{w / 2, h / 2, buf[n : n+c]},
		V: Plane{w / 2, h / 2, buf[n+c : n+2*c]},
	}
}

// I420Size is the number of bytes of a picture with even sides.
func I420Size(w, h int) int { return w*h + 2*(w/2)*(h/2) }

// Copy replaces the picture by another I420 picture of the same size.
func (c *Canvas) Copy(pic []byte) {
	n, m := len(c.Y.Pix), len(c.U.Pix)
	copy(c.Y.Pix, pic[:n])
	copy(c.U.Pix, pic[n:n+m])
	copy(c.V.Pix, pic[n+m:])
}

// snap rounds to sixteenths of a pixel. The last bit of a float may differ between processors;
// rounding keeps it out of the picture.
func snap(v float64) float64 { return math.Round(v*16) / 16 }

// Ellipse fills an ellipse with centre (cx, cy) and half-axes rx, ry.
func (c *Canvas) Ellipse(cx, cy, rx, ry float64, col RGB, alpha float64) {
	k := c.Light.Apply(col.YUV())
	a := int(alpha*256 + 0.5)
	cx, cy, rx, ry = snap(cx), snap(cy), snap(rx), snap(ry)
	c.Y.ellipse(cx, cy, rx, ry, k.Y, a)
	c.U.ellipse(cx/2, cy/2, rx/2, ry/2, k.U, a)
	c.V.ellipse(cx/2, cy/2, rx/2, ry/2, k.V, a)
}

// Capsule fills a thick line with round ends.
func (c *Canvas) Capsule(x0, y0, x1, y1, r float64, col RGB, alpha float64) {
	k := c.Light.Apply(col.YUV())
	a := int(alpha*256 + 0.5)
	x0, y0, x1, y1, r = snap(x0), snap(y0), snap(x1), snap(y1), snap(r)
	c.Y.capsule(x0, y0, x1, y1, r, k.Y, a)
	c.U.capsule(x0/2, y0/2, x1/2, y1/2, r/2, k.U, a)
	c.V.capsule(x0/2, y0/2, x1/2, y1/2, r/2, k.V, a)
}

// Rect fills a rectangle with edges at fractions of a pixel.
func (c *Canvas) Rect(x0, y0, x1, y1 float64, col RGB, alpha float64) {
	k := c.Light.Apply(col.YUV())
	a := int(alpha*256 + 0.5)
	x0, y0, x1, y1 = snap(x0), snap(y0), snap(x1), snap(y1)
	c.Y.rect(x0, y0, x1, y1, k.Y, a)
	c.U.rect(x0/2, y0/2, x1/2, y1/2, k.U, a)
	c.V.rect(x0/2, y0/2, x1/2, y1/2, k.V, a)
}

// Fade blends the whole picture towards a colour.
func (c *Canvas) Fade(col RGB, alpha float64) {
	k, a := col.YUV(), int(alpha*256+0.5)
	for _, p := range []struct {
		pix []byte
		val uint8
	}{{c.Y.Pix, k.Y}, {c.U.Pix, k.U}, {c.V.Pix, k.V}} {
		var lut [256]uint8
		for i := range lut {
			lut[i] = blend(uint8(i), p.val, a)
		}
		for i, b := range p.pix {
			p.pix[i] = lut[b]
		}
	}
}

// opaque is the alpha at which blend leaves nothing of dst.
const opaque = 256

// blend mixes src over dst.
func blend(dst, src uint8, a int) uint8 {
	return uint8((int(dst)*(256-a) + int(src)*a + 128) >> 8)
}

// span returns the part of a row or column that a shape can touch.
func span(lo, hi float64, n int) (int, int) {
	return max(0, int(math.Floor(lo))), min(n, int(math.Ceil(hi)))
}

func (p Plane) ellipse(cx, cy, rx, ry float64, val uint8, alpha int) {
	if rx <= 0 || ry <= 0 {
		return
	}
	y0, y1 := span(cy-ry-1, cy+ry+1, p.H)
	soft := min(rx, ry)
	ix, iy := 1/rx, 1/ry
	for y := y0; y < y1; y++ {
		dy := (float64(y) + 0.5 - cy) * iy
		reach := (1+0.5/soft)*(1+0.5/soft) - dy*dy
		if reach <= 0 {
			continue
		}
		half := math.Sqrt(reach) * rx
		x0, x1 := span(cx-half-1, cx+half+1, p.W)
		row := p.Pix[y*p.W : (y+1)*p.W]
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
			if a == opaque {
				row[x] = val
			} else {
				row[x] = blend(row[x], val, a)
			}
		}
	}
}

func (p Plane) capsule(x0, y0, x1, y1, r float64, val uint8, alpha int) {
	top, bottom := span(min(y0, y1)-r-1, max(y0, y1)+r+1, p.H)
	left, right := span(min(x0, x1)-r-1, max(x0, x1)+r+1, p.W)
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
	inner, outer := (r-0.5)*(r-0.5), (r+0.5)*(r+0.5)
	for y := top; y < bottom; y++ {
		py := float64(y) + 0.5 - y0
		row := p.Pix[y*p.W : (y+1)*p.W]
		for x := left; x < right; x++ {
			px := float64(x) + 0.5 - x0
			t := max(0, min(1, (px*dx+py*dy)*inv))
			ex, ey := px-t*dx, py-t*dy
			d2 := ex*ex + ey*ey
			switch {
			case d2 >= outer:
			case d2 <= inner && full == opaque:
				row[x] = val
			default:
				cov := min(1, r+0.5-math.Sqrt(d2))
				row[x] = blend(row[x], val, int(cov*float64(full)))
			}
		}
	}
}

func (p Plane) rect(x0, y0, x1, y1 float64, val uint8, alpha int) {
	top, bottom := span(y0, y1, p.H)
	left, right := span(x0, x1, p.W)
	for y := top; y < bottom; y++ {
		cy := min(float64(y)+1, y1) - max(float64(y), y0)
		row := p.Pix[y*p.W : (y+1)*p.W]
		whole := int(cy * float64(alpha)) // of the pixels between the edges
		for x := left; x < right; x++ {
			switch {
			case float64(x) < x0 || float64(x)+1 > x1:
				cov := cy * (min(float64(x)+1, x1) - max(float64(x), x0))
				row[x] = blend(row[x], val, int(cov*float64(alpha)))
			case whole == opaque:
				row[x] = val
			default:
				row[x] = blend(row[x], val, whole)
			}
		}
	}
}

// Fill sets a rectangle with whole pixels, as far as it lies in the plane.
func (p Plane) Fill(x0, y0, x1, y1 int, val uint8) {
	for y := max(0, y0); y < min(p.H, y1); y++ {
		row := p.Pix[y*p.W : (y+1)*p.W]
		for x := max(0, x0); x < min(p.W, x1); x++ {
			row[x] = val
		}
	}
}

// Chance returns a number from 0 to 1 (1 excluded) that depends on its arguments only (splitmix64).
func Chance(a, b, c uint64) float64 {
	z := a*0x9e3779b97f4a7c15 ^ (b+0x632be59bd9b4e019)*0xbf58476d1ce4e5b9 ^ (c+0x1d8e4e27c47d124f)*0x94d049bb133111eb
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return float64((z^z>>31)>>11) / (1 << 53)
}
