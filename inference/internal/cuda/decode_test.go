package cuda_test

import (
	"bytes"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"touchline/inference/internal/cuda"
	"touchline/inference/internal/ort"
	"touchline/inference/internal/ort/orttest"
)

var (
	needCUDA = flag.Bool("cuda", false, "fail, instead of leaving out, where there is no CUDA device")
	shapes   = flag.Int("shapes", 40, "random shapes of TestDecoder")
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// gpu opens the first GPU until the end of the test. Without one it skips the test, or fails it with -cuda.
func gpu(t *testing.T) *ort.Device {
	t.Helper()
	orttest.NoLeaks(t)
	runtime.LockOSThread()
	t.Cleanup(runtime.UnlockOSThread)
	d, err := orttest.Open(t).NewDevice(ort.CUDA, 0)
	if err != nil && !*needCUDA {
		require.ErrorIs(t, err, ort.ErrNoCUDA)
		t.Skip(err)
	}
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	return d
}

// decoder is a decoder with the memory of its weights, caches, inputs and outputs.
type decoder struct {
	*cuda.Decoder

	t                           *testing.T
	dev                         *ort.Device
	fed, bias                   *ort.Memory
	logits, hidden, values, ids *ort.Memory
	caches                      []*ort.Memory // keys and values of each layer
}

func (d *decoder) memory(content []byte) *ort.Memory {
	d.t.Helper()
	m, err := d.dev.Malloc(int64(len(content)))
	require.NoError(d.t, err)
	d.t.Cleanup(func() { require.NoError(d.t, m.Close()) })
	require.NoError(d.t, d.dev.CopyIn(m.At(0), content))
	return m
}

func newDecoder(t *testing.T, dev *ort.Device, r *reference, slots int) *decoder {
	t.Helper()
	d := &decoder{t: t, dev: dev}
	halves := func(values []uint16) ort.Pointer { return d.memory(ort.Bytes(values)).At(0) }
	of := func(m matrix) cuda.Matrix {
		out := cuda.Matrix{Quants: d.memory(m.quants).At(0), Scales: halves(m.scales)}
		if m.zeros != nil {
			out.Zeros = d.memory(m.zeros).At(0)
		}
		return out
	}
	w := cuda.Weights{Head: of(r.head), LastNorm: halves(r.lastNorm), Cosine: halves(r.cosine), Sine: halves(r.sine)}
	for _, l := range r.layers {
		keys, values := d.memory(ort.Bytes(l.keys)), d.memory(ort.Bytes(l.values))
		d.caches = append(d.caches, keys, values)
		w.Layers = append(w.Layers, cuda.Layer{
			QKV: of(l.qkv), O: of(l.o), GateUp: of(l.gateUp), Down: of(l.down), Norm: halves(l.norm), FFNNorm: halves(l.ffnNorm),
			QNorm: halves(l.qNorm), KNorm: halves(l.kNorm), Keys: keys.At(0), Values: values.At(0),
		})
	}
	rows := func(width int) *ort.Memory { return d.memory(bytes.Repeat([]byte{0xff}, slots*width)) } // NaN
	d.fed, d.bias, d.hidden = rows(2*r.Hidden), rows(4*r.Vocab), rows(2*r.Hidden)
	d.logits, d.values, d.ids = rows(4*r.Vocab), rows(4*r.Top), rows(8*r.Top)
	driver, err := cuda.NewDriver(dev)
	require.NoError(t, err)
	compiler, err := cuda.NewCompiler(dev.Library, "")
	require.NoError(t, err)
	d.Decoder, err = cuda.NewDecoder(driver, compiler, r.Shape, w, cuda.Ports{
		Fed: d.fed.At(0), Bias: d.bias.At(0), Logits: d.logits.At(0), Hidden: d.hidden.At(0), Values: d.values.At(0), IDs: d.ids.At(0),
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	return d
}

// read returns the numbers of a slot.
func read[T ort.Element](d *decoder, m *ort.Memory, slot, n int) []T {
	d.t.Helper()
	out := make([]T, n)
	size := int64(len(ort.Bytes(out)))
	require.NoError(d.t, d.dev.CopyOut(ort.Bytes(out), m.At(int64(slot)*size)))
	require.NoError(d.t, d.dev.Synchronize())
	return out
}

// randomShape returns sizes that the kernels support.
func randomShape(rng *rand.Rand) cuda.Shape {
	s := cuda.Shape{
		Layers: 1 + rng.IntN(3), Hidden: 128 * (2 + rng.IntN(7)), FFN: 128 * (2 + rng.IntN(11)), HeadDim: 32 << rng.IntN(3),
		Vocab: 300 + rng.IntN(4701), Head: 4 + 4*rng.IntN(2), Top: 256, Epsilon: 1e-6, MaxLen: 80 + rng.IntN(400), Zeros: rng.IntN(3) == 0,
	}
	if rng.IntN(4) == 0 { // zero points are read in another way
		s.Hidden, s.FFN = 1024, 2048
	}
	for {
		s.KVHeads = 1 + rng.IntN(8)
		s.Heads = s.KVHeads * (1 + rng.IntN(7))
		if n := s.Heads * s.HeadDim; n%128 == 0 && n >= 256 && n <= 2048 {
			return s
		}
	}
}

// TestDecoder compares steps of random shapes with float64.
func TestDecoder(t *testing.T) {
	for i := range *shapes {
		rng := rand.New(rand.NewPCG(uint64(i), 47))
		s := randomShape(rng)
		t.Run(fmt.Sprintf("%02d", i), func(t *testing.T) {
			t.Logf("%+v", s)
			const slots = 12
			dev, r := gpu(t), newReference(rng, s, slots)
			d := newDecoder(t, dev, r, slots)
			for _, rows := range []int{1, 2 + rng.IntN(6), 8} {
				d.compare(r, rng, rng.Perm(slots)[:rows])
			}
		})
	}
}

// compare runs a step of some slots with other inputs and lengths.
func (d *decoder) compare(r *reference, rng *rand.Rand, slots []int) {
	d.t.Helper()
	var of, lengths []int32
	fed := make([][]uint16, len(slots))
	bias := make([]float32, r.Vocab)
	for i := range bias {
		bias[i] = rng.Float32()
		if rng.IntN(10) == 0 {
			bias[i] = -1e30
		}
	}
	for i, slot := range slots {
		for range r.Hidden {
			fed[i] = append(fed[i], half(rng.NormFloat64()))
		}
		of, lengths = append(of, int32(slot)), append(lengths, rng.Int32N(int32(r.MaxLen)))
		switch {
		case i == 0 && len(slots) > 1:
			lengths[i] = int32(r.MaxLen - 1)
		case i == 1:
			lengths[i] = 0
		}
		require.NoError(d.t, d.dev.CopyIn(d.fed.At(int64(slot*r.Hidden*2)), ort.Bytes(fed[i])))
		require.NoError(d.t, d.dev.CopyIn(d.bias.At(int64(slot*r.Vocab*4)), ort.Bytes(bias)))
	}
	require.NoError(d.t, d.dev.Synchronize())
	require.NoError(d.t, d.Step(of, lengths))
	require.NoError(d.t, d.dev.Synchronize())
	for i, slot := range slots {
		what := fmt.Sprintf("%d rows, slot %d, %d positions", len(slots), slot, lengths[i])
		logits, state := r.step(fed[i], slot, int(lengths[i]))
		got := read[float32](d, d.logits, slot, r.Vocab)
		near(d.t, what+": logits", logits, got, 6e-3, 2e-3)
		var states []float32
		for _, h := range read[uint16](d, d.hidden, slot, r.Hidden) {
			states = append(states, float32(wide(h)))
		}
		near(d.t, what+": state", state, states, 1e-2, 2e-3)
		for j := range got {
			got[j] += bias[j]
		}
		ids := best(got, r.Top)
		require.Equal(d.t, ids, read[int64](d, d.ids, slot, r.Top), what)
		values := read[float32](d, d.values, slot, r.Top)
		for j, id := range ids {
			require.Equal(d.t, got[id], values[j], what)
		}
	}
	d.compareCaches(r, slots, lengths)
}

// compareCaches compares the new keys and values, and expects all others to be as they were.
func (d *decoder) compareCaches(r *reference, slots []int, lengths []int32) {
	d.t.Helper()
	for i := range r.layers {
		for side, want := range [][]uint16{r.layers[i].keys, r.layers[i].values} {
			got := read[uint16](d, d.caches[2*i+side], 0, len(want))
			for j, slot := range slots {
				for head := range r.KVHeads {
					at := r.at(slot, head, int(lengths[j]))
					var row []float32
					for _, h := range got[at : at+r.HeadDim] {
						row = append(row, float32(wide(h)))
					}
					near(d.t, fmt.Sprintf("layer %d, side %d, slot %d, head %d", i, side, slot, head), wides(want[at:at+r.HeadDim]), row, 2e-2, 5e-3)
					copy(want[at:], got[at:at+r.HeadDim]) // as the next step reads it
				}
			}
			require.True(d.t, bytes.Equal(ort.Bytes(want), ort.Bytes(got)), "layer %d, side %d: other positions changed", i, side)
		}
	}
}

// near compares numbers, with limits as parts of the largest: of any difference, and of all (rms).
func near(t *testing.T, what string, want []float64, got []float32, most, rms float64) {
	t.Helper()
	var largest, worst, square float64
	for i, w := range want {
		d := math.Abs(w - float64(got[i]))
		require.False(t, math.IsNaN(d), "%s: number %d is %g", what, i, got[i])
		largest, worst, square = max(largest, math.Abs(w)), max(worst, d), square+d*d
	}
	require.LessOrEqual(t, worst, most*largest, what)
	require.LessOrEqual(t, math.Sqrt(square/float64(len(want))), rms*largest, what+" (rms)")
}

// Slots whose input, keys and values are NaN leave the bits of others as they are, and slots that are not in the step keep theirs.
func TestRowsDoNotMix(t *testing.T) {
	dev, rng := gpu(t), rand.New(rand.NewPCG(2, 2))
	const slots, bad, good = 12, 0, 11
	for _, head := range []int{4, 8} {
		r := newReference(rng, cuda.Shape{
			Layers: 2, Hidden: 256, FFN: 384, Heads: 6, KVHeads: 3, HeadDim: 64, Vocab: 1362, Head: head, Top: 256, Epsilon: 1e-6, MaxLen: 300,
		}, slots)
		for i := range r.layers {
			for _, cache := range [][]uint16{r.layers[i].keys, r.layers[i].values} {
				for j := range len(cache) / slots {
					cache[bad*len(cache)/slots+j] = math.MaxUint16
				}
			}
		}
		d := newDecoder(t, dev, r, slots)
		for slot := range slots {
			var fed []uint16
			for range r.Hidden {
				fed = append(fed, half(rng.NormFloat64()))
			}
			if slot != bad {
				require.NoError(t, dev.CopyIn(d.fed.At(int64(slot*r.Hidden*2)), ort.Bytes(fed)))
			}
			require.NoError(t, dev.CopyIn(d.bias.At(int64(slot*r.Vocab*4)), make([]byte, r.Vocab*4)))
		}
		for rows := 2; rows <= 8; rows++ {
			of, lengths := []int32{2, 3, 4, 5, 6, 7, 8}[:rows-1], make([]int32, rows)
			for i := range lengths {
				lengths[i] = rng.Int32N(int32(r.MaxLen))
			}
			at := rng.IntN(rows)
			run := func(other int32) (out []any) {
				require.NoError(t, d.Step(slices.Insert(slices.Clone(of), at, other), lengths))
				require.NoError(t, dev.Synchronize())
				for _, slot := range of {
					out = append(out, read[float32](d, d.logits, int(slot), r.Vocab), read[uint16](d, d.hidden, int(slot), r.Hidden),
						read[float32](d, d.values, int(slot), r.Top), read[int64](d, d.ids, int(slot), r.Top))
				}
				return out
			}
			want := run(good)
			before := make([][]uint16, len(d.caches))
			for i, m := range d.caches {
				before[i] = read[uint16](d, m, 0, len(r.layers[0].keys))
			}
			require.Equal(t, want, run(bad), "%d rows", rows)
			require.True(t, math.IsNaN(float64(read[float32](d, d.logits, bad, 1)[0])))
			size := len(r.layers[0].keys) / slots
			for i, m := range d.caches {
				require.Equal(t, before[i][(bad+1)*size:], read[uint16](d, m, 0, len(r.layers[0].keys))[(bad+1)*size:], "%d rows", rows)
			}
		}
	}
}

// A step without rows, or with too many, is refused.
func TestRows(t *testing.T) {
	dev := gpu(t)
	rng := rand.New(rand.NewPCG(1, 1))
	s := cuda.Shape{
		Layers: 1, Hidden: 256, FFN: 256, Heads: 4, KVHeads: 1, HeadDim: 64, Vocab: 300, Head: 8, Top: 256, Epsilon: 1e-6, MaxLen: 80,
	}
	d := newDecoder(t, dev, newReference(rng, s, 12), 12)
	require.ErrorContains(t, d.Step(nil, nil), "expected 1 to 8 rows, got 0")
	require.ErrorContains(t, d.Step(make([]int32, 9), make([]int32, 9)), "got 9")
}

// Sizes that the kernels do not support are refused.
func TestShape(t *testing.T) {
	for name, change := range map[string]func(*cuda.Shape){
		"the vocabulary matrix has 16 bits": func(s *cuda.Shape) { s.Head = 16 },
		"multiples of 128":                  func(s *cuda.Shape) { s.Hidden = 320 },
		"at least 256":                      func(s *cuda.Shape) { s.FFN = 128 },
		"4 and 2 heads of 96":               func(s *cuda.Shape) { s.HeadDim = 96 },
		"4 and 2 heads of 512":              func(s *cuda.Shape) { s.HeadDim = 512 },
		"4 and 3 heads of 64":               func(s *cuda.Shape) { s.KVHeads = 3 },
		"18 and 2 heads of 64":              func(s *cuda.Shape) { s.Heads = 18 },
	} {
		s := cuda.Shape{Layers: 1, Hidden: 256, FFN: 256, Heads: 4, KVHeads: 2, HeadDim: 64, Vocab: 300, Head: 8, Top: 256, MaxLen: 64}
		change(&s)
		_, err := cuda.NewDecoder(nil, nil, s, cuda.Weights{}, cuda.Ports{})
		require.ErrorIs(t, err, cuda.ErrNone)
		require.ErrorContains(t, err, name)
	}
}
