package graph

import (
	"encoding/binary"
	"fmt"
	"strconv"

	"touchline/models"
	"touchline/models/onnx"
)

// opsets are the versions of the operators that the graphs use.
func opsets() []onnx.Opset {
	return []onnx.Opset{{Domain: "", Version: 21}, {Domain: onnx.Microsoft, Version: 1}}
}

// domain of an operator. SimplifiedLayerNormalization is ONNX Runtime's own
// too, but registered under the standard domain.
func domain(op string) string {
	switch op {
	case "GroupQueryAttention", "MultiHeadAttention", "MatMulNBits", "QuickGelu", "FastGelu",
		"SkipSimplifiedLayerNormalization", "SkipLayerNormalization", "FusedMatMul":
		return onnx.Microsoft
	}
	return ""
}

// network collects what becomes a Description. Values and weights go by name.
type network struct {
	options Options
	float   models.Type // of activations
	graph   onnx.Graph
	inputs  []models.Port
	outputs []models.Port
	weights []Weight
	known   map[string]bool // names of weights and constants
}

func newNetwork(name string, o Options) *network {
	float := models.Float32
	if o.Device == models.DeviceCUDA {
		float = models.Float16
	}
	return &network{options: o, float: float, graph: onnx.Graph{Name: name}, known: map[string]bool{}}
}

// input adds an input. A dimension is a number or the name of a free one.
func (n *network) input(name string, t models.Type, shape ...any) {
	n.inputs = append(n.inputs, port(name, t, shape))
}

// output declares the value of that name, which a node has made, as an output.
func (n *network) output(name string, t models.Type, shape ...any) {
	n.outputs = append(n.outputs, port(name, t, shape))
}

func port(name string, t models.Type, shape []any) models.Port {
	p := models.Port{Name: name, Type: t, Shape: []string{}}
	for _, d := range shape {
		p.Shape = append(p.Shape, fmt.Sprint(d))
	}
	return p
}

// node adds an operator with one output, which has the operator's name.
func (n *network) node(op, name string, inputs []string, attributes ...onnx.Attribute) string {
	n.nodes(op, name, inputs, []string{name}, attributes...)
	return name
}

// nodes adds an operator with the given outputs.
func (n *network) nodes(op, name string, inputs, outputs []string, attributes ...onnx.Attribute) {
	n.graph.Nodes = append(n.graph.Nodes, onnx.Node{
		Name: name, Op: op, Domain: domain(op), Inputs: inputs, Outputs: outputs, Attributes: attributes,
	})
}

// weight adds a weight; adding one again is the same as adding it once.
func (n *network) weight(w Weight) string {
	if !n.known[w.Name] {
		n.known[w.Name] = true
		n.weights = append(n.weights, w)
	}
	return w.Name
}

// vector adds a weight that is the sources one after another, as they are.
func (n *network) vector(name string, size int, sources ...string) string {
	return n.weight(Weight{Name: name, Type: n.float, Shape: []int{size}, Rule: RuleCopy, Sources: sources})
}

// constant adds a small list of integers, which lies in the ONNX file itself
// because the runtime wants to see it when it plans shapes.
func (n *network) constant(name string, values ...int64) string {
	if n.known[name] {
		return name
	}
	n.known[name] = true
	raw := make([]byte, 0, 8*len(values))
	for _, v := range values {
		raw = binary.LittleEndian.AppendUint64(raw, uint64(v))
	}
	n.graph.Initializers = append(n.graph.Initializers, onnx.Tensor{
		Name: name, Type: onnx.Int64, Shape: []int64{int64(len(values))}, Raw: raw,
	})
	return name
}

// matrix is a linear layer's weights in the checkpoint: the stacked sources
// are [out, in].
type matrix struct {
	name    string
	in, out int
	sources []string
	fold    *Fold
}

// linear multiplies x with a matrix.
func (n *network) linear(name, x string, m matrix) string {
	w := n.weight(Weight{
		Name: m.name + ".weight", Type: n.float, Shape: []int{m.in, m.out}, Rule: RuleTranspose, Sources: m.sources,
		Fold: m.fold,
	})
	return n.node("MatMul", name, []string{x, w})
}

// linearBits multiplies x with a matrix of integers of the given bits with a
// scale per block of inputs. Packed ones have zero points.
func (n *network) linearBits(name, x string, m matrix, bits, block int, packed bool) string {
	blocks := (m.in + block - 1) / block
	add := func(suffix string, rule Rule, t models.Type, shape ...int) string {
		return n.weight(Weight{
			Name: m.name + suffix, Type: t, Shape: shape, Rule: rule, Sources: m.sources,
			Bits: bits, Block: block, Packed: packed,
		})
	}
	inputs := []string{
		x,
		add(".quants", RuleQuants, models.Uint8, m.out, blocks, block*bits/8),
		add(".scales", RuleScales, n.float, m.out*blocks),
	}
	if packed {
		inputs = append(inputs, add(".zeros", RuleZeros, models.Uint8, m.out*((blocks*bits+7)/8)))
	}
	return n.node("MatMulNBits", name, inputs, onnx.Int("K", m.in), onnx.Int("N", m.out),
		onnx.Int("bits", bits), onnx.Int("block_size", block))
}

// describe ends the network.
func (n *network) describe(kind models.Kind) *Description {
	return &Description{
		Kind: kind, Options: n.options, Inputs: n.inputs, Outputs: n.outputs, Weights: n.weights, graph: n.graph,
	}
}

// Encode gives the ONNX file. It asks place for every weight, once, where its
// bytes are.
func (d *Description) Encode(place func(Weight) (Location, error)) ([]byte, error) {
	m := onnx.Model{Producer: "touchline", Opsets: opsets(), Graph: d.graph}
	for _, w := range d.Weights {
		at, err := place(w)
		if err != nil {
			return nil, fmt.Errorf("place weight %s: %w", w.Name, err)
		}
		t := onnx.Tensor{
			Name: w.Name, Type: dataType(w.Type),
			External: &onnx.External{Location: at.File, Offset: at.Offset, Length: at.Length},
		}
		for _, s := range w.Shape {
			t.Shape = append(t.Shape, int64(s))
		}
		m.Graph.Initializers = append(m.Graph.Initializers, t)
	}
	for _, p := range d.Inputs {
		m.Graph.Inputs = append(m.Graph.Inputs, value(p))
	}
	for _, p := range d.Outputs {
		m.Graph.Outputs = append(m.Graph.Outputs, value(p))
	}
	b, err := m.Marshal()
	if err != nil {
		return nil, fmt.Errorf("write graph %s: %w", d.Kind, err)
	}
	return b, nil
}

func value(p models.Port) onnx.Value {
	v := onnx.Value{Name: p.Name, Type: dataType(p.Type)}
	for _, s := range p.Shape {
		if size, err := strconv.ParseInt(s, 10, 64); err == nil {
			v.Shape = append(v.Shape, onnx.Dim{Size: size})
		} else {
			v.Shape = append(v.Shape, onnx.Dim{Name: s})
		}
	}
	return v
}

func dataType(t models.Type) onnx.DataType {
	switch t {
	case models.Float32:
		return onnx.Float
	case models.Float16:
		return onnx.Float16
	case models.BFloat16:
		return onnx.BFloat16
	case models.Int64:
		return onnx.Int64
	case models.Int32:
		return onnx.Int32
	case models.Uint8:
		return onnx.Uint8
	case models.Int8:
		return onnx.Int8
	}
	return 0
}
