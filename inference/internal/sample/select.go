package sample

// kth returns the k-th largest value of a row, with a heap of the k largest values
// so far, smallest on top.
func (s *Sampler) kth(row []float32, k int) float32 {
	s.heap = append(s.heap[:0], row[:k]...)
	h := s.heap
	for i := k/2 - 1; i >= 0; i-- {
		sink(h, i)
	}
	for _, v := range row[k:] {
		if v > h[0] {
			h[0] = v
			sink(h, 0)
		}
	}
	return h[0]
}

func sink(h []float32, i int) {
	v := h[i]
	for {
		c := 2*i + 1
		if c >= len(h) {
			break
		}
		if c+1 < len(h) && h[c+1] < h[c] {
			c++
		}
		if h[c] >= v {
			break
		}
		h[i] = h[c]
		i = c
	}
	h[i] = v
}
