package sight

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"

	"touchline/inference"
	"touchline/inference/internal/ort"
	"touchline/inference/internal/vision"
	"touchline/inference/sight/facts"
	bundle "touchline/models/sight"
)

const (
	mostCandidates = 400 // that are compared
	mostBoxes      = 100 // of a look
	leastSide      = 2   // pixels
	stillCell      = 8   // pixels of a side of the cells by which a part is compared with the one before
	stillChange    = 5   // levels, of the mean of a cell, above which a part is looked at again
	stillLooks     = 3   // in a row that find the same in a part before it keeps that: as many as a track needs to be believed
)

// detector finds things in pictures. Safe for concurrent use; each run uses one thread.
type detector struct {
	network *ort.Network
	params  bundle.Detector

	mu   sync.Mutex
	free []*detection
}

// openDetector loads the detector of a bundle with an ONNX Runtime: a file, a folder, or "" to search.
func openDetector(b *bundle.Bundle, library string) (*detector, error) {
	n, err := ort.OpenNetwork(library, b.Path(b.Manifest.Detector.File), ort.SessionOptions{Threads: 1, Arena: true})
	if err != nil {
		return nil, fmt.Errorf("open the detector: %w", err)
	}
	return &detector{network: n, params: b.Manifest.Detector}, nil
}

// Close frees the detector when no detect runs.
func (d *detector) Close() error {
	var errs []error
	for _, l := range d.free {
		errs = append(errs, l.call.Close())
	}
	d.free = nil
	return errors.Join(append(errs, d.network.Close())...)
}

// partSeen is the last look at a part of a room's pictures: where it was, its small picture, what was found, and how many looks found it.
type partSeen struct {
	rect
	small []byte
	found []candidate
	looks int
}

// note takes what a look found.
func (s *partSeen) note(found []candidate) {
	if s.looks++; !sameSure(found, s.found) {
		s.looks = 1
	}
	s.found = append(s.found[:0], found...)
}

// sameSure reports whether two looks found the same, apart from doubtful boxes.
func sameSure(a, b []candidate) bool {
	doubtful := func(c candidate) bool { return c.score < facts.SureScore }
	a, b = slices.DeleteFunc(slices.Clone(a), doubtful), slices.DeleteFunc(slices.Clone(b), doubtful)
	return len(a) == len(b) && !slices.ContainsFunc(a, func(c candidate) bool {
		return !slices.ContainsFunc(b, func(o candidate) bool {
			_, overlap := shared(c.Box, o.Box)
			return c.class == o.class && overlap > sameThing
		})
	})
}

// detect returns the things in a picture with a score of 0.3 or more, the best first. With parts it looks at two overlapping halves as
// well, at three times the cost, and finds things of half the size. What was seen in the parts of the room's last picture stays where they
// did not change; seen may be nil.
func (d *detector) detect(f inference.Frame, parts bool, seen *[3]partSeen) ([]facts.Box, error) {
	if err := checkFrame(f); err != nil {
		return nil, fmt.Errorf("detect: %w", err)
	}
	l, err := d.take()
	if err != nil {
		return nil, fmt.Errorf("detect: %w", err)
	}
	defer d.put(l)
	rects := []rect{whole(f)}
	if parts {
		rects = append(rects, halves(f)...)
	}
	l.found = l.found[:0]
	for i, r := range rects {
		if seen != nil && l.still(f, r, &seen[i]) {
			l.found = append(l.found, seen[i].found...)
			continue
		}
		start := len(l.found)
		if err := l.look(f, r, i); err != nil {
			return nil, fmt.Errorf("detect: %w", err)
		}
		if seen != nil {
			seen[i].note(l.found[start:])
		}
	}
	if parts {
		l.found = join(l.found)
	}
	boxes := make([]facts.Box, len(l.found))
	for i, c := range l.found {
		w, h := float32(f.Width), float32(f.Height)
		boxes[i] = facts.Box{Class: d.params.Classes[c.class], Score: c.score, X0: c.X0 / w, Y0: c.Y0 / h, X1: c.X1 / w, Y1: c.Y1 / h}
	}
	return boxes, nil
}

// take returns the buffers of a run: used ones, else new ones. As many stay as there were runs at once.
func (d *detector) take() (*detection, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if n := len(d.free); n > 0 {
		l := d.free[n-1]
		d.free = d.free[:n-1]
		return l, nil
	}
	c, err := d.network.NewCall()
	if err != nil {
		return nil, err
	}
	l := &detection{params: &d.params, call: c}
	side, anchors := int64(d.params.Side), int64(len(d.params.Anchors))
	if l.input, err = ort.Input[float32](c, "image", 1, 3, side, side); err == nil {
		l.boxes, err = ort.Output[float32](c, "boxes", 1, anchors, 4)
	}
	if err == nil {
		l.logits, err = ort.Output[float32](c, "classes", 1, anchors, int64(len(d.params.Classes)))
	}
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return l, nil
}

