package tfjs_test

import (
	"encoding/binary"
	"math"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"

	"touchline/models/onnx"
	"touchline/models/tfjs"
)

// topology is a small graph with every operation: two convolutions of a picture of 4x4x2, a batch normalization, a residual sum, and an
// output whose shape is computed.
const topology = `{"modelTopology":{"node":[
 {"name":"picture","op":"Placeholder"},
 {"name":"half","op":"Const"},{"name":"one","op":"Const"},
 {"name":"scaled","op":"Mul","input":["half","picture"]},
 {"name":"moved","op":"Sub","input":["scaled","one"]},
 {"name":"w1","op":"Const"},{"name":"b1","op":"Const"},{"name":"m1","op":"Const"},
 {"name":"conv","op":"Conv2D","input":["moved","w1","^half"],"attr":{"strides":{"list":{"i":["1","2","2","1"]}},
  "padding":{"s":[83,65,77,69]},"data_format":{"s":"TkhXQw=="}}},
 {"name":"times","op":"Mul","input":["conv","m1"]},
 {"name":"plus","op":"BiasAdd","input":["times","b1"]},
 {"name":"relu","op":"Relu6","input":["plus:0"]},
 {"name":"w2","op":"Const"},
 {"name":"depth","op":"DepthwiseConv2dNative","input":["relu","w2"],"attr":{"strides":{"list":{"i":[1,1,1,1]}},
  "padding":{"s":"U0FNRQ=="}}},
 {"name":"gamma","op":"Const"},{"name":"beta","op":"Const"},{"name":"mean","op":"Const"},{"name":"variance","op":"Const"},
 {"name":"norm","op":"FusedBatchNorm","input":["depth","gamma","beta","mean","variance"],"attr":{"epsilon":{"f":0.25}}},
 {"name":"sum","op":"AddN","input":["norm","relu","norm"]},
 {"name":"first","op":"Const"},{"name":"shape","op":"Shape","input":["sum"]},{"name":"minus","op":"Const"},
 {"name":"batch","op":"StridedSlice","input":["shape","first"],"attr":{"shrink_axis_mask":{"i":"1"}}},
 {"name":"ones","op":"Const"},
 {"name":"pack","op":"Pack","input":["batch","minus","ones","ones"]},
 {"name":"flat","op":"Reshape","input":["sum","pack"]},
 {"name":"twice","op":"ConcatV2","input":["flat","flat","ones"]},
 {"name":"out","op":"Squeeze","input":["twice"],"attr":{"squeeze_dims":{"list":{"i":["2"]}}}}
]},"weightsManifest":[{"paths":["a","b"],"weights":[
 {"name":"half","shape":[],"dtype":"float32"},{"name":"one","shape":[1],"dtype":"float32"},
 {"name":"w1","shape":[1,1,2,3],"dtype":"float32"},{"name":"b1","shape":[3],"dtype":"float32"},{"name":"m1","shape":[3],"dtype":"float32"},
 {"name":"w2","shape":[3,3,3,1],"dtype":"float32"},
 {"name":"gamma","shape":[3],"dtype":"float32"},{"name":"beta","shape":[3],"dtype":"float32"},
 {"name":"mean","shape":[3],"dtype":"float32"},{"name":"variance","shape":[3],"dtype":"float32"},
 {"name":"first","shape":[1],"dtype":"int32"},{"name":"minus","shape":[],"dtype":"int32"},{"name":"ones","shape":[],"dtype":"int32"}
]}]}`

func shards() []byte {
	var b []byte
	for _, f := range []float32{.5, 1, 1, 2, 3, 4, 5, 6, 10, 20, 30, 2, 3, 4} {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(f))
	}
	for i := range 27 {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(float32(i)))
	}
	for _, f := range []float32{1, 2, 3, 1, 1, 1, 1, 2, 3, .75, 3.75, .75} {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(f))
	}
	for _, i := range []int32{0, -1, 1} {
		b = binary.LittleEndian.AppendUint32(b, uint32(i)) // the same bits
	}
	return b
}

func folder(topology string, weights []byte) func(name string) ([]byte, error) {
	n := min(len(weights), 20)
	files := fstest.MapFS{
		"m/model.json": {Data: []byte(topology)}, "m/a": {Data: weights[:n]}, "m/b": {Data: weights[n:]},
	}
	return files.ReadFile
}

func cut(outputs ...string) tfjs.Cut {
	c := tfjs.Cut{Name: "test", Input: "picture", InputName: "image", InputShape: [4]int64{1, 2, 4, 4}}
	for _, o := range outputs {
		c.Outputs = append(c.Outputs, tfjs.Output{Name: o + ".out", Node: o})
	}
	return c
}

func floats(t *testing.T, g onnx.Graph, name string) (out []float32) {
	t.Helper()
	for _, v := range g.Initializers {
		if v.Name == name {
			for at := 0; at < len(v.Raw); at += 4 {
				out = append(out, math.Float32frombits(binary.LittleEndian.Uint32(v.Raw[at:])))
			}
		}
	}
	require.NotEmpty(t, out, name)
	return out
}

