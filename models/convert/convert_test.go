package convert_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"touchline/inference/conformance/synth"
	"touchline/models"
	"touchline/models/checkpoint"
	"touchline/models/convert"
	"touchline/models/disk"
	"touchline/models/graph"
	"touchline/models/onnx"
	"touchline/models/quant"
)

// everything selects all graphs.
func everything() convert.Options {
	return convert.Options{
		Weights: []models.Weights{models.WeightsInt4, models.WeightsFloat16, models.WeightsFloat32},
		Devices: []models.Device{models.DeviceCPU, models.DeviceCUDA},
		Check:   true, Creator: "test",
	}
}

// positions is the length of the rotary tables in the tests: short, because each
// graph computes them.
const positions = 256

// open opens a checkpoint of testdata.
func open(tb testing.TB, name string) *checkpoint.Checkpoint {
	tb.Helper()
	dir := tb.TempDir()
	require.NoError(tb, os.CopyFS(dir, os.DirFS(filepath.Join("..", "testdata", name))))
	path := filepath.Join(dir, "config.json")
	config, err := os.ReadFile(path)
	require.NoError(tb, err)
	config = bytes.Replace(config, []byte(`"max_position_embeddings": 40960`), fmt.Appendf(nil, `"max_position_embeddings": %d`, positions), 1)
	require.NoError(tb, os.WriteFile(path, config, 0o600))
	src, err := checkpoint.Open(dir)
	require.NoError(tb, err)
	tb.Cleanup(func() { require.NoError(tb, src.Close()) })
	return src
}

func tiny(tb testing.TB) *synth.Source {
	tb.Helper()
	s, err := tinySource()
	require.NoError(tb, err)
	return s
}

var tinySource = sync.OnceValues(func() (*synth.Source, error) {
	shape, err := synth.Find("tiny")
	if err != nil {
		return nil, err
	}
	shape.Decoder.MaxPositions = positions
	return synth.New(shape, 1)
})

// describe returns the description of a bundle's graph.
func describe(tb testing.TB, m models.Manifest, g models.Graph) *graph.Description {
	tb.Helper()
	o := graph.Options{
		Device: g.Device, Weights: g.Weights, Block: g.Block, ZeroPoints: g.ZeroPoints, Head: g.Head, Check: g.Check,
		BFloat16: g.Weights == models.WeightsInt4 && g.Float() == models.BFloat16,
	}
	d, err := map[models.Kind]func(models.Dims, graph.Options) (*graph.Description, error){
		models.KindDecoder: graph.Decoder, models.KindVision: graph.Vision, models.KindEmbed: graph.Embed,
	}[g.Kind](m.Dims, o)
	require.NoError(tb, err)
	return d
}

// stored reads the weights of a graph from the places in its ONNX file.
func stored(tb testing.TB, b *models.Bundle, g models.Graph) map[string][]byte {
	tb.Helper()
	text, err := os.ReadFile(b.Path(g.File))
	require.NoError(tb, err)
	constants, err := onnx.Constants(text)
	require.NoError(tb, err)
	weights, files := map[string][]byte{}, map[string][]byte{}
	for _, t := range constants {
		if t.External == nil {
			continue
		}
		require.Contains(tb, g.Data, t.External.Location)
		require.Zero(tb, t.External.Offset%4096)
		if files[t.External.Location] == nil {
			files[t.External.Location], err = os.ReadFile(b.Path(t.External.Location))
			require.NoError(tb, err)
		}
		weights[t.Name] = files[t.External.Location][t.External.Offset:][:t.External.Length]
	}
	return weights
}

// matrix assembles a weight from its sources in the simplest way.
func matrix(tb testing.TB, src models.Source, w graph.Weight) (values []float32, rows, cols int) {
	tb.Helper()
	for _, name := range w.Sources {
		info, ok := src.Info(name)
		require.True(tb, ok, name)
		part := make([]float32, info.Rows()*info.Cols())
		require.NoError(tb, src.Rows(part, name, 0, info.Rows()))
		values, rows, cols = append(values, part...), rows+info.Rows(), info.Cols()
	}
	if w.To > 0 {
		values, rows = values[w.From*cols:w.To*cols], w.To-w.From
	}
	if w.Scale != 0 && w.Rule != graph.RuleQueries {
		for i := range values {
			values[i] *= float32(w.Scale)
		}
	}
	return values, rows, cols
}

