package convert

import (
	"errors"
	"fmt"
	"strings"

	"touchline/models"
	"touchline/models/graph"
)

// errEmpty is returned for a weight without elements.
var errEmpty = errors.New("the tensor is empty")

// stack is the concatenated rows of several tensors, cut and zero-padded
// according to a graph.Weight.
type stack struct {
	src        models.Source
	parts      []part
	cols       int // of the tensors
	from, rows int // the used part of the stacked rows
	weight     graph.Weight
	fold       *fold // nil: no fold

	outRows, outCols int
	sourceBytes      int64 // of the used rows
}

// part is one tensor of a stack.
type part struct {
	name string
	rows int
}

func newStack(src models.Source, w graph.Weight) (*stack, error) {
	s := &stack{src: src, weight: w}
	size := 0
	for _, name := range w.Sources {
		info, ok := src.Info(name)
		if !ok {
			return nil, errNoTensor(name)
		}
		rows, cols := info.Rows(), info.Cols()
		if len(s.parts) > 0 && cols != s.cols {
			return nil, fmt.Errorf("tensor %s: expected %d columns as in %s, got %d", name, s.cols, s.parts[0].name, cols)
		}
		s.cols, size = cols, max(size, info.Type.Size())
		s.rows += rows
		s.parts = append(s.parts, part{name, rows})
	}
	if w.To > 0 {
		if w.From < 0 || w.From > w.To || w.To > s.rows {
			return nil, fmt.Errorf("%s: expected at least %d rows, got %d", strings.Join(w.Sources, " + "), w.To, s.rows)
		}
		s.from, s.rows = w.From, w.To-w.From
	}
	if s.rows < 1 || s.cols < 1 {
		return nil, fmt.Errorf("%s: %w", strings.Join(w.Sources, " + "), errEmpty)
	}
	s.sourceBytes = int64(s.rows) * int64(s.cols) * int64(size)
	s.outRows, s.outCols = s.rows, s.cols
	if g := w.RowGroup; g > 0 {
		if s.rows%g != 0 {
			return nil, fmt.Errorf("%s: rows must be a multiple of %d, are %d", strings.Join(w.Sources, " + "), g, s.rows)
		}
		s.outRows = s.rows / g * (g + w.RowPad)
	}
	if g := w.ColGroup; g > 0 {
		if s.cols%g != 0 {
			return nil, fmt.Errorf("%s: columns must be a multiple of %d, are %d", strings.Join(w.Sources, " + "), g, s.cols)
		}
		s.outCols = s.cols / g * (g + w.ColPad)
	}
	if w.Fold != nil {
		if s.padded() || s.from != 0 || w.To != 0 || w.Packed {
			return nil, errors.New("a norm can be folded only into a whole matrix that is neither packed nor padded")
		}
		var err error
		if s.fold, err = newFold(src, *w.Fold, s.rows, s.cols); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// padded reports whether the output has padding.
func (s *stack) padded() bool { return s.outRows != s.rows || s.outCols != s.cols }

// read reads output rows [from, to) to dst. spare is scratch memory.
func (s *stack) read(dst []float32, from, to int, spare *[]float32) error {
	if s.padded() {
		if err := s.pad(dst, from, to, spare); err != nil {
			return err
		}
	} else if err := s.stacked(dst, from, to); err != nil {
		return err
	}
	if s.fold != nil {
		s.fold.apply(dst, from)
	}
	if f := s.weight.Scale; f != 0 && f != 1 {
		for i := range dst {
			dst[i] = float32(float64(dst[i]) * f)
		}
	}
	return nil
}

// stacked reads rows [from, to) of the used part.
func (s *stack) stacked(dst []float32, from, to int) error {
	from, to = from+s.from, to+s.from
	for _, p := range s.parts {
		if from < p.rows && from < to {
			n := min(to, p.rows) - from
			if err := s.src.Rows(dst[:n*s.cols], p.name, from, from+n); err != nil {
				return err
			}
			dst, from = dst[n*s.cols:], from+n
		}
		from, to = from-p.rows, to-p.rows
		if to <= 0 {
			break
		}
	}
	return nil
}

// pad reads output rows [from, to) with their zero padding.
func (s *stack) pad(dst []float32, from, to int, spare *[]float32) error {
	clear(dst)
	*spare = grow(*spare, s.cols)
	for o := from; o < to; o++ {
		row, ok := s.rowOf(o)
		if !ok {
			continue
		}
		line := (*spare)[:s.cols]
		if err := s.stacked(line, row, row+1); err != nil {
			return err
		}
		out := dst[(o-from)*s.outCols:][:s.outCols]
		group := s.cols
		if s.weight.ColGroup > 0 {
			group = s.weight.ColGroup
		}
		for i := 0; i*group < s.cols; i++ {
			copy(out[i*(group+s.weight.ColPad):], line[i*group:(i+1)*group])
		}
	}
	return nil
}

// rowOf returns the stacked row of output row o, or false for a row of zeros.
func (s *stack) rowOf(o int) (int, bool) {
	g := s.weight.RowGroup
	if g == 0 {
		return o, true
	}
	group, in := o/(g+s.weight.RowPad), o%(g+s.weight.RowPad)
	return group*g + in, in < g
}

// name returns the tensor and position of an element of the output.
func (s *stack) name(row, col int) string {
	row, _ = s.rowOf(row)
	row += s.from
	if g := s.weight.ColGroup; g > 0 {
		col = col/(g+s.weight.ColPad)*g + col%(g+s.weight.ColPad)
	}
	for _, p := range s.parts {
		if row < p.rows {
			if s.cols == 1 {
				return fmt.Sprintf("%s[%d]", p.name, row)
			}
			return fmt.Sprintf("%s[%d,%d]", p.name, row, col)
		}
		row -= p.rows
	}
	return strings.Join(s.weight.Sources, " + ")
}

// grow returns a slice of n elements, reusing b if it is large enough.
func grow[T any](b []T, n int) []T {
	if cap(b) < n {
		return make([]T, n)
	}
	return b[:n]
}