func (d *detector) put(l *detection) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.free = append(d.free, l)
}

// detection has the buffers of a run.
type detection struct {
	params *bundle.Detector
	call   *ort.Call
	scaler scaler

	input, boxes, logits []float32

	small []byte      // of a part
	all   []candidate // of a look
	found []candidate // of all looks at a picture
}

// candidate is a box in pixels of the whole picture.
type candidate struct {
	inference.Box

	score float32
	class int // of bundle.Detector.Classes
	look  int // 0 for the whole picture
}

func size(b inference.Box) float32 { return max(0, b.X1-b.X0) * max(0, b.Y1-b.Y0) }

// shared returns the area of two boxes together, and that divided by the area of either.
func shared(a, b inference.Box) (both, overlap float32) {
	both = size(inference.Box{X0: max(a.X0, b.X0), Y0: max(a.Y0, b.Y0), X1: min(a.X1, b.X1), Y1: min(a.Y1, b.Y1)})
	return both, both / (size(a) + size(b) - both + 1e-9)
}

// still reports whether a part of a picture did not change since it did last, and enough looks found the same in it.
func (l *detection) still(f inference.Frame, r rect, seen *partSeen) bool {
	size := vision.Size{W: max(1, (r.x1-r.x0)/stillCell), H: max(1, (r.y1-r.y0)/stillCell)}
	pix, stride := l.scaler.scale(f, r, size)
	l.small = l.small[:0]
	for y := range size.H {
		l.small = append(l.small, pix[y*stride:][:3*size.W]...)
	}
	same := seen.rect == r && len(seen.small) == len(l.small)
	for i := 0; same && i < len(l.small); i++ {
		same = max(l.small[i], seen.small[i])-min(l.small[i], seen.small[i]) <= stillChange
	}
	if !same {
		seen.rect, seen.small, seen.looks = r, append(seen.small[:0], l.small...), 0
	}
	return seen.looks >= stillLooks
}

// look adds what the network finds in a part of a picture.
func (l *detection) look(f inference.Frame, r rect, number int) error {
	p := l.params
	l.scaler.fill(l.input, vision.Size{W: p.Side, H: p.Side}, f, r, [3]int{0, 1, 2}, 1, 0)
	if err := l.call.Run(); err != nil {
		return err
	}
	l.decode(r, number)
	slices.SortStableFunc(l.all, func(a, b candidate) int { return cmp.Compare(b.score, a.score) })
	l.all = l.all[:min(len(l.all), mostCandidates)]
	start := len(l.found)
next:
	for i := range l.all {
		c := &l.all[i]
		for k := start; k < len(l.found); k++ {
			_, overlap := shared(c.Box, l.found[k].Box)
			if overlap >= p.Across || c.class == l.found[k].class && overlap >= p.Same {
				continue next
			}
		}
		if l.found = append(l.found, *c); len(l.found)-start == mostBoxes {
			break
		}
	}
	x0, y0, x1, y1 := float32(r.x0), float32(r.y0), float32(r.x1), float32(r.y1)
	for i := range l.found[start:] {
		c := &l.found[start+i]
		c.X0, c.Y0, c.X1, c.Y1 = max(x0, c.X0), max(y0, c.Y0), min(x1, c.X1), min(y1, c.Y1)
	}
	l.found = append(l.found[:start], slices.DeleteFunc(l.found[start:], func(c candidate) bool {
		return c.X1-c.X0 < leastSide || c.Y1-c.Y0 < leastSide || cut(c.Box, f, r)
	})...)
	return nil
}

// decode fills all with the boxes above the least score.
func (l *detection) decode(r rect, number int) {
	p, width := l.params, len(l.params.Classes)
	least := float32(math.Log(float64(p.Least / (1 - p.Least))))
	w, h := float32(r.x1-r.x0), float32(r.y1-r.y0)
	exp := func(v float32) float32 { return float32(math.Exp(float64(v))) }
	l.all = l.all[:0]
	for i, a := range p.Anchors {
		for class, logit := range l.logits[i*width:][:width] {
			if logit < least || p.Classes[class] == "" {
				continue
			}
			t := l.boxes[4*i:][:4]
			ah, aw := a[2]-a[0], a[3]-a[1]
			cy, cx := t[0]/10*ah+(a[0]+a[2])/2, t[1]/10*aw+(a[1]+a[3])/2
			bh, bw := exp(t[2]/5)*ah/2, exp(t[3]/5)*aw/2
			l.all = append(l.all, candidate{
				Box: inference.Box{
					X0: float32(r.x0) + w*(cx-bw), Y0: float32(r.y0) + h*(cy-bh),
					X1: float32(r.x0) + w*(cx+bw), Y1: float32(r.y0) + h*(cy+bh),
				},
				score: 1 / (1 + exp(-logit)), class: class, look: number,
			})
		}
	}
}
