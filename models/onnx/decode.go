package onnx

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strconv"

	"google.golang.org/protobuf/encoding/protowire"
)

// errWire is returned for invalid protocol buffers.
var errWire = errors.New("not an ONNX file, or damaged or truncated")

// Unmarshal reads a model. It skips parts of the format that this package does
// not support (comments, subgraphs, functions, types other than tensors). The
// result is not validated, and its tensors share memory with b.
func Unmarshal(b []byte) (*Model, error) {
	m := &Model{}
	graphs := 0
	err := each(b, func(f field) (err error) {
		switch f.number {
		case modelIR:
			m.IR, err = f.int()
		case modelProducer:
			m.Producer, err = f.text()
		case modelOpset:
			var o Opset
			err = f.each(func(f field) (err error) {
				switch f.number {
				case opsetDomain:
					o.Domain, err = f.text()
				case opsetVersion:
					o.Version, err = f.int()
				}
				return err
			})
			m.Opsets = append(m.Opsets, o)
		case modelGraph:
			graphs++
			err = readGraph(f, &m.Graph)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	if graphs != 1 {
		return nil, fmt.Errorf("expected one graph in the ONNX file, got %d", graphs)
	}
	return m, nil
}

func readGraph(f field, g *Graph) error {
	return f.each(func(f field) (err error) {
		switch f.number {
		case graphName:
			g.Name, err = f.text()
		case graphNode:
			var n Node
			err = readNode(f, &n)
			g.Nodes = append(g.Nodes, n)
		case graphInitializer:
			var t Tensor
			err = readTensor(f, &t)
			g.Initializers = append(g.Initializers, t)
		case graphInput:
			var v Value
			err = readValue(f, &v)
			g.Inputs = append(g.Inputs, v)
		case graphOutput:
			var v Value
			err = readValue(f, &v)
			g.Outputs = append(g.Outputs, v)
		}
		return err
	})
}

func readNode(f field, n *Node) error {
	return f.each(func(f field) (err error) {
		var s string
		switch f.number {
		case nodeInput:
			s, err = f.text()
			n.Inputs = append(n.Inputs, s)
		case nodeOutput:
			s, err = f.text()
			n.Outputs = append(n.Outputs, s)
		case nodeName:
			n.Name, err = f.text()
		case nodeOp:
			n.Op, err = f.text()
		case nodeDomain:
			n.Domain, err = f.text()
		case nodeAttribute:
			var a Attribute
			err = readAttribute(f, &a)
			n.Attributes = append(n.Attributes, a)
		}
		return err
	})
}

func readAttribute(f field, a *Attribute) error {
	var kind, i int64
	var x float32
	var s string
	var ints []int64
	var floats []float32
	var tensor *Tensor
	err := f.each(func(f field) (err error) {
		switch f.number {
		case attrName:
			a.Name, err = f.text()
		case attrType:
			kind, err = f.int()
		case attrInt:
			i, err = f.int()
		case attrFloat:
			x, err = f.float()
		case attrString:
			s, err = f.text()
		case attrInts:
			ints, err = f.ints(ints)
		case attrFloats:
			floats, err = f.floats(floats)
		case attrTensor:
			tensor = &Tensor{}
			err = readTensor(f, tensor)
		}
		return err
	})
	switch kind {
	case typeInt:
		a.Value = i
	case typeFloat:
		a.Value = x
	case typeString:
		a.Value = s
	case typeInts:
		a.Value = ints
	case typeFloats:
		a.Value = floats
	case typeTensor:
		a.Value = tensor
	}
	return err
}

func readValue(f field, v *Value) error {
	return f.each(func(f field) (err error) {
		switch f.number {
		case valueName:
			v.Name, err = f.text()
		case valueType:
			err = f.each(func(f field) error {
				if f.number != typeTensorType {
					return nil
				}
				return readTensorType(f, v)
			})
		}
		return err
	})
}

func readTensorType(f field, v *Value) error {
	return f.each(func(f field) error {
		switch f.number {
		case tensorTypeElem:
			t, err := f.int()
			v.Type = DataType(t)
			return err
		case tensorTypeShape:
			return f.each(func(f field) error {
				if f.number != shapeDim {
					return nil
				}
				var d Dim
				err := f.each(func(f field) (err error) {
					switch f.number {
					case dimSize:
						d.Size, err = f.int()
					case dimName:
						d.Name, err = f.text()
					}
					return err
				})
				v.Shape = append(v.Shape, d)
				return err
			})
		}
		return nil
	})
}

func readTensor(f field, t *Tensor) error {
	var external bool
	e := &External{}
	err := f.each(func(f field) (err error) {
		var i int64
		switch f.number {
		case tensorDims:
			t.Shape, err = f.ints(t.Shape)
		case tensorDataType:
			i, err = f.int()
			t.Type = DataType(i)
		case tensorName:
			t.Name, err = f.text()
		case tensorRaw:
			if f.kind != protowire.BytesType {
				return errWire
			}
			t.Raw = f.bytes
		case tensorExternal:
			err = readEntry(f, e)
		case tensorLocation:
			i, err = f.int()
			external = i == locationExternal
		}
		return err
	})
	if external {
		t.External = e
	}
	return err
}

func readEntry(f field, e *External) error {
	var key, value string
	err := f.each(func(f field) (err error) {
		switch f.number {
		case entryKey:
			key, err = f.text()
		case entryValue:
			value, err = f.text()
		}
		return err
	})
	if err != nil {
		return err
	}
	switch key {
	case keyLocation:
		e.Location = value
	case keyOffset:
		e.Offset, err = strconv.ParseInt(value, 10, 64)
	case keyLength:
		e.Length, err = strconv.ParseInt(value, 10, 64)
	}
	if err != nil {
		return fmt.Errorf("external data: %s: expected a number, got %q", key, value)
	}
	return nil
}

// field is one encoded field of a message.
type field struct {
	number int
	kind   protowire.Type
	value  uint64 // of numbers
	bytes  []byte // of messages, strings and lists
}

// each calls do for every field of a message.
func each(b []byte, do func(field) error) error {
	for len(b) > 0 {
		var f field
		number, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return errWire
		}
		f.number, f.kind, b = int(number), kind, b[n:]
		var x uint32
		switch f.kind {
		case protowire.VarintType:
			f.value, n = protowire.ConsumeVarint(b)
		case protowire.Fixed32Type:
			x, n = protowire.ConsumeFixed32(b)
			f.value = uint64(x)
		case protowire.Fixed64Type:
			f.value, n = protowire.ConsumeFixed64(b)
		case protowire.BytesType:
			f.bytes, n = protowire.ConsumeBytes(b)
		default:
			n = protowire.ConsumeFieldValue(number, f.kind, b)
		}
		if n < 0 {
			return errWire
		}
		b = b[n:]
		if err := do(f); err != nil {
			return err
		}
	}
	return nil
}

func (f field) each(do func(field) error) error {
	if f.kind != protowire.BytesType {
		return errWire
	}
	return each(f.bytes, do)
}

func (f field) int() (int64, error) {
	if f.kind != protowire.VarintType {
		return 0, errWire
	}
	return int64(f.value), nil
}

func (f field) float() (float32, error) {
	if f.kind != protowire.Fixed32Type {
		return 0, errWire
	}
	return math.Float32frombits(uint32(f.value)), nil
}

func (f field) text() (string, error) {
	if f.kind != protowire.BytesType {
		return "", errWire
	}
	return string(f.bytes), nil
}

// ints appends one number or a packed list.
func (f field) ints(to []int64) ([]int64, error) {
	if f.kind == protowire.VarintType {
		return append(to, int64(f.value)), nil
	}
	if f.kind != protowire.BytesType {
		return nil, errWire
	}
	for b := f.bytes; len(b) > 0; {
		v, n := protowire.ConsumeVarint(b)
		if n < 0 {
			return nil, errWire
		}
		to, b = append(to, int64(v)), b[n:]
	}
	return to, nil
}

// floats appends one number or a packed list.
func (f field) floats(to []float32) ([]float32, error) {
	if f.kind == protowire.Fixed32Type {
		return append(to, math.Float32frombits(uint32(f.value))), nil
	}
	if f.kind != protowire.BytesType || len(f.bytes)%4 != 0 {
		return nil, errWire
	}
	for b := f.bytes; len(b) > 0; b = b[4:] {
		to = append(to, math.Float32frombits(binary.LittleEndian.Uint32(b)))
	}
	return to, nil
}
