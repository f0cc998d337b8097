package graph

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strings"

	"touchline/models"
)

// Tensors are the tensors of a checkpoint. A models.Source implements it.
type Tensors interface {
	Info(name string) (models.TensorInfo, bool)
	Rows(dst []float32, name string, from, to int) error
}

// Formula computes the values of a weight from tensors of a checkpoint, in
// float64: a tree of array operations. The functions below build it.
type Formula struct {
	text  string // identifies the formula
	shape []int
	args  []*Formula
	// compute receives the values of args.
	compute func(src Tensors, args [][]float64) ([]float64, error)
	check   func(src Tensors) error // of a tensor
}

// Shape returns the shape of the result.
func (f *Formula) Shape() []int { return f.shape }

// Check returns an error if a tensor is missing or of another size.
func (f *Formula) Check(src Tensors) error {
	if f.check != nil {
		return f.check(src)
	}
	for _, a := range f.args {
		if err := a.Check(src); err != nil {
			return err
		}
	}
	return nil
}

// Compute returns the result.
func (f *Formula) Compute(src Tensors) ([]float32, error) {
	wide, err := f.values(src)
	if err != nil {
		return nil, err
	}
	values := make([]float32, len(wide))
	for i, v := range wide {
		values[i] = float32(v)
	}
	return values, nil
}

func (f *Formula) values(src Tensors) ([]float64, error) {
	args := make([][]float64, len(f.args))
	for i, a := range f.args {
		var err error
		if args[i], err = a.values(src); err != nil {
			return nil, err
		}
	}
	return f.compute(src, args)
}

// operation returns the formula op(args). The settings are part of its identity.
func operation(op string, settings any, shape []int, compute func(args [][]float64) []float64, args ...*Formula) *Formula {
	text := make([]string, len(args))
	for i, a := range args {
		text[i] = a.text
	}
	return &Formula{
		text: fmt.Sprintf("%s%v(%s)", op, settings, strings.Join(text, ",")), shape: shape, args: args,
		compute: func(_ Tensors, args [][]float64) ([]float64, error) { return compute(args), nil },
	}
}

// tensor returns a tensor of the checkpoint.
func tensor(name string, shape ...int) *Formula { return tensorRows(name, 0, shape[0], shape...) }

// tensorRows returns rows [from, to) of a tensor of the given shape.
func tensorRows(name string, from, to int, shape ...int) *Formula {
	part := append([]int{to - from}, shape[1:]...)
	return &Formula{
		text: fmt.Sprintf("%s[%d:%d]", name, from, to), shape: part,
		check: func(src Tensors) error {
			info, ok := src.Info(name)
			if !ok {
				return fmt.Errorf("the checkpoint has no tensor %s", name)
			}
			if info.Rows() != shape[0] || info.Rows()*info.Cols() != elements(shape) {
				return fmt.Errorf("tensor %s: expected the shape %d, got %d", name, shape, info.Shape)
			}
			return nil
		},
		compute: func(src Tensors, _ [][]float64) ([]float64, error) {
			values := make([]float32, elements(part))
			if err := src.Rows(values, name, from, to); err != nil {
				return nil, err
			}
			wide := make([]float64, len(values))
			for i, v := range values {
				wide[i] = float64(v)
			}
			return wide, nil
		},
	}
}

func elements(shape []int) int {
	n := 1
	for _, d := range shape {
		n *= d
	}
	return n
}

// fixed returns a constant.
func fixed(values []float64, shape ...int) *Formula {
	sum := sha256.New()
	_ = binary.Write(sum, binary.LittleEndian, values)
	f := operation("fixed", fmt.Sprintf("%d%x", shape, sum.Sum(nil)), shape, func([][]float64) []float64 { return values })
	return f
}

// filled returns a constant of equal values.
func filled(value float64, shape ...int) *Formula {
	return fixed(slices.Repeat([]float64{value}, elements(shape)), shape...)
}

// add, times and over are a+b, a*b and a/b. Dimensions of size 1 are repeated; both have the same
// number of dimensions.
func add(a, b *Formula) *Formula {
	return broadcast("add", a, b, func(x, y float64) float64 { return x + y })
}

func times(a, b *Formula) *Formula {
	return broadcast("times", a, b, func(x, y float64) float64 { return x * y })
}

func over(a, b *Formula) *Formula {
	return broadcast("over", a, b, func(x, y float64) float64 { return x / y })
}

// scaled returns a multiplied by a constant.
func scaled(a *Formula, by float64) *Formula {
	return times(a, filled(by, slices.Repeat([]int{1}, len(a.shape))...))
}

func broadcast(op string, a, b *Formula, f func(x, y float64) float64) *Formula {
	shape := make([]int, len(a.shape))
	for i := range shape {
		shape[i] = max(a.shape[i], b.shape[i])
	}
	return operation(op, "", shape, func(args [][]float64) []float64 {
		out := make([]float64, 0, elements(shape))
		left, right := strides(a.shape), strides(b.shape)
		var walk func(axis, i, j int)
		walk = func(axis, i, j int) {
			for k := range shape[axis] {
				x, y := i+k*left[axis], j+k*right[axis]
				if axis+1 == len(shape) {
					out = append(out, f(args[0][x], args[1][y]))
				} else {
					walk(axis+1, x, y)
				}
			}
		}
		walk(0, 0, 0)
		return out
	}, a, b)
}

