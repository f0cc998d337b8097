//go:build integration

package minicpmo_test

import (
	"cmp"
	"compress/gzip"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"touchline/inference/conformance/stages"
	"touchline/inference/internal/kvcache"
	"touchline/inference/minicpmo/voice"
	"touchline/inference/minicpmo/voice/tts"
	"touchline/inference/step"
	"touchline/internal/wake"
	"touchline/models"
	"touchline/models/graph"
	"touchline/models/onnx"
)

// TestCodesOfTurns speaks two turns of the official streaming call, and two whose first piece is full: with their draws, the voice chooses
// their codes; in float16, where a turn's codes part at the first near tie, it goes along with them.
func TestCodesOfTurns(t *testing.T) {
	forms(t, codesOfTurns)
}

// textTable returns the place of the text's table in a graph of the condition.
func textTable(t *testing.T, path string) *models.Tensor {
	t.Helper()
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	constants, err := onnx.Constants(content)
	require.NoError(t, err)
	i := slices.IndexFunc(constants, func(w onnx.Tensor) bool { return w.Name == graph.TextTable && w.External != nil })
	if i < 0 {
		return nil // inside the graph
	}
	w := constants[i]
	return &models.Tensor{
		Name: w.Name, File: filepath.Join(filepath.Dir(path), w.External.Location), Offset: w.External.Offset, Type: w.Type,
		Shape: w.Shape,
	}
}

func codesOfTurns(t *testing.T, on *machine) {
	t.Helper()
	m := voiceModel(t)
	m.Speech.TTS.MaxPositions = 1024
	layout := kvcache.Layout{
		Layers: m.Speech.TTS.Layers, Slots: 2, KVHeads: m.Speech.TTS.Heads, MaxLen: 1024, HeadDim: m.Speech.TTS.HeadDim(),
		ElemSize: on.floatType().Size(),
	}
	condition, err := graph.TTSCondition(m.Dims, graph.Options{Device: on.kind, Weights: on.float})
	first := models.Graph{Kind: models.KindTTSCondition, File: write(t, condition, err, m.weights).path}
	first.Table = textTable(t, first.File)
	lm, err := graph.TTS(m.Dims, graph.Options{Device: on.kind, Weights: on.float})
	second := models.Graph{Kind: models.KindTTS, File: write(t, lm, err, m.weights).path}
	bundle := &models.Bundle{Manifest: models.Manifest{Dims: m.Dims}}
	model, err := voice.OpenLM(on.runtime, on.device, bundle, [2]models.Graph{first, second}, layout, 1)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, model.Close()) })

	turns, err := stages.ParseTurns(unpacked(t, "tts_turns.json.gz"), m.Speech.TTS.Codes)
	require.NoError(t, err)
	require.Len(t, turns, 4)
	for i, turn := range turns {
		t.Run(strconv.Itoa(i), func(t *testing.T) {
			states, end := recorded{openFixture(t, fmt.Sprintf("tts_turn_%d", i))}, int32(m.Speech.TTS.Codes-1)
			require.NoError(t, turn.Force(model, end, states, m.Decoder.Hidden))
			if on.float == models.WeightsFloat32 {
				require.NoError(t, turn.Speak(t.Context(), model, layout, end, states, m.Decoder.Hidden, time.Now))
			}
		})
	}
	t.Run("stream", func(t *testing.T) {
		var stream struct {
			Chunks []stages.Chunk `json:"chunks"`
		}
		require.NoError(t, json.Unmarshal(unpacked(t, "tts_stream.json.gz"), &stream))
		f, marks := openFixture(t, "tts_stream"), recorded{openFixture(t, "tts_lm")}
		require.Len(t, stream.Chunks, 3)
		require.NoError(t, stages.Stream(
			model, stream.Chunks, int32(m.Speech.TTS.Codes-1), recorded{f}, marks, doubles(f.tensor("u").Data), on.float == models.WeightsFloat32,
		))
	})
}

