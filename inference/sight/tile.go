package sight

import (
	"cmp"
	"math"
	"slices"

	"touchline/inference"
)

const (
	partShare  = 0.6  // of the longer side
	edgeShare  = 0.02 // of a part, in which a box counts as cut
	sameThing  = 0.5  // overlap of two boxes of a class
	sameAcross = 0.75 // of two classes
	insideIt   = 0.8  // of the smaller box that lies in the larger one
)

// halves returns two overlapping parts of a picture, along its longer side.
func halves(f inference.Frame) []rect {
	first, second := whole(f), whole(f)
	if f.Width >= f.Height {
		size := int(math.RoundToEven(partShare * float64(f.Width)))
		first.x1, second.x0 = size, f.Width-size
	} else {
		size := int(math.RoundToEven(partShare * float64(f.Height)))
		first.y1, second.y0 = size, f.Height-size
	}
	return []rect{first, second}
}

// cut reports whether an inner edge of a part cuts a box, which is then seen whole elsewhere.
func cut(b inference.Box, f inference.Frame, r rect) bool {
	mx, my := edgeShare*float32(r.x1-r.x0), edgeShare*float32(r.y1-r.y0)
	return r.x0 > 0 && b.X0 < float32(r.x0)+mx || r.x1 < f.Width && b.X1 > float32(r.x1)-mx ||
		r.y0 > 0 && b.Y0 < float32(r.y0)+my || r.y1 < f.Height && b.Y1 > float32(r.y1)-my
}

// join removes the boxes that show a thing again: by their overlap, and pieces that another look found inside a whole.
func join(found []candidate) []candidate {
	slices.SortStableFunc(found, func(a, b candidate) int { return cmp.Compare(b.score, a.score) })
	kept := found[:0]
next:
	for _, c := range found {
		for i := range kept {
			k := &kept[i]
			both, overlap := shared(c.Box, k.Box)
			switch {
			case overlap > sameAcross, c.class == k.class && overlap > sameThing,
				c.class == k.class && c.look != k.look && both > insideIt*min(size(c.Box), size(k.Box)):
				continue next
			}
		}
		kept = append(kept, c)
	}
	return kept
}
