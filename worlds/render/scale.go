package main

// scaler scales I420 pictures down by area: each pixel is the mean of the pixels that it covers.
type scaler struct {
	same   bool
	planes [3]scaledPlane
}

// scaledPlane scales one plane.
type scaledPlane struct {
	width, height int // of the source
	cols, rows    []tap
	mid           []int32 // the scaled columns before scaling the rows, in sixteenths
}

// tap describes the source pixels of one target pixel along one axis.
type tap struct {
	first   int
	weights []int32 // parts of unit
}

// unit is the sum of the weights of a tap.
const unit = 1 << 12

func newScaler(from, to size) *scaler {
	s := &scaler{same: from == to}
	for i := range s.planes {
		f, t := from, to
		if i > 0 {
			f, t = size{f.width / 2, f.height / 2}, size{t.width / 2, t.height / 2}
		}
		s.planes[i] = scaledPlane{
			width: f.width, height: f.height, cols: taps(f.width, t.width), rows: taps(f.height, t.height),
			mid: make([]int32, t.width*f.height),
		}
	}
	return s
}

// taps returns the source pixels, of n, for each of m target pixels.
func taps(n, m int) []tap {
	out := make([]tap, m)
	ratio := float64(n) / float64(m)
	for i := range out {
		lo, hi := float64(i)*ratio, float64(i+1)*ratio
		t := tap{first: int(lo)}
		left := int32(unit)
		for x := t.first; x < n && float64(x) < hi-1e-9; x++ {
			covered := min(float64(x+1), hi) - max(float64(x), lo)
			w := int32(covered/ratio*unit + 0.5)
			t.weights = append(t.weights, w)
			left -= w
		}
		t.weights[0] += left
		out[i] = t
	}
	return out
}

func (s *scaler) scale(dst, src []byte) {
	if s.same {
		copy(dst, src)
		return
	}
	for i := range s.planes {
		p := &s.planes[i]
		p.scale(dst, src)
		src, dst = src[p.width*p.height:], dst[len(p.cols)*len(p.rows):]
	}
}

func (p *scaledPlane) scale(dst, src []byte) {
	const keep = 4 // extra bits between the two passes
	cols := len(p.cols)
	for y := range p.height {
		row, mid := src[y*p.width:(y+1)*p.width], p.mid[y*cols:(y+1)*cols]
		for x := range p.cols {
			t := &p.cols[x]
			v := int32(0)
			for k, w := range t.weights {
				v += w * int32(row[t.first+k])
			}
			mid[x] = v >> (12 - keep)
		}
	}
	for y := range p.rows {
		t := &p.rows[y]
		for x := range cols {
			v := int32(0)
			for k, w := range t.weights {
				v += w * p.mid[(t.first+k)*cols+x]
			}
			dst[y*cols+x] = uint8(min(255, (v+unit<<keep/2)/(unit<<keep))) // 0 to 255
		}
	}
}
