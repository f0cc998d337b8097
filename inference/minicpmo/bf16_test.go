package minicpmo

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"touchline/inference/conformance/bundles"
	"touchline/inference/internal/cuda"
	"touchline/inference/internal/kvcache"
	"touchline/inference/internal/ort"
	"touchline/inference/internal/ort/orttest"
	"touchline/inference/internal/vision"
	"touchline/models"
	"touchline/models/checkpoint"
	"touchline/models/convert"
	"touchline/models/onnx"
	"touchline/models/safetensors"
)

// scaled is a checkpoint whose embeddings and residual are larger by a power of two. The norms undo it, so that logits stay the same.
type scaled struct {
	*checkpoint.Checkpoint

	factor float32
}

func (s scaled) Rows(dst []float32, name string, from, to int) error {
	err := s.Checkpoint.Rows(dst, name, from, to)
	llm := strings.HasPrefix(name, "llm.")
	if llm && (strings.Contains(name, "embed_tokens") || strings.Contains(name, "o_proj") || strings.Contains(name, "down_proj")) ||
		name == "resampler.proj" {
		for i := range dst {
			dst[i] *= s.factor
		}
	}
	return err
}

// overflows is a factor of the tiny checkpoint whose weights fit float16, while the sums of the residual do not.
const overflows = 1 << 15

// openScaled converts the tiny checkpoint with a factor.
func openScaled(t *testing.T, factor float32, o convert.Options) (*models.Bundle, error) {
	t.Helper()
	src, err := checkpoint.Open("../../models/testdata/tiny")
	require.NoError(t, err)
	defer src.Close()
	dir := filepath.Join(t.TempDir(), "b")
	if err := convert.Convert(t.Context(), scaled{src, factor}, dir, o); err != nil {
		return nil, err
	}
	return models.OpenBundle(dir)
}

// recordedText is a text with the results of the official code in float32.
type recordedText struct {
	ids, next      []int32 // the answer
	logits, hidden []float32
}

func openRecordedText(t *testing.T) (r recordedText) {
	t.Helper()
	f, err := bundles.OpenFixture("../..", "llm_text")
	require.NoError(t, err)
	tensor := func(name string) safetensors.Tensor {
		x, ok := f.Tensor(name)
		require.True(t, ok, name)
		return x
	}
	for name, to := range map[string]*[]int32{"input_ids": &r.ids, "greedy_ids": &r.next} {
		ids, err := tensor(name).Ints()
		require.NoError(t, err)
		for _, id := range ids {
			*to = append(*to, int32(id))
		}
	}
	for name, to := range map[string]*[]float32{"logits_last8": &r.logits, "greedy_hidden_first8": &r.hidden} {
		*to, err = tensor(name).Floats()
		require.NoError(t, err)
	}
	r.logits = r.logits[len(r.logits)/8*7:]
	return r
}

// share returns the largest difference as a share of the largest value of want; infinite for what is no number.
func share(want, got []float32) float64 {
	var most float64
	for i, w := range want {
		d := math.Abs(float64(got[i]) - float64(w))
		if math.IsNaN(d) {
			return math.Inf(1)
		}
		most = max(most, d)
	}
	return most / largest(want)
}

// answer feeds the text and the first tokens of its answer, and returns the logits behind the text and the hidden states of the tokens.
func (r recordedText) answer(t *testing.T, d *device, set int) (logits, hidden []float32) {
	t.Helper()
	const slot = 3
	require.NoError(t, d.prefill(set, slot, &prompt{ids: r.ids}, 0, len(r.ids), 0))
	row, err := d.logits(slot)
	require.NoError(t, err)
	logits = slices.Clone(row)
	tokens, lengths := slices.Repeat([]int32{-1}, ownSlots), make([]int32, ownSlots)
	for i := range 8 {
		tokens[slot], lengths[slot] = r.next[i], int32(len(r.ids)+i)
		require.NoError(t, d.decode(set, kvcache.Range{Start: slot, Size: 1}, tokens, lengths, true))
		hidden = append(hidden, d.hidden(slot)...)
	}
	return logits, hidden
}