// unpacked returns the content of a fixture.
func unpacked(t *testing.T, name string) []byte {
	t.Helper()
	f, err := os.Open(filepath.Join("testdata", name))
	require.NoError(t, err)
	defer f.Close()
	z, err := gzip.NewReader(f)
	require.NoError(t, err)
	b, err := io.ReadAll(z)
	require.NoError(t, err)
	return b
}

// waveFiles writes the graphs of the voice's sound.
func waveFiles(t *testing.T, m model, on *machine) (files [5]string) {
	t.Helper()
	for i, describe := range []func(models.Dims, graph.Options) (*graph.Description, error){
		graph.FlowEncoder, graph.FlowDiT, graph.FlowDiTOnce, graph.Vocoder, graph.VocoderTail,
	} {
		d, err := describe(m.Dims, graph.Options{Device: on.kind, Weights: on.float})
		files[i] = write(t, d, err, m.weights).path
	}
	return files
}

// openWave opens the networks of the voice's sound.
func openWave(t *testing.T, m model, on *machine, files [5]string, noise voice.Noise) *voice.Wave {
	t.Helper()
	w, err := voice.OpenWave(on.runtime, on.device, voice.WaveOptions{
		Files: files, Float: on.floatType(), Dims: *m.Speech, Slots: 4, Prompt: promptRows, Threads: 1, Noise: noise,
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, w.Close()) })
	return w
}

// recordedWave opens the voice's sound with the recorded prompt, and the noise of the recorded windows for a slot.
func recordedWave(t *testing.T, on *machine, slot, windows int) *voice.Wave {
	t.Helper()
	m := voiceModel(t)
	r := recording(t)
	noise := voice.Noise{Flow: r.FlowNoise(0, promptRows+100+2*tts.WindowCodes)}
	starts := map[int]int{} // in slot
	for i := range windows {
		frames := cmp.Or(map[int]int{0: 50, 4: 36}[i], 58)
		starts[i] = len(noise.Vocoder) / models.NoiseColumns
		noise.Vocoder = append(noise.Vocoder, stages.Noise(models.FrameSamples*9*frames, r.Chunks[i].Seed)...)
	}
	at := 0
	noise.Rows = func(of, _ int) int {
		if of != slot {
			return 0
		}
		at++
		return starts[(at-1)%windows]
	}
	w := openWave(t, m, on, waveFiles(t, m, on), noise)
	prompt := openFixture(t, "voice_prompt")
	v := voice.Reference{Mel: prompt.floats("prompt_mel"), Speaker: prompt.floats("spk_embedding")}
	for _, c := range prompt.ints("prompt_codes") {
		v.Codes = append(v.Codes, int32(c))
	}
	require.NoError(t, w.AddVoice("default", v))
	return w
}

// recordedSound returns the codes and the sound of a recorded window, of some the beginning.
func recordedSound(t *testing.T, i int) (codes []int32, sound []float32) {
	t.Helper()
	f := openFixture(t, "voice_chunk_"+strconv.Itoa(i))
	for _, c := range f.ints("codes") {
		codes = append(codes, int32(c))
	}
	name := "wav"
	if f.has("wav_first6000") {
		name = "wav_first6000"
	}
	sound = f.floats(name)
	if i == 0 {
		sound = sound[8*models.FrameSamples:] // the official code starts with silence
	}
	return codes, sound
}

// TestSoundOfWindows: the prompt and the first windows of the recorded turn, from codes to sound, in the second of four slots
// beside other turns.
func TestSoundOfWindows(t *testing.T) {
	forms(t, soundOfWindows)
}

func soundOfWindows(t *testing.T, on *machine) {
	t.Helper()
	const windows, slot = 3, 1
	w := recordedWave(t, on, slot, windows)
	require.Error(t, w.Begin(slot, "other"))
	for _, s := range []int{slot, 0, 3} {
		require.NoError(t, w.Begin(s, "default"))
	}
	for i := range windows {
		window, want := recordedSound(t, i)
		jobs := []tts.Job{{Slot: slot, Codes: window, First: i == 0}, {Slot: 0, Codes: window, First: i == 0}}
		if i == 1 { // others in between
			other := []tts.Job{{Slot: 3, Codes: window, First: true}}
			w.Run(other)
			require.NoError(t, other[0].Err)
		}
		w.Run(jobs)
		require.NoError(t, jobs[0].Err)
		// In float16, noise of the spectrogram moves the phase, and more so with every window: TestVocoder has the bounds of the sound.
		on.within(t, "sound of window "+strconv.Itoa(i), want, jobs[0].Wave[:len(want)], 3e-4, 0.15)
	}
}

