package minicpmo

import (
	"math/bits"
	"time"
)

// switcher chooses the weight set of each decode step: the faster one for the size
// of the range, as measured at warm-up. It changes the set only after the other
// one gained more than a margin for several steps, so that joining and leaving
// rooms do not cause constant changes.
type switcher struct {
	costs   stepCosts
	ownRows int // up to so many rows the first set's costs are by rows, wherever their slots are
	current int
	doubts  int
	few     int // with one row more than that, a step takes a quarter longer for each of its rows; 0 for no such number
}

const (
	switchMargin = 0.03 // minimum gain of the other set
	switchAfter  = 3    // steps in a row
	never        = time.Duration(1 << 60)
)

// choose returns the set for some rows in a range of a size.
func (s *switcher) choose(size, rows int) int {
	if len(s.costs) < 2 {
		return 0
	}
	best, mine := s.current, s.cost(s.current, size, rows)
	for set := range s.costs {
		if c := s.cost(set, size, rows); c < s.cost(best, size, rows) {
			best = set
		}
	}
	gain := float64(mine-s.cost(best, size, rows)) / float64(max(mine, 1))
	bare := s.current > 0 && best == 0 && size <= s.ownRows // only own kernels are warm for so few slots
	if best == s.current || gain <= switchMargin && !bare {
		s.doubts = 0
		return s.current
	}
	// Without a graph for the size the set changes at once.
	if s.doubts++; s.doubts >= switchAfter || mine >= never || bare {
		s.current, s.doubts = best, 0
	}
	return s.current
}

// start sets the measured costs and starts with the fastest set for one room.
func (s *switcher) start(costs stepCosts, ownRows int) {
	*s = switcher{costs: costs, ownRows: ownRows}
	for set := range costs {
		if s.cost(set, 1, 1) < s.cost(s.current, 1, 1) {
			s.current = set
		}
	}
	for n := 1; s.few == 0 && s.least(n+1) < never; n++ {
		if 4*s.least(n+1)/time.Duration(n+1) > 5*s.least(n)/time.Duration(n) {
			s.few = n
		}
	}
}

// least returns the shortest duration of a step of some rows.
func (s *switcher) least(rows int) time.Duration {
	least := never
	for set := range s.costs {
		least = min(least, s.cost(set, rows, rows))
	}
	return least
}

// cost returns the duration of a step, or never for a size without a graph.
func (s *switcher) cost(set, size, rows int) time.Duration {
	if set == 0 && rows <= s.ownRows {
		size = rows
	}
	i := bits.Len(uint(max(size, 1) - 1))
	if set >= len(s.costs) || i >= len(s.costs[set]) || s.costs[set][i] <= 0 {
		return never
	}
	return s.costs[set][i]
}

// step estimates the duration of a decode step.
func (s *switcher) step(size, rows int) time.Duration {
	if c := s.cost(s.current, size, rows); c < never {
		return c
	}
	return 0
}

// from returns the smallest size at which another set is faster than the first; 0 if there is none.
func (s *switcher) from() int {
	if len(s.costs) < 2 {
		return 0
	}
	for i := range s.costs[0] {
		for set := 1; set < len(s.costs); set++ {
			if s.cost(set, 1<<i, 1<<i) < s.cost(0, 1<<i, 1<<i) {
				return 1 << i
			}
		}
	}
	return 0
}