func decode(t models.Type, b []byte) []float32 {
	values := make([]float32, len(b)/t.Size())
	for i := range values {
		switch t {
		case models.Float16:
			values[i] = models.Float16FromBits(binary.LittleEndian.Uint16(b[2*i:]))
		case models.BFloat16:
			values[i] = models.BFloat16FromBits(binary.LittleEndian.Uint16(b[2*i:]))
		default:
			values[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
		}
	}
	return values
}

// compare compares all weights of a graph with the checkpoint. seen holds the bytes
// of those that other graphs have too.
func compare(t *testing.T, src models.Source, b *models.Bundle, g models.Graph, seen map[string][]byte) {
	t.Helper()
	d, has := describe(t, b.Manifest, g), stored(t, b, g)
	require.Equal(t, d.WeightBytes(), g.WeightBytes)
	require.Len(t, has, len(d.Weights))
	byRule := map[string]graph.Weight{}
	for _, w := range d.Weights {
		if w.Rule == graph.RuleScales || w.Rule == graph.RuleZeros {
			byRule[strings.TrimSuffix(strings.TrimSuffix(w.Name, ".scales"), ".zeros")+map[graph.Rule]string{graph.RuleScales: "s", graph.RuleZeros: "z"}[w.Rule]] = w
		}
	}
	for _, w := range d.Weights {
		got := has[w.Name]
		require.Len(t, got, int(w.Bytes()), w.Name)
		if was, ok := seen[w.Key()]; ok {
			require.True(t, bytes.Equal(was, got), w.Name)
			continue
		}
		seen[w.Key()] = got
		if w.Fold != nil || w.Rule == graph.RuleQueries {
			requireComputed(t, src, w, decode(w.Type, got))
			continue
		}
		switch w.Rule {
		case graph.RuleValue:
			requireFloats(t, w.Name, w.Type, w.Floats, decode(w.Type, got))
		case graph.RuleCopy:
			want, _, _ := matrix(t, src, w)
			requireFloats(t, w.Name, w.Type, want, decode(w.Type, got))
		case graph.RuleTranspose:
			m, rows, cols := matrix(t, src, w)
			want := make([]float32, len(m))
			for r := range rows {
				for c := range cols {
					want[c*rows+r] = m[r*cols+c]
				}
			}
			requireFloats(t, w.Name, w.Type, want, decode(w.Type, got))
		case graph.RuleQuants:
			name := strings.TrimSuffix(w.Name, ".quants")
			scales := byRule[name+"s"]
			want, _, cols := matrix(t, src, w)
			f := quant.Format{Bits: w.Bits, Block: w.Block, Scale: models.Float16}
			if scales.Type == models.BFloat16 {
				f.Scale = scales.Type
			}
			s := decode(scales.Type, has[scales.Name])
			values := make([]float32, len(want))
			if w.Packed {
				unpack(values, got, s, has[byRule[name+"z"].Name], cols, f)
				require.True(t, slices.Equal(want, values), w.Name)
				continue
			}
			unpack(values, got, s, nil, cols, f)
			r, err := quant.NewRounder(f)
			require.NoError(t, err)
			q, again := make([]byte, len(got)), make([]float32, len(s))
			require.NoError(t, r.Round(q, again, want, cols))
			require.True(t, bytes.Equal(q, got), w.Name)
			require.True(t, slices.Equal(again, s), w.Name)
			var e, power float64
			for i := range want {
				e += float64(want[i]-values[i]) * float64(want[i]-values[i])
				power += float64(want[i]) * float64(want[i])
			}
			require.Less(t, math.Sqrt(e/power), map[int]float64{4: 0.1, 8: 0.006}[w.Bits], w.Name)
		default:
		}
	}
}

func requireFloats(t *testing.T, name string, typ models.Type, want, got []float32) {
	t.Helper()
	require.Len(t, got, len(want), name)
	for i := range want {
		x := want[i]
		switch typ {
		case models.Float16:
			x = models.Float16FromBits(models.Float16Bits(x))
		case models.BFloat16:
			x = models.BFloat16FromBits(models.BFloat16Bits(x))
		default:
		}
		if x != got[i] {
			require.Equal(t, x, got[i], "%s %d", name, i)
		}
	}
}

// unpack dequantises weights; z is nil for implied zero points.
func unpack(dst []float32, q []byte, s []float32, z []byte, cols int, f quant.Format) {
	blocks := f.Blocks(cols)
	for r := range len(dst) / cols {
		for c := range cols {
			b := c / f.Block
			zero := byte(1) << (f.Bits - 1)
			if z != nil {
				zero = z[r*((blocks+1)/2)+b/2] >> (4 * (b & 1)) & 15
			}
			code := q[r*f.RowBytes(cols)+c*f.Bits/8]
			if f.Bits == 4 {
				code = code >> (4 * (c & 1)) & 15
			}
			dst[r*cols+c] = (float32(code) - float32(zero)) * s[r*blocks+b]
		}
	}
}

func TestBundleHoldsTheCheckpoint(t *testing.T) {
	t.Parallel()
	src := open(t, "tiny")
	dst := filepath.Join(t.TempDir(), "models", "tiny")
	var notes []string
	o := everything()
	o.Note = func(text string) { notes = append(notes, text) }
	o.Origin = &models.Origin{Path: "owner/model", Revision: "0123abcd"}
	require.NoError(t, convert.Convert(t.Context(), src, dst, o))
	b, err := models.OpenBundle(dst)
	require.NoError(t, err)
	require.NoError(t, disk.Verify(t.Context(), b, nil))
	require.Equal(t, "owner/model", b.Manifest.Source.Path)
	require.Equal(t, "0123abcd", b.Manifest.Source.Revision)
	require.NotEmpty(t, b.Manifest.Source.Skipped)
	require.Len(t, b.Manifest.Graphs, 14)
	seen := map[string][]byte{}
	for _, g := range b.Manifest.Graphs {
		compare(t, src, b, g, seen)
	}
	require.Contains(t, notes[0], "token2wav")
	require.Contains(t, notes[1], "audio encoder")
	require.Equal(t, "test", b.Manifest.Creator)
	require.NotEmpty(t, b.Manifest.Source.Files["config.json"])
	require.Equal(t, int32(1259), b.Manifest.Tokens["<|im_end|>"])
	for _, name := range []string{"tokenizer.json", "tokenizer_config.json"} {
		want, err := src.File(name)
		require.NoError(t, err)
		got, err := os.ReadFile(b.Path(name))
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	var names []string
	for _, f := range b.Manifest.Files {
		names = append(names, f.Name)
		require.False(t, strings.HasSuffix(f.Name, "-check.data"), "the check's graphs share the data of the others")
	}
	entries, err := os.ReadDir(dst)
	require.NoError(t, err)
	require.Len(t, entries, len(names)+1)
	int4, ok := b.Find(models.KindDecoder, models.WeightsInt4, models.DeviceCPU)
	require.True(t, ok)
	require.Equal(t, 8, int4.Head)
	require.Equal(t, 32, int4.Block)
	require.Contains(t, int4.Data, "decoder-int4-cuda.data", "both devices read the same quants")
	siblings, err := os.ReadDir(filepath.Dir(dst))
	require.NoError(t, err)
	require.Len(t, siblings, 1)
}

func TestDataGoesOnInFurtherFiles(t *testing.T) {
	t.Parallel()
	src := tiny(t)
	dst := filepath.Join(t.TempDir(), "x")
	o := convert.Options{Weights: []models.Weights{models.WeightsFloat16}, Workers: 3, Random: true, Name: "made up"}
	require.NoError(t, convert.WithSpace(t.Context(), src, dst, o, math.MaxInt64, 1<<20))
	b, err := models.OpenBundle(dst)
	require.NoError(t, err)
	require.True(t, b.Manifest.Random)
	require.Equal(t, "made up", b.Manifest.Name)
	g, ok := b.Find(models.KindDecoder, models.WeightsFloat16, models.DeviceCUDA)
	require.True(t, ok)
	require.Contains(t, g.Data, "decoder-fp16-cuda-2.data")
	seen := map[string][]byte{}
	for _, g := range b.Manifest.Graphs {
		compare(t, src, b, g, seen)
	}
}

// TestScaledWeights: on CUDA what a model that hears adds to its residual is smaller.
func TestScaledWeights(t *testing.T) {
	t.Parallel()
	shape, err := synth.Find("tiny-asr")
	require.NoError(t, err)
	src, err := synth.New(shape, 1)
	require.NoError(t, err)
	dst := filepath.Join(t.TempDir(), "x")
	require.NoError(t, convert.Convert(t.Context(), src, dst, convert.Options{
		Weights: []models.Weights{models.WeightsFloat16, models.WeightsInt4}, Devices: []models.Device{models.DeviceCUDA},
	}))
	b, err := models.OpenBundle(dst)
	require.NoError(t, err)
	seen := map[string][]byte{}
	for _, g := range b.Manifest.Graphs {
		if g.Kind == models.KindDecoder {
			compare(t, src, b, g, seen)
		}
	}
	require.NotEmpty(t, seen)
}

func TestPackedCheckpoint(t *testing.T) {
	t.Parallel()
	src := open(t, "tiny-awq")
	dst := filepath.Join(t.TempDir(), "x")
	o := everything()
	o.Head = 4
	require.NoError(t, convert.Convert(t.Context(), src, dst, o))
	b, err := models.OpenBundle(dst)
	require.NoError(t, err)
	seen := map[string][]byte{}
	for _, g := range b.Manifest.Graphs {
		require.NotEqual(t, models.KindVision, g.Kind)
		if g.Weights == models.WeightsInt4 {
			require.True(t, g.ZeroPoints)
			require.Equal(t, 128, g.Block)
			require.Equal(t, 4, g.Head)
		}
		compare(t, src, b, g, seen)
	}
	require.Len(t, b.Manifest.Missing, 3)
	require.Contains(t, b.Manifest.Missing[0], "vision")
	require.Contains(t, b.Manifest.Missing[1], "speech")
	require.Equal(t, "tokenizer", b.Manifest.Missing[2])
	require.Nil(t, b.Manifest.Dims.Vision)
}

// TestPlainHead keeps the vocabulary matrix of int4 decoders in floats.
func TestPlainHead(t *testing.T) {
	t.Parallel()
	dst := filepath.Join(t.TempDir(), "x")
	o := everything()
	o.Weights, o.Head = o.Weights[:1], 16
	src := open(t, "tiny-awq")
	require.NoError(t, convert.Convert(t.Context(), src, dst, o))
	b, err := models.OpenBundle(dst)
	require.NoError(t, err)
	seen := map[string][]byte{}
	for _, g := range b.Manifest.Graphs {
		compare(t, src, b, g, seen)
	}
	g, ok := b.Find(models.KindDecoder, models.WeightsInt4, models.DeviceCPU)
	require.True(t, ok)
	require.Equal(t, 16, g.Head)
}

func TestDefaults(t *testing.T) {
	t.Parallel()
	dst := filepath.Join(t.TempDir(), "x")
	require.NoError(t, convert.Convert(t.Context(), tiny(t), dst, convert.Options{}))
	b, err := models.OpenBundle(dst)
	require.NoError(t, err)
	var files []string
	for _, g := range b.Manifest.Graphs {
		files = append(files, g.File)
	}
	require.Equal(t, []string{"decoder-int4-cuda.onnx", "decoder-fp16-cuda.onnx", "embed-fp16-cuda.onnx", "vision-fp16-cuda.onnx"}, files)
}

// A model that hears has floats by default. An aligner has no decoder, and floats for int4.
func TestHearing(t *testing.T) {
	t.Parallel()
	cuda, cpu := models.DeviceCUDA, models.DeviceCPU
	for _, tt := range []struct {
		shape string
		o     convert.Options
		want  []string
	}{
		{"tiny-asr", convert.Options{}, []string{"decoder-fp16-cuda", "embed-fp16-cuda", "hearing-fp16-cuda"}},
		{"tiny-asr", convert.Options{Devices: []models.Device{cpu}}, []string{"decoder-fp32-cpu", "embed-fp32-cpu", "hearing-fp32-cpu"}},
		{"tiny-asr", convert.Options{Weights: []models.Weights{models.WeightsInt4}, Devices: []models.Device{cpu}}, []string{
			"decoder-int4-cpu", "embed-fp32-cpu", "hearing-fp32-cpu",
		}},
		{"tiny-aligner", convert.Options{Devices: []models.Device{cuda, cpu}}, []string{
			"embed-fp16-cuda", "hearing-fp16-cuda", "aligner-fp16-cuda", "embed-fp32-cpu", "hearing-fp32-cpu", "aligner-fp32-cpu",
		}},
		{"tiny-aligner", convert.Options{Weights: []models.Weights{models.WeightsInt4}}, []string{
			"embed-fp16-cuda", "hearing-fp16-cuda", "aligner-fp16-cuda",
		}},
	} {
		shape, err := synth.Find(tt.shape)
		require.NoError(t, err)
		shape.Decoder.MaxPositions = positions
		src, err := synth.New(shape, 1)
		require.NoError(t, err)
		dst := filepath.Join(t.TempDir(), "x")
		require.NoError(t, convert.Convert(t.Context(), src, dst, tt.o))
		b, err := models.OpenBundle(dst)
		require.NoError(t, err)
		require.NoError(t, disk.Verify(t.Context(), b, nil))
		var graphs []string
		for _, g := range b.Manifest.Graphs {
			graphs = append(graphs, strings.TrimSuffix(g.File, ".onnx"))
		}
		require.Equal(t, tt.want, graphs)
		require.FileExists(t, b.Path(models.TokenizerName))
	}
}

func TestOptions(t *testing.T) {
	tests := []struct {
		o    convert.Options
		want string
	}{
		{convert.Options{Weights: []models.Weights{"int3"}}, `weights: must be int4, fp16, bf16 or fp32, is "int3"`},
		{convert.Options{Devices: []models.Device{"tpu"}}, `devices: must be cpu or cuda, is "tpu"`},
		{
			convert.Options{Weights: []models.Weights{models.WeightsFloat16}, Devices: []models.Device{models.DeviceCPU}},
			"weights: fp16 runs on cuda only, the selected devices are [cpu]",
		},
		{convert.Options{Head: 5}, "head: must be 4, 8 or 16 bits, is 5"},
		{
			convert.Options{Weights: []models.Weights{models.WeightsBFloat16}, Devices: []models.Device{models.DeviceCPU}},
			"weights: bf16 runs on cuda only, the selected devices are [cpu]",
		},
		{convert.Options{Weights: []models.Weights{models.WeightsFloat16, models.WeightsBFloat16}}, "weights: fp16 and bf16 exclude each other"},
	}
	for _, tt := range tests {
		dst := filepath.Join(t.TempDir(), "x")
		require.ErrorContains(t, convert.Convert(t.Context(), tiny(t), dst, tt.o), tt.want)
		requireNothing(t, dst)
	}
}

// requireNothing requires that neither the folder nor a part of it exists.
func requireNothing(t *testing.T, dst string) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Dir(dst))
	require.NoError(t, err)
	require.Empty(t, entries)
}

