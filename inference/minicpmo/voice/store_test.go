package voice_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"touchline/inference/conformance/stages"
	"touchline/inference/conformance/synth"
	"touchline/inference/internal/mel"
	"touchline/inference/internal/ort"
	"touchline/inference/internal/ort/orttest"
	"touchline/inference/minicpmo/voice"
	"touchline/inference/minicpmo/voice/tts"
	"touchline/models"
	"touchline/models/convert"
	"touchline/models/disk"
)

// withVoice converts the tiny random checkpoint with a voice, for one test.
func withVoice(tb testing.TB) *models.Bundle {
	tb.Helper()
	shape, err := synth.Find("tiny")
	require.NoError(tb, err)
	return converted(tb, shape.WithSpeech())
}

// silent converts the checkpoint without a voice.
func silent(tb testing.TB) *models.Bundle {
	tb.Helper()
	shape, err := synth.Find("tiny")
	require.NoError(tb, err)
	return converted(tb, shape)
}

func converted(tb testing.TB, shape synth.Shape) *models.Bundle {
	tb.Helper()
	src, err := synth.New(shape, 1)
	require.NoError(tb, err)
	dir := filepath.Join(tb.TempDir(), "bundle")
	require.NoError(tb, convert.Convert(tb.Context(), src, dir, convert.Options{
		Weights: []models.Weights{models.WeightsFloat32}, Devices: []models.Device{models.DeviceCPU},
	}))
	b, err := models.OpenBundle(dir)
	require.NoError(tb, err)
	return b
}

// hummed is a sound like speech, with a pause of half a second after every 2.5 s of it.
func hummed(seconds float64, rate int, pitch float64) []float32 {
	out := make([]float32, int(seconds*float64(rate)))
	for i := range out {
		at := float64(i) / float64(rate)
		if math.Mod(at, 3) > 2.5 {
			continue
		}
		x := 0.0
		for k := 1.0; k < 20; k++ {
			x += math.Sin(2*math.Pi*k*pitch*at) / k
		}
		out[i] = float32(0.1 * x * (1.2 + math.Sin(20*at)))
	}
	return out
}

// wavFile is a WAV file of 16 bits.
func wavFile(rate int, samples []float32) []byte {
	u32 := binary.LittleEndian.AppendUint32
	b := u32(u32([]byte("RIFF\x00\x00\x00\x00WAVEfmt \x10\x00\x00\x00\x01\x00\x01\x00"), uint32(rate)), uint32(2*rate))
	b = u32(append(b, "\x02\x00\x10\x00data"...), uint32(2*len(samples)))
	for _, v := range samples {
		b = binary.LittleEndian.AppendUint16(b, uint16(int16(math.Round(float64(v)*(1<<15-1)))))
	}
	return b
}

func TestMakeVoice(t *testing.T) {
	library, b := orttest.Library(t), withVoice(t)
	orttest.NoLeaks(t)
	flow := b.Manifest.Dims.Speech.Flow
	speech := hummed(9, mel.Rate, 120)
	made := func(samples []float32, rate, codes int) voice.Reference {
		v, err := voice.Make(t.Context(), library, b, samples, rate, codes)
		require.NoError(t, err)
		require.Len(t, v.Codes, codes)
		require.Len(t, v.Mel, 2*codes*flow.Mel)
		require.Len(t, v.Speaker, flow.Speaker)
		return v
	}
	long := made(speech, mel.Rate, voice.Long)
	want, err := mel.Prompt(mel.CutReference(speech, voice.Long), voice.Long)
	require.NoError(t, err)
	require.Equal(t, want, long.Mel)
	require.Greater(t, len(slices.Compact(slices.Sorted(slices.Values(long.Codes)))), 50, "the codes follow the sound")
	require.Equal(t, long, made(speech, mel.Rate, voice.Long))

	short := made(speech, mel.Rate, voice.Short)
	require.NotEqual(t, long.Speaker, short.Speaker)
	other := made(hummed(9, 44100, 90), 44100, voice.Long)
	require.NotEqual(t, long.Speaker, other.Speaker)
	require.NotEqual(t, long.Codes, other.Codes)
	near := func(a, b []float32) (worst float64) {
		for i := range a {
			worst = max(worst, math.Abs(float64(a[i]-b[i])))
		}
		return worst
	}
	for _, rate := range []int{48000, 47999, 12347} {
		resampled := made(hummed(9, rate, 120), rate, voice.Long)
		t.Logf("%d Hz: %g of %g", rate, near(long.Speaker, resampled.Speaker), near(long.Speaker, other.Speaker))
		require.Less(t, near(long.Speaker, resampled.Speaker), near(long.Speaker, other.Speaker)/4, "the same sound at %d Hz", rate)
	}
}

