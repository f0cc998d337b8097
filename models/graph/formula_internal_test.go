package graph

import (
	"errors"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"touchline/models"
)

// arrays is a checkpoint in memory.
type arrays map[string]struct {
	shape  []int
	values []float32
}

func (a arrays) Info(name string) (models.TensorInfo, bool) {
	t, ok := a[name]
	return models.TensorInfo{Type: models.Float32, Shape: t.shape}, ok
}

func (a arrays) Rows(dst []float32, name string, from, to int) error {
	if name == "broken" {
		return errors.New("cannot read")
	}
	cols := len(a[name].values) / a[name].shape[0]
	copy(dst, a[name].values[from*cols:to*cols])
	return nil
}

func TestFormula(t *testing.T) {
	src := arrays{
		"m":                                    {[]int{2, 3}, []float32{1, 2, 3, 4, 5, 6}},
		"v":                                    {[]int{3}, []float32{10, 20, 30}},
		"w.parametrizations.weight.original0":  {[]int{2, 1}, []float32{10, 2}},
		"w.parametrizations.weight.original1":  {[]int{2, 2}, []float32{3, 4, 0, 5}},
		"w3.parametrizations.weight.original0": {[]int{1, 1, 1}, []float32{2}},
		"w3.parametrizations.weight.original1": {[]int{1, 2, 2}, []float32{1, 1, 1, 1}},
		"broken":                               {[]int{1}, []float32{1}},
	}
	m, v := tensor("m", 2, 3), tensor("v", 3)
	tests := []struct {
		name  string
		f     *Formula
		shape []int
		want  []float64
	}{
		{"tensor", m, []int{2, 3}, []float64{1, 2, 3, 4, 5, 6}},
		{"rows", tensorRows("m", 1, 2, 2, 3), []int{1, 3}, []float64{4, 5, 6}},
		{"fixed", fixed([]float64{7, 8}, 1, 2), []int{1, 2}, []float64{7, 8}},
		{"filled", filled(3, 2), []int{2}, []float64{3, 3}},
		{"add a row", add(m, v.row()), []int{2, 3}, []float64{11, 22, 33, 14, 25, 36}},
		{"times a column", times(m, fixed([]float64{1, -1}, 2, 1)), []int{2, 3}, []float64{1, 2, 3, -4, -5, -6}},
		{"over", over(v.row(), m), []int{2, 3}, []float64{10, 10, 10, 2.5, 4, 5}},
		{"scaled", scaled(v, 0.5), []int{3}, []float64{5, 10, 15}},
		{"product", product(m, v.row()), []int{2, 1}, []float64{140, 320}},
		{"columns", columns(m, 1, 3), []int{2, 2}, []float64{2, 3, 5, 6}},
		{"turned", turned(m), []int{3, 2}, []float64{1, 4, 2, 5, 3, 6}},
		{"turned by name", turned(shaped(m, 1, 2, 3), 2, 0, 1), []int{3, 1, 2}, []float64{1, 4, 2, 5, 3, 6}},
		{"taps", taps(shaped(m, 1, 3, 2)), []int{6, 1}, []float64{1, 3, 5, 2, 4, 6}},
		{"joined", joined(m, v.row()), []int{3, 3}, []float64{1, 2, 3, 4, 5, 6, 10, 20, 30}},
		{"silu", silu(fixed([]float64{0, 1}, 2)), []int{2}, []float64{0, 1 / (1 + math.Exp(-1))}},
		{"normed", normed("w", 2, 2), []int{2, 2}, []float64{6, 8, 0, 2}},
		{"normed convolution", normed("w3", 1, 2, 2), []int{1, 2, 2}, []float64{1, 1, 1, 1}},
	}
	seen := map[string]string{}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			require.NoError(t, tt.f.Check(src))
			require.Equal(t, tt.shape, tt.f.Shape())
			have, err := tt.f.Compute(src)
			require.NoError(t, err)
			require.Len(t, have, len(tt.want))
			for i, want := range tt.want {
				require.InDelta(t, want, have[i], 1e-6)
			}
			require.NotContains(t, seen, tt.f.text)
			seen[tt.f.text] = tt.name
		})
	}
	require.ErrorContains(t, add(m, tensor("n", 2, 3)).Check(src), "the checkpoint has no tensor n")
	require.ErrorContains(t, scaled(tensor("m", 3, 2), 2).Check(src), "tensor m: expected the shape [3 2], got [2 3]")
	_, err := scaled(tensor("broken", 1), 2).Compute(src)
	require.ErrorContains(t, err, "cannot read")
}
