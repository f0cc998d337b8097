package stages_test

import (
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"touchline/inference/conformance/stages"
)

// TestLimit: what float16 may differ by grows with what the weights make of a tensor, and a sound is judged by its noise, as long as
// there is no click.
func TestLimit(t *testing.T) {
	t.Parallel()
	const n = 4000
	wave := func(size float64) []float32 {
		v := make([]float32, n)
		for i := range v {
			v[i] = float32(size * math.Sin(float64(i)/7))
		}
		return v
	}
	off := func(v []float32, by float64, at ...int) []float32 {
		v = slices.Clone(v)
		for i := range v {
			if len(at) == 0 || slices.Contains(at, i) {
				v[i] += float32(by * math.Sqrt2 * math.Cos(float64(i)))
			}
		}
		return v
	}
	largest, rms := stages.Limit{Exact: 1e-5, Half: 1e-3, Of: stages.OfLargest}, stages.Limit{Exact: 3e-4, Half: 4e-3, Of: stages.OfRMS}
	plain := stages.Limit{Exact: 1e-5, Half: 2e-3}
	nan := wave(1)
	nan[5] = float32(math.NaN())
	for name, c := range map[string]struct {
		limit     stages.Limit
		want, got []float32
		exact, in bool
	}{
		"a share of a large tensor":       {largest, wave(40), off(wave(40), 0.02), false, true},
		"the same of a small one":         {largest, wave(4), off(wave(4), 0.02), false, false},
		"a small tensor in float32":       {largest, wave(4), off(wave(4), 2e-6), true, true},
		"a large one in float32":          {largest, wave(40), off(wave(40), 0.02), true, false},
		"noise of a sound":                {rms, wave(1), off(wave(1), 2.5e-3), false, true},
		"too much of it":                  {rms, wave(1), off(wave(1), 3.2e-3), false, false},
		"the same noise of a silent one":  {rms, wave(.1), off(wave(.1), 2.5e-3), false, false},
		"one number that is far, no more": {rms, wave(1), off(wave(1), 0.02, 0), false, true},
		"a click":                         {rms, wave(1), off(wave(1), 0.03, 0), false, false},
		"no number":                       {rms, wave(1), nan, false, false},
		"no number, by shares":            {largest, wave(1), nan, false, false},
		"no number in float32":            {rms, wave(1), nan, true, false},
		"nothing":                         {rms, wave(0), wave(0), false, true},
		"something instead of nothing":    {largest, wave(0), off(wave(0), 1e-6), false, false},
		"a difference":                    {plain, wave(40), off(wave(40), 1e-3), false, true},
		"a large difference":              {plain, wave(40), off(wave(40), 2e-3), false, false},
	} {
		far, bound := c.limit.Compare(c.want, c.got, c.exact)
		require.Equal(t, c.in, far <= bound, "%s: %g of %g", name, far, bound)
	}
}