// altered is a checkpoint with one changed value.
type altered struct {
	convert.Source

	name     string
	row, col int
	value    float32
}

func (a altered) Rows(dst []float32, name string, from, to int) error {
	if err := a.Source.Rows(dst, name, from, to); err != nil {
		return err
	}
	if info, _ := a.Info(name); name == a.name && from <= a.row && a.row < to {
		dst[(a.row-from)*info.Cols()+a.col] = a.value
	}
	return nil
}

func TestValuesThatDoNotFit(t *testing.T) {
	t.Parallel()
	const up, norm = "llm.model.layers.1.mlp.up_proj.weight", "llm.model.layers.2.input_layernorm.weight"
	fp16 := convert.Options{Weights: []models.Weights{models.WeightsFloat16}}
	bf16 := convert.Options{Weights: []models.Weights{models.WeightsBFloat16}}
	tests := []struct {
		name     string
		row, col int
		value    float32
		o        convert.Options
		want     string
	}{
		{up, 300, 7, 70000, fp16, up + "[300,7]: float16 holds at most 65504, the value is 70000: convert with --weights bf16"},
		{up, 300, 7, math.MaxFloat32, bf16, up + "[300,7]: the value is 3.4028235e+38"},
		{up, 3, 0, float32(math.Inf(1)), bf16, up + "[3,0]: the value is +Inf, not finite"},
		{norm, 5, 0, -1e9, fp16, norm + "[5]: float16 holds at most 65504"},
		{up, 3, 0, float32(math.NaN()), fp16, up + "[3,0]: the value is NaN, not finite"},
		{up, 3, 0, float32(math.Inf(-1)), convert.Options{}, up + "[3,0]"},
		{up, 3, 1, float32(math.NaN()), convert.Options{Weights: []models.Weights{models.WeightsFloat32}}, up + "[3,1]: the value is NaN, not finite"},
		{up, 3, 1, float32(math.NaN()), convert.Options{Weights: []models.Weights{models.WeightsFloat16}, Clamp: true}, up + "[3,1]: the value is NaN, not finite"},
	}
	for _, tt := range tests {
		dst := filepath.Join(t.TempDir(), "x")
		src := altered{tiny(t), tt.name, tt.row, tt.col, tt.value}
		err := convert.Convert(t.Context(), src, dst, tt.o)
		require.ErrorContains(t, err, tt.want)
		var ranged *convert.RangeError
		require.ErrorAs(t, err, &ranged)
		requireNothing(t, dst)
	}

	dst := filepath.Join(t.TempDir(), "x")
	var notes []string
	fp16.Clamp, fp16.Note = true, func(text string) { notes = append(notes, text) }
	require.NoError(t, convert.Convert(t.Context(), altered{tiny(t), up, 300, 7, 70000}, dst, fp16))
	require.Len(t, notes, 2)
	require.Equal(t, "missing in the checkpoint: speech", notes[0])
	require.Contains(t, notes[1], "1 values of")
	require.Contains(t, notes[1], up)

	for _, o := range []convert.Options{{Weights: []models.Weights{models.WeightsFloat32}}, bf16} {
		dst = filepath.Join(t.TempDir(), "x")
		require.NoError(t, convert.Convert(t.Context(), altered{tiny(t), up, 300, 7, 1e30}, dst, o))
	}
}

