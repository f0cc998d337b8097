package cuda_test

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"

	"touchline/inference/internal/cuda"
	"touchline/models"
)

// matrix is a matrix in blocks with a scale each, and zero points unless they are in the middle.
type matrix struct {
	outputs, inputs, bits, block int
	quants                       []byte
	scales                       []uint16
	zeros                        []byte // of 4 bits, [output][block/2]
}

// newMatrix returns a random matrix that keeps the size of its inputs, in blocks of 128 if it has zero points, else of 32.
func newMatrix(rng *rand.Rand, outputs, inputs, bits int, zeros bool) matrix {
	m := matrix{outputs: outputs, inputs: inputs, bits: bits, block: 32, quants: make([]byte, outputs*inputs*bits/8)}
	if zeros {
		m.block = 128
		m.zeros = make([]byte, outputs*((inputs/m.block+1)/2))
	}
	for _, b := range [][]byte{m.quants, m.zeros} {
		for i := range b {
			b[i] = byte(rng.Uint32())
		}
	}
	usual := 1 / (float64(int(1)<<bits) / math.Sqrt(12) * math.Sqrt(float64(inputs)))
	for range outputs * inputs / m.block {
		m.scales = append(m.scales, half(usual*(0.5+rng.Float64())))
	}
	return m
}

// times returns the products with a row.
func (m matrix) times(x []float64) []float64 {
	out := make([]float64, m.outputs)
	zero := float64(int(1) << (m.bits - 1))
	for o := range out {
		for block := 0; block < m.inputs; block += m.block {
			var sum float64
			if m.zeros != nil {
				n := block / m.block
				zero = float64(m.zeros[o*((m.inputs/m.block+1)/2)+n/2] >> (n % 2 * 4) & 15)
			}
			for i := block; i < block+m.block; i++ {
				at := o*m.inputs + i
				q := m.quants[at*m.bits/8]
				if m.bits == 4 {
					q = q >> (at % 2 * 4) & 15
				}
				sum += (float64(q) - zero) * x[i]
			}
			out[o] += sum * wide(m.scales[(o*m.inputs+block)/m.block])
		}
	}
	return out
}

func half(v float64) uint16 { return models.Float16Bits(float32(v)) }

func wide(h uint16) float64 { return float64(models.Float16FromBits(h)) }

func wides(h []uint16) []float64 {
	out := make([]float64, len(h))
	for i := range h {
		out[i] = wide(h[i])
	}
	return out
}

// layer holds a layer's weights, and its caches [slot][KVHeads][MaxLen][HeadDim].
type layer struct {
	qkv, o, gateUp, down        matrix
	norm, ffnNorm, qNorm, kNorm []uint16
	keys, values                []uint16
}

// reference is a language model in float64, which rounds to float16 where the kernels do.
type reference struct {
	cuda.Shape

	layers       []layer
	head         matrix
	lastNorm     []uint16
	cosine, sine []uint16 // [position][HeadDim/2]
	rounds       func(float64) float64
}

func toHalf(v float64) float64 { return wide(half(v)) }

// newReference returns a model with random weights, and random keys and values in all slots.
func newReference(rng *rand.Rand, s cuda.Shape, slots int) *reference {
	random := func(n int, around, by float64) []uint16 {
		out := make([]uint16, n)
		for i := range out {
			out[i] = half(around + by*rng.NormFloat64())
		}
		return out
	}
	r := &reference{Shape: s, rounds: toHalf, head: newMatrix(rng, s.Vocab, s.Hidden, s.Head, false), lastNorm: random(s.Hidden, 1, .2)}
	attended, cache := s.Heads*s.HeadDim, slots*s.KVHeads*s.MaxLen*s.HeadDim
	for range s.Layers {
		r.layers = append(r.layers, layer{
			qkv: newMatrix(rng, attended+2*s.KVHeads*s.HeadDim, s.Hidden, 4, s.Zeros), o: newMatrix(rng, s.Hidden, attended, 4, s.Zeros),
			gateUp: newMatrix(rng, 2*s.FFN, s.Hidden, 4, s.Zeros), down: newMatrix(rng, s.Hidden, s.FFN, 4, s.Zeros),
			norm: random(s.Hidden, 1, .2), ffnNorm: random(s.Hidden, 1, .2), qNorm: random(s.HeadDim, 1, .2), kNorm: random(s.HeadDim, 1, .2),
			keys: random(cache, 0, 1), values: random(cache, 0, 1),
		})
	}
	for position := range s.MaxLen {
		for d := range s.HeadDim / 2 {
			sin, cos := math.Sincos(float64(position) * math.Pow(10000, -2*float64(d)/float64(s.HeadDim)))
			r.cosine, r.sine = append(r.cosine, half(cos)), append(r.sine, half(sin))
		}
	}
	return r
}

