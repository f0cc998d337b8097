// Package onnx writes ONNX model files and reads them back: as much of the
// format (onnx/onnx.proto of the ONNX project, IR version 10) as the graphs
// of a bundle need. Weights may lie in the file or in others beside it.
//
// It knows no operators: whether a node makes sense is for the runtime to say.
package onnx

// IRVersion of the files this package writes.
const IRVersion = 10

// Microsoft is the domain of ONNX Runtime's own operators.
const Microsoft = "com.microsoft"

// DataType is the element type of a tensor (TensorProto.DataType).
type DataType int32

// The element types that bundles use.
const (
	Float    DataType = 1
	Uint8    DataType = 2
	Int8     DataType = 3
	Int32    DataType = 6
	Int64    DataType = 7
	Float16  DataType = 10
	BFloat16 DataType = 16
)

// Size of one element in bytes, 0 for a type this package does not know.
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

// Opset is the version of one domain of operators. The domain of the
// standard ones is "".
type Opset struct {
	Domain  string
	Version int64
}

// Graph is a network: nodes in an order in which they can run.
type Graph struct {
	Name         string
	Nodes        []Node
	Inputs       []Value
	Outputs      []Value
	Initializers []Tensor
}

// Node is one operator. An input that is left out has the name "".
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

// Int makes an integer attribute.
func Int(name string, v int) Attribute { return Attribute{name, int64(v)} }

// Real makes a floating-point attribute.
func Real(name string, v float64) Attribute { return Attribute{name, float32(v)} }

// Text makes a string attribute.
func Text(name, v string) Attribute { return Attribute{name, v} }

// Ints makes an attribute that is a list of integers.
func Ints(name string, v ...int64) Attribute { return Attribute{name, v} }

// Value is an input or output of the graph.
type Value struct {
	Name  string
	Type  DataType
	Shape []Dim
}

// Dim is one dimension: a size, or a name where the size is free.
type Dim struct {
	Size int64
	Name string
}

// Tensor is a constant. Its bytes (little-endian) are in Raw, or in another
// file if External is set.
type Tensor struct {
	Name     string
	Type     DataType
	Shape    []int64
	Raw      []byte
	External *External
}

// External is where the bytes of a tensor lie.
type External struct {
	Location string // a file in the folder of the model
	Offset   int64
	Length   int64
}