// TestBFloat16: with bf16 all floats of words and pictures for CUDA are bfloat16, also beside int4. The voice keeps its own.
func TestBFloat16(t *testing.T) {
	t.Parallel()
	shape, err := synth.Find("tiny")
	require.NoError(t, err)
	shape.Decoder.MaxPositions = positions
	src, err := synth.New(shape.WithSpeech(), 1)
	require.NoError(t, err)
	dst := filepath.Join(t.TempDir(), "x")
	o := everything()
	o.Weights[1] = models.WeightsBFloat16
	require.NoError(t, convert.Convert(t.Context(), exact{src}, dst, o))
	b, err := models.OpenBundle(dst)
	require.NoError(t, err)
	require.NoError(t, disk.Verify(t.Context(), b, nil))
	seen := map[string][]byte{}
	wide := 0
	for _, g := range b.Manifest.Graphs {
		switch {
		case g.Kind.Speaks() && g.Device == models.DeviceCUDA:
			require.NotEqual(t, models.BFloat16, g.Float(), g.File)
			require.Equal(t, models.WeightsFloat16, g.Weights, g.File)
		case g.Device == models.DeviceCUDA:
			wide++
			require.Equal(t, models.BFloat16, g.Float(), g.File)
			for _, p := range slices.Concat(g.Inputs, g.Outputs) {
				require.NotEqual(t, models.Float16, p.Type, "%s: %s", g.File, p.Name)
			}
		default:
			require.Equal(t, models.Float32, g.Float(), g.File)
		}
		if !g.Kind.Speaks() {
			compare(t, exact{src}, b, g, seen)
		}
	}
	require.Equal(t, 7, wide, "two decoders and the tower, with those of the check, and the lookup")

	for name, src := range map[string]convert.Source{
		"the checkpoint's task is recognition": synthetic(t, "tiny-asr"), "would round the float16 scales": open(t, "tiny-awq"),
	} {
		dst := filepath.Join(t.TempDir(), "x")
		err := convert.Convert(t.Context(), src, dst, convert.Options{Weights: []models.Weights{models.WeightsInt4, models.WeightsBFloat16}})
		require.ErrorContains(t, err, name)
		requireNothing(t, dst)
	}
}