// normed returns x/sqrt(mean(x^2)+Epsilon)*weight.
func (r *reference) normed(x []float64, weight []uint16) []float64 {
	var sum float64
	for _, v := range x {
		sum += v * v
	}
	scale, out := 1/math.Sqrt(sum/float64(len(x))+r.Epsilon), make([]float64, len(x))
	for i, v := range x {
		out[i] = v * scale * wide(weight[i])
	}
	return out
}

func (r *reference) rounded(x []float64) []float64 {
	for i := range x {
		x[i] = r.rounds(x[i])
	}
	return x
}

// turned returns a head's values after its norm and the rotation by a position.
func (r *reference) turned(x []float64, norm []uint16, position int) []float64 {
	x = r.normed(x, norm)
	n := r.HeadDim / 2
	for d := range n {
		c, s := wide(r.cosine[position*n+d]), wide(r.sine[position*n+d])
		x[d], x[n+d] = x[d]*c-x[n+d]*s, x[n+d]*c+x[d]*s
	}
	return r.rounded(x)
}

// at returns the place of a position in a cache.
func (r *reference) at(slot, head, position int) int {
	return ((slot*r.KVHeads+head)*r.MaxLen + position) * r.HeadDim
}

// attend writes the key and the value of a position, and returns what the query heads attend to.
func (r *reference) attend(l *layer, qkv []float64, slot, length int) (out []float64) {
	dim := r.HeadDim
	part := func(i int) []float64 { return slices.Clone(qkv[i*dim : (i+1)*dim]) }
	for head := range r.KVHeads {
		key, value, at := r.turned(part(r.Heads+head), l.kNorm, length), part(r.Heads+r.KVHeads+head), r.at(slot, head, length)
		for d := range dim {
			l.keys[at+d], l.values[at+d] = half(key[d]), half(value[d])
		}
	}
	for q := range r.Heads {
		query, head := r.turned(part(q), l.qNorm, length), q/(r.Heads/r.KVHeads)
		scores := make([]float64, length+1)
		for p := range scores {
			for d, k := range wides(l.keys[r.at(slot, head, p):][:dim]) {
				scores[p] += query[d] * k / math.Sqrt(float64(dim))
			}
		}
		most, total, sums := slices.Max(scores), 0.0, make([]float64, dim)
		for p, score := range scores {
			e := math.Exp(score - most)
			total += e
			for d, v := range wides(l.values[r.at(slot, head, p):][:dim]) {
				sums[d] += e * v
			}
		}
		for _, v := range sums {
			out = append(out, v/total)
		}
	}
	return r.rounded(out)
}

// step feeds a row to a slot, and returns its logits and its state after the last norm.
func (r *reference) step(fed []uint16, slot, length int) (logits, state []float64) {
	x := wides(fed)
	add := func(y []float64) {
		for i := range x {
			x[i] = r.rounds(x[i] + y[i])
		}
	}
	for i := range r.layers {
		l := &r.layers[i]
		qkv := r.rounded(l.qkv.times(r.rounded(r.normed(x, l.norm))))
		add(l.o.times(r.attend(l, qkv, slot, length)))
		up := l.gateUp.times(r.rounded(r.normed(x, l.ffnNorm)))
		gated := make([]float64, r.FFN)
		for j := range gated {
			gated[j] = up[j] / (1 + math.Exp(-up[j])) * up[r.FFN+j]
		}
		add(l.down.times(r.rounded(gated)))
	}
	state = r.rounded(r.normed(x, r.lastNorm))
	return r.head.times(state), state
}

// best returns the largest values with their ids, descending.
func best(values []float32, n int) (ids []int64) {
	for i := range values {
		ids = append(ids, int64(i))
	}
	slices.SortFunc(ids, func(a, b int64) int { return cmp.Or(cmp.Compare(values[b], values[a]), cmp.Compare(a, b)) })
	return ids[:n]
}
