package sight

import (
	"fmt"

	"touchline/inference"
	"touchline/inference/internal/vision"
)

// rect is a part of a picture in pixels; the right and the lower end are exclusive.
type rect struct{ x0, y0, x1, y1 int }

// whole returns the part that is the whole picture.
func whole(f inference.Frame) rect { return rect{0, 0, f.Width, f.Height} }

func checkFrame(f inference.Frame) error {
	if f.Width < 1 || f.Height < 1 || len(f.Pix) != f.Width*f.Height*3 {
		return fmt.Errorf("a picture of %dx%d pixels must have %d bytes, has %d", f.Width, f.Height, f.Width*f.Height*3, len(f.Pix))
	}
	return nil
}

// scaler scales parts of pictures, and makes inputs of networks from them. Not safe for concurrent use.
type scaler struct {
	vision       *vision.Scaler
	part, scaled []byte
}

// scale scales a part of a picture to size. The pixels are valid until the next call; their rows are stride bytes apart.
func (s *scaler) scale(f inference.Frame, r rect, size vision.Size) (pix []byte, stride int) {
	if s.vision == nil {
		s.vision = vision.NewBilinear()
	}
	pix = f.Pix
	if r != whole(f) {
		s.part = s.part[:0]
		for y := r.y0; y < r.y1; y++ {
			s.part = append(s.part, pix[3*(y*f.Width+r.x0):3*(y*f.Width+r.x1)]...)
		}
		pix = s.part
	}
	s.scaled, stride = s.vision.Scale(s.scaled, vision.Size{W: r.x1 - r.x0, H: r.y1 - r.y0}, pix, size)
	return s.scaled, stride
}

// fill scales a part of a picture to size and writes its planes, in the order of the channels, each byte times gain plus shift.
func (s *scaler) fill(planes []float32, size vision.Size, f inference.Frame, r rect, channels [3]int, gain, shift float32) {
	pix, stride := s.scale(f, r, size)
	var table [256]float32
	for v := range table {
		table[v] = float32(v)*gain + shift
	}
	area := size.W * size.H
	for c, from := range channels {
		plane := planes[c*area:][:area]
		for y := range size.H {
			row, out := pix[y*stride:][:3*size.W], plane[y*size.W:][:size.W]
			for x := range out {
				out[x] = table[row[3*x+from]]
			}
		}
	}
}