// strides returns the distance of neighbours along each axis, 0 for an axis of size 1.
func strides(shape []int) []int {
	s, n := make([]int, len(shape)), 1
	for i, d := range slices.Backward(shape) {
		if d > 1 {
			s[i] = n
		}
		n *= d
	}
	return s
}

// product returns the products of all rows of a [M,K] with all rows of b [N,K]: [M,N].
func product(a, b *Formula) *Formula {
	m, k, n := a.shape[0], a.shape[1], b.shape[0]
	return operation("product", "", []int{m, n}, func(args [][]float64) []float64 {
		out := make([]float64, 0, m*n)
		for i := range m {
			row := args[0][i*k:][:k]
			for j := range n {
				out = append(out, dot(row, args[1][j*k:][:k]))
			}
		}
		return out
	}, a, b)
}

// dot returns the scalar product of two rows, computed as four independent sums for speed.
func dot(a, b []float64) float64 {
	var s0, s1, s2, s3 float64
	for len(a) >= 4 && len(b) >= 4 {
		s0 += a[0] * b[0]
		s1 += a[1] * b[1]
		s2 += a[2] * b[2]
		s3 += a[3] * b[3]
		a, b = a[4:], b[4:]
	}
	for i, x := range a {
		s0 += x * b[i]
	}
	return s0 + s1 + (s2 + s3)
}

// columns returns columns [from, to) of a matrix.
func columns(a *Formula, from, to int) *Formula {
	return operation("columns", []int{from, to}, []int{a.shape[0], to - from}, func(args [][]float64) []float64 {
		out := make([]float64, 0, a.shape[0]*(to-from))
		for r := range a.shape[0] {
			out = append(out, args[0][r*a.shape[1]:][from:to]...)
		}
		return out
	}, a)
}

// turned permutes the axes of a; without an order it reverses them.
func turned(a *Formula, axes ...int) *Formula {
	if len(axes) == 0 {
		for i := range a.shape {
			axes = append([]int{i}, axes...)
		}
	}
	shape, steps := make([]int, len(axes)), make([]int, len(axes))
	for i, axis := range axes {
		shape[i], steps[i] = a.shape[axis], strides(a.shape)[axis]
	}
	return operation("turned", axes, shape, func(args [][]float64) []float64 {
		out := make([]float64, 0, elements(shape))
		var walk func(axis, at int)
		walk = func(axis, at int) {
			for k := range shape[axis] {
				next := at + k*steps[axis]
				if axis+1 == len(shape) {
					out = append(out, args[0][next])
				} else {
					walk(axis+1, next)
				}
			}
		}
		walk(0, 0)
		return out
	}, a)
}

// shaped reshapes a.
func shaped(a *Formula, shape ...int) *Formula {
	return operation("shaped", shape, shape, func(args [][]float64) []float64 { return args[0] }, a)
}

// row returns a vector as a matrix of one row.
func (f *Formula) row() *Formula { return shaped(f, 1, f.shape[0]) }

// taps returns the matrix of a convolution [out,in,size] over rows (network.taps).
func taps(a *Formula) *Formula {
	return shaped(turned(a), a.shape[1]*a.shape[2], a.shape[0])
}

// joined concatenates the rows of all parts.
func joined(parts ...*Formula) *Formula {
	shape := slices.Clone(parts[0].shape)
	for _, p := range parts[1:] {
		shape[0] += p.shape[0]
	}
	return operation("joined", "", shape, func(args [][]float64) []float64 { return slices.Concat(args...) }, parts...)
}

// silu returns x*sigmoid(x) of each element.
func silu(a *Formula) *Formula {
	return operation("silu", "", a.shape, func(args [][]float64) []float64 {
		out := make([]float64, len(args[0]))
		for i, x := range args[0] {
			out[i] = x / (1 + math.Exp(-x))
		}
		return out
	}, a)
}

// unit divides the rows of a by their Euclidean length.
func unit(a *Formula) *Formula {
	return operation("unit", "", a.shape, func(args [][]float64) []float64 {
		out := make([]float64, len(args[0]))
		cols := len(out) / a.shape[0]
		for r := range a.shape[0] {
			row := args[0][r*cols:][:cols]
			var sum float64
			for _, x := range row {
				sum += x * x
			}
			for i, x := range row {
				out[r*cols+i] = x / math.Sqrt(sum)
			}
		}
		return out
	}, a)
}

// normed returns a tensor in the form of PyTorch's weight norm: the direction of each row, times
// its length [rows,1,...].
func normed(name string, shape ...int) *Formula {
	length := append([]int{shape[0]}, slices.Repeat([]int{1}, len(shape)-1)...)
	p := name + ".parametrizations.weight.original"
	return times(unit(tensor(p+"1", shape...)), tensor(p+"0", length...))
}