// wideOnCPU returns a bundle in int4 for the CPU that has the quants and scales of one in bfloat16.
func wideOnCPU(t *testing.T) *models.Bundle {
	t.Helper()
	b, err := openScaled(t, overflows, convert.Options{
		Weights: []models.Weights{models.WeightsInt4, models.WeightsBFloat16}, Devices: []models.Device{models.DeviceCPU, models.DeviceCUDA},
	})
	require.NoError(t, err)
	from, _ := b.Find(models.KindDecoder, models.WeightsInt4, models.DeviceCUDA)
	to, ok := b.Find(models.KindDecoder, models.WeightsInt4, models.DeviceCPU)
	require.True(t, ok)
	content, err := os.ReadFile(b.Path(to.File))
	require.NoError(t, err)
	constants, err := onnx.Constants(content)
	require.NoError(t, err)
	changed := 0
	for _, w := range constants {
		quants, scales := strings.HasSuffix(w.Name, ".quants"), strings.HasSuffix(w.Name, ".scales")
		if !quants && !scales {
			continue
		}
		at, ok := from.Tensor(w.Name)
		require.True(t, ok, w.Name)
		require.Equal(t, map[bool]models.Type{true: models.Uint8, false: models.BFloat16}[quants], at.Type)
		data, err := os.ReadFile(b.Path(at.File))
		require.NoError(t, err)
		data = data[at.Offset:][:at.Bytes()]
		if scales {
			var wide []float32
			for _, h := range ort.Slice[uint16](data) {
				wide = append(wide, models.BFloat16FromBits(h))
			}
			data = ort.Bytes(wide)
		}
		require.Len(t, data, int(w.External.Length))
		f, err := os.OpenFile(b.Path(w.External.Location), os.O_WRONLY, 0)
		require.NoError(t, err)
		_, err = f.WriteAt(data, w.External.Offset)
		require.NoError(t, errors.Join(err, f.Close()))
		changed++
	}
	require.NotZero(t, changed)
	return b
}

// embeddings embeds a picture of stripes.
func embeddings(t *testing.T, d *device) []float32 {
	t.Helper()
	const width, height = 448, 252
	pixels := make([]byte, width*height*3)
	for i := range pixels {
		pixels[i] = byte(i * i / 97)
	}
	cfg, err := visionConfig(&d.bundle.Manifest)
	require.NoError(t, err)
	pre, err := vision.New(cfg, 1)
	require.NoError(t, err)
	images, err := pre.Images(nil, width, height, pixels, 1)
	require.NoError(t, err)
	w := &workers{float: d.float}
	m := &image{rows: images[0].Rows, cols: images[0].Cols, patches: w.patches(pre, images[0])}
	require.NoError(t, d.embed([]*image{m}))
	var out []float32
	switch d.float {
	case models.Float32:
		return slices.Clone(ort.Slice[float32](m.embeds))
	case models.BFloat16:
		for _, h := range ort.Slice[uint16](m.embeds) {
			out = append(out, models.BFloat16FromBits(h))
		}
	default:
		for _, h := range ort.Slice[uint16](m.embeds) {
			out = append(out, models.Float16FromBits(h))
		}
	}
	return out
}