// exact is a checkpoint with values that bfloat16 rounds.
type exact struct{ *synth.Source }

func (e exact) Rows(dst []float32, name string, from, to int) error {
	err := e.Source.Rows(dst, name, from, to)
	for i := range dst {
		dst[i] *= 1.003
	}
	return err
}

func synthetic(tb testing.TB, name string) convert.Source {
	tb.Helper()
	shape, err := synth.Find(name)
	require.NoError(tb, err)
	src, err := synth.New(shape, 1)
	require.NoError(tb, err)
	return src
}

// misshapen is a checkpoint with a tensor of another shape, or without it.
type misshapen struct {
	convert.Source

	name  string
	shape []int
}

func (m misshapen) Info(name string) (models.TensorInfo, bool) {
	info, ok := m.Source.Info(name)
	if name == m.name {
		info.Shape = m.shape
		ok = ok && m.shape != nil
	}
	return info, ok
}

func TestTensorsThatDoNotFitTheConfig(t *testing.T) {
	const name = "llm.model.layers.1.mlp.up_proj.weight"
	tests := []struct {
		shape []int
		want  string
	}{
		{nil, "the checkpoint has no tensor " + name},
		{[]int{384, 255}, "expected 256 columns as in llm.model.layers.1.mlp.gate_proj.weight, got 255"},
		{[]int{383, 256}, "its tensors contradict its config.json"},
		{[]int{0, 256}, "its tensors contradict its config.json"},
	}
	for _, tt := range tests {
		dst := filepath.Join(t.TempDir(), "x")
		err := convert.Convert(t.Context(), misshapen{tiny(t), name, tt.shape}, dst, convert.Options{})
		require.ErrorContains(t, err, tt.want)
		require.ErrorContains(t, err, "decoder-int4-cuda: weight layers.1.")
		requireNothing(t, dst)
	}
}

