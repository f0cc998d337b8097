package quant_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"touchline/models"
	"touchline/models/quant"
)

// plain rounds with the scale that maps the block's extreme to -8 (or -128), without
// a search, like most tools.
func plain(w []float32, bits int) []float32 {
	var extreme float32
	for _, x := range w {
		if math.Abs(float64(x)) > math.Abs(float64(extreme)) {
			extreme = x
		}
	}
	half := float64(int(1) << (bits - 1))
	s := float64(models.Float16FromBits(models.Float16Bits(extreme / float32(-half))))
	out := make([]float32, len(w))
	for i, x := range w {
		if s != 0 {
			out[i] = float32(s * max(min(math.RoundToEven(float64(x)/s), half-1), -half))
		}
	}
	return out
}

// expand is the inverse of Round.
func expand(f quant.Format, rows []float32, quants []byte, scales []float32, k int) {
	for i := range rows {
		row, in := i/k, i%k
		code := quants[row*f.RowBytes(k)+in*f.Bits/8]
		if f.Bits == 4 {
			code = code >> (4 * (in & 1)) & 15
		}
		rows[i] = float32(int(code)-(1<<(f.Bits-1))) * scales[row*f.Blocks(k)+in/f.Block]
	}
}

// thorough tries many scales, each refitted to its codes, and returns the least
// squared error.
func thorough(w []float32) float64 {
	var top float64
	for _, x := range w {
		top = max(top, math.Abs(float64(x)))
	}
	best := math.Inf(1)
	for _, sign := range []float64{1, -1} {
		for m := 5.0; m < 11; m += 0.01 {
			inv := sign * m / top
			var wc, cc float64
			code := func(x float32, inv float64) float64 { return max(min(math.RoundToEven(float64(x)*inv), 7), -8) }
			for _, x := range w {
				c := code(x, inv)
				wc += float64(x) * c
				cc += c * c
			}
			if cc == 0 {
				continue
			}
			s := float64(models.Float16FromBits(models.Float16Bits(float32(wc / cc))))
			var e float64
			for _, x := range w {
				d := float64(x) - s*code(x, 1/s)
				e += d * d
			}
			best = min(best, e)
		}
	}
	return best
}

func squared(a, b []float32) float64 {
	var e float64
	for i := range a {
		d := float64(a[i]) - float64(b[i])
		e += d * d
	}
	return e
}

func gaussian(n int, std float32) []float32 {
	rng := rand.New(rand.NewPCG(1, 2))
	w := make([]float32, n)
	for i := range w {
		w[i] = float32(rng.NormFloat64()) * std
	}
	return w
}

func TestSearchBeatsPlainRounding(t *testing.T) {
	const n = 32 * 1000
	w := gaussian(n, 0.02)
	f := quant.Format{Bits: 4, Block: 32, Scale: models.Float16}
	q, s, got := make([]byte, f.RowBytes(n)), make([]float32, f.Blocks(n)), make([]float32, n)
	r, err := quant.NewRounder(f)
	require.NoError(t, err)
	require.NoError(t, r.Round(q, s, w, n))
	expand(f, got, q, s, n)
	var base, limit float64
	for i := 0; i < n; i += 32 {
		base += squared(w[i:i+32], plain(w[i:i+32], 4))
		limit += thorough(w[i : i+32])
	}
	ours := squared(w, got)
	t.Logf("RMS error / std: searched %.5f, exhaustive %.5f, max/8 %.5f", math.Sqrt(ours/n)/0.02, math.Sqrt(limit/n)/0.02, math.Sqrt(base/n)/0.02)
	require.Less(t, ours, 0.90*base)
	require.Less(t, ours, 1.02*limit)
}

