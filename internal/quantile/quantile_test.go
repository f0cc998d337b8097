package quantile_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"touchline/internal/quantile"
)

func TestOf(t *testing.T) {
	require.Zero(t, quantile.Of[time.Duration](nil, 0.5))
	values := []int{40, 10, 30, 20}
	for q, want := range map[float64]int{-1: 10, 0: 10, 0.25: 10, 0.26: 20, 0.5: 20, 0.75: 30, 0.95: 40, 1: 40, 2: 40} {
		require.Equal(t, want, quantile.Of(values, q), "%g", q)
	}
	require.Equal(t, []int{40, 10, 30, 20}, values, "the values keep their order")
}
