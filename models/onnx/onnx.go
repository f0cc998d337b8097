// Package onnx writes ONNX model files and reads their constants: the part of
// the format (onnx/onnx.proto of the ONNX project, IR version 10) that the graphs
// of a bundle need. Weights are in the file or in other files of its folder.
//
// It has no list of operators; the runtime checks whether a node is valid.
package onnx

import "touchline/models"

// IRVersion is the IR version of the files that this package writes.
const IRVersion = 10

// Microsoft is the domain of ONNX Runtime's own operators.
const Microsoft = "com.microsoft"

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
	Inner        []Value // values of nodes whose shapes are told, because the runtime cannot infer them
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

// Attribute is a setting of a node. Its Value is an int64, a float32, an []int64 or a
// string.
type Attribute struct {
	Name  string
	Value any
}

// Int returns an integer attribute.
func Int(name string, v int) Attribute { return Attribute{name, int64(v)} }

// Real returns a floating-point attribute.
func Real(name string, v float64) Attribute { return Attribute{name, float32(v)} }

// Ints returns an attribute that is a list of integers.
func Ints(name string, v ...int64) Attribute { return Attribute{name, v} }

// Text returns an attribute that is a string.
func Text(name, v string) Attribute { return Attribute{name, v} }

// Value is an input, output or inner value of the graph.
type Value struct {
	Name  string
	Type  models.Type
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
	Type     models.Type
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