// TestConvert: one convolution takes the scale and the bias behind it, the other one, whose output the normalization alone reads, takes
// that; the only transposition is before the reshaping.
func TestConvert(t *testing.T) {
	m, err := tfjs.Read(folder(topology, shards()), "m/model.json")
	require.NoError(t, err)
	model, err := m.Convert(cut("out", "relu"))
	require.NoError(t, err)
	_, err = model.Marshal()
	require.NoError(t, err)
	g := model.Graph
	var ops []string
	for _, n := range g.Nodes {
		ops = append(ops, n.Op)
	}
	require.Equal(t, "Mul Add Conv Clip Conv Add Add Transpose Reshape Concat Reshape Identity Transpose Identity", strings.Join(ops, " "))
	require.Equal(t, []float32{.5, .5}, floats(t, g, "scaled/Mul/constant"))
	require.Equal(t, []float32{-1, -1}, floats(t, g, "moved/Add/constant"))
	// Output channels first, times 2, 3, 4.
	require.Equal(t, []float32{2, 8, 6, 15, 12, 24}, floats(t, g, "conv/weight"))
	require.Equal(t, []float32{10, 20, 30}, floats(t, g, "conv/bias"))
	// Channel 1 is scaled by 2/sqrt(3.75+0.25).
	require.Equal(t, []float32{1, 4, 7, 10, 13, 16, 19, 22, 25}, floats(t, g, "depth/weight")[9:18])
	require.Equal(t, []float32{0, -1, -8}, floats(t, g, "depth/bias"))
	require.Equal(t, []onnx.Dim{{Size: 1}, {Size: 24}}, g.Outputs[0].Shape[:2])
	require.Equal(t, []onnx.Dim{{Size: 1}, {Size: 2}, {Size: 2}, {Size: 3}}, g.Outputs[1].Shape)
	constant, err := m.Tensor("m1")
	require.NoError(t, err)
	require.Equal(t, []float32{2, 3, 4}, constant.Floats)
}

func TestErrors(t *testing.T) {
	for _, c := range []struct{ old, instead, want string }{
		{`{"modelTopology"`, `{"modelTopology`, "read TensorFlow.js model: m/model.json: invalid character"},
		{`"name":"conv"`, `"name":"one"`, "the name must be unique and not empty"},
		{`"b"]`, `"c"]`, `m/c: file does not exist`},
		{`"shape":[3,3,3,1]`, `"shape":[3,3,3,2]`, `weight "w2": shape [3 3 3 2] needs 216 bytes, the files have 168 left`},
		{`"shape":[3,3,3,1]`, `"shape":[3,3,3,-1]`, `weight "w2": shape [3 3 3 -1] is out of range`},
		{`"one","shape":[1],"dtype":"float32"`, `"one","shape":[1],"dtype":"uint8"`, `weight "one": expected plain float32 or int32, got uint8`},
		{`"name":"ones","shape":[]`, `"name":"ones","shape":[0]`, "the files have 4 bytes more than the weights need"},
		{`"op":"Relu6"`, `"op":"Relu7"`, `output "out": out (Squeeze): `},
		{`"op":"Relu6"`, `"op":"Relu7"`, `relu (Relu7): the operation is not supported`},
		{`["plus:0"]`, `["plus:1"]`, "plus:1: only the first output of a node can be read"},
		{`["plus:0"]`, `["plus2"]`, "plus2: no such node"},
		{`["plus:0"]`, `["sum"]`, "the graph has a loop"},
		{`["plus:0"]`, `[]`, "relu (Relu6): expected 1 inputs or more, got 0"},
		{`[83,65,77,69]`, `[339,65,77,69]`, "text as a list of bytes: 339 is no byte"},
		{`[83,65,77,69]`, `[83,65]`, `conv (Conv2D): padding "SA" is not supported`},
		{`"TkhXQw=="`, `"TkNIVw=="`, `data_format: expected NHWC, got "NCHW"`},
		{`["1","2","2","1"]`, `["1","0","2","1"]`, "strides [1 0 2 1] and dilations [1 1 1 1] are not supported"},
		{`["moved","w1","^half"]`, `["moved","w2"]`, "weights of shape [3 3 3 1] do not fit [1 4 4 2]"},
		{`["times","b1"]`, `["times","w1"]`, "a constant of shape [1 1 2 3] does not fit [1 2 2 3]"},
		{`["batch","minus","ones","ones"]`, `["batch","ones","ones","ones"]`, "[1 2 2 3] does not fit into [1 1 1 1]"},
		{`["norm","relu","norm"]`, `["norm","moved"]`, "values of shapes [1 2 2 3] and [1 4 4 2] cannot be combined"},
	} {
		require.Contains(t, topology, c.old)
		m, err := tfjs.Read(folder(strings.Replace(topology, c.old, c.instead, 1), shards()), "m/model.json")
		if err == nil {
			_, err = m.Convert(cut("out"))
		}
		require.ErrorContains(t, err, c.want, c.instead)
	}
	m, err := tfjs.Read(folder(topology, shards()), "m/model.json")
	require.NoError(t, err)
	_, err = m.Tensor("none")
	require.EqualError(t, err, `the model has no constant "none"`)
	_, err = m.Convert(cut("pack"))
	require.EqualError(t, err, `convert test: output "pack": a constant`)
}

// FuzzModel: a model is refused, or its graph can be written or names what it defines twice.
func FuzzModel(f *testing.F) {
	f.Add([]byte(topology), shards(), "out")
	f.Add([]byte(strings.Replace(topology, `["plus:0"]`, `["sum"]`, 1)), shards(), "sum")
	f.Add([]byte(`{"modelTopology":{"node":[{"name":"a","op":"Mul","input":["^a","picture"]}]}}`), []byte{}, "a")
	f.Fuzz(func(t *testing.T, topology, weights []byte, output string) {
		m, err := tfjs.Read(folder(string(topology), weights), "m/model.json")
		if err != nil {
			return
		}
		model, err := m.Convert(cut(output))
		if err != nil {
			return
		}
		if _, err := model.Marshal(); err != nil {
			require.Contains(t, err.Error(), "name")
		}
	})
}
