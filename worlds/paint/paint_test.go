package paint_test

import (
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"touchline/worlds/paint"
)

const width, height = 64, 48

func canvas() paint.Canvas {
	return paint.NewCanvas(make([]byte, paint.I420Size(width, height)), width, height)
}

// area is the share of the luma plane that a white shape covers, in pixels.
func area(c paint.Canvas) float64 {
	sum := 0.0
	for _, v := range c.Y.Pix {
		sum += float64(v) / 235
	}
	return sum
}

func TestShapesCoverTheirArea(t *testing.T) {
	white := paint.RGB{255, 255, 255}
	tests := []struct {
		name string
		draw func(c *paint.Canvas)
		want float64
	}{
		{"rect", func(c *paint.Canvas) { c.Rect(10.25, 5.5, 30.75, 20, white, 1) }, 20.5 * 14.5},
		{"rect beyond the edge", func(c *paint.Canvas) { c.Rect(-10, -10, 4, 200, white, 1) }, 4 * height},
		{"half a rect", func(c *paint.Canvas) { c.Rect(10, 10, 20, 20, white, 0.5) }, 50},
		{"ellipse", func(c *paint.Canvas) { c.Ellipse(30.5, 20.25, 14, 9, white, 1) }, math.Pi * 14 * 9},
		{"capsule", func(c *paint.Canvas) { c.Capsule(15, 20, 45, 24, 5, white, 1) }, math.Hypot(30, 4)*10 + math.Pi*25},
		{"polygon", func(c *paint.Canvas) {
			c.Polygon([]paint.Point{{X: 8, Y: 6}, {X: 52.5, Y: 11.25}, {X: 20, Y: 44}}, white, 1)
		}, 44.5*38/2 - 12*5.25/2},
		{"polygon beyond the edge", func(c *paint.Canvas) {
			c.Polygon([]paint.Point{{X: -20, Y: -9}, {X: 16, Y: -9}, {X: 16, Y: 90}, {X: -20, Y: 90}}, white, 1)
		}, 16 * height},
		{"thin polygon", func(c *paint.Canvas) {
			c.Polygon([]paint.Point{{X: 10, Y: 10}, {X: 50, Y: 10}, {X: 50, Y: 10.5}, {X: 10, Y: 10.5}}, white, 1)
		}, 20},
		{"hairline", func(c *paint.Canvas) { c.Capsule(10, 20, 50, 20, 0.25, white, 1) }, 20},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := canvas()
			tt.draw(&c)
			require.InEpsilon(t, tt.want, area(c), 0.06)
		})
	}
}

// Shapes without an extent cover nothing.
func TestEmptyShapes(t *testing.T) {
	c := canvas()
	c.Ellipse(20, 20, 0, 9, paint.RGB{255, 255, 255}, 1)
	c.Rect(20, 20, 20, 30, paint.RGB{255, 255, 255}, 1)
	c.Polygon([]paint.Point{{X: 90, Y: 10}, {X: 99, Y: 10}, {X: 99, Y: 20}}, paint.RGB{255, 255, 255}, 1)
	require.Zero(t, area(c))
}

// A polygon with four right angles is the rectangle, whichever way round its corners come.
func TestPolygonIsTheRect(t *testing.T) {
	red := paint.RGB{214, 38, 46}
	want := canvas()
	want.Rect(10.5, 6, 40, 31, red, 0.7)
	corners := []paint.Point{{X: 10.5, Y: 6}, {X: 40, Y: 6}, {X: 40, Y: 31}, {X: 10.5, Y: 31}}
	for range 2 {
		got := canvas()
		got.Polygon(corners, red, 0.7)
		for i := range want.Y.Pix {
			require.InDelta(t, want.Y.Pix[i], got.Y.Pix[i], 1)
		}
		for i := range want.U.Pix {
			require.InDelta(t, want.U.Pix[i], got.U.Pix[i], 1)
			require.InDelta(t, want.V.Pix[i], got.V.Pix[i], 1)
		}
		slices.Reverse(corners)
	}
}

// A fade takes the whole picture towards its colour.
func TestFade(t *testing.T) {
	blue, white := paint.RGB{32, 78, 200}, paint.RGB{255, 255, 255}
	at := func(alpha float64) paint.YUV {
		c := canvas()
		c.Rect(0, 0, width, height, blue, 1)
		c.Fade(white, alpha)
		for _, p := range []paint.Plane{c.Y, c.U, c.V} {
			require.Equal(t, slices.Repeat(p.Pix[:1], len(p.Pix)), p.Pix, "the same everywhere")
		}
		return paint.YUV{Y: c.Y.Pix[0], U: c.U.Pix[0], V: c.V.Pix[0]}
	}
	require.Equal(t, blue.YUV(), at(0))
	require.Equal(t, white.YUV(), at(1))
	require.InDelta(t, (float64(blue.YUV().Y)+float64(white.YUV().Y))/2, at(0.5).Y, 1)
	require.Equal(t, blue, blue.Mix(white, 0))
	require.Equal(t, white, blue.Mix(white, 1))
	require.Equal(t, paint.RGB{144, 167, 228}, blue.Mix(white, 0.5))
}

