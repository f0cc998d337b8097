package ort_test

import (
	"encoding/binary"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"touchline/inference/internal/ort"
	"touchline/models"
)

// The graphs of these tests are encoded by hand (onnx.proto3; a comment names the fields of each write), so that a GPU machine needs the test
// binary only.

// message is a protobuf message under construction.
type message []byte

func (m message) number(field int, v int64) message {
	m = binary.AppendUvarint(m, uint64(field)<<3)
	return binary.AppendUvarint(m, uint64(v))
}

func (m message) float(field int, v float32) message {
	m = binary.AppendUvarint(m, uint64(field)<<3|5)
	return binary.LittleEndian.AppendUint32(m, math.Float32bits(v))
}

func (m message) bytes(field int, v []byte) message {
	m = binary.AppendUvarint(m, uint64(field)<<3|2)
	m = binary.AppendUvarint(m, uint64(len(v)))
	return append(m, v...)
}

func (m message) text(field int, v string) message { return m.bytes(field, []byte(v)) }

// value declares an input or output. A dimension is an int or the name of a free one.
func value(name string, t int, dims ...any) message {
	var shape message
	for _, d := range dims {
		switch d := d.(type) {
		case int:
			shape = shape.bytes(1, message{}.number(1, int64(d))) // dim { dim_value }
		case string:
			shape = shape.bytes(1, message{}.text(2, d)) // dim { dim_param }
		}
	}
	tensor := message{}.number(1, int64(t)).bytes(2, shape)             // elem_type, shape
	return message{}.text(1, name).bytes(2, message{}.bytes(1, tensor)) // name, type { tensor_type }
}

// weight is a constant tensor.
func weight(name string, t models.Type, raw []byte, dims ...int64) message {
	var m message
	for _, d := range dims {
		m = m.number(1, d)
	}
	return m.number(2, int64(t)).text(8, name).bytes(9, raw) // data_type, name, raw_data
}

// external is a constant tensor at the start of a data file beside the model.
func external(name, file string, t models.Type, dims ...int64) message {
	bytes := int64(t.Size())
	var m message
	for _, d := range dims {
		m, bytes = m.number(1, d), bytes*d
	}
	entry := func(key, value string) message { return message{}.text(1, key).text(2, value) }
	m = m.number(2, int64(t)).text(8, name)                                                           // data_type, name
	m = m.bytes(13, entry("location", file)).bytes(13, entry("length", strconv.FormatInt(bytes, 10))) // external_data
	return m.number(14, 1)                                                                            // data_location EXTERNAL
}

func node(domain, op string, in, out []string, attributes ...message) message {
	var m message
	for _, s := range in {
		m = m.text(1, s)
	}
	for _, s := range out {
		m = m.text(2, s)
	}
	m = m.text(3, out[0]).text(4, op) // name, op_type
	for _, a := range attributes {
		m = m.bytes(5, a)
	}
	return m.text(7, domain)
}

func attribute(name string, v int64) message {
	return message{}.text(1, name).number(3, v).number(20, 2) // i, type INT
}

func attributeFloat(name string, v float32) message {
	return message{}.text(1, name).float(2, v).number(20, 1) // f, type FLOAT
}

type graph struct{ nodes, weights, inputs, outputs []message }

func (g graph) model() []byte {
	var m message
	for _, n := range g.nodes {
		m = m.bytes(1, n)
	}
	m = m.text(2, "test")
	for _, w := range g.weights {
		m = m.bytes(5, w)
	}
	for _, v := range g.inputs {
		m = m.bytes(11, v)
	}
	for _, v := range g.outputs {
		m = m.bytes(12, v)
	}
	opset := func(domain string, version int64) message { return message{}.text(1, domain).number(2, version) }
	return message{}.number(1, 10).bytes(7, m).bytes(8, opset("", 21)).bytes(8, opset("com.microsoft", 1)) // ir_version, graph, opset_import
}

func write(tb testing.TB, model []byte) string {
	tb.Helper()
	path := filepath.Join(tb.TempDir(), "model.onnx")
	require.NoError(tb, os.WriteFile(path, model, 0o600))
	return path
}

// affine is y = 2x + 1 over x of [N, 4].
func affine() graph {
	f := func(v float32) []byte { return ort.Bytes([]float32{v}) }
	return graph{
		nodes: []message{
			node("", "Mul", []string{"x", "two"}, []string{"m"}),
			node("", "Add", []string{"m", "one"}, []string{"y"}),
		},
		weights: []message{weight("two", models.Float32, f(2)), weight("one", models.Float32, f(1))},
		inputs:  []message{value("x", int(models.Float32), "N", 4)},
		outputs: []message{value("y", int(models.Float32), "N", 4)},
	}
}

// chain multiplies a size x size matrix by itself n times: a long run.
func chain(size, n int) graph {
	g := graph{
		inputs:  []message{value("x", int(models.Float32), size, size)},
		outputs: []message{value("y", int(models.Float32), size, size)},
	}
	last := "x"
	for i := range n {
		out := "y"
		if i < n-1 {
			out = "t" + string(rune('a'+i/26)) + string(rune('a'+i%26))
		}
		g.nodes = append(g.nodes, node("", "MatMul", []string{last, "x"}, []string{out}))
		last = out
	}
	return g
}

const (
	queryHeads, kvHeads, headDim = 4, 2, 64
	queryWidth, packedWidth      = queryHeads * headDim, (queryHeads + 2*kvHeads) * headDim
)

// attention is one GroupQueryAttention over packed query, key and value, whose past and present share a buffer.
func attention(t models.Type) graph {
	cache := func(name string) message { return value(name, int(t), "B", kvHeads, "M", headDim) }
	return graph{
		nodes: []message{node("com.microsoft", "GroupQueryAttention",
			[]string{"qkv", "", "", "past.key", "past.value", "seqlens_k", "total"}, []string{"out", "present.key", "present.value"},
			attribute("num_heads", queryHeads), attribute("kv_num_heads", kvHeads), attributeFloat("scale", 0.125))},
		inputs: []message{
			value("qkv", int(t), "B", "S", packedWidth), cache("past.key"), cache("past.value"),
			value("seqlens_k", int(models.Int32), "B"), value("total", int(models.Int32)),
		},
		outputs: []message{value("out", int(t), "B", "S", queryWidth), cache("present.key"), cache("present.value")},
	}
}

// toHalf rounds to float16, to nearest even, for normal numbers and zero.
func toHalf(f float32) uint16 {
	b := math.Float32bits(f)
	sign := uint16(b>>16) & 0x8000
	if math.Abs(float64(f)) < 0x1p-14 {
		return sign
	}
	b += 0x0fff + b>>13&1
	return sign | uint16((b&0x7fffffff)>>13-(127-15)<<10)
}

func fromHalf(h uint16) float32 {
	if h&0x7fff == 0 {
		return 0
	}
	return math.Float32frombits(uint32(h&0x8000)<<16 | (uint32(h&0x7fff)<<13 + (127-15)<<23))
}
