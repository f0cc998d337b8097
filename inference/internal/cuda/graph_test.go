package cuda_test

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"touchline/inference/internal/cuda"
	networks "touchline/inference/internal/device"
	"touchline/inference/internal/kvcache"
	"touchline/inference/internal/ort"
	"touchline/inference/internal/ort/orttest"
	"touchline/models"
	"touchline/models/checkpoint"
	"touchline/models/convert"
)

// tiny converts the tiny checkpoint to int4 for both devices.
func tiny(t *testing.T, head int) *models.Bundle {
	t.Helper()
	src, err := checkpoint.Open("../../../models/testdata/tiny")
	require.NoError(t, err)
	defer src.Close()
	dir := filepath.Join(t.TempDir(), "b")
	require.NoError(t, convert.Convert(t.Context(), src, dir, convert.Options{
		Weights: []models.Weights{models.WeightsInt4}, Devices: []models.Device{models.DeviceCUDA, models.DeviceCPU}, Head: head,
	}))
	b, err := models.OpenBundle(dir)
	require.NoError(t, err)
	return b
}

// readReference returns the model of a bundle in float64, with one slot.
func readReference(t *testing.T, b *models.Bundle, maxLen int) *reference {
	t.Helper()
	g, ok := b.Find(models.KindDecoder, models.WeightsInt4, models.DeviceCUDA)
	require.True(t, ok)
	read := func(name string) []byte {
		at, ok := g.Tensor(name)
		require.True(t, ok, name)
		f, err := os.Open(b.Path(at.File))
		require.NoError(t, err)
		defer f.Close()
		out := make([]byte, at.Bytes())
		_, err = f.ReadAt(out, at.Offset)
		require.NoError(t, err)
		return out
	}
	halves := func(name string) []uint16 { return ort.Slice[uint16](read(name)) }
	of := func(name string, outputs, inputs, bits int) matrix {
		m := matrix{outputs: outputs, inputs: inputs, bits: bits, block: 32, quants: read(name + ".quants"), scales: halves(name + ".scales")}
		require.Len(t, m.quants, outputs*inputs*bits/8, name)
		require.Len(t, m.scales, outputs*inputs/32, name)
		return m
	}
	d := b.Manifest.Dims.Decoder
	r := &reference{Shape: cuda.Shape{
		Layers: d.Layers, Hidden: d.Hidden, FFN: d.FFN, Heads: d.Heads, KVHeads: d.KVHeads, HeadDim: d.HeadDim, Vocab: d.Vocab,
		Head: g.Head, Epsilon: d.Epsilon, MaxLen: maxLen,
	}, rounds: toHalf}
	attended, cache := d.Heads*d.HeadDim, d.KVHeads*maxLen*d.HeadDim
	for i := range d.Layers {
		p := "layers." + strconv.Itoa(i) + "."
		r.layers = append(r.layers, layer{
			qkv: of(p+"qkv", attended+2*d.KVHeads*d.HeadDim, d.Hidden, 4), o: of(p+"o", d.Hidden, attended, 4),
			gateUp: of(p+"gate_up", 2*d.FFN, d.Hidden, 4), down: of(p+"down", d.Hidden, d.FFN, 4),
			norm: halves(p + "norm.weight"), ffnNorm: halves(p + "ffn_norm.weight"),
			qNorm: halves(p + "q_norm.weight"), kNorm: halves(p + "k_norm.weight"),
			keys: make([]uint16, cache), values: make([]uint16, cache),
		})
	}
	r.head, r.lastNorm = of("head", d.Vocab, d.Hidden, g.Head), halves("layers."+strconv.Itoa(d.Layers)+".norm.weight")
	r.cosine, r.sine = halves("rotary.cos"), halves("rotary.sin")
	return r
}

// The reference agrees with ONNX Runtime, on the CPU.
func TestReference(t *testing.T) {
	orttest.NoLeaks(t)
	rt := orttest.Open(t)
	dev := orttest.CPU(t, rt)
	for _, head := range []int{8, 4} {
		b := tiny(t, head)
		const maxLen = 48
		r := readReference(t, b, maxLen)
		g, ok := b.Find(models.KindDecoder, models.WeightsInt4, models.DeviceCPU)
		require.True(t, ok)
		embed, ok := b.Find(models.KindEmbed, models.WeightsFloat32, models.DeviceCPU)
		require.True(t, ok)
		session, err := rt.NewSession(b.Path(g.File), dev, ort.SessionOptions{Threads: 1})
		require.NoError(t, err)
		table, err := networks.OpenTable(b, embed, 4)
		require.NoError(t, err)
		text, err := networks.NewText(rt, dev, table, networks.TextOptions{
			Decoder: networks.DecoderOptions{
				Sessions: []*ort.Session{session}, Captured: []int{1}, Float: models.Float32, Chunk: 1,
				Layout: kvcache.Layout{Layers: r.Layers, Slots: 1, KVHeads: r.KVHeads, MaxLen: maxLen, HeadDim: r.HeadDim, ElemSize: 4},
			},
			Hidden: r.Hidden, Vocab: r.Vocab, Top: 256, States: true, Pad: 1,
		})
		require.NoError(t, err)
		rng := rand.New(rand.NewPCG(3, 3))
		row, slot := make([]byte, table.Row()), kvcache.Range{Size: 1}
		for position := range maxLen {
			token := rng.Int32N(int32(r.Vocab))
			table.Copy(row, token)
			var fed []uint16
			for _, v := range ort.Slice[float32](row) {
				fed = append(fed, half(float64(v)))
			}
			logits, state := r.step(fed, 0, position)
			require.NoError(t, text.Tokens(0, slot, []int32{token}, []int32{int32(position)}))
			require.NoError(t, text.FetchTop(slot, text.States))
			got, err := text.Logits(0)
			require.NoError(t, err)
			near(t, "logits", logits, got, 6e-3, 2e-3)
			near(t, "state", state, ort.Slice[float32](text.States.Host(0, 1)), 1e-2, 2e-3)
		}
		for _, c := range []interface{ Close() error }{text, session, table} {
			require.NoError(t, c.Close())
		}
	}
}
