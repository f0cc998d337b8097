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

// stack is the concatenated rows of several tensors, cut according to a graph.Weight.
type stack struct {
	src         models.Source
	parts       []part
	from        int // the first stacked row in use
	rows, cols  int // in use
	weight      graph.Weight
	fold        *fold // nil: no fold
	sourceBytes int64 // of the rows in use
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
	if w.Fold != nil {
		if w.To != 0 || w.Packed {
			return nil, errors.New("a norm can be folded only into a whole matrix that is not packed")
		}
		var err error
		if s.fold, err = newFold(src, *w.Fold, s.rows, s.cols); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// read reads rows [from, to) in use to dst.
func (s *stack) read(dst []float32, from, to int) error {
	rest, first, last := dst, from+s.from, to+s.from
	for _, p := range s.parts {
		if n := min(last, p.rows) - first; first < p.rows && n > 0 {
			if err := s.src.Rows(rest[:n*s.cols], p.name, first, first+n); err != nil {
				return err
			}
			rest, first = rest[n*s.cols:], first+n
		}
		first, last = first-p.rows, last-p.rows
	}
	if s.fold != nil {
		s.fold.apply(dst, from)
	}
	return nil
}

// name returns the tensor and position of an element.
func (s *stack) name(row, col int) string {
	row += s.from
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
