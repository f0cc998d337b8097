package resample_test

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"touchline/internal/resample"
)

// sine is a tone at amplitude a.
func sine(rate, n int, freq, a float64) []int16 {
	s := make([]int16, n)
	for i := range s {
		s[i] = int16(math.RoundToEven(a * math.Sin(2*math.Pi*freq*float64(i)/float64(rate))))
	}
	return s
}

// window is Blackman-Harris with four terms: side lobes at -92 dB.
func window(i, n int) float64 {
	x := 2 * math.Pi * float64(i) / float64(n)
	return 0.35875 - 0.48829*math.Cos(x) + 0.14128*math.Cos(2*x) - 0.01168*math.Cos(3*x)
}

// amplitude measures one frequency of 48 kHz sound.
func amplitude(s []int16, freq float64) float64 {
	var re, im, sum float64
	for i, v := range s {
		w := window(i, len(s))
		sin, cos := math.Sincos(2 * math.Pi * freq * float64(i) / 48000)
		re += float64(v) * w * cos
		im += float64(v) * w * sin
		sum += w
	}
	return 2 * math.Hypot(re, im) / sum
}

// residue returns the RMS of distortion and noise: the rest without the best fitting
// sine of that frequency.
func residue(s []int16, freq float64) float64 {
	var a, b float64
	n := float64(len(s))
	for i, v := range s {
		sin, cos := math.Sincos(2 * math.Pi * freq * float64(i) / 48000)
		a += float64(v) * sin * 2 / n
		b += float64(v) * cos * 2 / n
	}
	sum := 0.0
	for i, v := range s {
		sin, cos := math.Sincos(2 * math.Pi * freq * float64(i) / 48000)
		d := float64(v) - a*sin - b*cos
		sum += d * d
	}
	return math.Sqrt(sum / n)
}

func dB(x float64) float64 { return 20 * math.Log10(x) }

func convert(tb testing.TB, rate int, in []int16) []int16 {
	tb.Helper()
	out, err := resample.All(in, rate, 48000)
	require.NoError(tb, err)
	return out
}

func stream(tb testing.TB, from, to int) *resample.Resampler[int16] {
	tb.Helper()
	f, err := resample.NewFilter(from, to)
	require.NoError(tb, err)
	return resample.New[int16](f)
}

func TestResamplerQuality(t *testing.T) {
	const a = 0.7 * 32767
	for _, rate := range []int{8000, 16000, 22050, 24000, 44100, 96000, 12347, 44099, 47999, 95999} {
		t.Run(strconv.Itoa(rate), func(t *testing.T) {
			nyquist := math.Min(float64(rate)/2, 24000)
			ripple, thd, image := 0.0, -200.0, -200.0
			for _, part := range []float64{0.02, 0.1, 0.3, 0.5, 0.7, 0.8} {
				// Whole periods in the 9600 samples measured.
				freq := math.Round(part*nyquist/5) * 5
				out := convert(t, rate, sine(rate, rate, freq, a))[9600:19200]
				ripple = math.Max(ripple, math.Abs(dB(amplitude(out, freq)/a)))
				thd = math.Max(thd, dB(residue(out, freq)/(a/math.Sqrt2)))
				if f := float64(rate) - freq; f < 24000 {
					image = math.Max(image, dB(amplitude(out, f)/a))
				}
			}
			edge := math.Round(0.9*nyquist/5) * 5
			out := convert(t, rate, sine(rate, rate, edge, a))[9600:19200]
			t.Logf("ripple to 0.8 Nyquist %.4f dB, THD+N %.1f dB, images %.1f dB, at 0.9 Nyquist %.1f dB",
				ripple, thd, image, dB(amplitude(out, edge)/a))
			require.Less(t, ripple, 0.01)
			require.Less(t, thd, -85.0)
			require.Less(t, image, -85.0)
			require.Greater(t, dB(amplitude(out, edge)/a), -4.0)
		})
	}
	// Down: frequencies beyond 48 kHz sound do not alias.
	out := convert(t, 96000, sine(96000, 96000, 30000, a))[9600:19200]
	require.Less(t, dB(amplitude(out, 18000)/a), -75.0)
}

func TestResamplerPlacesSamples(t *testing.T) {
	for _, rate := range []int{8000, 16000, 22050, 24000, 44100, 48000, 96000, 12347, 47999, 48001, 191999} {
		in := make([]int16, rate)
		in[rate/2] = 20000
		out := convert(t, rate, in)
		require.Len(t, out, 48000, "%d", rate)
		at := slices.Index(out, slices.Max(out))
		require.InDelta(t, float64(rate/2)*48000/float64(rate), at, 1, "%d", rate)
	}
}

