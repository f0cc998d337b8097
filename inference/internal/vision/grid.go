package vision

import (
	"cmp"
	"fmt"
	"math"
)

// MaxSide is the maximum width and height of a picture in pixels. With the
// published settings an image then has at most 4096 patches.
const MaxSide = 16384

// Size is a width and a height in pixels.
type Size struct{ W, H int }

// Grid is the division of a picture into cells; zero for an undivided picture.
type Grid struct{ Cols, Rows int }

// Sliced reports whether there are cells besides the overview.
func (g Grid) Sliced() bool { return g.Cols > 0 && g.Rows > 0 }

// Images returns the number of images for the tower: the overview and the cells.
func (g Grid) Images() int { return 1 + g.Cols*g.Rows }

// Layout holds the sizes of a picture's images.
type Layout struct {
	Grid     Grid
	Overview Size // the whole picture, resized
	Refine   Size // the picture resized before it is cut; zero if not sliced
	Cell     Size // a cell of Refine; zero if not sliced
}

// Layout plans the images of a width x height picture with at most maxSlices cells;
// 0 means Config.MaxSlices.
func (c Config) Layout(width, height, maxSlices int) (Layout, error) {
	if width < 1 || height < 1 || width > MaxSide || height > MaxSide {
		return Layout{}, fmt.Errorf("expected a picture of 1x1 to %dx%d pixels, got %dx%d", MaxSide, MaxSide, width, height)
	}
	maxSlices = cmp.Or(maxSlices, c.MaxSlices)
	if maxSlices < 1 || maxSlices > sliceLimit {
		return Layout{}, fmt.Errorf("expected 1 to %d slices for a picture, got %d", sliceLimit, maxSlices)
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

// grid returns the grid with the aspect ratio nearest to the picture's, of those
// with about as many cells as the area needs. The first wins a tie.
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

// fit returns the size of about Scale squared pixels with the aspect ratio of w x h and sides that
// are multiples of a patch. It enlarges a small picture only if up is set.
func (c Config) fit(w, h float64, up bool) Size {
	scale := float64(c.Scale)
	if w*h > scale*scale || up {
		ratio := w / h
		h = math.Trunc(scale / math.Sqrt(ratio))
		w = math.Trunc(h * ratio)
	}
	return Size{toMultiple(w, c.PatchSize), toMultiple(h, c.PatchSize)}
}

// toMultiple rounds x to a multiple of k, at least k, halves to even.
func toMultiple(x float64, k int) int {
	return max(int(math.RoundToEven(x/float64(k)))*k, k)
}
