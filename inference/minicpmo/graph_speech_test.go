//go:build integration

package minicpmo_test

import (
	"maps"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"touchline/models"
	"touchline/models/graph"
)

// voice returns the tiny checkpoint with the weights of its voice.
func voice(tb testing.TB) model {
	tb.Helper()
	m := load(tb, "tiny")
	m.weights = maps.Clone(m.weights)
	for file, prefix := range map[string]string{"voice_flow": "flow.", "voice_hift": "hift."} {
		f := openFixture(tb, file)
		for _, name := range f.file.Names() {
			info := f.tensor(name).TensorInfo
			m.weights[prefix+strings.TrimPrefix(name, "generator.")] = tensor{
				rows: info.Rows(), cols: info.Cols(), values: f.floats(name),
			}
		}
	}
	m.Speech = &models.Speech{
		TTS: models.TTS{
			Layers: 3, Hidden: 64, Heads: 4, FFN: 160, Codes: 4250, TextRows: 1369, Epsilon: 1e-6, RopeTheta: 1e4,
			MaxPositions: 256, AudioBOS: 1301, TextEOS: 1306,
		},
		Flow: models.Flow{
			Codes: 4300, Hidden: 32, Heads: 2, FFN: 64, Blocks: 2, UpBlocks: 2, Mel: 80, Speaker: 192, MaxPrompt: 75,
			DiT: models.DiT{Layers: 2, Hidden: 32, Heads: 2, HeadDim: 16, FFN: 128, Time: 256, Steps: 10, Guidance: 0.7},
		},
		Vocoder: models.Vocoder{Channels: 32, Pitch: 24},
	}
	return m
}

// away returns the largest difference.
func away(tb testing.TB, want, have []float32) float64 {
	tb.Helper()
	require.Len(tb, have, len(want))
	var worst float64
	for i, w := range want {
		d := math.Abs(float64(w) - float64(have[i]))
		if math.IsNaN(d) {
			return math.Inf(1)
		}
		worst = max(worst, d)
	}
	return worst
}

// within requires want and have to differ by at most exact in float32, and half in
// float16.
func (m *machine) within(tb testing.TB, what string, want, have []float32, exact, half float64) {
	tb.Helper()
	most := exact
	if m.kind == models.DeviceCUDA {
		most = half
	}
	worst := away(tb, want, have)
	tb.Logf("%s: %.2g", what, worst)
	require.LessOrEqual(tb, worst, most, what)
}

// forms runs a test with the graphs for the CPU and, with rounding to float16, those for
// CUDA.
func forms(t *testing.T, run func(t *testing.T, on *machine)) {
	t.Helper()
	if *cuda {
		run(t, startMachine(t))
		return
	}
	t.Run("cpu", func(t *testing.T) { run(t, startMachine(t)) })
	t.Run("cuda", func(t *testing.T) {
		on := startMachine(t)
		on.kind, on.float, on.bound = models.DeviceCUDA, models.WeightsFloat16, halfBound
		run(t, on)
	})
}

// speech loads a graph of the voice.
func (m *machine) speech(
	of model, describe func(models.Dims, graph.Options) (*graph.Description, error), check bool,
) *network {
	m.tb.Helper()
	d, err := describe(of.Dims, graph.Options{Device: m.kind, Weights: m.float, Check: check})
	return m.load(write(m.tb, d, err, of.weights))
}

// rooms requires the last run's room and another, whose inputs are the same in another
// order, to get the same results together as apart. later is added to the numbers of an
// input for the second room.
func (n *network) rooms(later map[string]int64) {
	n.tb.Helper()
	one, two, both := n.fed, map[string]array{}, map[string]array{}
	for _, p := range n.Inputs {
		a := one[p.Name]
		if p.Shape[0] != "B" && p.Shape[0] != "B2" {
			two[p.Name], both[p.Name] = a, a
			continue
		}
		b := array{shape: a.shape, floats: slices.Clone(a.floats), ints: slices.Clone(a.ints)}
		if !strings.HasPrefix(p.Name, "mask") && later[p.Name] == 0 {
			slices.Reverse(b.floats)
			slices.Reverse(b.ints)
		}
		two[p.Name] = b
		moved := slices.Clone(b.ints)
		for i := range moved {
			moved[i] += later[p.Name]
		}
		shape := slices.Clone(a.shape)
		shape[0] *= 2
		both[p.Name] = array{shape: shape, floats: slices.Concat(a.floats, b.floats), ints: slices.Concat(a.ints, moved)}
	}
	first, second, together := n.run(one, nil, 0, 0), n.run(two, nil, 0, 0), n.run(both, nil, 0, 0)
	for name, a := range first {
		b := second[name].floats
		require.NotEqual(n.tb, a.floats, b, name)
		require.Less(n.tb, apart(n.tb, slices.Concat(a.floats, b), together[name].floats), n.bound, name)
	}
}

func TestTTSCondition(t *testing.T) { forms(t, testTTSCondition) }

