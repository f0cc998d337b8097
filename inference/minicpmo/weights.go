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
	current int
	doubts  int
}

const (
	switchMargin = 0.03 // minimum gain of the other set
	switchAfter  = 3    // steps in a row
	never        = time.Duration(1 << 60)
)

// choose returns the set for a range of a size.
func (s *switcher) choose(size int) int {
	if len(s.costs) < 2 {
		return 0
	}
	best, mine := s.current, s.cost(s.current, size)
	for set := range s.costs {
		if c := s.cost(set, size); c < s.cost(best, size) {
			best = set
		}
	}
	gain := float64(mine-s.cost(best, size)) / float64(max(mine, 1))
	if best == s.current || gain <= switchMargin {
		s.doubts = 0
		return s.current
	}
	// Without a graph for the size the set changes at once.
	if s.doubts++; s.doubts >= switchAfter || mine >= never {
		s.current, s.doubts = best, 0
	}
	return s.current
}

// start sets the measured costs and starts with the fastest set for one room.
func (s *switcher) start(costs stepCosts) {
	*s = switcher{costs: costs}
	for set := range costs {
		if s.cost(set, 1) < s.cost(s.current, 1) {
			s.current = set
		}
	}
}

// cost returns the duration of a step, or never for a size without a graph.
func (s *switcher) cost(set, size int) time.Duration {
	i := bits.Len(uint(size)) - 1
	if set >= len(s.costs) || i >= len(s.costs[set]) || s.costs[set][i] <= 0 {
		return never
	}
	return s.costs[set][i]
}

// step estimates the duration of a decode step.
func (s *switcher) step(size int) time.Duration {
	if c := s.cost(s.current, size); c < never {
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
			if s.cost(set, 1<<i) < s.cost(0, 1<<i) {
				return 1 << i
			}
		}
	}
	return 0
}