// Fill sets whole pixels of one plane, as far as they lie in it.
func TestFill(t *testing.T) {
	c := canvas()
	c.Y.Fill(60, -3, 99, 2, 235)
	for i, v := range c.Y.Pix {
		x, y := i%width, i/width
		require.Equal(t, x >= 60 && y < 2, v == 235, "at %d, %d", x, y)
	}
}

// An opaque shape leaves nothing of what it covers.
func TestOpaque(t *testing.T) {
	c := canvas()
	c.Rect(0, 0, width, height, paint.RGB{200, 30, 40}, 1)
	c.Rect(0, 0, width, height, paint.RGB{52, 132, 62}, 1)
	want := paint.RGB{52, 132, 62}.YUV()
	for _, v := range c.Y.Pix {
		require.Equal(t, want.Y, v)
	}
	for i := range c.U.Pix {
		require.Equal(t, want, paint.YUV{Y: want.Y, U: c.U.Pix[i], V: c.V.Pix[i]})
	}
}

// A picture that is lit afterwards looks like one that was painted in the light.
func TestRelight(t *testing.T) {
	lamp := paint.Light{Level: 140, DU: 24, DV: -8}
	draw := func(light paint.Light) []byte {
		pic := make([]byte, paint.I420Size(width, height))
		c := paint.NewCanvas(pic, width, height)
		c.Light = light
		c.Rect(0, 0, width/2, height, paint.RGB{214, 38, 46}, 1)
		c.Rect(width/2, 0, width, height, paint.RGB{240, 246, 238}, 1)
		return pic
	}
	lit := make([]byte, paint.I420Size(width, height))
	lamp.Relight(lit, draw(paint.Daylight()), width, height)
	require.Equal(t, draw(lamp), lit)
	require.Equal(t, paint.Daylight(), paint.Daylight().Towards(lamp, 0, 8))
	require.Equal(t, lamp, paint.Daylight().Towards(lamp, 8, 8))
}

// A ray through the place where a point is seen meets the point.
func TestCamera(t *testing.T) {
	cam := paint.NewCamera(paint.At(27, -52, 50), paint.At(27, 33, 0), 62)
	for _, p := range []paint.Vec{paint.At(27, 33, 0), paint.At(3, 30, 0), paint.At(44, 60, 2)} {
		x, y, metre := cam.Project(p)
		ray := cam.Ray(x, y)
		met := cam.Eye.Add(ray.Scale((p.Z - cam.Eye.Z) / ray.Z))
		require.InDelta(t, 0, math.Sqrt(met.Sub(p).Dot(met.Sub(p))), 1e-9)
		require.Positive(t, metre)
	}
	x, y, metre := cam.Project(paint.At(27, 33, 0))
	require.InDelta(t, 0, math.Hypot(x, y), 1e-9)
	require.InDelta(t, 1.0/62, metre, 1e-9)
}

func TestChance(t *testing.T) {
	sum := 0.0
	for i := range uint64(10000) {
		v := paint.Chance(1, i, 2)
		require.True(t, v >= 0 && v < 1)
		require.Equal(t, v, paint.Chance(1, i, 2))
		sum += v
	}
	require.InDelta(t, 5000, sum, 100)
}

// Noise is the same whatever was asked before, stays within its bounds, and wanders without a jump.
func TestNoise(t *testing.T) {
	a, b := paint.Noise{Seed: 3, Layer: 1, Step: 50}, paint.Noise{Seed: 3, Layer: 1, Step: 50}
	last, least, most := a.At(0), 1.0, -1.0
	for tick := range int64(20000) {
		v := a.At(tick)
		require.LessOrEqual(t, math.Abs(v-last), 2.0/50+1e-9)
		last, least, most = v, min(least, v), max(most, v)
	}
	for tick := int64(19999); tick >= 0; tick -= 73 {
		require.Equal(t, a.At(tick), b.At(tick))
	}
	require.True(t, least >= -1 && least < -0.9 && most <= 1 && most > 0.9, "from %g to %g", least, most)
	other := paint.Noise{Seed: 4, Layer: 1, Step: 50}
	require.NotEqual(t, a.At(0), other.At(0))
}

// Every character that worlds write has strokes, and a text is as wide as it says.
func TestText(t *testing.T) {
	for _, r := range "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789:-!" {
		pieces, right := 0, 0.0
		paint.Strokes(string(r), func(x0, y0, x1, y1 float64) {
			pieces++
			require.GreaterOrEqual(t, min(x0, y0, x1, y1), 0.0)
			require.LessOrEqual(t, max(y0, y1), 1.0)
			right = max(right, x0, x1)
		})
		require.Positive(t, pieces, "%c", r)
		require.LessOrEqual(t, right, paint.TextWidth(string(r))+1e-9, "%c", r)
	}
	paint.Strokes("~", func(_, _, _, _ float64) { require.Fail(t, "no such character") })

	c := canvas()
	c.Text(10, 8, 20, "GO", paint.RGB{255, 255, 255}, 0.1)
	require.Greater(t, area(c), 200.0)
	right := 10 + int(20*paint.TextWidth("GO"))
	for i, v := range c.Y.Pix { // half a line of 4 pixels goes beyond
		x, y := i%width, i/width
		require.True(t, v == 0 || x >= 8 && x <= right+2 && y >= 6 && y <= 30, "ink at %d, %d", x, y)
	}
}