// scripted is a voice's language model with given codes, as many for a piece as its first id says.
type scripted struct {
	codes []int32
	piece int // codes left of the piece
}

const scriptedEnd = 6561

func (l *scripted) Clear(int) error { return nil }

func (l *scripted) TurnBack(int, int) error { return nil }

func (l *scripted) Feed(_, _ int, p tts.Piece) (int, error) {
	l.piece = int(p.IDs[0])
	return 1, nil
}

func (l *scripted) Step(kvcache.Range, [][]int32, []int32) error { return nil }

func (l *scripted) Best(int) (tts.Row, bool) { return tts.Row{}, false }

func (l *scripted) Logits(int) ([]float32, error) {
	row := slices.Repeat([]float32{-1e4}, scriptedEnd+1)
	next := int32(scriptedEnd)
	if l.piece > 0 {
		next, l.codes, l.piece = l.codes[0], l.codes[1:], l.piece-1
	}
	row[next] = 1e4
	return row, nil
}

// speakScripted speaks codes that come with pieces of a text, as many with each as pieces says.
func speakScripted(t *testing.T, w tts.Wave, codes []int32, pieces []int) (sound []int16) {
	t.Helper()
	client, wakes := step.NewOwner(time.Now).Join(step.Commentary), wake.New()
	sounder := tts.NewSounder(w, client, time.Now, wakes.Set)
	talker, err := tts.NewTalker(tts.TalkerOptions{
		LM: &scripted{codes: codes}, Layout: kvcache.Layout{Layers: 1, Slots: 4, KVHeads: 1, MaxLen: 1024, HeadDim: 1, ElemSize: 4},
		Settings: tts.Official(), End: scriptedEnd, Silence: 4218, Client: client, Now: time.Now, Wake: wakes.Set,
	}, sounder)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	wg.Go(func() { _ = sounder.Run(ctx) })
	turn := tts.NewTurn("default", func() float64 { return .5 })
	require.NoError(t, talker.Submit(turn))
	for i, n := range pieces {
		turn.Feed(tts.Piece{IDs: []int32{int32(n)}, Text: "la ", Last: i == len(pieces)-1})
	}
	for {
		require.NoError(t, talker.Intake())
		worked, err := talker.Work(time.Hour, false, false)
		require.NoError(t, err)
		part, ok, ended, err := turn.Take()
		require.NoError(t, err)
		switch {
		case ok:
			sound = append(sound, part.Samples...)
		case ended:
			return sound
		case !worked:
			select {
			case <-wakes:
			case <-turn.Wake():
			case <-time.After(10 * time.Millisecond): // codes may be far enough ahead
			}
		}
	}
}

