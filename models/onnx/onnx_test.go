package onnx_test

import (
	"bytes"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"touchline/models"
	"touchline/models/onnx"
)

// sample uses every part of the format.
func sample() *onnx.Model {
	return &onnx.Model{
		IR: 10, Producer: "test",
		Opsets: []onnx.Opset{{Version: 21}, {Domain: onnx.Microsoft, Version: 1}},
		Graph: onnx.Graph{
			Name: "g",
			Inputs: []onnx.Value{
				{Name: "x", Type: models.Float16, Shape: []onnx.Dim{{Name: "B"}, {Size: 4}}},
				{Name: "n", Type: models.Int32},
			},
			Outputs: []onnx.Value{{Name: "y", Type: models.Float32, Shape: []onnx.Dim{{Name: "B"}}}},
			Inner:   []onnx.Value{{Name: "h", Type: models.Float16, Shape: []onnx.Dim{{Name: "B"}, {Size: 3}}}},
			Nodes: []onnx.Node{
				{
					Name: "a", Op: "Gemm", Inputs: []string{"x", "", "w"}, Outputs: []string{"", "h"},
					Attributes: []onnx.Attribute{
						onnx.Int("axis", -1), onnx.Real("epsilon", 1e-6),
						onnx.Ints("axes", 0, -2, math.MaxInt64), onnx.Text("mode", "reflect"),
					},
				},
				{Name: "b", Op: "QuickGelu", Domain: onnx.Microsoft, Inputs: []string{"h", "k"}, Outputs: []string{"y"}},
			},
			Initializers: []onnx.Tensor{
				{Name: "k", Type: models.Int64, Shape: []int64{1}, Raw: []byte{7, 0, 0, 0, 0, 0, 0, 0}},
				{
					Name: "w", Type: models.Float16, Shape: []int64{4, 1 << 40},
					External: &onnx.External{Location: "w.data", Offset: 4096, Length: 1 << 43},
				},
			},
		},
	}
}

func marshal(tb testing.TB, m *onnx.Model) []byte {
	tb.Helper()
	b, err := m.Marshal()
	require.NoError(tb, err)
	return b
}

func TestWrittenIsRead(t *testing.T) {
	want := sample()
	have, err := onnx.Unmarshal(marshal(t, want))
	require.NoError(t, err)
	require.Equal(t, want, have)
	constants, err := onnx.Constants(marshal(t, want))
	require.NoError(t, err)
	require.Equal(t, want.Graph.Initializers, constants)
}

func TestPackedLists(t *testing.T) {
	// Other writers pack lists of numbers: TensorProto{dims: [2,3] packed, data_type: 1, name: "t"}.
	tensor := []byte{0x0a, 2, 2, 3, 0x10, 1, 0x42, 1, 't'}
	graph := append([]byte{0x2a, byte(len(tensor))}, tensor...)
	constants, err := onnx.Constants(append([]byte{0x3a, byte(len(graph))}, graph...))
	require.NoError(t, err)
	require.Equal(t, []onnx.Tensor{{Name: "t", Type: models.Float32, Shape: []int64{2, 3}}}, constants)
}

func TestValidate(t *testing.T) {
	tests := []struct {
		name  string
		spoil func(*onnx.Graph)
		want  string
	}{
		{"value twice", func(g *onnx.Graph) { g.Nodes[1].Outputs[0] = "h" }, `value "h": duplicate name`},
		{"node twice", func(g *onnx.Graph) { g.Nodes[1].Name = "a" }, `node "a" (QuickGelu): the name must be unique and not empty`},
		{"order", func(g *onnx.Graph) { g.Nodes[0], g.Nodes[1] = g.Nodes[1], g.Nodes[0] }, `no earlier node computes the input "h"`},
		{"domain", func(g *onnx.Graph) { g.Nodes[1].Domain = "x" }, `the domain "x" is not imported`},
		{"output", func(g *onnx.Graph) { g.Outputs[0].Name = "z" }, `output or shape "z": no node computes it`},
		{"input without name", func(g *onnx.Graph) { g.Inputs[1].Name = "" }, "input without a name"},
		{"constant twice", func(g *onnx.Graph) { g.Initializers[1].Name = "k" }, `constant "k": duplicate name`},
		{"bytes", func(g *onnx.Graph) { g.Initializers[0].Raw = nil }, `constant "k": shape [1] needs 8 bytes, has 0`},
		{"length", func(g *onnx.Graph) { g.Initializers[1].External.Length = 1 }, "needs 8796093022208 bytes, has 1"},
		{"offset", func(g *onnx.Graph) { g.Initializers[1].External.Offset = -1 }, "out of range"},
		{"shape", func(g *onnx.Graph) { g.Initializers[0].Shape = []int64{1 << 40, 1 << 40} }, "out of range"},
		{"element type", func(g *onnx.Graph) { g.Initializers[0].Type = 99 }, "element type 99 is not supported"},
		{"outside", func(g *onnx.Graph) { g.Initializers[1].External.Location = "../w" }, "is not a file in the model's folder"},
		{"attribute", func(g *onnx.Graph) { g.Nodes[0].Attributes[0].Value = 1 }, `node "a": attribute "axis": the value must be int64`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := sample()
			tt.spoil(&m.Graph)
			_, err := m.Marshal()
			require.ErrorContains(t, err, tt.want)
		})
	}
}

