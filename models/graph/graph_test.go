package graph_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"touchline/models"
	"touchline/models/graph"
)

// dims returns those of the published model.
func dims() models.Dims {
	return models.Dims{
		Decoder: models.Decoder{
			Layers: 36, Hidden: 4096, Heads: 32, KVHeads: 8, HeadDim: 128, FFN: 12288, Vocab: 151748,
			Epsilon: 1e-6, RopeTheta: 1e6, MaxPositions: 8192,
		},
		Vision: &models.Vision{
			Layers: 26, Hidden: 1152, Heads: 16, FFN: 4304, Patch: 14, Grid: 70, Epsilon: 1e-6,
			Queries: 64, Out: 4096, ResamplerHeads: 32, MaxSide: 1024,
		},
		Speech: &models.Speech{
			TTS: models.TTS{
				Layers: 20, Hidden: 768, Heads: 12, FFN: 3072, Codes: 6562, TextRows: 152064, Epsilon: 1e-6, RopeTheta: 1e4,
				MaxPositions: 4096, AudioBOS: 151687, TextEOS: 151692,
			},
			Flow: models.Flow{
				Codes: 6561, Hidden: 512, Heads: 8, FFN: 2048, Blocks: 6, UpBlocks: 4, Mel: 80, Speaker: 192, MaxPrompt: 425,
				DiT: models.DiT{Layers: 16, Hidden: 512, Heads: 8, HeadDim: 64, FFN: 2048, Time: 256, Steps: 10, Guidance: 0.7},
			},
			Vocoder: models.Vocoder{Channels: 512, Pitch: 512},
		},
	}
}

// place returns consecutive locations.
func place(tb testing.TB) func(graph.Weight) (graph.Location, error) {
	tb.Helper()
	seen, offset := map[string]bool{}, int64(0)
	return func(w graph.Weight) (graph.Location, error) {
		if seen[w.Name] {
			return graph.Location{}, fmt.Errorf("%s is asked for twice", w.Name)
		}
		seen[w.Name] = true
		at := graph.Location{File: "w.data", Offset: offset, Length: w.Bytes()}
		offset += (w.Bytes() + 4095) &^ 4095
		return at, nil
	}
}

var (
	cudaHalf = graph.Options{Device: models.DeviceCUDA, Weights: models.WeightsFloat16}
	cudaInt4 = graph.Options{Device: models.DeviceCUDA, Weights: models.WeightsInt4}
	cpu      = graph.Options{Device: models.DeviceCPU, Weights: models.WeightsFloat32}
)

func TestPublishedSizes(t *testing.T) {
	tests := []struct {
		name     string
		describe func(models.Dims, graph.Options) (*graph.Description, error)
		options  graph.Options
		weights  float64 // GB
	}{
		{"decoder fp16", graph.Decoder, cudaHalf, 15.14},
		{"decoder int4", graph.Decoder, cudaInt4, 4.57},
		{"decoder fp32", graph.Decoder, cpu, 30.27},
		{"vision", graph.Vision, cudaHalf, 0.94},
		{"embedding", graph.Embed, cudaHalf, 1.24},
		{"TTS condition", graph.TTSCondition, cudaHalf, 0.24},
		{"TTS", graph.TTS, cudaHalf, 0.40},
		{"flow encoder", graph.FlowEncoder, cudaHalf, 0.08},
		{"flow", graph.FlowDiT, cudaHalf, 0.23},
		{"flow once", graph.FlowDiTOnce, cudaHalf, 0.15},
		{"vocoder", graph.Vocoder, cudaHalf, 0.04},
		{"vocoder of ends", graph.VocoderTail, cudaHalf, 0.04},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			d, err := tt.describe(dims(), tt.options)
			require.NoError(t, err)
			require.InDelta(t, tt.weights, float64(d.WeightBytes())/1e9, 0.01)
			m, err := d.Model(place(t))
			require.NoError(t, err)
			require.Len(t, m.Graph.Inputs, len(d.Inputs))
			require.Len(t, m.Graph.Outputs, len(d.Outputs))
			b, err := d.Encode(place(t))
			require.NoError(t, err)
			require.Less(t, len(b), 2<<20, "weights belong into the data file")
		})
	}
}