func TestSpaceIsCheckedFirst(t *testing.T) {
	dst := filepath.Join(t.TempDir(), "x")
	err := convert.WithSpace(t.Context(), tiny(t), dst, convert.Options{}, 5e6, 1<<30)
	var space *convert.SpaceError
	require.ErrorAs(t, err, &space)
	require.Equal(t, int64(5e6), space.Free)
	require.Greater(t, space.Need, int64(9e6))
	require.ErrorContains(t, err, filepath.Dir(dst)+": the bundle needs 13 MB, 5 MB are free: make room or choose another folder")
	requireNothing(t, dst)
}

func TestDestinationMustBeFree(t *testing.T) {
	t.Parallel()
	dst := filepath.Join(t.TempDir(), "x")
	require.NoError(t, os.Mkdir(dst, 0o700))
	o := convert.Options{Weights: []models.Weights{models.WeightsFloat16}} // the quickest
	require.NoError(t, convert.Convert(t.Context(), tiny(t), dst, o), "an empty folder is fine")
	require.ErrorContains(t, convert.Convert(t.Context(), tiny(t), dst, o), "the folder is not empty, it has decoder-fp16-cuda.data")
	_, err := models.OpenBundle(dst)
	require.NoError(t, err)
}

func TestProgress(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	var seen []convert.Progress
	o := everything()
	o.Now = func() time.Time { now = now.Add(time.Second); return now }
	o.Progress = func(p convert.Progress) { seen = append(seen, p) }
	require.NoError(t, convert.Convert(t.Context(), tiny(t), filepath.Join(t.TempDir(), "x"), o))
	require.True(t, slices.IsSortedFunc(seen, func(a, b convert.Progress) int { return int(a.Done - b.Done) }))
	last := seen[len(seen)-1]
	require.Equal(t, last.Total, last.Done)
	require.Zero(t, last.ETA)
	require.InDelta(t, float64(last.Source)/float64(len(seen)), last.Rate, 1)
	for _, p := range seen[:len(seen)-1] {
		require.LessOrEqual(t, p.Done, p.Total)
		require.GreaterOrEqual(t, p.Rate, 0.0)
	}
}

