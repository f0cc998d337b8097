package tfjs

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"touchline/models"
	"touchline/models/onnx"
)

// opset is the version of ONNX's operators.
const opset = 13

// Cut is the part of a graph to convert.
type Cut struct {
	Name string // of the ONNX graph
	// Input is the node whose output becomes the graph's input, which is named InputName and has InputShape, NCHW.
	Input, InputName string
	InputShape       [4]int64
	Outputs          []Output
}

// Output is an output of the ONNX graph.
type Output struct {
	Name string // in the ONNX graph
	Node string // in the model
}

// Convert returns the part of the graph as an ONNX model. TensorFlow's pictures are NHWC, those of ONNX NCHW: the convolutions run on
// NCHW, and a reshape first restores NHWC. Biases and batch normalizations become part of the convolution before them.
func (m *Model) Convert(cut Cut) (*onnx.Model, error) {
	s := cut.InputShape
	c := &converter{model: m, values: map[string]*value{
		cut.Input: {name: cut.InputName, shape: []int64{s[0], s[2], s[3], s[1]}, nchw: true},
	}, uses: map[string]int{}}
	for _, n := range m.nodes {
		for _, in := range n.Input {
			c.uses[nodeName(in)]++
		}
	}
	g := &c.graph
	g.Name = cut.Name
	g.Inputs = []onnx.Value{{Name: cut.InputName, Type: models.Float32, Shape: dims(s[:])}}
	for _, o := range cut.Outputs {
		c.uses[o.Node]++
	}
	for _, o := range cut.Outputs {
		v, err := c.value(o.Node)
		if err == nil && v.constant != nil {
			err = errors.New("a constant")
		}
		if err != nil {
			return nil, fmt.Errorf("convert %s: output %q: %w", cut.Name, o.Node, err)
		}
		v = c.nhwc(v)
		c.emit("Identity", o.Name, []string{v.name})
		g.Outputs = append(g.Outputs, onnx.Value{Name: o.Name, Type: models.Float32, Shape: dims(v.shape)})
	}
	for _, k := range c.convolutions {
		c.floats(k.name+"/weight", k.shape, k.weights)
		c.floats(k.name+"/bias", []int64{int64(len(k.bias))}, k.bias)
	}
	return &onnx.Model{Producer: "touchline", Opsets: []onnx.Opset{{Version: opset}}, Graph: *g}, nil
}

// value is the result of a node.
type value struct {
	name     string // in the ONNX graph
	shape    []int64
	nchw     bool    // stored as NCHW; shape is NHWC
	constant *Tensor // not in the ONNX graph
	// conv is the convolution whose output this is, if its weights can still be scaled.
	conv *convolution
}

// convolution is a Conv node, whose numbers are written at the end.
type convolution struct {
	name          string
	shape         []int64 // of the weights, output channels first
	weights, bias []float32
}

type converter struct {
	model        *Model
	values       map[string]*value // nil while a node is converted
	uses         map[string]int    // readers of a node
	graph        onnx.Graph
	convolutions []*convolution
}

func nodeName(ref string) string {
	name, _, _ := strings.Cut(strings.TrimPrefix(ref, "^"), ":")
	return name
}

// value converts a node and all that it reads.
func (c *converter) value(ref string) (*value, error) {
	name, port, _ := strings.Cut(ref, ":")
	if port != "" && port != "0" {
		return nil, fmt.Errorf("%s: only the first output of a node can be read", ref)
	}
	if v, ok := c.values[name]; ok {
		if v == nil {
			return nil, fmt.Errorf("%s: the graph has a loop", name)
		}
		return v, nil
	}
	n := c.model.nodes[name]
	if n == nil {
		return nil, fmt.Errorf("%s: no such node", name)
	}
	c.values[name] = nil
	v, err := c.convert(n)
	if err != nil {
		return nil, fmt.Errorf("%s (%s): %w", name, n.Op, err)
	}
	c.values[name] = v
	return v, nil
}

// operation returns the converter of an operation and its least number of inputs; nil for an unknown one.
func (c *converter) operation(op string) (inputs int, convert func(n *node, in []*value) (*value, error)) {
	switch op {
	case "Conv2D", "DepthwiseConv2dNative":
		return 2, c.convolve
	case "Add", "BiasAdd", "Mul", "Sub":
		return 2, c.arithmetic
	case "AddN":
		return 1, c.sum
	case "FusedBatchNorm":
		return 5, c.normalize
	case "Relu6":
		return 1, c.relu6
	case "Reshape":
		return 2, c.reshape
	case "Squeeze":
		return 1, c.squeeze
	case "ConcatV2":
		return 2, c.concat
	case "Shape":
		return 1, func(_ *node, in []*value) (*value, error) { return ints(in[0].shape), nil }
	case "StridedSlice":
		return 2, c.element
	case "Pack":
		return 1, c.pack
	}
	return 0, nil
}

func (c *converter) convert(n *node) (*value, error) {
	if n.Op == "Const" {
		t, err := c.model.Tensor(n.Name)
		if err != nil {
			return nil, err
		}
		return &value{shape: t.Shape, constant: t}, nil
	}
	least, convert := c.operation(n.Op)
	if convert == nil {
		return nil, errors.New("the operation is not supported")
	}
	var in []*value
	for _, ref := range n.Input {
		if strings.HasPrefix(ref, "^") { // an order of execution
			continue
		}
		v, err := c.value(ref)
		if err != nil {
			return nil, err
		}
		in = append(in, v)
	}
	if len(in) < least {
		return nil, fmt.Errorf("expected %d inputs or more, got %d", least, len(in))
	}
	return convert(n, in)
}

