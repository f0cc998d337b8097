// Package quantile computes quantiles of values in memory.
package quantile

import (
	"cmp"
	"math"
	"slices"
)

// Of returns the q-quantile (nearest rank) of values in any order, from the smallest at 0 to the largest at 1;
// the zero value without values.
func Of[T cmp.Ordered](values []T, q float64) T {
	if len(values) == 0 {
		var zero T
		return zero
	}
	sorted := slices.Sorted(slices.Values(values))
	rank := int(math.Ceil(q * float64(len(sorted))))
	return sorted[min(max(rank, 1), len(sorted))-1]
}
