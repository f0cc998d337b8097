package tfjs

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"touchline/models/onnx"
)

// convolve converts Conv2D and DepthwiseConv2dNative.
func (c *converter) convolve(n *node, in []*value) (*value, error) {
	v, w := in[0], in[1].constant
	strides, dilations := n.Attr["strides"].List.Ints, n.Attr["dilations"].List.Ints
	if len(dilations) == 0 {
		dilations = []integer{1, 1, 1, 1}
	}
	switch format := n.Attr["data_format"].Text; {
	case !v.nchw || w == nil || len(w.Shape) != 4 || w.Floats == nil:
		return nil, errors.New("expected a picture and constant weights of 4 dimensions")
	case format != "" && format != "NHWC":
		return nil, fmt.Errorf("data_format: expected NHWC, got %.20q", format)
	case len(strides) != 4 || len(dilations) != 4 || min(strides[1], strides[2], dilations[1], dilations[2]) < 1 ||
		max(strides[1], strides[2], dilations[1], dilations[2]) > 1<<10:
		return nil, fmt.Errorf("strides %v and dilations %v are not supported", strides, dilations)
	}
	k := &convolution{name: n.Name}
	groups := int64(1)
	height, width, inputs, outputs := w.Shape[0], w.Shape[1], w.Shape[2], w.Shape[3]
	if n.Op == "DepthwiseConv2dNative" {
		groups, inputs, outputs = inputs, 1, inputs*outputs
	}
	if inputs*groups != v.shape[3] || min(height, width, outputs) < 1 {
		return nil, fmt.Errorf("weights of shape %v do not fit %v", w.Shape, v.shape)
	}
	k.shape, k.bias = []int64{outputs, inputs, height, width}, make([]float32, outputs)
	k.weights = channelsFirst(w.Floats, height*width, inputs, outputs)
	shape, begin, end := []int64{v.shape[0], 0, 0, outputs}, [2]int64{}, [2]int64{}
	for i, size := range []int64{height, width} {
		stride, reach := int64(strides[i+1]), (size-1)*int64(dilations[i+1])+1
		switch padding := n.Attr["padding"].Text; padding {
		case "VALID":
			shape[i+1] = (v.shape[i+1]-reach)/stride + 1
		case "SAME":
			shape[i+1] = (v.shape[i+1] + stride - 1) / stride
			total := max((shape[i+1]-1)*stride+reach-v.shape[i+1], 0)
			begin[i], end[i] = total/2, total-total/2
		default:
			return nil, fmt.Errorf("padding %.20q is not supported", padding)
		}
		if shape[i+1] < 1 {
			return nil, fmt.Errorf("weights of shape %v are larger than %v", w.Shape, v.shape)
		}
	}
	c.emit("Conv", n.Name, []string{v.name, n.Name + "/weight", n.Name + "/bias"}, onnx.Ints("kernel_shape", height, width),
		onnx.Ints("strides", int64(strides[1]), int64(strides[2])), onnx.Ints("dilations", int64(dilations[1]), int64(dilations[2])),
		onnx.Ints("pads", begin[0], begin[1], end[0], end[1]), onnx.Int("group", int(groups)))
	c.convolutions = append(c.convolutions, k)
	return &value{name: n.Name, shape: shape, nchw: true, conv: k}, nil
}

// channelsFirst turns weights [place, input, output] into [output, input, place]. Those of a depthwise convolution, [place, output],
// have one input.
func channelsFirst(w []float32, places, inputs, outputs int64) []float32 {
	out := make([]float32, 0, len(w))
	for o := range outputs {
		for i := range inputs {
			for p := range places {
				out = append(out, w[(p*inputs+i)*outputs+o])
			}
		}
	}
	return out
}

