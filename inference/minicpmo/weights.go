package minicpmo

import (
	"math/bits"
	"time"
)

// switcher chooses the weight set of each decode step: the one that is faster
// for the size of the range, as measured at warm-up. It keeps the set of the
// step before unless the other gains more than a margin for several steps, so
// that rooms that come and go do not make it change its mind all the time.
type switcher struct {
	costs   stepCosts
	current int
	doubts  int
}

const (
	switchMargin = 0.03 // gain of the other set below which nothing changes
	switchAfter  = 3    // steps in a row
	never        = time.Duration(1 << 60)
)

// choose returns the set for a range of that size.
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
	// A size that has no graph is not worth a single step.
	if s.doubts++; s.doubts >= switchAfter || mine >= never {
		s.current, s.doubts = best, 0
	}
	return s.current
}

// start takes measured costs and begins with the set that is best for one room.
func (s *switcher) start(costs stepCosts) {
	*s = switcher{costs: costs}
	for set := range costs {
		if s.cost(set, 1) < s.cost(s.current, 1) {
			s.current = set
		}
	}
}

// cost of a size that was not measured (no graph for it) is without bound.
func (s *switcher) cost(set, size int) time.Duration {
	i := bits.Len(uint(size)) - 1
	if set >= len(s.costs) || i >= len(s.costs[set]) || s.costs[set][i] <= 0 {
		return never
	}
	return s.costs[set][i]
}

// step estimates a decode step of that size.
func (s *switcher) step(size int) time.Duration {
	if c := s.cost(s.current, size); c < never {
		return c
	}
	return 0
}

// from is the smallest size for which another set than the first is faster; 0 if none is.
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
