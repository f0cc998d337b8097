package device

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"touchline/inference/internal/cuda"
	"touchline/inference/internal/kvcache"
	"touchline/inference/internal/ort"
	"touchline/models"
)

// OpenOwn makes own kernels for the steps of one weight set. weights are the initializers of its graph, in device memory. An error that
// wraps cuda.ErrNone says why there are none.
func (t *Text) OpenOwn(weights map[string]ort.Pointer, dims models.Decoder, head int) error {
	driver, err := cuda.NewDriver(t.dev)
	if err != nil {
		return err
	}
	cache, err := os.UserCacheDir()
	if err == nil {
		cache = filepath.Join(cache, "touchline", "kernels")
	} // else they are compiled at each start
	compiler, err := cuda.NewCompiler(t.dev.Library, cache)
	if err != nil {
		return err
	}
	w, err := t.ownWeights(weights, dims.Layers)
	if err != nil {
		return err
	}
	own, err := cuda.NewDecoder(driver, compiler, cuda.Shape{
		Layers: dims.Layers, Hidden: dims.Hidden, FFN: dims.FFN, Heads: dims.Heads, KVHeads: dims.KVHeads, HeadDim: dims.HeadDim,
		Vocab: dims.Vocab, Head: head, Top: int(t.values.Width() / 4), Epsilon: dims.Epsilon, MaxLen: t.o.Layout.MaxLen,
	}, w, cuda.Ports{
		Fed: t.fed.At(0), Bias: t.Bias.At(0), Logits: t.logits.At(0), Hidden: t.States.At(0), Values: t.values.At(0), IDs: t.ids.At(0),
	})
	if err != nil {
		return err
	}
	t.keep(own)
	t.Own = own
	return nil
}

// ownWeights finds the weights of models/graph.Decoder.
func (t *Text) ownWeights(weights map[string]ort.Pointer, layers int) (w cuda.Weights, err error) {
	find := func(name string) ort.Pointer {
		p, ok := weights[name]
		if !ok {
			err = errors.Join(err, fmt.Errorf("%w: no weights %s", cuda.ErrNone, name))
		}
		return p
	}
	matrix := func(name string) cuda.Matrix {
		return cuda.Matrix{Quants: find(name + ".quants"), Scales: find(name + ".scales")}
	}
	for i := range layers {
		p := "layers." + strconv.Itoa(i) + "."
		w.Layers = append(w.Layers, cuda.Layer{
			QKV: matrix(p + "qkv"), O: matrix(p + "o"), GateUp: matrix(p + "gate_up"), Down: matrix(p + "down"),
			Norm: find(p + "norm.weight"), FFNNorm: find(p + "ffn_norm.weight"),
			QNorm: find(p + "q_norm.weight"), KNorm: find(p + "k_norm.weight"),
			Keys: t.kv[2*i].At(0), Values: t.kv[2*i+1].At(0),
		})
	}
	w.Head, w.LastNorm = matrix("head"), find("layers."+strconv.Itoa(layers)+".norm.weight")
	w.Cosine, w.Sine = find("rotary.cos"), find("rotary.sin")
	return w, err
}

// OwnTokens is Tokens by own kernels, which run the slots with a token, up to Own.Rows. Others keep their keys and values.
func (t *Text) OwnTokens(r kvcache.Range, tokens, lengths []int32) error {
	t.slots, t.lengthsOf = t.slots[:0], t.lengthsOf[:0]
	for slot := r.Start; slot < r.Start+r.Size; slot++ {
		if tokens[slot] < 0 {
			continue
		}
		t.table.Copy(t.fed.Host(slot, 1), tokens[slot])
		if err := t.fed.copyIn(t.dev, slot, 1); err != nil {
			return err
		}
		t.slots, t.lengthsOf = append(t.slots, int32(slot)), append(t.lengthsOf, lengths[slot])
	}
	if err := t.Own.Step(t.slots, t.lengthsOf); err != nil {
		return t.Own.End(err)
	}
	return nil
}
