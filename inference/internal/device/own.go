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

// forOwn opens the driver of a device, and NVRTC with the cache.
func forOwn(dev *ort.Device) (*cuda.Driver, *cuda.Compiler, error) {
	driver, err := cuda.NewDriver(dev)
	if err != nil {
		return nil, nil, err
	}
	cache, err := os.UserCacheDir()
	if err == nil {
		cache = filepath.Join(cache, "touchline", "kernels")
	} // else they are compiled at each start
	compiler, err := cuda.NewCompiler(dev.Library, cache)
	return driver, compiler, err
}

// CheckOwn describes what own kernels of a shape would use on a device, or returns why there are none, as far as that can be told without
// a model. They are tried again when it is loaded.
func CheckOwn(dev *ort.Device, s cuda.Shape) (string, error) {
	driver, compiler, err := forOwn(dev)
	if err != nil {
		return "", err
	}
	uses := fmt.Sprintf("compute capability %d.%d, NVRTC %s", driver.Arch/10, driver.Arch%10, compiler.Version())
	return uses, cuda.Check(driver, compiler, s)
}

// OpenOwn makes own kernels for the steps of one weight set. weights are the tensors of its graph, in device memory. An error that wraps
// cuda.ErrNone says why there are none.
func (t *Text) OpenOwn(weights map[string]ort.Pointer, tensors []models.Tensor, s cuda.Shape) error {
	driver, compiler, err := forOwn(t.dev)
	if err != nil {
		return err
	}
	w, err := ownWeights(weights, tensors, t.kv, s)
	if err != nil {
		return err
	}
	own, err := cuda.NewDecoder(driver, compiler, s, w, cuda.Ports{
		Fed: t.fed.At(0), Bias: t.Bias.At(0), Logits: t.logits.At(0), Hidden: t.States.At(0), Values: t.values.At(0), IDs: t.ids.At(0),
	})
	if err != nil {
		return err
	}
	t.keep(own)
	t.Own = own
	return nil
}

// ownWeights finds the weights of models/graph.Decoder, which must have the sizes that the kernels read.
func ownWeights(weights map[string]ort.Pointer, tensors []models.Tensor, kv []*Rows, s cuda.Shape) (w cuda.Weights, err error) {
	sizes := map[string]int{}
	for _, t := range tensors {
		sizes[t.Name] = int(t.Bytes())
	}
	sized := func(name string, bytes int) ort.Pointer {
		if has, ok := sizes[name]; !ok {
			err = errors.Join(err, fmt.Errorf("%w: no weights %s", cuda.ErrBundle, name))
		} else if has != bytes {
			err = errors.Join(err, fmt.Errorf("%w: weights %s have %d bytes, expected %d", cuda.ErrBundle, name, has, bytes))
		}
		return weights[name]
	}
	norm := func(name string, width int) ort.Pointer { return sized(name+".weight", 2*width) }
	packed := func(name string, outputs, inputs, bits, block int) cuda.Matrix {
		blocks := (inputs + block - 1) / block
		return cuda.Matrix{Quants: sized(name+".quants", outputs*blocks*block*bits/8), Scales: sized(name+".scales", 2*outputs*blocks)}
	}
	matrix := func(name string, outputs, inputs int) cuda.Matrix {
		if !s.Zeros {
			return packed(name, outputs, inputs, 4, 32)
		}
		m := packed(name, outputs, inputs, 4, 128)
		m.Zeros = sized(name+".zeros", outputs*((inputs+255)/256))
		return m
	}
	attended := s.Heads * s.HeadDim
	for i := range s.Layers {
		p := "layers." + strconv.Itoa(i) + "."
		w.Layers = append(w.Layers, cuda.Layer{
			QKV: matrix(p+"qkv", attended+2*s.KVHeads*s.HeadDim, s.Hidden), O: matrix(p+"o", s.Hidden, attended),
			GateUp: matrix(p+"gate_up", 2*s.FFN, s.Hidden), Down: matrix(p+"down", s.Hidden, s.FFN),
			Norm: norm(p+"norm", s.Hidden), FFNNorm: norm(p+"ffn_norm", s.Hidden),
			QNorm: norm(p+"q_norm", s.HeadDim), KNorm: norm(p+"k_norm", s.HeadDim),
			Keys: kv[2*i].At(0), Values: kv[2*i+1].At(0),
		})
	}
	w.Head, w.LastNorm = packed("head", s.Vocab, s.Hidden, s.Head, 32), norm("layers."+strconv.Itoa(s.Layers)+".norm", s.Hidden)
	table := func(name string) ort.Pointer { // can be longer than a slot
		return sized(name, max(sizes[name], s.MaxLen*s.HeadDim))
	}
	w.Cosine, w.Sine = table("rotary.cos"), table("rotary.sin")
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
	return t.Own.Step(t.slots, t.lengthsOf)
}