func TestCancelLeavesNothing(t *testing.T) {
	t.Parallel()
	for _, after := range []int{1, 5, 40} {
		dst := filepath.Join(t.TempDir(), "x")
		ctx, cancel := context.WithCancelCause(t.Context())
		calls := 0
		o := everything()
		o.Progress = func(convert.Progress) {
			if calls++; calls == after {
				cancel(os.ErrDeadlineExceeded)
			}
		}
		require.ErrorIs(t, convert.Convert(ctx, tiny(t), dst, o), os.ErrDeadlineExceeded)
		requireNothing(t, dst)
	}
}

// TestTensors: the manifest has the places of the ONNX file, of all weights in data files.
func TestTensors(t *testing.T) {
	for _, src := range []convert.Source{tiny(t), open(t, "tiny-awq")} {
		for _, head := range []int{4, 8, 16} {
			dir := filepath.Join(t.TempDir(), "x")
			o := everything()
			o.Head = head
			require.NoError(t, convert.Convert(t.Context(), src, dir, o))
			b, err := models.OpenBundle(dir)
			require.NoError(t, err)
			found := 0
			for _, g := range b.Manifest.Graphs {
				if g.Kind != models.KindDecoder || g.Weights != models.WeightsInt4 || g.Device != models.DeviceCUDA || g.Check {
					require.Empty(t, g.Tensors, g.File)
					continue
				}
				found++
				weights, described := stored(t, b, g), describe(t, b.Manifest, g).Weights
				require.Len(t, g.Tensors, len(described))
				for i, w := range described {
					at := g.Tensors[i]
					require.Equal(t, w.Name, at.Name)
					require.Equal(t, w.Type, at.Type, w.Name)
					require.Equal(t, fmt.Sprint(w.Shape), fmt.Sprint(at.Shape), w.Name)
					data, err := os.ReadFile(b.Path(at.File))
					require.NoError(t, err)
					require.Equal(t, weights[w.Name], data[at.Offset:][:at.Bytes()], w.Name)
				}
			}
			require.Equal(t, 1, found)
		}
	}
}

