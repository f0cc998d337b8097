package onnx

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"

	"google.golang.org/protobuf/encoding/protowire"
)

// Marshal validates and encodes the model.
func (m *Model) Marshal() ([]byte, error) {
	if err := m.Validate(); err != nil {
		return nil, err
	}
	ir := m.IR
	ir = cmp.Or(ir, IRVersion)
	graph, err := appendGraph(nil, &m.Graph)
	if err != nil {
		return nil, err
	}
	b := appendInt(nil, modelIR, ir)
	if m.Producer != "" {
		b = appendString(b, modelProducer, m.Producer)
	}
	b = appendMessage(b, modelGraph, graph)
	for _, o := range m.Opsets {
		set := appendString(nil, opsetDomain, o.Domain)
		b = appendMessage(b, modelOpset, appendInt(set, opsetVersion, o.Version))
	}
	return b, nil
}

func appendGraph(b []byte, g *Graph) ([]byte, error) {
	for i := range g.Nodes {
		n, err := appendNode(nil, &g.Nodes[i])
		if err != nil {
			return nil, err
		}
		b = appendMessage(b, graphNode, n)
	}
	b = appendString(b, graphName, g.Name)
	for i := range g.Initializers {
		b = appendMessage(b, graphInitializer, appendTensor(nil, &g.Initializers[i]))
	}
	for _, v := range g.Inputs {
		b = appendMessage(b, graphInput, appendValue(v))
	}
	for _, v := range g.Outputs {
		b = appendMessage(b, graphOutput, appendValue(v))
	}
	for _, v := range g.Inner {
		b = appendMessage(b, graphValueInfo, appendValue(v))
	}
	return b, nil
}

func appendNode(b []byte, n *Node) ([]byte, error) {
	for _, s := range n.Inputs {
		b = appendString(b, nodeInput, s)
	}
	for _, s := range n.Outputs {
		b = appendString(b, nodeOutput, s)
	}
	b = appendString(b, nodeName, n.Name)
	b = appendString(b, nodeOp, n.Op)
	for _, a := range n.Attributes {
		attr, err := appendAttribute(nil, a)
		if err != nil {
			return nil, fmt.Errorf("node %q: %w", n.Name, err)
		}
		b = appendMessage(b, nodeAttribute, attr)
	}
	if n.Domain != "" {
		b = appendString(b, nodeDomain, n.Domain)
	}
	return b, nil
}

func appendAttribute(b []byte, a Attribute) ([]byte, error) {
	b = appendString(b, attrName, a.Name)
	switch v := a.Value.(type) {
	case float32:
		b = appendInt(appendFloat(b, attrFloat, v), attrType, typeFloat)
	case int64:
		b = appendInt(appendInt(b, attrInt, v), attrType, typeInt)
	case []int64:
		for _, i := range v {
			b = appendInt(b, attrInts, i)
		}
		b = appendInt(b, attrType, typeInts)
	case string:
		b = appendInt(appendString(b, attrText, v), attrType, typeText)
	default:
		return nil, fmt.Errorf("attribute %q: the value must be int64, float32, []int64 or string, is %T", a.Name, a.Value)
	}
	return b, nil
}

func appendValue(v Value) []byte {
	var shape []byte
	for _, d := range v.Shape {
		var dim []byte
		if d.Name != "" {
			dim = appendString(dim, dimName, d.Name)
		} else {
			dim = appendInt(dim, dimSize, d.Size)
		}
		shape = appendMessage(shape, shapeDim, dim)
	}
	tensor := appendInt(nil, tensorTypeElem, int64(v.Type))
	tensor = appendMessage(tensor, tensorTypeShape, shape)
	return appendMessage(appendString(nil, valueName, v.Name), valueType, appendMessage(nil, typeTensorType, tensor))
}

func appendTensor(b []byte, t *Tensor) []byte {
	for _, d := range t.Shape {
		b = appendInt(b, tensorDims, d)
	}
	b = appendInt(b, tensorDataType, int64(t.Type))
	b = appendString(b, tensorName, t.Name)
	if t.External == nil {
		return appendMessage(b, tensorRaw, t.Raw)
	}
	entry := func(key, value string) {
		b = appendMessage(b, tensorExternal, appendString(appendString(nil, entryKey, key), entryValue, value))
	}
	entry(keyLocation, t.External.Location)
	entry(keyOffset, strconv.FormatInt(t.External.Offset, 10))
	entry(keyLength, strconv.FormatInt(t.External.Length, 10))
	return appendInt(b, tensorLocation, locationExternal)
}

func appendInt(b []byte, field protowire.Number, v int64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(b, field, protowire.VarintType), uint64(v)) //nolint:gosec // the same bits
}

func appendFloat(b []byte, field protowire.Number, v float32) []byte {
	return protowire.AppendFixed32(protowire.AppendTag(b, field, protowire.Fixed32Type), math.Float32bits(v))
}

func appendString(b []byte, field protowire.Number, s string) []byte {
	return protowire.AppendString(protowire.AppendTag(b, field, protowire.BytesType), s)
}

func appendMessage(b []byte, field protowire.Number, m []byte) []byte {
	b = slices.Grow(b, len(m)+16)
	return protowire.AppendBytes(protowire.AppendTag(b, field, protowire.BytesType), m)
}
