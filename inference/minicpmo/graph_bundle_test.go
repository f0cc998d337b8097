package minicpmo_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"touchline/models"
	"touchline/models/graph"
)

// tensors is a checkpoint in memory.
type tensors map[string]tensor

// tensor is a matrix (or a vector: one column).
type tensor struct {
	rows, cols int
	values     []float32
	packed     models.PackedLinear // of an int4 layer
}

// bundle is a graph written to a folder.
type bundle struct {
	*graph.Description

	path string // of the ONNX file
}

// write applies the rules of a description in the simplest way, to test graphs
// without the converter.
func write(tb testing.TB, d *graph.Description, err error, source tensors) bundle {
	tb.Helper()
	require.NoError(tb, err)
	dir := tb.TempDir()
	var data []byte
	scales := map[string][]float32{}
	model, err := d.Encode(func(w graph.Weight) (graph.Location, error) {
		data = append(data, make([]byte, -len(data)&4095)...)
		b, err := source.bytes(w, scales)
		if err == nil && int64(len(b)) != w.Bytes() {
			err = fmt.Errorf("expected %d bytes, has %d", w.Bytes(), len(b))
		}
		at := graph.Location{File: "weights.data", Offset: int64(len(data)), Length: int64(len(b))}
		data = append(data, b...)
		return at, err
	})
	require.NoError(tb, err)
	path := filepath.Join(dir, "model.onnx")
	require.NoError(tb, os.WriteFile(path, model, 0o600))
	require.NoError(tb, os.WriteFile(filepath.Join(dir, "weights.data"), data, 0o600))
	return bundle{d, path}
}

// bytes returns the bytes of a weight. scales keeps those of the rounded matrices.
func (s tensors) bytes(w graph.Weight, scales map[string][]float32) ([]byte, error) {
	if w.Rule == graph.RuleValue {
		return floats(w.Type, w.Floats), nil
	}
	if w.Packed {
		return s.repacked(w)
	}
	if w.Rule == graph.RuleQueries {
		return floats(w.Type, s.queries(w)), nil
	}
	if w.Rule == graph.RuleFormula {
		if err := w.Formula.Check(s); err != nil {
			return nil, err
		}
		values, err := w.Formula.Compute(s)
		return floats(w.Type, values), err
	}
	key := fmt.Sprint(w.Sources, w.Bits, w.Block)
	if w.Rule == graph.RuleScales { // after the quants in every graph
		return floats(w.Type, scales[key]), nil
	}
	m, err := s.stack(w)
	if err != nil {
		return nil, err
	}
	switch w.Rule { //nolint:exhaustive // the others are below
	case graph.RuleQuants:
		quants, of := round(m, w.Bits, w.Block)
		scales[key] = of
		return quants, nil
	case graph.RuleTranspose:
		t := tensor{rows: m.cols, cols: m.rows, values: make([]float32, len(m.values))}
		for r := range m.rows {
			for c := range m.cols {
				t.values[c*m.rows+r] = m.values[r*m.cols+c]
			}
		}
		m = t
	}
	return floats(w.Type, m.values), nil
}

// Info and Rows make the checkpoint a graph.Tensors.
func (s tensors) Info(name string) (models.TensorInfo, bool) {
	t, ok := s[name]
	return models.TensorInfo{Type: models.Float32, Shape: []int{t.rows, t.cols}}, ok
}

func (s tensors) Rows(dst []float32, name string, from, to int) error {
	t := s[name]
	copy(dst, t.values[from*t.cols:to*t.cols])
	return nil
}

// packed returns the checkpoint with the packed form of its int4 layers.
func (s tensors) packed(source models.Source) tensors {
	r := tensors{}
	for name, t := range s {
		t.packed, _ = source.Packed(name)
		r[name] = t
	}
	return r
}

// repacked returns the bytes of a weight from int4 layers.
func (s tensors) repacked(w graph.Weight) ([]byte, error) {
	var quants, zeros []byte
	var scales []float32
	for _, name := range w.Sources {
		p := s[name].packed
		if p == nil {
			return nil, fmt.Errorf("%s is not packed", name)
		}
		n, k, block := p.Dims()
		if block != w.Block {
			return nil, fmt.Errorf("%s: expected blocks of %d, has %d", name, w.Block, block)
		}
		q, z, bits := make([]byte, n*k/2), make([]byte, n*((k/block+1)/2)), make([]uint16, n*k/block)
		if err := p.Rows(q, bits, z, 0, n); err != nil {
			return nil, err
		}
		quants, zeros = append(quants, q...), append(zeros, z...)
		for _, b := range bits {
			scales = append(scales, models.Float16FromBits(b))
		}
	}
	switch w.Rule { //nolint:exhaustive // the last is below
	case graph.RuleQuants:
		return quants, nil
	case graph.RuleZeros:
		return zeros, nil
	}
	return floats(w.Type, scales), nil
}

// stack concatenates the sources of a weight.
func (s tensors) stack(w graph.Weight) (tensor, error) {
	var m tensor
	for _, name := range w.Sources {
		t, ok := s[name]
		if !ok {
			return m, fmt.Errorf("the checkpoint has no %s", name)
		}
		if m.rows > 0 && m.cols != t.cols {
			return m, fmt.Errorf("%s: expected %d columns, has %d", name, m.cols, t.cols)
		}
		m.cols, m.rows = t.cols, m.rows+t.rows
		m.values = append(m.values, t.values...)
	}
	if w.To > 0 {
		m.values, m.rows = m.values[w.From*m.cols:w.To*m.cols], w.To-w.From
	}
	if w.Fold != nil {
		m = s.fold(m, w.Fold)
	}
	return m, nil
}

