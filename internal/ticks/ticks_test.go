package ticks_test

import (
	"math/big"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"touchline/internal/ticks"
)

const tenYears = 10 * 365 * 24 * time.Hour

// TestTenYears compares conversions of up to ten years, at 8 to 90 kHz, with exact arithmetic.
func TestTenYears(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	exact := func(a, b, c int64) int64 { // a*b/c
		product := new(big.Int).Mul(big.NewInt(a), big.NewInt(b))
		return product.Quo(product, big.NewInt(c)).Int64()
	}
	second := int64(time.Second)
	for _, rate := range []int64{8000, 11025, 16000, 22050, 24000, 44100, 48000, 90000, 8000 + random.Int64N(82001)} {
		most := exact(int64(tenYears), rate, second)
		counts := []int64{0, 1, rate - 1, rate, 28 * 3600 * rate, 161 * 3600 * rate, most}
		for range 300 {
			counts = append(counts, random.Int64N(most))
		}
		for i, n := range counts {
			d := ticks.Duration(n, rate)
			require.Equal(t, exact(n, second, rate), int64(d), "%d at %d Hz", n, rate)
			require.Equal(t, -d, ticks.Duration(-n, rate))
			require.Equal(t, exact(int64(d), rate, second), ticks.Count(d, rate), "%v at %d Hz", d, rate)
			require.Equal(t, -ticks.Count(d, rate), ticks.Count(-d, rate))
			require.InDelta(t, n, ticks.Count(d, rate), 1, "there and back")
			if i > 0 {
				require.Equal(t, n < counts[i-1], d < ticks.Duration(counts[i-1], rate), "order")
			}
		}
	}
}
