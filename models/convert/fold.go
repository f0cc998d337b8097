package convert

import (
	"fmt"

	"touchline/models"
	"touchline/models/graph"
)

// fold merges a norm into the rows of a matrix; see graph.Fold.
type fold struct {
	weight, bias []float64 // of the norm, per column
	constants    []float64 // of the layer, per row
	shift        float64
	keys         bool
}

func newFold(src models.Source, f graph.Fold, rows, cols int) (*fold, error) {
	if f.Shift == 0 {
		return nil, fmt.Errorf("fold %s: shift must not be 0", f.Weight)
	}
	n := &fold{shift: f.Shift, keys: f.Keys}
	var err error
	if n.weight, err = vector(src, cols, f.Weight); err != nil {
		return nil, err
	}
	if n.bias, err = vector(src, cols, f.Bias); err != nil {
		return nil, err
	}
	n.constants, err = vector(src, rows, f.Biases...)
	return n, err
}

// apply changes rows in place; from is the index of the first.
func (f *fold) apply(rows []float32, from int) {
	cols := len(f.weight)
	for r := 0; r*cols < len(rows); r++ {
		row := rows[r*cols : (r+1)*cols]
		var constant float64
		if !f.keys {
			constant = f.constants[from+r]
		}
		for k, w := range row {
			add := -f.shift * f.weight[k]
			if !f.keys {
				add += f.bias[k]
			}
			constant += add * float64(w)
		}
		constant /= f.shift * float64(cols)
		for k, w := range row {
			row[k] = float32(f.weight[k]*float64(w) + constant)
		}
	}
}

// vector concatenates tensors of n values in total.
func vector(src models.Source, n int, names ...string) ([]float64, error) {
	values := make([]float64, 0, n)
	for _, name := range names {
		m, err := wholeMatrix(src, name)
		if err != nil {
			return nil, err
		}
		values = append(values, m...)
	}
	if len(values) != n {
		return nil, fmt.Errorf("%s: expected %d values, got %d: the shape does not match the following matrix", names, n, len(values))
	}
	return values, nil
}

func errNoTensor(name string) error { return fmt.Errorf("the checkpoint has no tensor %s", name) }

// wholeMatrix reads a tensor.
func wholeMatrix(src models.Source, name string) ([]float64, error) {
	info, ok := src.Info(name)
	if !ok {
		return nil, errNoTensor(name)
	}
	return rowsOf(src, name, 0, info.Rows())
}

// rowsOf reads rows [from, to) of a tensor.
func rowsOf(src models.Source, name string, from, to int) ([]float64, error) {
	info, _ := src.Info(name)
	values := make([]float32, (to-from)*info.Cols())
	if err := src.Rows(values, name, from, to); err != nil {
		return nil, err
	}
	wide := make([]float64, len(values))
	for i, v := range values {
		wide[i] = float64(v)
	}
	return wide, nil
}