// TestStreamedSound: the whole recorded turn, through talker and sounder, is the same sound however its text is cut, the official one as
// long as no rows are forgotten, and the borders of windows cannot be told from the sound inside. What later windows forget is only as
// upstream for prompts of whole windows, of which the recorded one is none; the check of stages/flow.go lists the rows of these.
func TestStreamedSound(t *testing.T) {
	if *cuda {
		t.Skip("it runs without a thread of its own; TestSoundOfWindows compares windows")
	}
	const windows = 5
	var codes []int32
	type piece struct {
		at     int
		golden []float32
	}
	var golden []piece
	for i := range windows {
		window, want := recordedSound(t, i)
		golden = append(golden, piece{max(0, i*tts.Rate-8*models.FrameSamples), want})
		if i < windows-1 { // the next window repeats the last codes
			window = window[:tts.Burst]
		}
		codes = append(codes, window...)
	}
	last := golden[windows-1]
	codes = codes[tts.LeadSilence:]
	w := recordedWave(t, startMachine(t), 0, windows)
	whole := speakScripted(t, w, codes, []int{len(codes)})
	samples := len(whole)
	require.Equal(t, last.at+len(last.golden), samples)
	for i, p := range golden[:3] {
		worst := 0.0
		for k, want := range p.golden {
			worst = max(worst, math.Abs(float64(want)-float64(whole[p.at+k])/math.MaxInt16))
		}
		t.Logf("window %d: largest difference %.1e", i, worst)
		require.Less(t, worst, 3e-4)
	}
	random := rand.New(rand.NewPCG(7, 8))
	for range 8 {
		var pieces []int
		for left := len(codes); left > 0; left -= pieces[len(pieces)-1] {
			pieces = append(pieces, 1+random.IntN(min(left, 40)))
		}
		require.True(t, slices.Equal(whole, speakScripted(t, w, codes, pieces)), "cut to %v", pieces)
	}

	steps := make([]int, len(whole)-1)
	for i := range steps {
		steps[i] = max(int(whole[i+1])-int(whole[i]), int(whole[i])-int(whole[i+1]))
	}
	inside := slices.Sorted(slices.Values(steps))
	most := inside[len(inside)*999/1000]
	for _, p := range golden[1:] {
		t.Logf("step at the border %d: %d; 99.9 %% of all: %d", p.at, steps[p.at-1], most)
		require.LessOrEqual(t, steps[p.at-1], most)
	}
}

// TestTurnEnds: the sound of every length of a turn's end, from the vocoder that pads them, is that of its exact length.
func TestTurnEnds(t *testing.T) {
	m, on := voiceModel(t), startMachine(t)
	files := waveFiles(t, m, on)
	padded, exact := openEnds(t, m, on, files), openEnds(t, m, on, [5]string(append(files[:4:4], "")))
	worst := 0.0
	for n := tts.LeadSilence; n < tts.WindowCodes; n++ {
		for _, first := range []bool{true, false} {
			if first && n == tts.LeadSilence { // a turn without codes
				continue
			}
			want, got := turnEnd(t, exact, n, first), turnEnd(t, padded, n, first)
			worst = max(worst, away(t, want, got))
			require.Greater(t, slices.Max(want), float32(1e-3), "a sound")
			on.within(t, fmt.Sprintf("an end of %d codes, first %t", n, first), want, got, 1e-4, 0.15)
		}
	}
	t.Logf("the largest difference is %.2g", worst)
}

// openEnds opens the networks of the sound with a voice.
func openEnds(t *testing.T, m model, on *machine, files [5]string) *voice.Wave {
	t.Helper()
	noise := voice.Noise{
		Flow: stages.Noise((promptRows+150)*m.Speech.Flow.Mel, 1), Rows: func(slot, n int) int { return 7*slot + n },
		Vocoder: stages.Noise(models.FrameSamples*9*200, 2),
	}
	w := openWave(t, m, on, files, noise)
	require.NoError(t, w.AddVoice("default", promptVoice(t)))
	return w
}

// turnEnd returns the sound of a turn's end of n codes, in its first window or in its second.
func turnEnd(t *testing.T, w *voice.Wave, n int, first bool) []float32 {
	t.Helper()
	codes := make([]int32, 2*tts.WindowCodes)
	for i := range codes {
		codes[i] = int32(i * 71 % 4000)
	}
	require.NoError(t, w.Begin(2, "default"))
	samples := 0
	if !first {
		begin := []tts.Job{{Slot: 2, Codes: codes[:tts.WindowCodes], First: true}}
		w.Run(begin)
		require.NoError(t, begin[0].Err)
		samples = len(begin[0].Wave) - tts.Burst*960
		codes = codes[tts.Burst:]
	}
	end := []tts.Job{{Slot: 2, Codes: codes[:n], First: first, Last: true}}
	w.Run(end)
	require.NoError(t, end[0].Err)
	require.Equal(t, n*960, samples+len(end[0].Wave), "%d codes", n)
	return end[0].Wave
}

// doubles returns a tensor of float64.
func doubles(data []byte) []float64 {
	out := make([]float64, len(data)/8)
	for i := range out {
		out[i] = math.Float64frombits(binary.LittleEndian.Uint64(data[8*i:]))
	}
	return out
}