// TestBF16: a checkpoint that overflows float16 answers in bfloat16 as the original one.
func TestBF16(t *testing.T) {
	orttest.NoLeaks(t)
	const bound = 6e-2 // bfloat16 has 8 bits
	weights := func(w ...models.Weights) convert.Options { return convert.Options{Weights: w} }
	text := openRecordedText(t)
	_, err := openScaled(t, 2*overflows, weights(models.WeightsFloat16))
	require.ErrorContains(t, err, "convert with --weights bf16")

	exact, err := openScaled(t, overflows, weights(models.WeightsFloat32))
	require.NoError(t, err)
	type answers struct{ logits, hidden []float32 }
	want := map[models.Weights]answers{models.WeightsBFloat16: {text.logits, text.hidden}}
	var picture []float32
	t.Run("the original's answers", func(t *testing.T) {
		d := openOn(t, exact, "cpu", "fp32", Options{})
		logits, hidden := text.answer(t, d, 0)
		require.Less(t, max(share(text.logits, logits), share(text.hidden, hidden)), 1e-4)
		picture = embeddings(t, d)
	})
	t.Run("answers of the same quants and scales", func(t *testing.T) {
		logits, hidden := text.answer(t, openOn(t, wideOnCPU(t), "cpu", "int4", Options{}), 0)
		want[models.WeightsInt4] = answers{logits, hidden}
		t.Logf("int4 on the CPU: %.2g of the original's", share(text.logits, logits))
	})
	t.Run("cuda", func(t *testing.T) {
		needGPU(t)
		t.Run("fp16 overflows", func(t *testing.T) {
			b, err := openScaled(t, overflows, weights(models.WeightsFloat16))
			require.NoError(t, err)
			logits, _ := text.answer(t, openOn(t, b, "cuda", "fp16", Options{}), 0)
			require.Greater(t, share(text.logits, logits), 0.5, "no numbers, or nothing left by norms of infinite squares")
		})
		for _, factor := range []float32{1, overflows, 1 << 40} {
			b, err := openScaled(t, factor, weights(models.WeightsInt4, models.WeightsBFloat16))
			require.NoError(t, err)
			for _, use := range []string{"auto", "bf16", "int4"} {
				t.Run(fmt.Sprintf("%s times %g", use, factor), func(t *testing.T) {
					d := openOn(t, b, "cuda", use, Options{})
					require.ErrorIs(t, d.why, cuda.ErrNone)
					for set, g := range d.sel.decoders {
						logits, hidden := text.answer(t, d, set)
						a, b := share(want[g.Weights].logits, logits), share(want[g.Weights].hidden, hidden)
						t.Logf("%s: logits %.2g, states %.2g", g.Weights, a, b)
						require.Less(t, max(a, b), bound)
					}
					got := embeddings(t, d)
					for i := range got {
						got[i] *= overflows / factor
					}
					seen := share(picture, got)
					t.Logf("picture %.2g", seen)
					require.Less(t, seen, bound)
				})
			}
		}
	})
}

// TestBF16Selection: what a bundle in bfloat16 has is chosen by itself, and own kernels are left out.
func TestBF16Selection(t *testing.T) {
	orttest.NoLeaks(t)
	b, err := openScaled(t, overflows, convert.Options{Weights: []models.Weights{models.WeightsInt4, models.WeightsBFloat16}})
	require.NoError(t, err)
	// ONNX Runtime checks the types of all operators before it looks for kernels, which a CPU lacks.
	rt := orttest.Open(t)
	cpu := orttest.CPU(t, rt)
	for _, g := range b.Manifest.Graphs {
		s, err := rt.NewSession(b.Path(g.File), cpu, ort.SessionOptions{})
		if err == nil {
			require.NoError(t, s.Close())
			continue
		}
		require.ErrorContains(t, err, "Could not find an implementation", g.File)
	}
	c := DefaultSettings().MiniCPM
	c.Slots = 8
	all, err := choose(b, c, 512)
	require.NoError(t, err)
	require.Equal(t, []string{"int4", "bf16"}, all[0].names())
	require.Equal(t, []string{"int4"}, all[1].names())
	for _, s := range all {
		require.Equal(t, models.BFloat16, s.embed.Float())
		require.Equal(t, models.BFloat16, s.vision.Float())
		require.Equal(t, 2, s.layout.ElemSize)
		for _, g := range s.decoders {
			require.ErrorIs(t, noOwn(g, Options{}), cuda.ErrNone)
		}
		for _, part := range s.plan("card").Parts {
			require.NotEqual(t, "own kernels", part.Name)
		}
	}
	require.ErrorContains(t, noOwn(all[1].decoders[0], Options{}), "the bundle in bfloat16")
	c.Weights = "bf16"
	require.NoError(t, c.Validate())
	one, err := choose(b, c, 512)
	require.NoError(t, err)
	require.Equal(t, []string{"bf16"}, one[0].names())
	c.Weights = "fp16"
	_, err = choose(b, c, 512)
	require.ErrorContains(t, err, `expected a bundle with the decoder in fp16 for cuda, has ["bf16 for cuda" "int4 for cuda"]`)
}
