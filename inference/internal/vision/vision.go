// Package vision prepares pictures for the vision tower: slicing grid, bicubic
// resize, normalised patches and position ids. The results equal those of the
// original preprocessing bit for bit (Pillow 10's bicubic filter with its two 8-bit
// passes).
//
// It runs no model.
package vision

import (
	"fmt"
	"math"

	"touchline/internal/check"
	"touchline/models"
)

// sliceLimit is the maximum number of cells of a picture in any config.
const sliceLimit = 64

// Config holds the preprocessing constants of a checkpoint
// (preprocessor_config.json, and the position table of its vision tower).
type Config struct {
	PatchSize     int        // side of a patch in pixels
	Scale         int        // an image has about Scale*Scale pixels
	MaxSlices     int        // default maximum of a picture's cells
	PositionTable int        // side of the learned position table
	Mean, Std     [3]float64 // of R, G, B after scaling to 0..1
}

// Validate returns all invalid constants, joined.
func (c Config) Validate() error {
	var s check.Settings
	within := func(name string, v, low, high int) {
		s.That(check.Within(v, low, high), name, fmt.Sprintf("between %d and %d", low, high), v)
	}
	within("patch_size", c.PatchSize, 1, 64)
	within("scale_resolution", c.Scale, 16, 4096)
	within("max_slice_nums", c.MaxSlices, 1, sliceLimit)
	within("position table", c.PositionTable, 1, 4096)
	s.That(c.Scale >= c.PatchSize, "scale_resolution", fmt.Sprintf("at least patch_size %d", c.PatchSize), c.Scale)
	for i := range 3 {
		s.That(c.Std[i] > 0 && !math.IsInf(c.Std[i], 0), fmt.Sprintf("norm_std[%d]", i), "a positive number", c.Std[i])
		s.That(!math.IsNaN(c.Mean[i]) && !math.IsInf(c.Mean[i], 0), fmt.Sprintf("norm_mean[%d]", i), "a number", c.Mean[i])
	}
	return s.Err()
}

// Image is one input of the tower: a resized picture or one of its cells, in packed
// 8-bit RGB.
type Image struct {
	Width, Height int
	Rows, Cols    int    // in patches
	Stride        int    // bytes from one row of pixels to the next
	Pix           []byte // starts at the top left pixel
}

// Patches returns the number of patches.
func (m Image) Patches() int { return m.Rows * m.Cols }

// AppendRGB appends the pixels without gaps, top row first.
func (m Image) AppendRGB(dst []byte) []byte {
	for y := range m.Height {
		dst = append(dst, m.Pix[y*m.Stride:][:m.Width*3]...)
	}
	return dst
}

// Preprocessor prepares pictures and keeps its buffers between them. It is not safe
// for concurrent use.
type Preprocessor struct {
	cfg    Config
	values [3][256]float32 // a channel's byte, normalised
	halves [3][256]uint16  // the same as IEEE half precision
	wide   [3][256]uint16  // and as bfloat16

	bands    int
	scaler   *Scaler
	overview []byte
	refined  []byte
}

// New returns a Preprocessor for valid constants, which works with several goroutines on bands of a picture.
func New(cfg Config, bands int) (*Preprocessor, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("check preprocessing constants: %w", err)
	}
	p := &Preprocessor{cfg: cfg, bands: bands, scaler: newScaler(bicubic, 2, bands)}
	for c := range 3 {
		for v := range 256 {
			// The original scales in float64, keeps float32 and normalises that.
			x := (float32(float64(v)/255) - float32(cfg.Mean[c])) / float32(cfg.Std[c])
			p.values[c][v], p.halves[c][v], p.wide[c][v] = x, models.Float16Bits(x), models.BFloat16Bits(x)
		}
	}
	return p, nil
}

// Config returns the constants given to New.
func (p *Preprocessor) Config() Config { return p.cfg }

