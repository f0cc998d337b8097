package mel_test

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"touchline/inference/internal/mel"
)

// say returns the speech of a text by flite, at 16 kHz.
func say(tb testing.TB, voice, text string) []float32 {
	tb.Helper()
	path := filepath.Join(tb.TempDir(), "a.wav")
	out, err := exec.CommandContext(tb.Context(), "flite", "-voice", voice, "-t", text, "-o", path).CombinedOutput()
	require.NoError(tb, err, "install flite: %s", out)
	raw, err := os.ReadFile(path)
	require.NoError(tb, err)
	require.EqualValues(tb, 16000, binary.LittleEndian.Uint32(raw[24:]))
	s := make([]float32, (len(raw)-44)/2)
	for i := range s {
		s[i] = float32(int16(binary.LittleEndian.Uint16(raw[44+2*i:]))) / 32768
	}
	return s
}

const commentary = "The red team moves down the left side, looking for an opening. Number nine turns, and shoots. " +
	"What a save by the keeper! They start again from the back."

func silence(seconds float64) []float32 { return make([]float32, int(16000*seconds)) }

func times(s []float32, gain float32) []float32 {
	s = slices.Clone(s)
	for i, v := range s {
		s[i] = min(max(v*gain, -1), 1)
	}
	return s
}

func plus(s []float32, hiss float64) []float32 {
	random := rand.New(rand.NewPCG(7, 8))
	s = slices.Clone(s)
	for i := range s {
		s[i] += float32(hiss * random.NormFloat64())
	}
	return s
}

func TestCheckReference(t *testing.T) {
	speech := say(t, "slt", commentary)
	short := say(t, "slt", "The red team moves down.")
	broken := slices.Clone(speech)
	broken[20000] = float32(math.NaN())
	for _, tt := range []struct {
		name string
		in   []float32
		want error
		text string
	}{
		{"speech", speech, nil, ""},
		{"another voice", say(t, "rms", commentary), nil, ""},
		{"soft", times(speech, 0.1), nil, ""},
		{"with hiss", plus(speech, 0.01), nil, ""},
		{"with long silence", slices.Concat(silence(20), speech, silence(20)), nil, ""},
		{"at full scale but not beyond", times(speech, 1/slices.Max(speech)), nil, ""},
		{"nothing", nil, mel.ErrShort, "0.0 s; use 3 s of speech or more"},
		{"short", short, mel.ErrShort, "use 3 s"},
		{"short in silence", slices.Concat(silence(4), short, silence(4)), mel.ErrShort, "s without the silence"},
		{"silence", silence(5), mel.ErrSilent, "-100 dBFS"},
		{"hiss", plus(silence(5), 0.001), mel.ErrSilent, "-60 dBFS"},
		{"too soft", times(speech, 0.01), mel.ErrSilent, "above -46 dBFS"},
		{"too loud", times(speech, 4), mel.ErrClipped, "at full scale"},
		{"square", times(plus(silence(5), 1), 1000), mel.ErrClipped, "99.9 %"},
		{"integers", slices.Repeat([]float32{0, 3000}, 40000), nil, "not between -1 and 1"},
		{"not a number", broken, nil, "at 1.25 s are not between -1 and 1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := mel.CheckReference(tt.in, 16000)
			if tt.text == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, "reference voice: ")
			require.ErrorContains(t, err, tt.text)
			if tt.want != nil {
				require.ErrorIs(t, err, tt.want)
			}
			t.Log(err)
		})
	}
	require.ErrorContains(t, mel.CheckReference(speech, 0), "sample rate 0 Hz")
	require.NoError(t, mel.CheckReference(speech, 22050), "220.5 samples in a block")
	require.ErrorIs(t, mel.CheckReference(speech, 48000), mel.ErrShort)
}

func TestCutReference(t *testing.T) {
	for _, voice := range []string{"slt", "rms", "awb", "kal16"} {
		t.Run(voice, func(t *testing.T) {
			speech := say(t, voice, commentary)
			for _, tokens := range []int{mel.LongReference, mel.ShortReference} {
				part := mel.CutReference(speech, tokens)
				require.Len(t, part, tokens*640)
				first := decibels(level(speech) / level(part[:480]))
				last := decibels(level(speech) / level(part[len(part)-480:]))
				t.Logf("%d tokens of %.2f s; the cuts are %.0f and %.0f dB below the speech", tokens, float64(len(speech))/16000, first, last)
				require.Greater(t, min(first, last), 15.0)
			}
		})
	}
}

func TestCutReferenceTakesTheSound(t *testing.T) {
	random := rand.New(rand.NewPCG(9, 10))
	tone := func(seconds float64) []float32 {
		s := silence(seconds)
		for i := range s {
			s[i] = float32(0.2*math.Sin(float64(i)/20) + 0.001*random.NormFloat64())
		}
		return s
	}
	at := func(s, part []float32) float64 { return float64(cap(s)-cap(part)) / 16000 }
	const anywhere = -1
	for _, tt := range []struct {
		name   string
		in     []float32
		tokens int
		want   int
		at     float64
	}{
		{"exactly 3 s", tone(3), 150, 75, 0},
		{"exactly 6 s", tone(6), 150, 150, 0},
		{"short of 6 s", tone(5.9), 150, 75, anywhere},
		{"the limit", tone(8), 75, 75, anywhere},
		{"from silence to silence", slices.Concat(tone(2), silence(0.5), tone(2.8), silence(0.5), tone(4)), 75, 75, 2.4},
		{"long but little sound", slices.Concat(silence(5), tone(3), silence(5)), 150, 75, 5},
		{"long", slices.Concat(silence(5), tone(6), silence(5)), 150, 150, 5},
		{"less than 3 s", tone(2.9), 150, 0, 0},
		{"nothing", nil, 150, 0, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			part := mel.CutReference(slices.Clip(tt.in), tt.tokens)
			require.Len(t, part, tt.want*640)
			if tt.want > 0 && tt.at != anywhere {
				require.InDelta(t, tt.at, at(slices.Clip(tt.in), part), 0.11)
			}
		})
	}
}

func level(s []float32) float64 {
	sum := 0.0
	for _, v := range s {
		sum += float64(v) * float64(v)
	}
	return math.Sqrt(sum / float64(len(s)))
}

func decibels(x float64) float64 { return 20 * math.Log10(x) }