// TestUpgrade: a bundle of an older format gets the places of its tables and tensors back from its own graphs.
func TestUpgrade(t *testing.T) {
	shape, err := synth.Find("tiny")
	require.NoError(t, err)
	src, err := synth.New(shape.WithSpeech(), 1)
	require.NoError(t, err)
	dir := filepath.Join(t.TempDir(), "x")
	require.NoError(t, convert.Convert(t.Context(), src, dir, convert.Options{
		Weights: []models.Weights{models.WeightsFloat32, models.WeightsInt4}, Devices: []models.Device{models.DeviceCPU, models.DeviceCUDA},
	}))
	b, err := models.OpenBundle(dir)
	require.NoError(t, err)
	require.Equal(t, models.FormatVersion, b.Manifest.Format)
	want, err := os.ReadFile(b.Path(models.ManifestName))
	require.NoError(t, err)

	upgrade := func(graphs int) {
		t.Helper()
		require.NoError(t, models.WriteManifest(dir, &b.Manifest))
		added, err := convert.Upgrade(dir)
		require.NoError(t, err)
		require.Equal(t, graphs, added)
		got, err := os.ReadFile(b.Path(models.ManifestName))
		require.NoError(t, err)
		require.Equal(t, string(want), string(got))
	}
	b.Manifest.Format = 6
	for i := range b.Manifest.Graphs {
		b.Manifest.Graphs[i].Tensors = nil
	}
	upgrade(1) // tensors

	tables := 0
	b.Manifest.Format = 5
	for i, g := range b.Manifest.Graphs {
		if g.Kind.HasTable() {
			tables++
			require.NotNil(t, g.Table, g.File)
		}
		b.Manifest.Graphs[i].Table = nil
	}
	require.Equal(t, 4, tables, "words and voice, on two devices")
	require.NoError(t, models.WriteManifest(dir, &b.Manifest))
	old, err := models.OpenBundle(dir)
	require.NoError(t, err)
	embed, ok := old.Find(models.KindEmbed, models.WeightsFloat32, models.DeviceCPU)
	require.True(t, ok)
	_, err = old.Table(embed, shape.Decoder.Vocab, shape.Decoder.Hidden)
	require.ErrorContains(t, err, "touchline models upgrade "+dir)

	upgrade(tables + 1)
	added, err := convert.Upgrade(dir)
	require.NoError(t, err)
	require.Zero(t, added)
	entries, err := filepath.Glob(filepath.Join(dir, ".*"))
	require.NoError(t, err)
	require.Empty(t, entries)
}

// TestSpeech copies the files of a voice into the bundle.
func TestSpeech(t *testing.T) {
	shape, err := synth.Find("tiny")
	require.NoError(t, err)
	src, err := synth.New(shape.WithSpeech(), 1)
	require.NoError(t, err)
	dst := filepath.Join(t.TempDir(), "x")
	var last convert.Progress
	require.NoError(t, convert.Convert(t.Context(), src, dst, convert.Options{
		Weights: []models.Weights{models.WeightsFloat32}, Progress: func(p convert.Progress) { last = p },
	}))
	require.Equal(t, last.Total, last.Done)
	b, err := models.OpenBundle(dst)
	require.NoError(t, err)
	require.NoError(t, disk.Verify(t.Context(), b, nil))
	require.Equal(t, shape.WithSpeech().Speech, b.Manifest.Dims.Speech)
	for _, name := range []string{b.Manifest.Voice.Speaker, b.Manifest.Voice.Codes, b.Manifest.Voice.Sound} {
		f, _, err := src.OpenFile(name)
		require.NoError(t, err)
		want, err := io.ReadAll(f)
		require.NoError(t, err)
		got, err := os.ReadFile(b.Path(name))
		require.NoError(t, err)
		require.Equal(t, want, got, name)
	}
}

// TestVoiceWeights: the voice on CUDA can be in fp32 while the rest is not.
func TestVoiceWeights(t *testing.T) {
	shape, err := synth.Find("tiny")
	require.NoError(t, err)
	src, err := synth.New(shape.WithSpeech(), 1)
	require.NoError(t, err)
	o := convert.Options{Weights: []models.Weights{models.WeightsInt4}, VoiceWeights: models.WeightsFloat32}
	dst := filepath.Join(t.TempDir(), "x")
	require.NoError(t, convert.Convert(t.Context(), src, dst, o))
	b, err := models.OpenBundle(dst)
	require.NoError(t, err)
	voices := 0
	for _, g := range b.Manifest.Graphs {
		require.Equal(t, models.DeviceCUDA, g.Device)
		require.Equal(t, g.Kind.Speaks(), g.Weights == models.WeightsFloat32, g.File)
		if g.Kind.Speaks() {
			voices++
			for _, p := range append(g.Inputs, g.Outputs...) {
				require.NotEqual(t, models.Float16, p.Type, "%s: %s", g.File, p.Name)
			}
		}
	}
	require.Equal(t, 7, voices)
	o.VoiceWeights = models.WeightsInt4
	require.ErrorContains(t, convert.Convert(t.Context(), src, dst, o), `voice weights: must be fp16 or fp32, is "int4"`)
}
