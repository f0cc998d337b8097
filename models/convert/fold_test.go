package convert_test

import (
	"math"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"touchline/models"
	"touchline/models/convert"
	"touchline/models/graph"
)

// whole reads a tensor.
func whole(tb testing.TB, src models.Source, name string) []float64 {
	tb.Helper()
	info, ok := src.Info(name)
	require.True(tb, ok, name)
	values := make([]float32, info.Rows()*info.Cols())
	require.NoError(tb, src.Rows(values, name, 0, info.Rows()))
	wide := make([]float64, len(values))
	for i, v := range values {
		wide[i] = float64(v)
	}
	return wide
}

// norm computes a LayerNorm in the simplest way.
func norm(x []float64, epsilon float64, weight, bias func(i int) float64) []float64 {
	n := float64(len(x))
	var sum, squares float64
	for _, v := range x {
		sum += v
	}
	for _, v := range x {
		squares += (v - sum/n) * (v - sum/n)
	}
	out := make([]float64, len(x))
	for i, v := range x {
		out[i] = (v-sum/n)/math.Sqrt(squares/n+epsilon)*weight(i) + bias(i)
	}
	return out
}

func dot(a, b []float64) float64 {
	var sum float64
	for i := range a {
		sum += a[i] * b[i]
	}
	return sum
}

// requireComputed checks weights that are no plain copies of the checkpoint's by
// their effect.
func requireComputed(t *testing.T, src models.Source, w graph.Weight, got []float32) {
	t.Helper()
	tolerance := 1e-5
	switch w.Type {
	case models.Float16:
		tolerance = 1e-2
	case models.BFloat16: // three bits fewer
		tolerance = 8e-2
	default:
	}
	if w.Rule == graph.RuleQueries {
		requireQueries(t, src, w, got, tolerance)
		return
	}
	require.Equal(t, graph.RuleTranspose, w.Rule, w.Name)
	matrix, weight, bias := whole(t, src, w.Sources[0]), whole(t, src, w.Fold.Weight), whole(t, src, w.Fold.Bias)
	constants := whole(t, src, w.Fold.Biases[0])
	k, n := w.Shape[0], w.Shape[1]
	x := make([]float64, k)
	for i := range x {
		x[i] = 3*math.Sin(float64(i*i)) + 1
	}
	before := norm(x, 1e-6, func(i int) float64 { return weight[i] }, func(i int) float64 { return bias[i] })
	after := norm(x, 1e-6, func(int) float64 { return 1 }, func(int) float64 { return w.Fold.Shift })
	for o := range n {
		want, have := dot(before, matrix[o*k:][:k])+constants[o], 0.0
		if w.Fold.Keys {
			want -= constants[o] + dot(bias, matrix[o*k:][:k])
		}
		for i, v := range after {
			have += v * float64(got[i*n+o])
		}
		require.InDelta(t, want, have, tolerance*max(1, math.Abs(want)), "%s: output %d", w.Name, o)
	}
}

func requireQueries(t *testing.T, src models.Source, w graph.Weight, got []float32, tolerance float64) {
	t.Helper()
	query, weight, bias := whole(t, src, w.Sources[0]), whole(t, src, w.Sources[1]), whole(t, src, w.Sources[2])
	matrix, offset := whole(t, src, w.Sources[3]), whole(t, src, w.Sources[4])
	out := w.Shape[1]
	width := out / w.Heads
	key := make([]float64, out)
	for i := range key {
		key[i] = math.Cos(float64(i * i))
	}
	for q := range w.Shape[0] / w.Heads {
		x := norm(query[q*out:][:out], w.Epsilon, func(i int) float64 { return weight[i] }, func(i int) float64 { return bias[i] })
		for h := range w.Heads {
			var want, have float64
			for n := h * width; n < (h+1)*width; n++ {
				want += w.Scale * (dot(x, matrix[n*out:][:out]) + offset[n]) * dot(key, matrix[(out+n)*out:][:out])
			}
			for i, v := range key {
				have += v * float64(got[(q*w.Heads+h)*out+i])
			}
			require.InDelta(t, want, have, tolerance*max(1, math.Abs(want)), "query %d, head %d", q, h)
		}
	}
}

// TestFoldedTensorsThatDoNotFit has norms, biases and queries of the wrong size.
func TestFoldedTensorsThatDoNotFit(t *testing.T) {
	tests := []struct {
		name  string
		shape []int
		want  string
	}{
		{"vpm.encoder.layers.0.layer_norm1.weight", nil, "the checkpoint has no tensor"},
		{"vpm.encoder.layers.0.layer_norm1.bias", []int{3}, "the shape does not match the following matrix"},
		{"vpm.encoder.layers.1.mlp.fc1.bias", []int{7}, "the shape does not match the following matrix"},
		{"resampler.query", nil, "the checkpoint has no tensor resampler.query"},
		{"resampler.query", []int{16, 7}, "the row length must be a multiple of"},
		{"resampler.query", []int{0, 256}, "the row length must be a multiple of"},
		{"resampler.attn.in_proj_weight", []int{256, 256}, "expected at least [512,256]"},
		{"resampler.attn.in_proj_bias", []int{2}, "expected at least [512,1]"},
		{"resampler.ln_q.weight", []int{255}, "the shape does not match the following matrix"},
	}
	for _, tt := range tests {
		dst := filepath.Join(t.TempDir(), "x")
		err := convert.Convert(t.Context(), misshapen{tiny(t), tt.name, tt.shape}, dst, convert.Options{})
		require.ErrorContains(t, err, tt.want, tt.name)
		requireNothing(t, dst)
	}
}