func TestPorts(t *testing.T) {
	d, err := graph.Decoder(dims(), cudaInt4)
	require.NoError(t, err)
	require.Equal(t, []models.Port{
		{Name: "inputs_embeds", Type: models.Float16, Shape: []string{"B", "S", "4096"}},
		{Name: "seqlens_k", Type: models.Int32, Shape: []string{"B"}},
		{Name: "total_sequence_length", Type: models.Int32, Shape: []string{}},
		{Name: "last_position", Type: models.Int64, Shape: []string{models.SeveralRows}},
		{Name: "logits_bias", Type: models.Float32, Shape: []string{"BM", "151748"}},
		{Name: "past_key_values.0.key", Type: models.Float16, Shape: []string{"B", "8", "M", "128"}},
		{Name: "past_key_values.0.value", Type: models.Float16, Shape: []string{"B", "8", "M", "128"}},
	}, d.Inputs[:7])
	require.Equal(t, []models.Port{
		{Name: "logits", Type: models.Float32, Shape: []string{"B", "1", "151748"}},
		{Name: "top_values", Type: models.Float32, Shape: []string{"B", "1", "256"}},
		{Name: "top_ids", Type: models.Int64, Shape: []string{"B", "1", "256"}},
		{Name: "hidden_states", Type: models.Float16, Shape: []string{"B", models.SeveralRows, "4096"}},
		{Name: "present.0.key", Type: models.Float16, Shape: []string{"B", "8", "M", "128"}},
	}, d.Outputs[:5])
	require.Len(t, d.Inputs, 5+2*36)

	require.True(t, (&models.Graph{Inputs: d.Inputs}).Several())
	silent := dims()
	silent.Speech = nil
	d2, err := graph.Decoder(silent, cudaInt4)
	require.NoError(t, err)
	require.False(t, (&models.Graph{Inputs: d2.Inputs}).Several(), "without a voice nobody asks for several positions")

	check := cudaInt4
	check.Check = true
	c, err := graph.Decoder(dims(), check)
	require.NoError(t, err)
	require.Equal(t, d.Weights, c.Weights, "a graph with the outputs of the check has the same weights")
	require.Len(t, c.Outputs, len(d.Outputs)+2+37)
}

// TestBFloat16: nothing of a graph in bfloat16 is in float16, and its logits are in float32. Quants beside such scales are others.
func TestBFloat16(t *testing.T) {
	bf16 := graph.Options{Device: models.DeviceCUDA, Weights: models.WeightsBFloat16}
	int4 := cudaInt4
	int4.BFloat16 = true
	for _, tt := range []struct {
		describe func(models.Dims, graph.Options) (*graph.Description, error)
		options  graph.Options
		like     graph.Options
	}{
		{graph.Decoder, bf16, cudaHalf}, {graph.Decoder, int4, cudaInt4}, {graph.Vision, bf16, cudaHalf}, {graph.Embed, bf16, cudaHalf},
	} {
		d, err := tt.describe(dims(), tt.options)
		require.NoError(t, err)
		half, err := tt.describe(dims(), tt.like)
		require.NoError(t, err)
		float := func(typ models.Type) models.Type {
			if typ == models.Float16 {
				return models.BFloat16
			}
			return typ
		}
		for i, p := range half.Inputs {
			require.Equal(t, models.Port{Name: p.Name, Type: float(p.Type), Shape: p.Shape}, d.Inputs[i])
		}
		for i, p := range half.Outputs {
			require.Equal(t, models.Port{Name: p.Name, Type: float(p.Type), Shape: p.Shape}, d.Outputs[i])
		}
		require.Equal(t, half.WeightBytes(), d.WeightBytes())
		keys := map[string]bool{}
		for i, w := range half.Weights {
			require.Equal(t, float(w.Type), d.Weights[i].Type, w.Name)
			keys[w.Key()] = true
		}
		for _, w := range d.Weights {
			require.False(t, keys[w.Key()], w.Name)
		}
	}
}

// TestLastPosition: after the last layer's keys and values the graph computes only the
// positions that are asked for, and the check's graph all positions. A decoder with a voice has logits of the last of them.
func TestLastPosition(t *testing.T) {
	sizes := dims()
	gathers := func(o graph.Options) []string {
		d, err := graph.Decoder(sizes, o)
		require.NoError(t, err)
		m, err := d.Model(place(t))
		require.NoError(t, err)
		var of []string
		for _, n := range m.Graph.Nodes {
			if n.Op == "Gather" {
				of = append(of, n.Inputs[0])
			}
		}
		return of
	}
	check := cudaInt4
	check.Check = true
	require.Equal(t, []string{"layers.35.attention", "layers.35.norm.sum", "hidden_states"}, gathers(cudaInt4))
	require.Equal(t, []string{"layers.36.norm", "hidden_states"}, gathers(check))
	sizes.Speech = nil
	require.Equal(t, []string{"layers.35.attention", "layers.35.norm.sum"}, gathers(cudaInt4))
	require.Equal(t, []string{"layers.36.norm"}, gathers(check))
}