// TestMadeVoiceSpeaks: what Make makes is what the networks of the sound take.
func TestMadeVoiceSpeaks(t *testing.T) {
	library, b := orttest.Library(t), withVoice(t)
	v, err := voice.Make(t.Context(), library, b, hummed(4, mel.Rate, 120), mel.Rate, voice.Short)
	require.NoError(t, err)
	var files [5]string
	for i, kind := range []models.Kind{models.KindFlowEncoder, models.KindFlowDiT, models.KindFlowDiTOnce, models.KindVocoder, models.KindVocoderTail} {
		g, ok := b.Find(kind, models.WeightsFloat32, models.DeviceCPU)
		require.True(t, ok, kind)
		files[i] = b.Path(g.File)
	}
	s := *b.Manifest.Dims.Speech
	noise := voice.Noise{
		Flow:    stages.Noise((2*voice.Short+150)*s.Flow.Mel, 1),
		Vocoder: stages.Noise(models.FrameSamples*models.NoiseColumns*chunkAndKept, 2), Rows: func(int, int) int { return 0 },
	}
	rt, err := ort.Open(library)
	require.NoError(t, err)
	dev, err := rt.NewDevice(ort.CPU, 0)
	require.NoError(t, err)
	w, err := voice.OpenWave(rt, dev, voice.WaveOptions{
		Files: files, Float: models.Float32, Dims: s, Slots: 1, Prompt: 2 * voice.Short, Threads: 1, Noise: noise,
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, errors.Join(w.Close(), dev.Close(), rt.Close())) })
	require.NoError(t, w.AddVoice("made", v))
	require.NoError(t, w.Begin(0, "made"))
	jobs := []tts.Job{{Codes: v.Codes[:tts.WindowCodes], First: true}}
	w.Run(jobs)
	require.NoError(t, jobs[0].Err)
	loudest := slices.Max(jobs[0].Wave)
	require.Positive(t, loudest)
	require.False(t, math.IsNaN(float64(loudest)))
}

// chunkAndKept is the frames that the vocoder takes at once.
const chunkAndKept = models.ChunkFrames + models.VocoderKept