func TestResamplerPassesDCAndClips(t *testing.T) {
	for _, rate := range []int{16000, 22050, 44100, 12347} {
		out := convert(t, rate, slices.Repeat([]int16{12345}, rate/2))
		for _, v := range out[4800:19200] {
			require.InDelta(t, 12345, v, 1)
		}
		square := make([]int16, rate)
		for i := range square {
			square[i] = math.MaxInt16
			if i/100%2 == 1 {
				square[i] = math.MinInt16
			}
		}
		out = convert(t, rate, square)
		require.Equal(t, int16(math.MaxInt16), slices.Max(out))
		require.Equal(t, int16(math.MinInt16), slices.Min(out))
	}
}

// TestDown converts to the rates of the models: no ripple, nothing of the frequencies beyond them.
func TestDown(t *testing.T) {
	const a = 0.7 * 32767
	for _, tt := range []struct{ from, to int }{
		{48000, 16000},
		{44100, 16000},
		{24000, 16000},
		{22050, 16000},
		{192000, 16000},
		{48000, 24000},
		{16000, 24000},
		{8000, 16000},
		{12347, 16000},
		{16001, 16000},
		{44056, 16000},
		{191999, 16000},
	} {
		t.Run(strconv.Itoa(tt.from)+" to "+strconv.Itoa(tt.to), func(t *testing.T) {
			from, err := resample.All(sine(tt.from, 2*tt.from, 1000, a), tt.from, tt.to)
			require.NoError(t, err)
			require.Len(t, from, 2*tt.to)
			n := tt.to / 5
			require.Less(t, dB(rms(from[n:6*n], sine(tt.to, 6*n, 1000, a)[n:])/(a/math.Sqrt2)), -75.0)
			if 1.1*float64(tt.to) > float64(tt.from) { // no sound is beyond
				return
			}
			beyond, err := resample.All(sine(tt.from, tt.from, 0.55*float64(tt.to), a), tt.from, tt.to)
			require.NoError(t, err)
			require.Less(t, dB(rms(beyond[n:4*n], make([]int16, 3*n))/(a/math.Sqrt2)), -75.0)
		})
	}
}

// rms of a difference.
func rms(a, b []int16) float64 {
	sum := 0.0
	for i, v := range a {
		d := float64(v) - float64(b[i])
		sum += d * d
	}
	return math.Sqrt(sum / float64(len(a)))
}

func TestFloatsAreNotRounded(t *testing.T) {
	in := noise(16000)
	floats := make([]float32, len(in))
	for i, v := range in {
		floats[i] = float32(v) / 32768
	}
	rounded, err := resample.All(in, 16000, 24000)
	require.NoError(t, err)
	out, err := resample.All(floats, 16000, 24000)
	require.NoError(t, err)
	require.Len(t, out, len(rounded))
	for i, v := range out {
		require.InDelta(t, rounded[i], 32768*v, 0.51)
	}
	loud, err := resample.All([]float32{0, 8, 8, 8, 0}, 16000, 24000)
	require.NoError(t, err)
	require.Greater(t, slices.Max(loud), float32(8), "no limit")
}

// TestTorchFilter compares with torchaudio.transforms.Resample of two samples (torchaudio 2.11.0).
func TestTorchFilter(t *testing.T) {
	in := make([]float32, 40)
	in[20], in[21] = 1, -0.5
	for _, tt := range []struct {
		from, to int
		first    int
		want     []float32
	}{
		{16000, 24000, 21, []float32{
			-0.000002, -0.001615, 0.008198, -0.002951, -0.038023, 0.077588, -0.010076, -0.216618, 0.476209, 0.985329,
			-0.001877, -0.586354, -0.012211, 0.134294, -0.070763, -0.00512, 0.02139, -0.007053, -0.000369, 0.000275,
		}},
		{48000, 16000, 1, []float32{
			-0.000183, 0.002519, -0.008547, 0.020529, -0.045524, 0.133789, 0.106943, -0.061037, 0.026709, -0.011707, 0.004056, -0.000661,
		}},
		{44100, 16000, 2, []float32{
			-0.000431, 0.001808, -0.004729, 0.01105, -0.028977, 0.23569, -0.028852, -0.007077, 0.004258, -0.001647, 0.000181, 0.000169,
		}},
	} {
		f, err := resample.NewTorchFilter(tt.from, tt.to)
		require.NoError(t, err)
		r := resample.New[float32](f)
		out := r.Flush(r.Append(nil, in))
		want := make([]float32, len(out))
		copy(want[tt.first:], tt.want)
		require.InDeltaSlice(t, want, out, 1e-6, "%d to %d", tt.from, tt.to)
	}
}

