package graph

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strconv"

	"touchline/models"
	"touchline/models/onnx"
)

// standard is the operator version of graphs that need no newer one.
const standard = 21

// domain returns the domain of an operator. ONNX Runtime registers its own
// SimplifiedLayerNormalization under the standard domain.
func domain(op string) string {
	switch op {
	case "GroupQueryAttention", "MultiHeadAttention", "RotaryEmbedding", "MatMulNBits", "QuickGelu", "FastGelu",
		"SkipSimplifiedLayerNormalization", "SkipLayerNormalization", "FusedMatMul", "BiasGelu":
		return onnx.Microsoft
	}
	return ""
}

// network builds a Description. Values and weights are identified by name.
type network struct {
	options Options
	float   models.Type // of activations
	graph   onnx.Graph
	inputs  []models.Port
	outputs []models.Port
	weights []Weight
	known   map[string]bool // names of weights and constants
	opset   int64
}

func newNetwork(name string, o Options) *network {
	float := models.Float32
	switch {
	case o.BFloat16 || o.Weights == models.WeightsBFloat16:
		float = models.BFloat16
	case o.Device == models.DeviceCUDA && o.Weights != models.WeightsFloat32:
		float = models.Float16
	}
	return &network{options: o, float: float, graph: onnx.Graph{Name: name}, known: map[string]bool{}, opset: standard}
}

// input adds an input. A dimension is a number, or a name if it is free.
func (n *network) input(name string, t models.Type, shape ...any) {
	n.inputs = append(n.inputs, port(name, t, shape))
}

// output declares the value of a node as an output.
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

// shaped tells the shape of a node's value where the runtime cannot infer it. ONNX Runtime looks for a free buffer for each value among all
// that are free, and never finds one if their shapes are unknown: it took 8 and 15 s to load the graphs of the flow.
func (n *network) shaped(name string, t models.Type, shape ...any) string {
	if !slices.ContainsFunc(n.outputs, func(p models.Port) bool { return p.Name == name }) {
		n.graph.Inner = append(n.graph.Inner, value(port(name, t, shape)))
	}
	return name
}

// node adds an operator with one output of the same name.
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

// cast converts x to a type; the runtime drops casts without effect.
func (n *network) cast(name, x string, t models.Type) string {
	return n.node("Cast", name, []string{x}, onnx.Int("to", int(t)))
}

// weight adds a weight unless the network has it already.
func (n *network) weight(w Weight) string {
	if !n.known[w.Name] {
		n.known[w.Name] = true
		n.weights = append(n.weights, w)
	}
	return w.Name
}

// vector adds a weight that concatenates the sources unchanged.
func (n *network) vector(name string, size int, sources ...string) string {
	return n.weight(Weight{Name: name, Type: n.float, Shape: []int{size}, Rule: RuleCopy, Sources: sources})
}

// formula adds a computed weight.
func (n *network) formula(name string, f *Formula) string {
	return n.weight(Weight{Name: name, Type: n.float, Shape: f.shape, Rule: RuleFormula, Formula: f})
}

// constant adds a small list of integers to the ONNX file itself, where the
// runtime needs it for planning shapes.
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
		Name: name, Type: models.Int64, Shape: []int64{int64(len(values))}, Raw: raw,
	})
	return name
}

// end is the end of an axis.
const end = math.MaxInt64

// slice selects rows [from, to) along an axis; negative numbers count from its end.
func (n *network) slice(name, x string, axis, from, to int) string {
	number := func(v int) string { return n.constant("at."+strconv.Itoa(v), int64(v)) }
	return n.node("Slice", name, []string{x, number(from), number(to), number(axis)})
}

// taps puts each row of x [B,T,K] and the rows after it, size in all, side by side:
// [B,T-size+1,size*K].
func (n *network) taps(name, x string, size int) string {
	rows := make([]string, size)
	for k := range rows {
		to := k - size + 1
		to = cmp.Or(to, end)
		rows[k] = n.slice(name+".tap."+strconv.Itoa(k), x, 1, k, to)
	}
	return n.node("Concat", name+".taps", rows, onnx.Int("axis", -1))
}

// matrix is a linear layer's weights in the checkpoint: the stacked sources
// are [out, in].
type matrix struct {
	name    string
	in, out int
	sources []string
	fold    *Fold
	scale   float64 // factor of the weights; 0 leaves them unchanged
}

// linear multiplies x with a matrix.
func (n *network) linear(name, x string, m matrix) string {
	w := n.weight(Weight{
		Name: m.name + ".weight", Type: n.float, Shape: []int{m.in, m.out}, Rule: RuleTranspose, Sources: m.sources,
		Fold: m.fold, Scale: m.scale,
	})
	return n.node("MatMul", name, []string{x, w})
}

// linearBits multiplies x with a quantised matrix that has one scale per block of
// inputs. Packed matrices have zero points.
func (n *network) linearBits(name, x string, m matrix, bits, block int, packed bool) string {
	blocks := (m.in + block - 1) / block
	add := func(suffix string, rule Rule, t models.Type, shape ...int) string {
		return n.weight(Weight{
			Name: m.name + suffix, Type: t, Shape: shape, Rule: rule, Sources: m.sources,
			Bits: bits, Block: block, Packed: packed, Wide: n.float == models.BFloat16, Scale: m.scale,
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

// describe returns the finished network.
func (n *network) describe(kind models.Kind) *Description {
	return &Description{
		Kind: kind, Options: n.options, Inputs: n.inputs, Outputs: n.outputs, Weights: n.weights,
		graph: n.graph, opset: n.opset,
	}
}

// Encode returns the ONNX file. It calls place once for the location of each
// weight.
func (d *Description) Encode(place func(Weight) (Location, error)) ([]byte, error) {
	m, err := d.model(place)
	if err != nil {
		return nil, err
	}
	b, err := m.Marshal()
	if err != nil {
		return nil, fmt.Errorf("write graph %s: %w", d.Kind, err)
	}
	return b, nil
}

func (d *Description) model(place func(Weight) (Location, error)) (onnx.Model, error) {
	opsets := []onnx.Opset{{Domain: "", Version: d.opset}, {Domain: onnx.Microsoft, Version: 1}}
	m := onnx.Model{Producer: "touchline", Opsets: opsets, Graph: d.graph}
	for _, w := range d.Weights {
		at, err := place(w)
		if err != nil {
			return m, fmt.Errorf("place weight %s: %w", w.Name, err)
		}
		t := onnx.Tensor{
			Name: w.Name, Type: w.Type,
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
	return m, nil
}

func value(p models.Port) onnx.Value {
	v := onnx.Value{Name: p.Name, Type: p.Type}
	for _, s := range p.Shape {
		if size, err := strconv.ParseInt(s, 10, 64); err == nil {
			v.Shape = append(v.Shape, onnx.Dim{Size: size})
		} else {
			v.Shape = append(v.Shape, onnx.Dim{Name: s})
		}
	}
	return v
}