func TestMakeVoiceRefuses(t *testing.T) {
	library, b := orttest.Library(t), withVoice(t)
	orttest.NoLeaks(t)
	good := hummed(9, mel.Rate, 120)
	loud, soft := slices.Clone(good), slices.Clone(good)
	for i := range good {
		loud[i] = max(-1, min(1, 20*good[i]))
		soft[i] = good[i] / 1000
	}
	broken := slices.Clone(good)
	broken[len(broken)/2] = float32(math.NaN())
	for _, tt := range []struct {
		name    string
		samples []float32
		rate    int
		codes   int
		err     string
	}{
		{"nothing", nil, mel.Rate, 75, "too short"},
		{"too short for any", good[:2*mel.Rate], mel.Rate, 75, "use 3 s of speech or more"},
		{"too short for 150", good[:5*mel.Rate], mel.Rate, 150, "150 codes need about 6 s of speech: use a longer recording, or `--codes 75`"},
		{"clipped", loud, mel.Rate, 150, "clipped"},
		{"silence", soft, mel.Rate, 150, "too soft"},
		{"not numbers", broken, mel.Rate, 150, "not between -1 and 1"},
		{"no rate", good, 0, 150, "sample rate 0 Hz"},
		{"too low a rate", hummed(9, 3999, 120), 3999, 150, "sample rate 3999 Hz"},
		{"endless", make([]float32, 601*4000), 4000, 150, "longer than 600 s"},
		{"other codes", good, mel.Rate, 100, "codes must be 150 or 75, is 100"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := voice.Make(t.Context(), library, b, tt.samples, tt.rate, tt.codes)
			require.ErrorContains(t, err, tt.err)
			require.Equal(t, strings.Contains(tt.err, "150 codes") || tt.codes == 75, err != nil && isShort(err))
		})
	}
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := voice.Make(cancelled, library, b, good, mel.Rate, 150)
	require.ErrorIs(t, err, context.Canceled)
	_, err = voice.Make(t.Context(), library, silent(t), good, mel.Rate, 150)
	require.ErrorContains(t, err, "this model has no voice: convert a checkpoint")
	_, err = voice.Make(t.Context(), t.TempDir(), b, good, mel.Rate, 150)
	require.ErrorContains(t, err, "no ONNX Runtime")
	limited := *b
	speech := *b.Manifest.Dims.Speech
	speech.Flow.MaxPrompt = 100
	limited.Manifest.Dims.Speech = &speech
	_, err = voice.Make(t.Context(), library, &limited, good, mel.Rate, 150)
	require.ErrorContains(t, err, "at most 100")
	require.NoError(t, os.WriteFile(b.Path(b.Manifest.Voice.Codes), []byte("no model"), 0o600))
	_, err = voice.Make(t.Context(), library, b, good, mel.Rate, 150)
	require.ErrorContains(t, err, b.Manifest.Voice.Codes)
}

// isShort reports whether an error is ErrShort.
func isShort(err error) bool { return strings.Contains(err.Error(), voice.ErrShort.Error()) }

// invented is a voice that fits a model.
func invented(m *models.Manifest, codes int) voice.Stored {
	f := m.Dims.Speech.Flow
	v := voice.Stored{Source: "5e0bd"}
	for i := range codes {
		v.Codes = append(v.Codes, int32(i))
		for k := range 2 * f.Mel {
			v.Mel = append(v.Mel, float32(i)+float32(k)/1000)
		}
	}
	for i := range f.Speaker {
		v.Speaker = append(v.Speaker, float32(i))
	}
	return v
}

func TestStoredVoices(t *testing.T) {
	b := withVoice(t)
	names, err := voice.Names(b)
	require.NoError(t, err)
	require.Empty(t, names)
	_, err = voice.Read(b, "anna")
	require.ErrorContains(t, err, `no voice "anna", it has none`)

	long, short := invented(&b.Manifest, 150), invented(&b.Manifest, 75)
	require.NoError(t, voice.Save(b, "anna", short))
	require.NoError(t, voice.Save(b, "anna", long), "in place of the other")
	require.NoError(t, voice.Save(b, "Bob_2-x", short))
	require.NoError(t, os.WriteFile(b.Path("voices/note.txt"), nil, 0o600))
	require.NoError(t, os.WriteFile(b.Path("voices/no name.safetensors"), nil, 0o600))
	names, err = voice.Names(b)
	require.NoError(t, err)
	require.Equal(t, []string{"Bob_2-x", "anna"}, names)
	entries, err := os.ReadDir(b.Path("voices"))
	require.NoError(t, err)
	require.Len(t, entries, 4, "no temporary file is left")

	got, err := voice.Read(b, "anna")
	require.NoError(t, err)
	require.Equal(t, long, got)
	whole, err := voice.Load(b, "anna", 150)
	require.NoError(t, err)
	require.Equal(t, long.Reference, whole)
	last, err := voice.Load(b, "anna", 75)
	require.NoError(t, err)
	require.Equal(t, long.Codes[75:], last.Codes)
	require.Equal(t, long.Mel[len(long.Mel)/2:], last.Mel)
	require.Equal(t, long.Speaker, last.Speaker)
	_, err = voice.Load(b, "Bob_2-x", 150)
	require.ErrorIs(t, err, voice.ErrShort)
	require.ErrorContains(t, err, `voice "Bob_2-x": too short: it has 75 codes`)
	_, err = voice.Load(b, "cleo", 75)
	require.ErrorContains(t, err, "it has Bob_2-x, anna")

	require.NoError(t, disk.Verify(t.Context(), b, nil), "voices do not change the bundle")
	require.NoError(t, voice.Remove(b, "anna"))
	require.ErrorContains(t, voice.Remove(b, "anna"), `no voice "anna"`)
	for _, name := range []string{"", "a b", "../anna", "ä", ".x", strings.Repeat("a", 65)} {
		require.ErrorContains(t, voice.Save(b, name, short), "letters, digits, - and _", name)
		_, err := voice.Read(b, name)
		require.Error(t, err, name)
		require.Error(t, voice.Remove(b, name), name)
	}
	require.NoError(t, voice.Save(b, strings.Repeat("a", 64), short))
	require.ErrorContains(t, voice.Save(silent(t), "anna", short), "this model has no voice")
}