func TestDamagedFiles(t *testing.T) {
	whole := marshal(t, sample())
	for n := range whole {
		constants, err := onnx.Constants(whole[:n])
		if err == nil { // cut behind the graph
			require.Equal(t, sample().Graph.Initializers, constants)
		}
	}
	tests := []struct {
		name string
		b    []byte
		want string
	}{
		{"empty", nil, "expected one graph"},
		{"text", []byte("not a model at all"), "not an ONNX file"},
		{"graph is a number", []byte{0x38, 1}, "not an ONNX file"},
		{"two graphs", []byte{0x3a, 0, 0x3a, 0}, "expected one graph in the ONNX file, got 2"},
		{"element type 257", []byte{0x3a, 5, 0x2a, 3, 0x10, 0x81, 2}, "element type 257 is not supported"},
		{"offset is a word", append([]byte{0x3a, 19, 0x2a, 17, 0x6a, 15, 0x0a, 6}, "offset\x12\x05words"...), `expected a number, got "words"`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := onnx.Constants(tt.b)
			require.ErrorContains(t, err, tt.want)
		})
	}
}

func FuzzConstants(f *testing.F) {
	whole := marshal(f, sample())
	f.Add(whole)
	f.Add(whole[:len(whole)/2])
	f.Add([]byte{0x3a, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		constants, err := onnx.Constants(b)
		if err != nil {
			return
		}
		// Constants that can be encoded decode to themselves.
		m := onnx.Model{Graph: onnx.Graph{Initializers: constants}}
		first, err := m.Marshal()
		if err != nil {
			return
		}
		m.Graph.Initializers, err = onnx.Constants(first)
		require.NoError(t, err)
		second, err := m.Marshal()
		require.NoError(t, err)
		require.True(t, bytes.Equal(first, second))
	})
}

// TestReplace: other constants and outputs take the place of those of a file; notes and inner shapes are left out.
func TestReplace(t *testing.T) {
	want := sample()
	file := marshal(t, want)
	note := []byte{0x72, 0x08, 0x0a, 0x01, 'k', 0x12, 0x03, 'a', '\n', 'b'} // field 14
	notes, err := onnx.Metadata(append(bytes.Clone(file), note...))
	require.NoError(t, err)
	require.Equal(t, map[string]string{"k": "a\nb"}, notes)

	k := onnx.Tensor{Name: "k", Type: models.Int64, Shape: []int64{2}, Raw: make([]byte, 16)}
	y := onnx.Value{Name: "y", Type: models.Float32, Shape: []onnx.Dim{{Name: "B"}, {Size: 3}}}
	changed, err := onnx.Replace(append(bytes.Clone(file), note...), []onnx.Tensor{k}, []onnx.Value{y})
	require.NoError(t, err)
	have, err := onnx.Unmarshal(changed)
	require.NoError(t, err)
	want.Graph.Initializers[0], want.Graph.Outputs, want.Graph.Inner = k, []onnx.Value{y}, nil
	require.Equal(t, want, have)

	k.Raw = k.Raw[:8]
	_, err = onnx.Replace(file, []onnx.Tensor{k}, nil)
	require.EqualError(t, err, "shape [2] needs 16 bytes, has 8")
	_, err = onnx.Replace(file[:len(file)-1], nil, nil)
	require.ErrorContains(t, err, "not an ONNX file")
}