// fold merges the preceding norm into a matrix.
func (s tensors) fold(m tensor, f *graph.Fold) tensor {
	weight, bias := s[f.Weight].values, s[f.Bias].values
	var constants []float32
	for _, name := range f.Biases {
		constants = append(constants, s[name].values...)
	}
	folded := tensor{rows: m.rows, cols: m.cols, values: make([]float32, len(m.values))}
	for r := range m.rows {
		var sum float64
		if !f.Keys {
			sum = float64(constants[r])
		}
		for c := range m.cols {
			w := float64(m.values[r*m.cols+c])
			sum -= f.Shift * float64(weight[c]) * w
			if !f.Keys {
				sum += float64(bias[c]) * w
			}
		}
		for c := range m.cols {
			w := float64(weight[c]) * float64(m.values[r*m.cols+c])
			folded.values[r*m.cols+c] = float32(w + sum/float64(m.cols)/f.Shift)
		}
	}
	return folded
}

// queries applies the norm, the projection and the keys' projection to learned
// queries.
func (s tensors) queries(w graph.Weight) []float32 {
	query, weight, bias := s[w.Sources[0]], s[w.Sources[1]].values, s[w.Sources[2]].values
	matrix, offset := s[w.Sources[3]].values, s[w.Sources[4]].values
	out := query.cols
	result := make([]float32, 0, query.rows*w.Heads*out)
	for q := range query.rows {
		row := query.values[q*out:][:out]
		var mean, variance float64
		for _, v := range row {
			mean += float64(v) / float64(out)
		}
		for _, v := range row {
			variance += (float64(v) - mean) * (float64(v) - mean) / float64(out)
		}
		projected := make([]float64, out)
		for n := range projected {
			projected[n] = float64(offset[n])
			for k, v := range row {
				normed := (float64(v)-mean)/math.Sqrt(variance+w.Epsilon)*float64(weight[k]) + float64(bias[k])
				projected[n] += normed * float64(matrix[n*out+k])
			}
		}
		width := out / w.Heads
		for h := range w.Heads {
			for k := range out {
				var sum float64
				for n := h * width; n < (h+1)*width; n++ {
					sum += projected[n] * float64(matrix[(out+n)*out+k])
				}
				result = append(result, float32(w.Scale*sum))
			}
		}
	}
	return result
}

// round rounds a matrix to symmetric blocks by the largest value of each.
func round(m tensor, bits, block int) (quants []byte, scales []float32) {
	zero := float32(int(1) << (bits - 1))
	for r := range m.rows {
		row := m.values[r*m.cols : (r+1)*m.cols]
		for from := 0; from < m.cols; from += block {
			part := row[from:min(from+block, m.cols)]
			var largest float32
			for _, v := range part {
				largest = max(largest, float32(math.Abs(float64(v))))
			}
			scale := models.Float16FromBits(models.Float16Bits(largest / (zero - 1)))
			scales = append(scales, scale)
			q := make([]byte, block)
			for i := range q {
				q[i] = byte(zero)
				if i < len(part) && scale != 0 {
					q[i] = byte(math.RoundToEven(float64(part[i]/scale)) + float64(zero))
				}
			}
			if bits == 8 {
				quants = append(quants, q...)
				continue
			}
			for i := 0; i < block; i += 2 {
				quants = append(quants, q[i]|q[i+1]<<4)
			}
		}
	}
	return quants, scales
}

// rounded returns the checkpoint with the given weights replaced by their rounded
// values.
func (s tensors) rounded(weights []graph.Weight) tensors {
	r := tensors{}
	for name, t := range s {
		r[name] = t
	}
	for _, w := range weights {
		if w.Rule != graph.RuleQuants {
			continue
		}
		for _, name := range w.Sources {
			m := s[name]
			quants, scales := round(m, w.Bits, w.Block)
			values := make([]float32, len(m.values))
			blocks := (m.cols + w.Block - 1) / w.Block
			for i := range values {
				row, c := i/m.cols, i%m.cols
				at := row*blocks*w.Block + c
				q := float32(quants[at*w.Bits/8])
				if w.Bits == 4 {
					q = float32(quants[at/2] >> (4 * (at % 2)) & 15)
				}
				values[i] = (q - float32(int(1)<<(w.Bits-1))) * scales[row*blocks+c/w.Block]
			}
			r[name] = tensor{rows: m.rows, cols: m.cols, values: values}
		}
	}
	return r
}

func contains(s string, parts ...string) bool {
	return slices.ContainsFunc(parts, func(p string) bool { return strings.Contains(s, p) })
}

// floats encodes floats little-endian.
func floats(t models.Type, values []float32) []byte {
	b := make([]byte, 0, len(values)*t.Size())
	for _, v := range values {
		if t == models.Float16 {
			b = binary.LittleEndian.AppendUint16(b, models.Float16Bits(v))
		} else {
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
		}
	}
	return b
}
