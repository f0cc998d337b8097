// Package models defines the types of model files. A checkpoint is the
// published model (a Source of named tensors); a bundle is the engine's input
// (a folder of ONNX graphs with a Manifest).
//
// The packages below turn a checkpoint into a bundle: hub downloads,
// checkpoint, safetensors and torch read, quant rounds weights, graph describes the
// networks, onnx writes them, convert assembles the bundle. None of them runs
// a model.
package models

import "fmt"

// Type is the element type of a tensor. The numbers are ONNX's (TensorProto.DataType).
type Type uint8

// Element types of checkpoints and bundles.
const (
	Float32  Type = 1
	Uint8    Type = 2
	Int8     Type = 3
	Int32    Type = 6
	Int64    Type = 7
	Float16  Type = 10
	BFloat16 Type = 16
)

// types has the name of each type in the manifest and the bytes of one element.
//
//nolint:gochecknoglobals // a table
var types = map[Type]struct {
	name string
	size int
}{
	Float32: {"float32", 4}, Float16: {"float16", 2}, BFloat16: {"bfloat16", 2},
	Int64: {"int64", 8}, Int32: {"int32", 4}, Uint8: {"uint8", 1}, Int8: {"int8", 1},
}

// String returns the type's name in the manifest.
func (t Type) String() string {
	if e, ok := types[t]; ok {
		return e.name
	}
	return fmt.Sprintf("Type(%d)", uint8(t))
}

// MarshalText writes the name.
func (t Type) MarshalText() ([]byte, error) {
	if t.Size() == 0 {
		return nil, fmt.Errorf("tensor type %d is unknown", uint8(t))
	}
	return []byte(t.String()), nil
}

// UnmarshalText reads the name.
func (t *Type) UnmarshalText(b []byte) error {
	for known, e := range types {
		if e.name == string(b) {
			*t = known
			return nil
		}
	}
	return fmt.Errorf("expected a tensor type such as float32, got %q", b)
}

// Size returns the bytes of one element, or 0 for an unknown type.
func (t Type) Size() int { return types[t].size }

// TensorInfo is the type and shape of a tensor.
type TensorInfo struct {
	Type  Type
	Shape []int // row-major; empty for a scalar
}

// Rows returns the rows of the tensor as a matrix: its first dimension. A
// vector of n elements has n rows of one column.
func (t TensorInfo) Rows() int {
	if len(t.Shape) == 0 {
		return 1
	}
	return t.Shape[0]
}

// Cols returns the elements of one row: the product of all dimensions but the first.
func (t TensorInfo) Cols() int {
	n := 1
	for _, d := range t.Shape[min(1, len(t.Shape)):] {
		n *= d
	}
	return n
}

// Source is a checkpoint: named tensors and its other files. It is safe for concurrent use.
type Source interface {
	// Names returns the names of all tensors, sorted. A linear layer stored in
	// int4 (AWQ) appears once, under the name of its plain weight ("….q_proj.weight").
	Names() []string
	// Info returns a tensor's type and shape, or false for an unknown name.
	Info(name string) (TensorInfo, bool)
	// Rows reads rows [from, to) of a tensor as float32 into dst, which must
	// have (to-from)*Cols elements. An int4 layer is dequantised.
	Rows(dst []float32, name string, from, to int) error
	// Packed returns the int4 form of a layer if the checkpoint stores one.
	Packed(name string) (PackedLinear, bool)
	// File returns a small file of the checkpoint ("config.json",
	// "tokenizer.json", …), or fs.ErrNotExist.
	File(name string) ([]byte, error)
	// Origin returns the checkpoint's location and the hashes of its files.
	Origin() Origin
	Close() error
}

// PackedLinear is a linear layer with N outputs and K inputs in 4 bits with
// zero points, in the layout of MatMulNBits. Rows are outputs.
type PackedLinear interface {
	// Dims returns outputs, inputs and the block (inputs per scale).
	Dims() (n, k, block int)
	// Rows reads outputs [from, to): quants [rows, K/block, block/2], low
	// nibble first; scales as the bits of float16 [rows, K/block]; zero points
	// [rows, ceil(K/block/2)], low nibble first.
	Rows(quants []byte, scales []uint16, zeros []byte, from, to int) error
}
