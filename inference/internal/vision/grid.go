package vision

import (
	"fmt"
	"math"
)

// MaxSide bounds the width and the height of a picture, in pixels. It keeps
// the patches of one image at 4096 or fewer for the published settings.
const MaxSide = 16384

// Size is a width and a height in pixels.
type Size struct{ W, H int }

// Grid says how a picture is cut into cells. The zero Grid means it is not.
type Grid struct{ Cols, Rows int }

// Sliced reports whether there are cells beside the overview.
func (g Grid) Sliced() bool { return g.Cols > 0 && g.Rows > 0 }

// Images is how many images the tower sees: the overview and the cells.
func (g Grid) Images() int { return 1 + g.Cols*g.Rows }

// Layout is what becomes of a picture of one size.
type Layout struct {
	Grid     Grid
	Overview Size // the whole picture, resized
	Refine   Size // the whole picture, resized before it is cut; zero when not sliced
	Cell     Size // one cell of Refine; zero when not sliced
}

// Layout plans the images of a width x height picture. At most maxSlices cells
// are cut; 0 means the number of the Config.
func (c Config) Layout(width, height, maxSlices int) (Layout, error) {
	if width < 1 || height < 1 || width > MaxSide || height > MaxSide {
		return Layout{}, fmt.Errorf("expected a picture of 1x1 to %dx%d pixels, is %dx%d", MaxSide, MaxSide, width, height)
	}
	if maxSlices == 0 {
		maxSlices = c.MaxSlices
	}
	if maxSlices < 1 || maxSlices > sliceLimit {
		return Layout{}, fmt.Errorf("expected 1 to %d slices for a picture, is %d", sliceLimit, maxSlices)
	}
	grid := c.grid(width, height, maxSlices)
	w, h := float64(width), float64(height)
	if !grid.Sliced() {
		return Layout{Overview: c.fit(w, h, true)}, nil
	}
	cell := c.fit(
		float64(toMultiple(w, grid.Cols))/float64(grid.Cols),
		float64(toMultiple(h, grid.Rows))/float64(grid.Rows), true)
	return Layout{
		Grid:     grid,
		Overview: c.fit(w, h, false),
		Refine:   Size{cell.W * grid.Cols, cell.H * grid.Rows},
		Cell:     cell,
	}, nil
}

// grid picks the cells whose common shape is nearest to the picture's, among
// the counts next to what its area asks for. The first wins a tie.
func (c Config) grid(width, height, maxSlices int) Grid {
	area := float64(width*height) / float64(c.Scale*c.Scale)
	want := min(int(math.Ceil(area)), maxSlices)
	if want <= 1 {
		return Grid{}
	}
	shape := math.Log(float64(width) / float64(height))
	best, nearest := Grid{1, 1}, math.Inf(1)
	for n := want - 1; n <= want+1; n++ {
		if n == 1 || n > maxSlices {
			continue
		}
		for cols := 1; cols <= n; cols++ {
			if n%cols != 0 {
				continue
			}
			rows := n / cols
			if d := math.Abs(shape - math.Log(float64(cols)/float64(rows))); d < nearest {
				best, nearest = Grid{cols, rows}, d
			}
		}
	}
	return best
}

// fit is the size near w x h of about Scale squared pixels whose sides are
// multiples of a patch. A small picture is enlarged only when up is set.
func (c Config) fit(w, h float64, up bool) Size {
	scale := float64(c.Scale)
	if w*h > scale*scale || up {
		ratio := w / h
		h = math.Trunc(scale / math.Sqrt(ratio))
		w = math.Trunc(h * ratio)
	}
	return Size{toMultiple(w, c.PatchSize), toMultiple(h, c.PatchSize)}
}

// toMultiple rounds x to a multiple of k, at least k; halves go to the even one.
func toMultiple(x float64, k int) int {
	return max(int(math.RoundToEven(x/float64(k)))*k, k)
}
