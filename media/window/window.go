// Package window keeps the latest sampled pictures of one source and selects those for
// an engine.
//
// It is pure data: no goroutine, no clock, not safe for concurrent use.
package window

import (
	"slices"

	"touchline/media"
)

// Frame is a picture in the window.
type Frame struct {
	// ID counts all pictures ever pushed, from 1.
	ID uint64
	media.VideoFrame
}

// Window is a ring of sampled pictures.
type Window struct {
	ring  []Frame // oldest first
	most  int
	limit int // at most most
	next  uint64
}

// New returns a window that keeps the given number of pictures, at least one.
func New(capacity int) *Window {
	n := max(capacity, 1)
	return &Window{most: n, limit: n, next: 1}
}

// Push adds a picture and returns its ID; a full ring drops the oldest. A picture of
// another epoch empties the window first; one that is not newer than the newest is
// not added, and the newest's ID is returned.
func (w *Window) Push(f media.VideoFrame) uint64 {
	if n := len(w.ring); n > 0 {
		last := &w.ring[n-1]
		switch {
		case last.Epoch != f.Epoch:
			w.Clear()
		case f.PTS <= last.PTS:
			return last.ID
		}
	}
	w.trim(w.limit - 1)
	id := w.next
	w.next++
	w.ring = append(w.ring, Frame{ID: id, VideoFrame: f})
	return id
}

// Limit sets the number of pictures to keep, up to the capacity: a picture of 448x252
// is a third of a megabyte.
func (w *Window) Limit(n int) {
	w.limit = min(max(n, 1), w.most)
	w.trim(w.limit)
}

// trim drops the oldest pictures until n are left.
func (w *Window) trim(n int) {
	if drop := len(w.ring) - n; drop > 0 {
		w.ring = slices.Delete(w.ring, 0, drop)
	}
}

// Clear empties the window; IDs continue.
func (w *Window) Clear() {
	clear(w.ring)
	w.ring = w.ring[:0]
}

// Len returns the number of pictures in the window.
func (w *Window) Len() int { return len(w.ring) }

// Newest returns the newest picture; false if the window is empty.
func (w *Window) Newest() (Frame, bool) {
	if len(w.ring) == 0 {
		return Frame{}, false
	}
	return w.ring[len(w.ring)-1], true
}

// Select returns n pictures, every stride-th counted back from the newest, oldest
// first; fewer when the window has too few.
func (w *Window) Select(n, stride int) []Frame {
	n, stride = max(n, 1), max(stride, 1)
	out := make([]Frame, 0, n)
	for i := len(w.ring) - 1; i >= 0 && len(out) < n; i -= stride {
		out = append(out, w.ring[i])
	}
	slices.Reverse(out)
	return out
}

// side of the miniature that Difference compares, and of its blocks.
const (
	side  = 64
	block = 8
)

// Signature is a picture's 64x64 luma miniature.
type Signature [side * side]uint8

// Sign returns the miniature: the mean luma of a few samples in each cell.
func Sign(f media.VideoFrame) *Signature {
	var s Signature
	if f.Width <= 0 || f.Height <= 0 || len(f.Pix) < f.Width*f.Height*3 {
		return &s
	}
	const taps = 4
	for y := range side {
		for x := range side {
			var sum int
			for ty := range taps {
				py := ((y*taps+ty)*2 + 1) * f.Height / (2 * side * taps)
				for tx := range taps {
					px := ((x*taps+tx)*2 + 1) * f.Width / (2 * side * taps)
					p := f.Pix[(py*f.Width+px)*3:]
					sum += 77*int(p[0]) + 150*int(p[1]) + 29*int(p[2]) // BT.601 luma, /256
				}
			}
			s[y*side+x] = uint8(sum / (256 * taps * taps))
		}
	}
	return &s
}

// Change is how much two pictures differ, 0 to 255.
type Change struct {
	// Mean is the mean difference over the 64x64 miniature.
	Mean float64
	// Peak is the mean over the block (1/8 by 1/8 of the picture) with the largest
	// change: it shows small movement before a still background.
	Peak float64
}

// Whole is the change from no picture.
const Whole = 255

// Difference compares two miniatures; a nil one counts as a whole change.
func Difference(a, b *Signature) Change {
	if a == nil || b == nil {
		return Change{Mean: Whole, Peak: Whole}
	}
	var c Change
	var total int
	for by := 0; by < side; by += block {
		for bx := 0; bx < side; bx += block {
			var sum int
			for y := by; y < by+block; y++ {
				for x := bx; x < bx+block; x++ {
					d := int(a[y*side+x]) - int(b[y*side+x])
					sum += max(d, -d)
				}
			}
			total += sum
			c.Peak = max(c.Peak, float64(sum)/(block*block))
		}
	}
	c.Mean = float64(total) / (side * side)
	return c
}

// peakFactor times the threshold is the Peak that counts as a change of the scene.
const peakFactor = 4

// Below reports whether a change is below a threshold (0 to 255; always false for 0),
// in the mean and in each block.
func (c Change) Below(threshold float64) bool {
	return c.Mean < threshold && c.Peak < peakFactor*threshold
}