// TestOddRates converts a tone of a second from many rates: length, pitch and level stay.
func TestOddRates(t *testing.T) {
	const a, freq, to = 0.7 * 32767, 1000, 16000
	rates := []int{4000, 4001, 12345, 12347, 15999, 16001, 47999, 48001, 191999, 192000}
	for rate := 4003; rate < 192000; rate += 19997 {
		rates = append(rates, rate)
	}
	want := sine(to, to, freq, a)
	for _, rate := range rates {
		out, err := resample.All(sine(rate, rate, freq, a), rate, to)
		require.NoError(t, err, "%d", rate)
		require.Len(t, out, to, "%d", rate)
		n := to / 10 // the edges of the sound are those of silence
		// A ratio that is wrong by a millionth would be at -45 dB after a second.
		require.Less(t, dB(rms(out[n:to-n], want[n:])/(a/math.Sqrt2)), -75.0, "%d", rate)
	}
}

// TestOddRateStaysInStep converts a minute: a click near its end is where it belongs.
func TestOddRateStaysInStep(t *testing.T) {
	const rate, seconds = 12347, 60
	in := make([]int16, rate*seconds)
	in[rate*(seconds-1)] = 20000
	out, err := resample.All(in, rate, 16000)
	require.NoError(t, err)
	require.Len(t, out, 16000*seconds)
	require.Equal(t, 16000*(seconds-1), slices.Index(out, slices.Max(out)))
}

func TestRatesBeyondTheLimits(t *testing.T) {
	for _, tt := range []struct {
		from, to int
		want     string
	}{
		{3999, 16000, "sample rate 3999 Hz"}, {16000, 200000, "sample rate 200000 Hz"}, {0, 16000, "sample rate 0 Hz"},
	} {
		_, err := resample.All([]int16{1}, tt.from, tt.to)
		require.ErrorContains(t, err, tt.want)
	}
	same, err := resample.All([]int16{1, 2, 3}, 16000, 16000)
	require.NoError(t, err)
	require.Equal(t, []int16{1, 2, 3}, same)
	none, err := resample.All[int16](nil, 16000, 24000)
	require.NoError(t, err)
	require.Empty(t, none)
}

func TestResamplerDoesNotAllocate(t *testing.T) {
	r := stream(t, 22050, 48000)
	in, out := noise(441), make([]int16, 0, 1024)
	for range 10 {
		out = r.Append(out[:0], in)
	}
	require.Zero(t, testing.AllocsPerRun(100, func() { out = r.Append(out[:0], in) }))
}

// FuzzResamplerChunks cuts a sound at arbitrary places: the output is identical.
func FuzzResamplerChunks(f *testing.F) {
	f.Add(uint8(0), []byte{1, 2, 3})
	f.Add(uint8(1), []byte{255, 0, 0, 7, 31})
	f.Add(uint8(4), []byte{1})
	f.Add(uint8(5), []byte{64, 64, 64, 64, 200})
	f.Add(uint8(6), []byte{3, 9})
	f.Add(uint8(9), []byte{3, 9, 200, 1})
	rates := []int{8000, 16000, 22050, 24000, 44100, 48000, 96000, 11025, 192000, 12345}
	f.Fuzz(func(t *testing.T, which uint8, cuts []byte) {
		filter, err := resample.NewFilter(rates[int(which)%len(rates)], 48000)
		require.NoError(t, err)
		r := resample.New[int16](filter)
		in := noise(3000)
		for i := 0; i+1 < len(cuts); i += 2 {
			in[i%len(in)] = int16(binary.LittleEndian.Uint16(cuts[i:]))
		}
		whole := r.Flush(r.Append(nil, in))
		var parts []int16
		rest := in
		for i := 0; len(rest) > 0; i++ {
			n := len(rest)
			if i < len(cuts) {
				n = min(n, int(cuts[i]))
			}
			parts = r.Append(parts, rest[:n])
			rest = rest[n:]
		}
		parts = r.Flush(parts)
		require.Equal(t, whole, parts)
		require.Empty(t, r.Flush(nil))
	})
}

// BenchmarkResampler measures 20 ms of sound.
func BenchmarkResampler(b *testing.B) {
	for _, rate := range []int{16000, 22050, 24000, 44100, 48000, 12347} {
		b.Run(strconv.Itoa(rate), func(b *testing.B) {
			r := stream(b, rate, 48000)
			in := noise(rate / 50)
			out := make([]int16, 0, 1024)
			b.ReportAllocs()
			for b.Loop() {
				out = r.Append(out[:0], in)
			}
		})
	}
}

// BenchmarkFilter measures the computation of tables.
func BenchmarkFilter(b *testing.B) {
	for _, rate := range []int{22050, 44100, 12347, 191999} {
		b.Run(strconv.Itoa(rate), func(b *testing.B) {
			for b.Loop() {
				_, err := resample.NewFilter(rate, 16000)
				require.NoError(b, err)
			}
		})
	}
}

func noise(n int) []int16 {
	r := rand.New(rand.NewPCG(1, 2))
	s := make([]int16, n)
	for i := range s {
		s[i] = int16(r.IntN(20000) - 10000)
	}
	return s
}
