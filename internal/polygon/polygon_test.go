package polygon_test

import (
	"encoding/json"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"touchline/internal/polygon"
)

type points = []polygon.Point

func shape(p ...polygon.Point) polygon.Shape { return polygon.Shape{Aspect: 2, Points: p} }

func TestValidate(t *testing.T) {
	t.Parallel()
	many := make(points, 17)
	for i := range many {
		many[i] = polygon.Point{float64(i) / 20, float64(i*i) / 400}
	}
	tests := []struct {
		name   string
		line   bool
		points points
		want   string
	}{
		{"triangle", false, points{{0, 0}, {1, 0}, {0, 1}}, ""},
		{"concave", false, points{{0, 0}, {1, 0}, {1, 1}, {0.5, 0.2}}, ""},
		{"a corner on a straight edge", false, points{{0, 0}, {0.5, 0}, {1, 0}, {0, 1}}, ""},
		{"line", true, points{{0, 0.5}, {1, 0.5}}, ""},
		{"bent line", true, points{{0, 0.5}, {0.5, 0.2}, {1, 0.5}}, ""},
		{"sixteen", true, many[:16], ""},
		{"two corners", false, points{{0, 0}, {1, 1}}, "points: must be 3 to 16, are 2"},
		{"one point", true, points{{0, 0}}, "points: must be 2 to 16, are 1"},
		{"seventeen", false, many, "points: must be 3 to 16, are 17"},
		{"outside", false, points{{0, 0}, {1.5, 0}, {0, 1}}, "points[1]: must be [x, y] from 0 to 1, is [1.5, 0]"},
		{"no number", false, points{{0, 0}, {math.NaN(), 0}, {0, 1}}, "points[1]: must be [x, y] from 0 to 1, is [NaN, 0]"},
		{"twice", false, points{{0, 0}, {1, 0}, {1, 0}, {0, 1}}, "points[1]: is at the same place as the next point"},
		{"first again", false, points{{0, 0}, {1, 0}, {0, 1}, {0, 0}}, "points[3]: is at the same place as the next point"},
		{
			"bow", false,
			points{{0, 0}, {1, 1}, {1, 0}, {0, 1}},
			"points: the edge from point 0 crosses the edge from point 2; draw it without a crossing",
		},
		{"crossing line", true, points{{0, 0}, {1, 1}, {1, 0}, {0, 1}}, "points: the edge from point 0 crosses the edge from point 2"},
		{"back on itself", false, points{{0, 0}, {1, 0}, {0.5, 0}}, "points: the edge from point 0 crosses the edge from point 1"},
		{"touching", false, points{{0, 0}, {1, 0}, {1, 1}, {0.5, 0}, {0, 1}}, "points: the edge from point 0 crosses the edge from point 2"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			err := shape(tt.points...).Validate(tt.line)
			if tt.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, tt.want)
		})
	}
	require.EqualError(t, polygon.Shape{Points: points{{0, 0}, {1, 0}, {0, 1}}}.Validate(false),
		"aspect: must be width / height between 0.05 and 20, is 0")
}

func TestContains(t *testing.T) {
	t.Parallel()
	l := shape(points{{0.1, 0.1}, {0.9, 0.1}, {0.9, 0.4}, {0.4, 0.4}, {0.4, 0.9}, {0.1, 0.9}}...)
	require.True(t, l.Contains(polygon.Point{0.2, 0.8}))
	require.True(t, l.Contains(polygon.Point{0.8, 0.2}))
	require.False(t, l.Contains(polygon.Point{0.8, 0.8}))
	require.False(t, l.Contains(polygon.Point{0.95, 0.2}))
}

func TestSide(t *testing.T) {
	t.Parallel()
	up := shape(points{{0.5, 1}, {0.5, 0}}...)
	require.Equal(t, -1, up.Side(polygon.Point{0.4, 0.5}), "left of the way up")
	require.Equal(t, 1, up.Side(polygon.Point{0.6, 0.5}))
	require.Equal(t, 0, up.Side(polygon.Point{0.5, 0.5}))
	bent := shape(points{{0, 0.5}, {0.5, 0}, {1, 0.5}}...)
	require.Equal(t, 1, bent.Side(polygon.Point{0.5, 0.5}), "below the roof")
	require.Equal(t, -1, bent.Side(polygon.Point{0.9, 0.1}))
	require.Equal(t, -1, bent.Side(polygon.Point{0.1, 0.1}))
}

