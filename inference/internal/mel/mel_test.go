package mel_test

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"touchline/inference/internal/mel"
	"touchline/models/safetensors"
)

// fixtures are sounds and their features by the official code (see testdata/README.md).
func fixtures(tb testing.TB) *safetensors.File {
	tb.Helper()
	packed, err := os.ReadFile("testdata/features.safetensors.gz")
	require.NoError(tb, err)
	z, err := gzip.NewReader(bytes.NewReader(packed))
	require.NoError(tb, err)
	raw, err := io.ReadAll(z)
	require.NoError(tb, err)
	f, err := safetensors.Parse("features", raw)
	require.NoError(tb, err)
	return f
}

// sound returns 16-bit samples as floats.
func sound(tb testing.TB, f *safetensors.File, name string) []float32 {
	tb.Helper()
	t, ok := f.Tensor(name)
	require.True(tb, ok, name)
	s := make([]float32, len(t.Data)/2)
	for i := range s {
		s[i] = float32(int16(binary.LittleEndian.Uint16(t.Data[2*i:]))) / 32768
	}
	return s
}

// bound of the differences: the official code rounds to float32 at each step, which
// shows most in bands that are far below the others. The same code in float64 differs
// from this package by 1e-6 at most.
type bound struct{ largest, mean float64 }

func compare(t *testing.T, f *safetensors.File, name string, got []float32, bound bound) {
	t.Helper()
	tensor, ok := f.Tensor(name)
	require.True(t, ok, name)
	want, err := tensor.Floats()
	require.NoError(t, err)
	require.Len(t, got, len(want))
	largest, sum := 0.0, 0.0
	for i, v := range got {
		d := math.Abs(float64(v) - float64(want[i]))
		largest, sum = max(largest, d), sum+d
	}
	t.Logf("%s %v: largest difference %.1e, mean %.1e", name, tensor.Shape, largest, sum/float64(len(got)))
	require.LessOrEqual(t, largest, bound.largest)
	require.LessOrEqual(t, sum/float64(len(got)), bound.mean)
}

func TestTheOfficialFeatures(t *testing.T) {
	f := fixtures(t)
	for _, name := range []string{"speech", "vowel", "noise101", "click", "silence"} {
		t.Run(name, func(t *testing.T) {
			samples := sound(t, f, name+".samples")
			got, err := mel.Speaker(samples)
			require.NoError(t, err)
			compare(t, f, name+".speaker", got, bound{1e-3, 3e-5})
			got, err = mel.Speech(samples)
			require.NoError(t, err)
			compare(t, f, name+".speech", got, bound{5e-5, 1e-6})
			if _, ok := f.Tensor(name + ".prompt"); !ok {
				return
			}
			got, err = mel.Prompt(samples, (len(samples)/320+1)/2)
			require.NoError(t, err)
			compare(t, f, name+".prompt", got[:len(samples)/320*mel.PromptBins], bound{1e-3, 3e-5})
		})
	}
}

func TestPromptFitsItsTokens(t *testing.T) {
	samples := noise(10 * 320)
	ten, err := mel.Prompt(samples, 5)
	require.NoError(t, err)
	require.Len(t, ten, 10*mel.PromptBins)
	more, err := mel.Prompt(samples, 6)
	require.NoError(t, err)
	last := ten[9*mel.PromptBins:]
	require.Equal(t, slices.Concat(ten, last, last), more)
	less, err := mel.Prompt(samples, 4)
	require.NoError(t, err)
	require.Equal(t, ten[:8*mel.PromptBins], less)
}

func TestShortestSounds(t *testing.T) {
	prompt := func(samples []float32) ([]float32, error) { return mel.Prompt(samples, 1) }
	for _, tt := range []struct {
		name     string
		features func([]float32) ([]float32, error)
		least    int
		want     int
	}{
		{"speaker", mel.Speaker, 400, mel.SpeakerBins},
		{"speech", mel.Speech, 201, mel.SpeechBins},
		{"prompt", prompt, 481, 2 * mel.PromptBins},
	} {
		got, err := tt.features(noise(tt.least))
		require.NoError(t, err, tt.name)
		require.Len(t, got, tt.want, tt.name)
		_, err = tt.features(noise(tt.least - 1))
		require.ErrorContains(t, err, strconv.Itoa(tt.least), tt.name)
		_, err = tt.features(nil)
		require.Error(t, err, tt.name)
	}
}

// TestStreamIsTheWhole cuts a sound at arbitrary places. After each piece, the rows so
// far and the tail are those of the sound so far.
func TestStreamIsTheWhole(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	samples := noise(12000)
	for name, open := range streams {
		t.Run(name, func(t *testing.T) {
			s, fresh := open(), open()
			for round := range 6 {
				s.Reset()
				var rows []float32
				for at := 0; at < len(samples); {
					n := min(len(samples)-at, 1+random.IntN([]int{50, 800, 9000}[round%3]))
					rows = s.Append(rows, samples[at:at+n])
					at += n
					if random.IntN(20) > 0 && at < len(samples) {
						continue
					}
					fresh.Reset()
					want := fresh.Tail(fresh.Append(nil, samples[:at]))
					require.True(t, slices.Equal(want, s.Tail(slices.Clone(rows))), "%d samples", at)
				}
			}
		})
	}
}