// Images resizes and cuts a picture of packed 8-bit RGB, top row first, and
// appends the overview and then the cells row by row to dst. The next call
// overwrites their pixels. maxSlices is as in Config.Layout.
func (p *Preprocessor) Images(dst []Image, width, height int, pix []byte, maxSlices int) ([]Image, error) {
	plan, err := p.cfg.Layout(width, height, maxSlices)
	if err != nil {
		return dst, err
	}
	if len(pix) != width*height*3 {
		return dst, fmt.Errorf("expected %d bytes of RGB for a picture of %dx%d, got %d", width*height*3, width, height, len(pix))
	}
	var stride int
	p.overview, stride = p.scaler.Scale(p.overview, Size{width, height}, pix, plan.Overview)
	dst = append(dst, p.image(p.overview, stride, plan.Overview))
	if !plan.Grid.Sliced() {
		return dst, nil
	}
	p.refined, stride = p.scaler.Scale(p.refined, Size{width, height}, pix, plan.Refine)
	for y := range plan.Grid.Rows {
		for x := range plan.Grid.Cols {
			dst = append(dst, p.image(p.refined[y*plan.Cell.H*stride+x*plan.Cell.W*3:], stride, plan.Cell))
		}
	}
	return dst, nil
}

func (p *Preprocessor) image(pix []byte, stride int, s Size) Image {
	return Image{
		Width: s.W, Height: s.H, Rows: s.H / p.cfg.PatchSize, Cols: s.W / p.cfg.PatchSize,
		Stride: stride, Pix: pix,
	}
}

// PatchLen returns the number of values of one patch.
func (p *Preprocessor) PatchLen() int { return 3 * p.cfg.PatchSize * p.cfg.PatchSize }

// Patches writes the normalised patches of m to the front of dst and returns that
// part: one row per patch, row-major, each in the order channel, y, x. It panics if
// dst is shorter than m.Patches()*PatchLen().
func (p *Preprocessor) Patches(dst []float32, m Image) []float32 {
	return patches(p, dst, m, &p.values)
}

// HalfPatches is Patches in IEEE half precision, as bits.
func (p *Preprocessor) HalfPatches(dst []uint16, m Image) []uint16 {
	return patches(p, dst, m, &p.halves)
}

// BFloat16Patches is Patches in bfloat16, as bits.
func (p *Preprocessor) BFloat16Patches(dst []uint16, m Image) []uint16 {
	return patches(p, dst, m, &p.wide)
}

func patches[T float32 | uint16](p *Preprocessor, dst []T, m Image, table *[3][256]T) []T {
	dst = dst[:m.Patches()*p.PatchLen()]
	if p.bands == 1 {
		patchRows(dst, m, 0, m.Rows, table, p.cfg.PatchSize)
		return dst
	}
	together(p.bands, m.Rows, func(_, from, to int) {
		patchRows(dst[from*m.Cols*p.PatchLen():], m, from, to, table, p.cfg.PatchSize)
	})
	return dst
}

// patchRows writes some rows of patches.
func patchRows[T float32 | uint16](out []T, m Image, from, to int, table *[3][256]T, side int) {
	for row := from; row < to; row++ {
		for col := range m.Cols {
			corner := m.Pix[row*side*m.Stride+col*side*3:]
			red, green, blue := out[:side*side], out[side*side:2*side*side], out[2*side*side:3*side*side]
			for y := range side {
				line := corner[y*m.Stride:][:3*side]
				r, g, b := red[y*side:][:side], green[y*side:][:side], blue[y*side:][:side]
				for x := range r {
					px := line[3*x : 3*x+3 : 3*x+3]
					r[x], g[x], b[x] = table[0][px[0]], table[1][px[1]], table[2][px[2]]
				}
			}
			out = out[3*side*side:]
		}
	}
}

// Strip writes m in the original tower's layout, [3, side, side*patches]: patch p
// is columns p*side to p*side+side. It panics if dst is too short.
func (p *Preprocessor) Strip(dst []float32, m Image) []float32 {
	side := p.cfg.PatchSize
	width := side * m.Patches()
	dst = dst[:3*side*width]
	for row := range m.Rows {
		for col := range m.Cols {
			corner := m.Pix[row*side*m.Stride+col*side*3:]
			for y := range side {
				for x := range side {
					for c := range 3 {
						dst[(c*side+y)*width+(row*m.Cols+col)*side+x] = p.values[c][corner[y*m.Stride+3*x+c]]
					}
				}
			}
		}
	}
	return dst
}
