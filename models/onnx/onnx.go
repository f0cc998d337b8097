// Package onnx writes and reads ONNX model files: the part of the format
// (onnx/onnx.proto of the ONNX project, IR version 10) that the graphs of a
// bundle need. Weights are in the file or in other files of its folder.
//
// It knows no operators; the runtime checks whether a node is valid.
package onnx

import "touchline/models"

// IRVersion is the IR version of the files that this package writes.
const IRVersion = 10

// Microsoft is the domain of ONNX Runtime's own operators.
const Microsoft = "com.microsoft"

// DataType is the element type of a tensor (TensorProto.DataType).
type DataType int32

// The element types of bundles.
const (
	Float    DataType = 1
	Uint8    DataType = 2
	Int8     DataType = 3
	Int32    DataType = 6
	Int64    DataType = 7
	Float16  DataType = 10
	BFloat16 DataType = 16
)

// TypeOf returns the ONNX type of t, or 0 for an unknown type.
func TypeOf(t models.Type) DataType {
	switch t {
	case models.Float32:
		return Float
	case models.Float16:
		return Float16
	case models.BFloat16:
		return BFloat16
	case models.Int64:
		return Int64
	case models.Int32:
		return Int32
	case models.Uint8:
		return Uint8
	case models.Int8:
		return Int8
	}
	return 0
}

// Size returns the bytes of one element, or 0 for an unknown type.
func (t DataType) Size() int {
	switch t {
	case Int64:
		return 8
	case Float, Int32:
		return 4
	case Float16, BFloat16:
		return 2
	case Uint8, Int8:
		return 1
	}
	return 0
}

// Model is a whole file.
type Model struct {
	IR       int64 // 0 is written as IRVersion
	Producer string
	Opsets   []Opset
	Graph    Graph
}

// Opset is the version of a domain of operators. The standard domain is "".
type Opset struct {
	Domain  string
	Version int64
}

// Graph is a network, with its nodes in execution order.
type Graph struct {
	Name         string
	Nodes        []Node
	Inputs       []Value
	Outputs      []Value
	Initializers []Tensor
}

// Node is one operator. The name "" marks an omitted input.
type Node struct {
	Name       string
	Op         string
	Domain     string
	Inputs     []string
	Outputs    []string
	Attributes []Attribute
}

// Attribute is a setting of a node. Its Value is an int64, a float32, a
// string, an []int64, a []float32 or a *Tensor.
type Attribute struct {
	Name  string
	Value any
}

// Int returns an integer attribute.
func Int(name string, v int) Attribute { return Attribute{name, int64(v)} }

// Real returns a floating-point attribute.
func Real(name string, v float64) Attribute { return Attribute{name, float32(v)} }

// Text returns a string attribute.
func Text(name, v string) Attribute { return Attribute{name, v} }

// Ints returns an attribute that is a list of integers.
func Ints(name string, v ...int64) Attribute { return Attribute{name, v} }

// Value is an input or output of the graph.
type Value struct {
	Name  string
	Type  DataType
	Shape []Dim
}

// Dim is one dimension: a size, or a name if the size is free.
type Dim struct {
	Size int64
	Name string
}

// Tensor is a constant. Its little-endian bytes are in Raw, or in another file if
// External is set.
type Tensor struct {
	Name     string
	Type     DataType
	Shape    []int64
	Raw      []byte
	External *External
}

// External is the place of a tensor's bytes in another file.
type External struct {
	Location string // a file in the folder of the model
	Offset   int64
	Length   int64
}