// arithmetic converts Add, BiasAdd, Mul and Sub of a value and a constant, or of two values of one shape.
func (c *converter) arithmetic(n *node, in []*value) (*value, error) {
	op, a, b := n.Op, in[0], in[1]
	if op == "BiasAdd" {
		op = "Add"
	}
	source := nodeName(n.Input[0])
	if a.constant != nil && op != "Sub" {
		a, b, source = b, a, nodeName(n.Input[1])
	}
	if a.constant != nil {
		return nil, errors.New("expected a value first")
	}
	if b.constant == nil {
		return c.combine(n.Name, op, a, b)
	}
	numbers := b.constant.Floats
	if b.constant.Ints != nil || len(numbers) == 0 || len(numbers) > 1 && (!a.nchw || int64(len(numbers)) != a.shape[3]) {
		return nil, fmt.Errorf("a constant of shape %v does not fit %v", b.shape, a.shape)
	}
	numbers = slices.Clone(numbers)
	if a.nchw && len(numbers) == 1 {
		numbers = slices.Repeat(numbers, int(a.shape[3]))
	}
	if op == "Mul" {
		return c.affine(n.Name, source, a, numbers, nil), nil
	}
	if op == "Sub" {
		for i := range numbers {
			numbers[i] = -numbers[i]
		}
	}
	return c.affine(n.Name, source, a, nil, numbers), nil
}

// combine adds, multiplies or subtracts two values of one shape.
func (c *converter) combine(name, op string, a, b *value) (*value, error) {
	if !slices.Equal(a.shape, b.shape) || a.nchw != b.nchw || b.constant != nil {
		return nil, fmt.Errorf("values of shapes %v and %v cannot be combined", a.shape, b.shape)
	}
	c.emit(op, name, []string{a.name, b.name})
	return &value{name: name, shape: a.shape, nchw: a.nchw}, nil
}

func (c *converter) sum(n *node, in []*value) (*value, error) {
	v := in[0]
	for i, b := range in[1:] {
		name := n.Name
		if i < len(in)-2 {
			name = fmt.Sprintf("%s/%d", n.Name, i)
		}
		var err error
		if v, err = c.combine(name, "Add", v, b); err != nil {
			return nil, err
		}
	}
	return v, nil
}

// affine scales and shifts the channels of a value: in the weights of the convolution before it if nothing else reads that. Scale or
// shift may be nil.
func (c *converter) affine(name, source string, v *value, scale, shift []float32) *value {
	if k := v.conv; k != nil && c.uses[source] == 1 {
		each := len(k.weights) / len(k.bias)
		for o := range k.bias {
			if scale != nil {
				k.bias[o] *= scale[o]
				for i := range each {
					k.weights[o*each+i] *= scale[o]
				}
			}
			if shift != nil {
				k.bias[o] += shift[o]
			}
		}
		return v
	}
	for _, step := range []struct {
		op      string
		numbers []float32
	}{{"Mul", scale}, {"Add", shift}} {
		if step.numbers == nil {
			continue
		}
		shape := []int64{1}
		if v.nchw {
			shape = []int64{1, int64(len(step.numbers)), 1, 1}
		}
		at := name + "/" + step.op
		c.emit(step.op, at, []string{v.name, c.floats(at+"/constant", shape, step.numbers)})
		v = &value{name: at, shape: v.shape, nchw: v.nchw}
	}
	return v
}

// normalize converts a batch normalization with fixed mean and variance.
func (c *converter) normalize(n *node, in []*value) (*value, error) {
	v := in[0]
	var numbers [4][]float32 // gamma, beta, mean, variance
	for i := range numbers {
		t := in[i+1].constant
		if t == nil || !v.nchw || int64(len(t.Floats)) != v.shape[3] {
			return nil, fmt.Errorf("expected a constant with a number for each channel of %v", v.shape)
		}
		numbers[i] = t.Floats
	}
	epsilon := n.Attr["epsilon"].Float
	scale, shift := make([]float32, len(numbers[0])), make([]float32, len(numbers[0]))
	for i := range scale {
		s := float64(numbers[0][i]) / math.Sqrt(float64(numbers[3][i])+epsilon)
		scale[i], shift[i] = float32(s), float32(float64(numbers[1][i])-float64(numbers[2][i])*s)
	}
	return c.affine(n.Name, nodeName(n.Input[0]), v, scale, shift), nil
}

func (c *converter) relu6(n *node, in []*value) (*value, error) {
	v := in[0]
	if v.constant != nil {
		return nil, errors.New("expected no constant")
	}
	least, most := c.floats(n.Name+"/min", nil, []float32{0}), c.floats(n.Name+"/max", nil, []float32{6})
	c.emit("Clip", n.Name, []string{v.name, least, most})
	return &value{name: n.Name, shape: v.shape, nchw: v.nchw}, nil
}