func BenchmarkRound(b *testing.B) {
	for _, bits := range []int{4, 8} {
		b.Run(map[int]string{4: "int4", 8: "int8"}[bits], func(b *testing.B) {
			const n, k = 64, 4096
			w := gaussian(n*k, 0.02)
			f := quant.Format{Bits: bits, Block: 32, Scale: models.Float16}
			q, s := make([]byte, n*f.RowBytes(k)), make([]float32, n*f.Blocks(k))
			b.SetBytes(2 * n * k) // as bfloat16
			r, err := quant.NewRounder(f)
			require.NoError(b, err)
			for b.Loop() {
				if err := r.Round(q, s, w, k); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkPutFloat16(b *testing.B) {
	w := gaussian(1<<18, 0.02)
	dst := make([]byte, 2*len(w))
	b.SetBytes(int64(len(dst)))
	for b.Loop() {
		if _, err := quant.PutFloat16(dst, w, false); err != nil {
			b.Fatal(err)
		}
	}
}

func TestRoundIsNearestForItsScale(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	blocks := map[string]func(i int) float32{
		"gaussian":   func(int) float32 { return float32(rng.NormFloat64()) },
		"uniform":    func(int) float32 { return rng.Float32()*2 - 1 },
		"zero":       func(int) float32 { return 0 },
		"positive":   func(int) float32 { return rng.Float32() },
		"equal":      func(int) float32 { return -0.25 },
		"outlier":    func(i int) float32 { return []float32{100, rng.Float32() / 10}[min(i%32, 1)] },
		"tiny":       func(int) float32 { return float32(rng.NormFloat64() * 1e-7) },
		"vanishing":  func(int) float32 { return 1e-38 },
		"large":      func(int) float32 { return float32(rng.NormFloat64() * 60000) },
		"two values": func(i int) float32 { return float32(i%2)*2 - 1 },
	}
	for name, value := range blocks {
		for _, f := range []quant.Format{
			{Bits: 4, Block: 32, Scale: models.Float16},
			{Bits: 4, Block: 32, Scale: models.Float32},
			{Bits: 4, Block: 16, Scale: models.Float16},
			{Bits: 4, Block: 256, Scale: models.Float16},
			{Bits: 8, Block: 32, Scale: models.Float16},
			{Bits: 8, Block: 128, Scale: models.Float32},
		} {
			for _, k := range []int{f.Block, 3*f.Block + 7, 1} {
				const n = 5
				w := make([]float32, n*k)
				for i := range w {
					w[i] = value(i)
				}
				r, err := quant.NewRounder(f)
				require.NoError(t, err)
				q, s, got := make([]byte, n*f.RowBytes(k)), make([]float32, n*f.Blocks(k)), make([]float32, n*k)
				require.NoError(t, r.Round(q, s, w, k), name)
				expand(f, got, q, s, k)
				var base float64
				for row := range n {
					for at := 0; at < k; at += f.Block {
						b := w[row*k+at : row*k+min(at+f.Block, k)]
						base += squared(b, plain(b, f.Bits))
						scale := s[row*f.Blocks(k)+at/f.Block]
						if f.Scale == models.Float16 {
							require.Equal(t, scale, models.Float16FromBits(models.Float16Bits(scale)))
						}
						lo, hi := float64(-int(1)<<(f.Bits-1)), float64(int(1)<<(f.Bits-1)-1)
						for i, x := range b {
							y := got[row*k+at+i]
							if scale == 0 {
								require.Zero(t, y)
								continue
							}
							code := max(min(math.RoundToEven(float64(x)/float64(scale)), hi), lo)
							near := math.Abs(float64(x)/float64(scale) - code)
							require.LessOrEqual(t, math.Abs(float64(x-y)), math.Abs(float64(scale))*(near+1e-3), "%s %+v k=%d: %g became %g, scale %g, %v", name, f, k, x, y, scale, b)
						}
					}
				}
				if name != "tiny" { // there scales are subnormal, and coarse
					require.LessOrEqual(t, squared(w, got), base*1.02+2.5e-7*squared(w, make([]float32, len(w))), "%s %+v k=%d", name, f, k)
				}
			}
		}
	}
}

func TestRoundPadsWithZero(t *testing.T) {
	for _, tt := range []struct {
		bits int
		zero byte
	}{{4, 0x88}, {8, 0x80}} {
		f := quant.Format{Bits: tt.bits, Block: 32, Scale: models.Float16}
		r, err := quant.NewRounder(f)
		require.NoError(t, err)
		const k = 33
		q, s := make([]byte, f.RowBytes(k)), make([]float32, f.Blocks(k))
		w := gaussian(k, 1)
		require.NoError(t, r.Round(q, s, w, k))
		used := f.RowBytes(32) + 1
		for _, b := range q[used:] {
			require.Equal(t, tt.zero, b)
		}
		if tt.bits == 4 {
			require.Equal(t, byte(8), q[used-1]>>4)
		}
	}
}

func TestRoundRefuses(t *testing.T) {
	f := quant.Format{Bits: 4, Block: 32, Scale: models.Float16}
	r, err := quant.NewRounder(f)
	require.NoError(t, err)
	for _, bad := range []float32{float32(math.NaN()), float32(math.Inf(1)), float32(math.Inf(-1)), 1e7} {
		w := gaussian(128, 1)
		w[77] = bad
		err := r.Round(make([]byte, f.RowBytes(128)), make([]float32, 4), w, 128)
		var value *quant.ValueError
		require.ErrorAs(t, err, &value)
		require.Equal(t, 77/32, value.Index/32)
	}
	require.ErrorContains(t, r.Round(make([]byte, 3), make([]float32, 4), make([]float32, 128), 128), "expected 64 bytes and 4 scales")
	require.ErrorContains(t, r.Round(nil, nil, make([]float32, 3), 2), "expected whole rows of 2 values, got 3 values")
	for _, f := range []quant.Format{{Bits: 3, Block: 32, Scale: models.Float16}, {Bits: 4, Block: 33, Scale: models.Float16}, {Bits: 4, Block: 32}} {
		_, err := quant.NewRounder(f)
		require.Error(t, err)
	}
}

func TestPutFloats(t *testing.T) {
	src := []float32{1, -2, 65504, 70000, -1e9, 3}
	dst := make([]byte, 2*len(src))
	_, err := quant.PutFloat16(dst, src, false)
	var value *quant.ValueError
	require.ErrorAs(t, err, &value)
	require.Equal(t, quant.ValueError{Index: 3, Value: 70000, Type: models.Float16}, *value)
	clamped, err := quant.PutFloat16(dst, src, true)
	require.NoError(t, err)
	require.Equal(t, 2, clamped)
	require.Equal(t, []byte{0xff, 0x7b, 0xff, 0xfb}, dst[6:10])
	src[5] = float32(math.NaN())
	_, err = quant.PutFloat16(dst, src, true)
	require.ErrorAs(t, err, &value)
	require.Equal(t, 5, value.Index)
	require.ErrorAs(t, quant.PutFloat32(make([]byte, 4*len(src)), src), &value)
	require.Equal(t, 5, value.Index)
	require.ErrorAs(t, quant.PutBFloat16(dst, src), &value)
	require.Equal(t, 5, value.Index)
	// Ties go to the even one, and the largest float32 would become infinite.
	src = []float32{1, 0x1.01p0, 0x1.03p0, 0x1.030002p0, -1e9, 0x1.fep127}
	require.NoError(t, quant.PutBFloat16(dst, src))
	require.Equal(t, []byte{0x80, 0x3f, 0x80, 0x3f, 0x82, 0x3f, 0x82, 0x3f, 0x6e, 0xce, 0x7f, 0x7f}, dst)
	src[2] = 0x1.ffp127
	require.ErrorAs(t, quant.PutBFloat16(dst, src), &value)
	require.Equal(t, quant.ValueError{Index: 2, Value: 0x1.ffp127, Type: models.BFloat16}, *value)
}
