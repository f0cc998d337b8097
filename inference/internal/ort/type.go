package ort

import "fmt"

// Type is the element type of a tensor. The numbers are those of ONNX's TensorProto.DataType.
type Type uint8

// The element types that our graphs use.
const (
	Float32  Type = 1
	Uint8    Type = 2
	Int8     Type = 3
	Int32    Type = 6
	Int64    Type = 7
	Bool     Type = 9
	Float16  Type = 10
	Float64  Type = 11
	BFloat16 Type = 16
)

// Size is the number of bytes of an element, 0 for a type that is not listed here.
func (t Type) Size() int {
	switch t {
	case Uint8, Int8, Bool:
		return 1
	case Float16, BFloat16:
		return 2
	case Float32, Int32:
		return 4
	case Int64, Float64:
		return 8
	default:
		return 0
	}
}

// String is the name of the type in lower case.
func (t Type) String() string {
	switch t {
	case Float32:
		return "float32"
	case Uint8:
		return "uint8"
	case Int8:
		return "int8"
	case Int32:
		return "int32"
	case Int64:
		return "int64"
	case Bool:
		return "bool"
	case Float16:
		return "float16"
	case Float64:
		return "float64"
	case BFloat16:
		return "bfloat16"
	default:
		return fmt.Sprintf("type %d", uint8(t))
	}
}

// Element is what the data of a host tensor can be seen as. uint16 stands for the bits of float16 and bfloat16.
type Element interface {
	float32 | float64 | uint16 | int8 | uint8 | int32 | int64 | bool
}

// holds says whether elements of t are seen as values of the Go type of v.
func (t Type) holds(v any) bool {
	switch v.(type) {
	case float32:
		return t == Float32
	case float64:
		return t == Float64
	case uint16:
		return t == Float16 || t == BFloat16
	case int8:
		return t == Int8
	case uint8:
		return t == Uint8
	case int32:
		return t == Int32
	case int64:
		return t == Int64
	case bool:
		return t == Bool
	default:
		return false
	}
}