// broken are changes to a voice's file, with what its error says.
func broken(m *models.Manifest) map[string]func(content []byte) []byte {
	replace := func(from, to string) func([]byte) []byte {
		return func(b []byte) []byte { return bytes.Replace(b, []byte(from), []byte(to), 1) }
	}
	f := m.Dims.Speech.Flow
	number := func(fromEnd int, v uint32) func([]byte) []byte {
		return func(b []byte) []byte {
			binary.LittleEndian.PutUint32(b[len(b)-4*fromEnd:], v)
			return b
		}
	}
	codes := f.Speaker + 2*75*f.Mel + 75
	return map[string]func([]byte) []byte{
		"truncated":                  func(b []byte) []byte { return b[:len(b)/2] },
		"expected at least 8 bytes":  func([]byte) []byte { return nil },
		"header length":              func([]byte) []byte { return bytes.Repeat([]byte("text"), 100) },
		"larger than":                func([]byte) []byte { return make([]byte, 2<<20) },
		`expected a voice of format`: replace(`touchline_voice":"1"`, `touchline_voice":"2"`),
		"expected a voice of the model": func(b []byte) []byte {
			return replace(`model":"`+m.Name[:1], `model":"_`)(b)
		},
		"codes":                       replace(`"codes":{"dtype":"I32"`, `"codes":{"dtype":"F32"`),
		"float32 of shape [150 80]":   replace(`"mel"`, `"men"`),
		"some numbers are not finite": number(f.Speaker+1, 0x7fc00000),
		"code 0 must be below":        number(codes, uint32(f.Codes)),
		"is -1":                       number(codes, 0xffffffff),
	}
}

func TestBadVoicesAreRefused(t *testing.T) {
	b := withVoice(t)
	for want, change := range broken(&b.Manifest) {
		t.Run(want, func(t *testing.T) {
			require.NoError(t, voice.Save(b, "bad", invented(&b.Manifest, 75)))
			path := b.Path("voices/bad.safetensors")
			content, err := os.ReadFile(path)
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(path, change(content), 0o600))
			_, err = voice.Load(b, "bad", 75)
			require.ErrorContains(t, err, want)
			require.ErrorContains(t, err, path)
			require.ErrorContains(t, err, `voice "bad"`)
			require.ErrorContains(t, err, "models voice remove")
		})
	}
	require.NoError(t, voice.Remove(b, "bad"))

	for name, change := range map[string]func(v *voice.Stored){
		"must be 150 or 75, got 10": func(v *voice.Stored) { v.Codes = v.Codes[:10] },
		"mel":                       func(v *voice.Stored) { v.Mel = v.Mel[1:] },
		"speaker: must have":        func(v *voice.Stored) { v.Speaker = nil },
		"all numbers are 0":         func(v *voice.Stored) { clear(v.Speaker) },
	} {
		v := invented(&b.Manifest, 75)
		change(&v)
		require.ErrorContains(t, voice.Save(b, "bad", v), name)
	}
	require.NoError(t, os.Mkdir(b.Path("voices/folder.safetensors"), 0o755))
	_, err := voice.Read(b, "folder")
	require.ErrorContains(t, err, "is a directory")
	require.NoError(t, os.RemoveAll(b.Path("voices")))
	require.NoError(t, os.WriteFile(b.Path("voices"), nil, 0o600))
	require.Error(t, voice.Save(b, "good", invented(&b.Manifest, 75)))
	_, err = voice.Names(b)
	require.Error(t, err)
}

