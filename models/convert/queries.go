package convert

import (
	"errors"
	"fmt"
	"math"

	"touchline/models"
	"touchline/models/graph"
)

// queries implements graph.RuleQueries, one head at a time.
type queries struct {
	src    models.Source
	weight graph.Weight

	query, matrix, offset string // tensors: the queries, the projections and their biases
	count, heads, out     int
	normWeight, normBias  []float64
}

func newQueries(src models.Source, w graph.Weight) (*queries, error) {
	if len(w.Sources) != 5 || w.Heads < 1 {
		return nil, errors.New("queries need five sources and the number of heads")
	}
	q := &queries{src: src, weight: w, query: w.Sources[0], matrix: w.Sources[3], offset: w.Sources[4], heads: w.Heads}
	info, ok := src.Info(q.query)
	if !ok {
		return nil, errNoTensor(q.query)
	}
	q.count, q.out = info.Rows(), info.Cols()
	if q.count < 1 || q.out < 1 || q.out%q.heads != 0 {
		return nil, fmt.Errorf("tensor %s: the row length must be a multiple of %d, the shape is %d", q.query, q.heads, info.Shape)
	}
	for name, cols := range map[string]int{q.matrix: q.out, q.offset: 1} {
		info, ok := src.Info(name)
		if !ok {
			return nil, errNoTensor(name)
		}
		if info.Rows() < 2*q.out || info.Cols() != cols {
			return nil, fmt.Errorf("tensor %s: expected at least [%d,%d], got %d", name, 2*q.out, cols, info.Shape)
		}
	}
	var err error
	if q.normWeight, err = vector(src, q.out, w.Sources[1]); err != nil {
		return nil, err
	}
	q.normBias, err = vector(src, q.out, w.Sources[2])
	return q, err
}

// normed returns the queries after their norm.
func (q *queries) normed() ([]float64, error) {
	values, err := rowsOf(q.src, q.query, 0, q.count)
	if err != nil {
		return nil, err
	}
	n := float64(q.out)
	for at := 0; at < len(values); at += q.out {
		row := values[at : at+q.out]
		var mean, variance float64
		for _, v := range row {
			mean += v / n
		}
		for _, v := range row {
			variance += (v - mean) * (v - mean) / n
		}
		scale := 1 / math.Sqrt(variance+q.weight.Epsilon)
		for k, v := range row {
			row[k] = (v-mean)*scale*q.normWeight[k] + q.normBias[k]
		}
	}
	return values, nil
}

// head computes the rows of a head: [count, out].
func (q *queries) head(h int) ([]float32, error) {
	normed, err := q.normed()
	if err != nil {
		return nil, err
	}
	width := q.out / q.heads
	first := h * width
	project, err := rowsOf(q.src, q.matrix, first, first+width)
	if err != nil {
		return nil, err
	}
	bias, err := rowsOf(q.src, q.offset, first, first+width)
	if err != nil {
		return nil, err
	}
	keys, err := rowsOf(q.src, q.matrix, q.out+first, q.out+first+width)
	if err != nil {
		return nil, err
	}
	result, sums := make([]float32, q.count*q.out), make([]float64, q.out)
	for i := range q.count {
		query := normed[i*q.out:][:q.out]
		clear(sums)
		for n := range width {
			v := bias[n]
			for k, w := range project[n*q.out:][:q.out] {
				v += query[k] * w
			}
			v *= q.weight.Scale
			for k, w := range keys[n*q.out:][:q.out] {
				sums[k] += v * w
			}
		}
		for k, v := range sums {
			result[i*q.out+k] = float32(v)
		}
	}
	return result, nil
}

// queries writes the rows of heads [from, to).
func (w *worker) queries(t task) error {
	o, q := t.outputs[0], t.queries
	for h := t.from; h < t.to; h++ {
		values, err := q.head(h)
		if err != nil {
			return err
		}
		if err := w.encode(t, o.typ, values, 0); err != nil {
			return err
		}
		line := q.out * o.typ.Size()
		for i := range q.count {
			if err := o.write(w.bytes[i*line:(i+1)*line], (i*q.heads+h)*line); err != nil {
				return err
			}
		}
	}
	return nil
}