// emit adds an ONNX node with one output, whose name is the node's.
func (c *converter) emit(op, name string, inputs []string, attributes ...onnx.Attribute) {
	c.graph.Nodes = append(c.graph.Nodes, onnx.Node{Name: name, Op: op, Inputs: inputs, Outputs: []string{name}, Attributes: attributes})
}

// floats adds a constant and returns its name.
func (c *converter) floats(name string, shape []int64, v []float32) string {
	var raw []byte
	for _, f := range v {
		raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(f))
	}
	c.graph.Initializers = append(c.graph.Initializers, onnx.Tensor{Name: name, Type: models.Float32, Shape: shape, Raw: raw})
	return name
}

// reshaped adds a Reshape of an NHWC or other plain value.
func (c *converter) reshaped(n *node, v *value, shape []int64) *value {
	var raw []byte
	for _, d := range shape {
		raw = binary.LittleEndian.AppendUint64(raw, uint64(d)) //nolint:gosec // the same bits
	}
	to := onnx.Tensor{Name: n.Name + "/shape", Type: models.Int64, Shape: []int64{int64(len(shape))}, Raw: raw}
	c.graph.Initializers = append(c.graph.Initializers, to)
	c.emit("Reshape", n.Name, []string{v.name, to.Name})
	return &value{name: n.Name, shape: shape}
}

// nhwc returns a value in the layout of TensorFlow.
func (c *converter) nhwc(v *value) *value {
	if !v.nchw {
		return v
	}
	name := v.name + "/nhwc"
	key := "\x00" + name // no node's name
	if old := c.values[key]; old != nil {
		return old
	}
	c.emit("Transpose", name, []string{v.name}, onnx.Ints("perm", 0, 2, 3, 1))
	c.values[key] = &value{name: name, shape: v.shape}
	return c.values[key]
}

func ints(v []int64) *value {
	shape := []int64{int64(len(v))}
	return &value{shape: shape, constant: &Tensor{Shape: shape, Ints: v}}
}

// integers returns the numbers of a constant.
func integers(v *value) ([]int64, error) {
	if v.constant == nil || v.constant.Ints == nil {
		return nil, errors.New("expected a constant of integers")
	}
	return v.constant.Ints, nil
}

func dims(shape []int64) []onnx.Dim {
	d := make([]onnx.Dim, len(shape))
	for i, s := range shape {
		d[i].Size = s
	}
	return d
}

// reshape gives a value another shape, one of whose sizes may be -1: as large as needed.
func (c *converter) reshape(n *node, in []*value) (*value, error) {
	shape, err := integers(in[1])
	if err != nil {
		return nil, err
	}
	if in[0].constant != nil {
		return nil, errors.New("expected no constant")
	}
	shape, free, known, total := slices.Clone(shape), -1, int64(1), int64(1)
	for _, d := range in[0].shape {
		total *= d
	}
	for i, d := range shape {
		switch {
		case d == -1 && free < 0:
			free = i
		case d <= 0 || known > maxNumbers/d:
			return nil, fmt.Errorf("shape %v is not supported", shape)
		default:
			known *= d
		}
	}
	if free >= 0 {
		shape[free] = total / known
		known *= shape[free]
	}
	if known != total {
		return nil, fmt.Errorf("%v does not fit into %v", in[0].shape, shape)
	}
	return c.reshaped(n, c.nhwc(in[0]), shape), nil
}

func (c *converter) squeeze(n *node, in []*value) (*value, error) {
	var shape []int64
	drop := n.Attr["squeeze_dims"].List.Ints
	for i, d := range in[0].shape {
		if d != 1 || len(drop) > 0 && !slices.Contains(drop, integer(i)) {
			shape = append(shape, d)
		}
	}
	return c.reshape(n, []*value{in[0], ints(shape)})
}

func (c *converter) concat(n *node, in []*value) (*value, error) {
	last := len(in) - 1
	axis, err := integers(in[last])
	if err != nil || len(axis) != 1 || axis[0] < 0 || axis[0] >= int64(len(in[0].shape)) {
		return nil, errors.New("expected a constant axis")
	}
	shape, names := slices.Clone(in[0].shape), []string{}
	shape[axis[0]] = 0
	for _, v := range in[:last] {
		if v.constant != nil || len(v.shape) != len(shape) {
			return nil, errors.New("expected values of one rank, no constants")
		}
		shape[axis[0]] += v.shape[axis[0]]
		names = append(names, c.nhwc(v).name)
	}
	c.emit("Concat", n.Name, names, onnx.Int("axis", int(axis[0])))
	return &value{name: n.Name, shape: shape}, nil
}

// element takes one number of a shape.
func (c *converter) element(n *node, in []*value) (*value, error) {
	list, err := integers(in[0])
	if err != nil {
		return nil, err
	}
	at, err := integers(in[1])
	if err != nil {
		return nil, err
	}
	if n.Attr["shrink_axis_mask"].Int != 1 || len(at) != 1 || at[0] < 0 || at[0] >= int64(len(list)) {
		return nil, errors.New("expected the index of one number")
	}
	v := ints(list[at[0] : at[0]+1])
	v.shape, v.constant.Shape = nil, nil
	return v, nil
}

func (c *converter) pack(_ *node, in []*value) (*value, error) {
	var list []int64
	for _, v := range in {
		one, err := integers(v)
		if err != nil || len(one) != 1 {
			return nil, errors.New("expected constant integers")
		}
		list = append(list, one[0])
	}
	return ints(list), nil
}