func TestDefaultVoice(t *testing.T) {
	library, b := orttest.Library(t), withVoice(t)
	orttest.NoLeaks(t)
	v, err := voice.LoadDefault(t.Context(), library, b, 75)
	require.NoError(t, err)
	stored, err := voice.Read(b, "default")
	require.NoError(t, err)
	require.Equal(t, v, stored.Reference)
	again, err := voice.LoadDefault(t.Context(), t.TempDir(), b, 75)
	require.NoError(t, err, "without ONNX Runtime, as it is stored")
	require.Equal(t, v, again)

	_, err = voice.LoadDefault(t.Context(), library, b, 150)
	require.ErrorIs(t, err, voice.ErrShort, "the published sound has 3 s")
	sound := wavFile(22050, hummed(9, 22050, 120))
	require.NoError(t, os.WriteFile(b.Path(b.Manifest.Voice.Sound), sound, 0o600))
	v, err = voice.LoadDefault(t.Context(), library, b, 150)
	require.NoError(t, err, "made again with more codes")
	require.Len(t, v.Codes, 150)

	require.NoError(t, voice.Save(b, "default", invented(&b.Manifest, 75)))
	_, err = voice.LoadDefault(t.Context(), library, b, 150)
	require.ErrorIs(t, err, voice.ErrShort, "a voice that was added stays")
	require.NoError(t, os.WriteFile(b.Path("voices/default.safetensors"), []byte("damaged!"), 0o600))
	_, err = voice.LoadDefault(t.Context(), library, b, 75)
	require.ErrorContains(t, err, "models voice remove")
	require.NoError(t, voice.Remove(b, "default"))

	require.NoError(t, os.WriteFile(b.Path(b.Manifest.Voice.Sound), []byte("no sound"), 0o600))
	_, err = voice.LoadDefault(t.Context(), library, b, 75)
	require.ErrorContains(t, err, "RIFF")
	b.Manifest.Voice.Sound = ""
	_, err = voice.LoadDefault(t.Context(), library, b, 75)
	require.ErrorContains(t, err, "touchline models voice add")
	_, err = voice.LoadDefault(t.Context(), library, silent(t), 75)
	require.ErrorContains(t, err, "this model has no voice")
}

// TestDefaultVoiceOfAReadOnlyBundle: it is made, and not stored.
func TestDefaultVoiceOfAReadOnlyBundle(t *testing.T) {
	library, b := orttest.Library(t), withVoice(t)
	require.NoError(t, os.Symlink("nowhere/voices", b.Path("voices"))) // root may write to any folder
	v, err := voice.LoadDefault(t.Context(), library, b, 75)
	require.NoError(t, err)
	require.Len(t, v.Codes, 75)
	require.NoFileExists(t, b.Path("voices/default.safetensors"))
}

func FuzzParseVoice(f *testing.F) {
	b := &models.Bundle{Dir: f.TempDir()} // small, to be fast
	b.Manifest.Name, b.Manifest.Dims.Speech = "tiny", &models.Speech{Flow: models.Flow{Codes: 100, Mel: 2, Speaker: 3}}
	require.NoError(f, voice.Save(b, "seed", invented(&b.Manifest, 75)))
	good, err := os.ReadFile(b.Path("voices/seed.safetensors"))
	require.NoError(f, err)
	f.Add(good)
	for _, change := range broken(&b.Manifest) {
		f.Add(change(slices.Clone(good)))
	}
	flow := b.Manifest.Dims.Speech.Flow
	f.Fuzz(func(t *testing.T, content []byte) {
		v, err := voice.Parse(content, &b.Manifest)
		if err != nil {
			return
		}
		require.Contains(t, []int{75, 150}, len(v.Codes))
		require.Len(t, v.Mel, 2*len(v.Codes)*flow.Mel)
		require.Len(t, v.Speaker, flow.Speaker)
	})
}
