package paint_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"touchline/media/toyworld/paint"
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
}