// TestFold: weights with different norms have different keys.
func TestFold(t *testing.T) {
	d, err := graph.Vision(dims(), cudaHalf)
	require.NoError(t, err)
	keys := map[string]string{}
	for _, w := range d.Weights {
		if w.Fold == nil {
			continue
		}
		require.Equal(t, strings.HasSuffix(w.Name, ".k.weight"), w.Fold.Keys, w.Name)
		plain, other, shifted := w, w, w
		f, g := *w.Fold, *w.Fold
		f.Weight, g.Shift = "another", 2*g.Shift
		plain.Fold, other.Fold, shifted.Fold = nil, &f, &g
		for _, v := range []graph.Weight{w, plain, other, shifted} {
			require.NotContains(t, keys, v.Key())
			keys[v.Key()] = v.Name
		}
	}
	require.Len(t, keys, 4*4*26)
}

// TestKeys checks which weights of different graphs share their bytes.
func TestKeys(t *testing.T) {
	keys := func(d *graph.Description, err error) map[string]graph.Weight {
		t.Helper()
		require.NoError(t, err)
		all := map[string]graph.Weight{}
		for _, w := range d.Weights {
			_, taken := all[w.Key()]
			require.False(t, taken, w.Name)
			all[w.Key()] = w
		}
		return all
	}
	half, int4 := keys(graph.Decoder(dims(), cudaHalf)), keys(graph.Decoder(dims(), cudaInt4))
	var shared int64
	for k, w := range int4 {
		if other, ok := half[k]; ok {
			require.Equal(t, w, other)
			shared++
		}
	}
	// The norms (4 a layer and the last) and the rotary tables.
	require.EqualValues(t, 4*36+1+2, shared)
	// The forms of the flow share all weights but that of the prompt and those of attention's gates: a matrix for each step of a block is
	// one, and a gate for each step.
	d := dims().Speech.Flow.DiT
	chunk, once := keys(graph.FlowDiT(dims(), cudaHalf)), keys(graph.FlowDiTOnce(dims(), cudaHalf))
	// The vocoders share all weights, but not the gains at the edges.
	tail := keys(graph.VocoderTail(dims(), cudaHalf))
	for k, w := range keys(graph.Vocoder(dims(), cudaHalf)) {
		if _, ok := tail[k]; !ok {
			require.Contains(t, w.Name, "istft.")
		}
	}
	require.Len(t, once, len(chunk)+1+d.Layers)
	var gated int
	for k, w := range chunk {
		if other, ok := once[k]; ok {
			require.Equal(t, k, other.Key(), w.Name)
		} else {
			gated++
		}
	}
	require.Equal(t, d.Layers*d.Steps, gated)
	for k := range keys(graph.Decoder(dims(), cpu)) {
		require.NotContains(t, half, k, "float32 is not float16")
	}
}

// The runtime cannot infer a size that a reshape leaves open, and then not the shapes of all values after it.
func TestShapesOfTheFlow(t *testing.T) {
	for _, describe := range []func(models.Dims, graph.Options) (*graph.Description, error){graph.FlowDiT, graph.FlowDiTOnce} {
		d, err := describe(dims(), cudaHalf)
		require.NoError(t, err)
		m, err := d.Model(func(graph.Weight) (graph.Location, error) { return graph.Location{}, nil })
		require.NoError(t, err)
		known := map[string]bool{}
		for _, v := range slices.Concat(m.Graph.Inner, m.Graph.Outputs) {
			require.False(t, known[v.Name], v.Name)
			known[v.Name] = true
		}
		open := map[string]bool{}
		for _, c := range m.Graph.Initializers {
			for at := 0; at < len(c.Raw); at += 8 {
				open[c.Name] = open[c.Name] || binary.LittleEndian.Uint64(c.Raw[at:]) == math.MaxUint64
			}
		}
		for _, n := range m.Graph.Nodes {
			if n.Op == "Reshape" && open[n.Inputs[1]] && !strings.HasSuffix(n.Name, ".ring") { // of which rows are gathered
				require.True(t, known[n.Outputs[0]], n.Name)
			}
		}
	}
}