func TestCrosses(t *testing.T) {
	t.Parallel()
	up := shape(points{{0.5, 0.9}, {0.5, 0.5}}...)
	require.True(t, up.Crosses(polygon.Point{0.4, 0.7}, polygon.Point{0.6, 0.8}))
	require.True(t, up.Crosses(polygon.Point{0.5, 0.7}, polygon.Point{0.6, 0.8}), "from the line")
	require.False(t, up.Crosses(polygon.Point{0.4, 0.4}, polygon.Point{0.6, 0.4}), "past its end")
	require.False(t, up.Crosses(polygon.Point{0.6, 0.6}, polygon.Point{0.7, 0.6}))
}

func TestFits(t *testing.T) {
	t.Parallel()
	wide := polygon.Shape{Aspect: 16.0 / 9}
	for _, size := range [][2]int{{1920, 1080}, {1920, 1088}, {640, 360}, {448, 252}, {64, 36}, {1906, 1080}, {854, 480}} {
		require.True(t, wide.Fits(size[0], size[1]), size)
	}
	for _, size := range [][2]int{{1080, 1920}, {640, 480}, {1880, 1080}, {1080, 1080}, {0, 0}} {
		require.False(t, wide.Fits(size[0], size[1]), size)
	}
}

func covered(m polygon.Masks, w, h int) []bool {
	out := make([]bool, w*h)
	for _, r := range m.Cover(w, h) {
		for x := r.X0; x < r.X1; x++ {
			out[r.Y*w+x] = true
		}
	}
	return out
}

// TestCover: a mask covers all its pixels and about a pixel around them; another ratio covers everything.
func TestCover(t *testing.T) {
	t.Parallel()
	m := polygon.Masks{Shapes: []polygon.Shape{shape(points{{0.25, 0.25}, {0.75, 0.25}, {0.5, 0.75}}...)}}
	const w, h = 200, 100
	at := covered(m, w, h)
	for y := range h {
		for x := range w {
			near := false
			for dy := -3.0; dy <= 3; dy++ {
				for dx := -3.0; dx <= 3; dx++ {
					near = near || m.Shapes[0].Contains(polygon.Point{(float64(x) + 0.5 + dx) / w, (float64(y) + 0.5 + dy) / h})
				}
			}
			inside := m.Shapes[0].Contains(polygon.Point{(float64(x) + 0.5) / w, (float64(y) + 0.5) / h})
			require.True(t, !inside || at[y*w+x], "%d, %d", x, y)
			require.True(t, near || !at[y*w+x], "%d, %d is far outside", x, y)
		}
	}
	require.NotContains(t, covered(m, 100, 200), false, "another ratio")
	require.NotContains(t, covered(polygon.Masks{All: true}, 8, 8), false)
	require.Empty(t, polygon.Masks{}.Cover(8, 8))
	require.False(t, polygon.Masks{}.Any())
}

func FuzzShape(f *testing.F) {
	for _, seed := range []string{
		`{"aspect":2,"points":[[0,0],[1,0],[0,1]]}`, `{"aspect":1.7778,"points":[[0,0.5],[1,0.5]]}`,
		`{"aspect":1,"points":[[0,0],[1,1],[1,0],[0,1]]}`, `{"aspect":1e9,"points":[[0,0],[0,0],[0,0]]}`, `{"points":[]}`,
		`{"aspect":20,"points":[[0,0],[1,0],[1,1],[0.5,0.0000001],[0,1]]}`,
	} {
		f.Add([]byte(seed), uint16(64), uint16(36))
	}
	f.Fuzz(func(t *testing.T, text []byte, width, height uint16) {
		var s polygon.Shape
		if json.Unmarshal(text, &s) != nil || s.Validate(false) != nil {
			return
		}
		w, h := int(width)%300+1, int(height)%300+1
		require.NoError(t, s.Validate(true), "a polygon without its last edge is a line")
		at := covered(polygon.Masks{Shapes: []polygon.Shape{s}}, w, h)
		for y := range h {
			for x := range w {
				inside := s.Contains(polygon.Point{(float64(x) + 0.5) / float64(w), (float64(y) + 0.5) / float64(h)})
				require.True(t, !inside || at[y*w+x], "%d, %d of %d x %d", x, y, w, h)
			}
		}
		require.Contains(t, []int{-1, 0, 1}, s.Side(polygon.Point{0.3, 0.6}))
	})
}