func testTTSCondition(t *testing.T, on *machine) {
	t.Helper()
	m, f := voice(t), openFixture(t, "tts_lm")
	n := on.speech(m, graph.TTSCondition, false)
	ids, hidden := f.ints("ids"), f.floats("hidden")
	count := int64(len(ids))
	said := slices.Repeat([]float32{1}, len(ids))
	// After the text its end and the audio BOS, which have no state.
	ids = append(ids, int64(m.Speech.TTS.TextEOS), int64(m.Speech.TTS.AudioBOS))
	hidden, said = append(hidden, hidden[:2*m.Decoder.Hidden]...), append(said, 0, 0)
	have := n.run(map[string]array{
		"input_ids":     intArray(ids, count+2),
		"hidden_states": floatArray(hidden, count+2, int64(m.Decoder.Hidden)),
		"said":          floatArray(said, count+2, 1),
	}, nil, 0, 0)["condition"]
	want := slices.Concat(f.floats("condition"), f.floats("text_eos_row"), f.floats("audio_bos_row"))
	on.within(t, "condition", want, have.floats, 1e-5, 2e-3)
}

// code runs the TTS: inputs is nil for codes.
func (n *network) code(m model, codes []int64, inputs []float32, past []int, c *cache, history []int64) map[string]array {
	n.tb.Helper()
	tts := m.Speech.TTS
	rows := len(past)
	tokens := len(codes) / rows
	if inputs == nil {
		inputs = make([]float32, len(codes)*tts.Hidden)
	}
	last := make([]int64, rows)
	for i, p := range past {
		last[i] = int64(p + tokens - 1)
	}
	return n.run(map[string]array{
		"codes":                 intArray(codes, int64(rows), int64(tokens)),
		"inputs_embeds":         floatArray(inputs, int64(rows), int64(tokens), int64(tts.Hidden)),
		"seqlens_k":             intArray(last, int64(rows)),
		"total_sequence_length": intArray([]int64{slices.Max(last) + 1}),
		"last_position":         intArray([]int64{int64(tokens - 1)}, 1),
		"temperature":           floatArray([]float32{0.8}, 1),
		"history":               intArray(history, int64(rows), 1, graph.SpeechHistory),
	}, c, 0, rows)
}

// TestTTS: a piece of text, then 60 codes.
func TestTTS(t *testing.T) { forms(t, testTTS) }

func testTTS(t *testing.T, on *machine) {
	t.Helper()
	m, f := voice(t), openFixture(t, "tts_lm")
	n := on.speech(m, graph.TTS, false)
	tts := m.Speech.TTS
	end := int64(tts.Codes - 1)
	dims := models.Decoder{Layers: tts.Layers, KVHeads: tts.Heads, HeadDim: tts.HeadDim()}
	c := on.cache(dims, 1, 128)
	history := make([]int64, graph.SpeechHistory)
	inputs := slices.Concat(f.floats("condition"), f.floats("audio_bos_row"))
	past := len(inputs) / tts.Hidden
	out := n.code(m, slices.Repeat([]int64{end}, past), inputs, []int{0}, c, history)
	on.within(t, "logits of the prefill", f.floats("prefill_logits_last"), out["logits"].floats, 1e-4, 5e-2)
	requireChoice(t, out, history, 0.8)
	if on.kind == models.DeviceCUDA {
		return
	}
	best, values := f.ints("greedy_top5_codes"), f.floats("greedy_top5_logits")
	var worst float64
	for i, code := range f.ints("greedy_codes") {
		requireChoice(t, out, history, 0.8)
		// The recorded choice masks the end of speech.
		ids, logits := out["top_ids"].ints[:6], out["top_values"].floats[:6]
		if at := slices.Index(ids, end); at >= 0 {
			ids, logits = slices.Delete(slices.Clone(ids), at, at+1), slices.Delete(slices.Clone(logits), at, at+1)
		}
		require.Equal(t, best[5*i:5*i+5], ids[:5], "step %d", i)
		require.Equal(t, code, ids[0])
		worst = max(worst, away(t, values[5*i:5*i+5], logits[:5]))
		history[i%len(history)] = code
		out = n.code(m, []int64{code}, nil, []int{past + i}, c, history)
	}
	t.Logf("logits of 60 codes: %.2g", worst)
	require.LessOrEqual(t, worst, 1e-4)
}

// requireChoice checks the inputs of a sampler against the row of logits.
func requireChoice(t *testing.T, out map[string]array, history []int64, temperature float64) {
	t.Helper()
	logits := out["logits"].floats
	largest := float64(slices.Max(logits))
	var sum float64
	for _, l := range logits {
		sum += math.Exp((float64(l) - largest) / temperature)
	}
	for k, id := range out["top_ids"].ints {
		require.Equal(t, logits[id], out["top_values"].floats[k])
		share := math.Exp((float64(logits[id])-largest)/temperature) / sum
		require.InDelta(t, share, out["top_shares"].floats[k], 1e-5)
	}
	for k, code := range history {
		require.Equal(t, logits[code], out["history_values"].floats[k])
	}
}