func TestRefuses(t *testing.T) {
	with := func(f func(*models.Dims)) models.Dims {
		d := dims()
		v := *d.Vision
		d.Vision = &v
		f(&d)
		return d
	}
	options := func(f func(*graph.Options)) graph.Options { o := cudaInt4; f(&o); return o }
	tests := []struct {
		name     string
		describe func(models.Dims, graph.Options) (*graph.Description, error)
		dims     models.Dims
		options  graph.Options
		want     string
	}{
		{
			"head width", graph.Decoder, with(func(d *models.Dims) { d.Decoder.HeadDim = 72 }), cudaInt4,
			"dims.decoder.head_dim: must be a multiple of 16, is 72",
		},
		{
			"head groups", graph.Decoder, with(func(d *models.Dims) { d.Decoder.KVHeads = 5 }), cudaInt4,
			"dims.decoder.heads: must be a multiple of kv_heads, is 32",
		},
		{
			"no layers", graph.Decoder, with(func(d *models.Dims) { d.Decoder.Layers = 0 }), cudaInt4,
			"dims.decoder.layers: must be a number from 1 to 4096, is 0",
		},
		{"huge", graph.Decoder, with(func(d *models.Dims) { d.Decoder.Vocab = 1 << 40 }), cudaInt4, "dims.decoder.vocab: must be a number from 1 to"},
		{"epsilon", graph.Decoder, with(func(d *models.Dims) { d.Decoder.Epsilon = 0 }), cudaInt4, "dims.decoder.epsilon: must be a number above 0, is 0"},
		{"head bits", graph.Decoder, dims(), options(func(o *graph.Options) { o.Head = 5 }), "head: must be 4, 8 or 16 bits, is 5"},
		{"block", graph.Decoder, dims(), options(func(o *graph.Options) { o.Block = 48 }), "block: must be 16, 32, 64, 128 or 256, is 48"},
		{
			"zero points", graph.Decoder, dims(),
			graph.Options{Device: models.DeviceCUDA, Weights: models.WeightsFloat16, ZeroPoints: true},
			"weights must be int4",
		},
		{"device", graph.Decoder, dims(), options(func(o *graph.Options) { o.Device = "tpu" }), `must be "cpu" or "cuda", is "tpu"`},
		{
			"fp16 on the CPU", graph.Decoder, dims(),
			graph.Options{Device: models.DeviceCPU, Weights: models.WeightsFloat16},
			`weights: must be fp32 for the CPU, is "fp16"`,
		},
		{
			"fp32 on CUDA", graph.Vision, dims(),
			graph.Options{Device: models.DeviceCUDA, Weights: models.WeightsFloat32},
			`weights: must be fp16 for CUDA, is "fp32"`,
		},
		{
			"voice in bf16", graph.TTS, dims(),
			graph.Options{Device: models.DeviceCUDA, Weights: models.WeightsBFloat16},
			"weights: must be fp16 for CUDA",
		},
		{
			"bf16 on the CPU", graph.Embed, dims(),
			graph.Options{Device: models.DeviceCPU, Weights: models.WeightsBFloat16},
			`weights: must be fp32 for the CPU, is "bf16"`,
		},
		{
			"bf16 with zero points", graph.Decoder, dims(),
			options(func(o *graph.Options) { o.BFloat16, o.ZeroPoints = true, true }),
			"bfloat16: must be int4 for CUDA without zero points and hearing",
		},
		{"no vision", graph.Vision, with(func(d *models.Dims) { d.Vision = nil }), cudaHalf, "the checkpoint has no vision tower"},
		{"vision heads", graph.Vision, with(func(d *models.Dims) { d.Vision.Heads = 7 }), cudaHalf, "dims.vision.hidden: must be a multiple of heads, is 1152"},
		{"resampler heads", graph.Vision, with(func(d *models.Dims) { d.Vision.ResamplerHeads = 3 }), cudaHalf, "dims.vision.out: must be a multiple of resampler_heads, is 4096"},
		{"vision epsilon", graph.Vision, with(func(d *models.Dims) { d.Vision.Epsilon = -1 }), cudaHalf, "dims.vision.epsilon: must be a number above 0, is -1"},
		{"no voice", graph.TTS, with(func(d *models.Dims) { d.Speech = nil }), cudaHalf, "the checkpoint has no voice"},
		{"voice in int4", graph.FlowEncoder, dims(), cudaInt4, `weights: must be fp16 for CUDA, is "int4"`},
		{"embedding width", graph.Embed, with(func(d *models.Dims) { d.Decoder.Hidden = -4 }), cudaHalf, "dims.decoder.hidden: must be a number from 1 to"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := tt.describe(tt.dims, tt.options)
			require.ErrorContains(t, err, tt.want)
		})
	}
	d, err := graph.Embed(dims(), cudaHalf)
	require.NoError(t, err)
	full := errors.New("the disk is full")
	_, err = d.Encode(func(graph.Weight) (graph.Location, error) { return graph.Location{}, full })
	require.ErrorIs(t, err, full)
	_, err = d.Encode(func(graph.Weight) (graph.Location, error) { return graph.Location{File: "w", Length: 3}, nil })
	require.ErrorContains(t, err, "table")
}