// TestStreamIsSpeech scales the rows of a stream as a recogniser does, in windows.
func TestStreamIsSpeech(t *testing.T) {
	samples := sound(t, fixtures(t), "speech.samples")
	want, err := mel.Speech(samples)
	require.NoError(t, err)
	s := mel.NewStream()
	require.Empty(t, s.Tail(s.Append(nil, samples[:200])), "no row yet")
	rows := s.Tail(s.Append(nil, samples[200:]))
	frames := len(rows) / mel.SpeechBins
	require.Equal(t, len(samples)/160, frames)
	const window = 100
	for from := 0; from < frames; from += window {
		n := min(window, frames-from)
		got := make([]float32, mel.SpeechBins*window)
		mel.Scale(got, window, rows[from*mel.SpeechBins:][:n*mel.SpeechBins], slices.Max(rows))
		for b := range mel.SpeechBins {
			require.Equal(t, want[b*frames+from:][:n], got[b*window:][:n])
		}
	}
}

// TestRowsOnCores: pieces of a sound on several cores have the rows of a stream, bit for bit.
func TestRowsOnCores(t *testing.T) {
	for _, n := range []int{201, 8000, 32000, 48160, 48359, 100001} {
		samples := noise(n)
		s := mel.NewStream()
		want := s.Tail(s.Append(nil, samples))
		for _, cores := range []int{1, 2, 3, 16} {
			require.True(t, slices.Equal(want, mel.SpeechRows(samples, cores)), "%d samples on %d cores", n, cores)
		}
	}
}

func TestStreamDoesNotAllocate(t *testing.T) {
	for name, open := range streams {
		s, in := open(), noise(6000)
		dst := make([]float32, 0, 100*mel.SpeechBins)
		require.Zero(t, testing.AllocsPerRun(50, func() { dst = s.Tail(s.Append(dst[:0], in)) }), name)
	}
}

func TestTransformIsTheDFT(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for _, points := range []int{2, 4, 6, 10, 16, 30, 50, 400, 512, 1920} {
		t.Run(strconv.Itoa(points), func(t *testing.T) {
			frame := make([]float64, points)
			total := 0.0
			for i := range frame {
				frame[i] = random.NormFloat64()
				total += frame[i] * frame[i]
			}
			worst := 0.0
			for k, got := range mel.Power(frame) {
				var re, im float64
				for i, v := range frame {
					sin, cos := math.Sincos(2 * math.Pi * float64(i*k%points) / float64(points))
					re += v * cos
					im += v * sin
				}
				worst = max(worst, math.Abs(got-(re*re+im*im)))
			}
			t.Logf("largest difference %.1e of the frame's energy", worst/total)
			require.Less(t, worst/total, 1e-13)
		})
	}
}

// BenchmarkTransform measures one frame.
func BenchmarkTransform(b *testing.B) {
	for _, points := range []int{400, 512, 1920} {
		b.Run(strconv.Itoa(points), func(b *testing.B) {
			power, frame := make([]float64, points/2+1), make([]float64, points)
			for i := range frame {
				frame[i] = math.Sin(float64(i * i))
			}
			transform := mel.Transform(points)
			for b.Loop() {
				transform(power, frame)
			}
		})
	}
}

var streams = map[string]func() *mel.Stream{
	"speaker": mel.NewSpeakerStream, "speech": mel.NewStream, "prompt": mel.NewPromptStream,
}

// BenchmarkStream measures a second of sound.
// BenchmarkRows measures 10 s of sound.
func BenchmarkRows(b *testing.B) {
	samples := noise(160000)
	for _, cores := range []int{1, 2} {
		b.Run(strconv.Itoa(cores), func(b *testing.B) {
			for b.Loop() {
				mel.SpeechRows(samples, cores)
			}
		})
	}
}

func BenchmarkStream(b *testing.B) {
	for name, open := range streams {
		b.Run(name, func(b *testing.B) {
			s, rate := open(), mel.Rate
			if name == "prompt" {
				rate = 24000
			}
			in := noise(rate)
			dst := make([]float32, 0, 101*mel.SpeechBins)
			b.ReportAllocs()
			for b.Loop() {
				dst = s.Append(dst[:0], in)
			}
		})
	}
}

func noise(n int) []float32 {
	random := rand.New(rand.NewPCG(3, 4))
	s := make([]float32, n)
	for i := range s {
		s[i] = float32(0.1 * random.NormFloat64())
	}
	return s
}
