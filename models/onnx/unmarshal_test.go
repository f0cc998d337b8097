package onnx

import (
	"math"

	"touchline/models"
)

// Unmarshal reads a whole model: the counterpart of Marshal for the tests.
func Unmarshal(b []byte) (*Model, error) {
	m := &Model{}
	err := fields(b, func(f field) error {
		switch f.number {
		case modelIR:
			m.IR = int64(f.value)
		case modelProducer:
			m.Producer = string(f.bytes)
		case modelOpset:
			return add(&m.Opsets, f.bytes, func(o *Opset, f field) error {
				switch f.number {
				case opsetDomain:
					o.Domain = string(f.bytes)
				case opsetVersion:
					o.Version = int64(f.value)
				}
				return nil
			})
		case modelGraph:
			return fields(f.bytes, m.Graph.read)
		}
		return nil
	})
	return m, err
}

// add reads a message and appends it to a list.
func add[T any](to *[]T, b []byte, read func(*T, field) error) error {
	var v T
	err := fields(b, func(f field) error { return read(&v, f) })
	*to = append(*to, v)
	return err
}

func (g *Graph) read(f field) (err error) {
	switch f.number {
	case graphName:
		g.Name = string(f.bytes)
	case graphNode:
		return add(&g.Nodes, f.bytes, (*Node).read)
	case graphInitializer:
		var t Tensor
		t, err = readTensor(f.bytes)
		g.Initializers = append(g.Initializers, t)
	case graphInput:
		return add(&g.Inputs, f.bytes, (*Value).read)
	case graphOutput:
		return add(&g.Outputs, f.bytes, (*Value).read)
	case graphValueInfo:
		return add(&g.Inner, f.bytes, (*Value).read)
	}
	return err
}

func (n *Node) read(f field) error {
	switch f.number {
	case nodeInput:
		n.Inputs = append(n.Inputs, string(f.bytes))
	case nodeOutput:
		n.Outputs = append(n.Outputs, string(f.bytes))
	case nodeName:
		n.Name = string(f.bytes)
	case nodeOp:
		n.Op = string(f.bytes)
	case nodeDomain:
		n.Domain = string(f.bytes)
	case nodeAttribute:
		a, err := readAttribute(f.bytes)
		n.Attributes = append(n.Attributes, a)
		return err
	}
	return nil
}

func readAttribute(b []byte) (a Attribute, err error) {
	var kind, i int64
	var x float32
	var ints []int64
	var text string
	err = fields(b, func(f field) error {
		switch f.number {
		case attrText:
			text = string(f.bytes)
		case attrName:
			a.Name = string(f.bytes)
		case attrType:
			kind = int64(f.value)
		case attrInt:
			i = int64(f.value)
		case attrFloat:
			x = math.Float32frombits(uint32(f.value))
		case attrInts:
			return f.appendInts(&ints)
		}
		return nil
	})
	a.Value = map[int64]any{typeInt: i, typeFloat: x, typeInts: ints, typeText: text}[kind]
	return a, err
}

func (v *Value) read(f field) error {
	switch f.number {
	case valueName:
		v.Name = string(f.bytes)
	case valueType:
		return messages(f.bytes, typeTensorType, func(b []byte) error {
			return fields(b, func(f field) error {
				switch f.number {
				case tensorTypeElem:
					v.Type = models.Type(f.value)
				case tensorTypeShape:
					return messages(f.bytes, shapeDim, func(b []byte) error { return add(&v.Shape, b, (*Dim).read) })
				}
				return nil
			})
		})
	}
	return nil
}

func (d *Dim) read(f field) error {
	switch f.number {
	case dimSize:
		d.Size = int64(f.value)
	case dimName:
		d.Name = string(f.bytes)
	}
	return nil
}
