//go:build integration

package minicpmo_test

import (
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"touchline/inference/conformance/stages"
	"touchline/models"
	"touchline/models/graph"
)

// voiceModel returns the tiny checkpoint with the weights of its voice.
func voiceModel(tb testing.TB) model {
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

// TestDecoderStates: the decoder of a model with a voice returns the states of several positions of one run, beside the
// logits of the last.
func TestDecoderStates(t *testing.T) {
	parallel(t)
	m := voiceModel(t)
	on := startMachine(t)
	n := on.decoder(m, graph.Options{})
	vocab := m.Decoder.Vocab
	none := floatArray(make([]float32, vocab), 1, int64(vocab))
	for _, name := range []string{"text", "two_images", "sliced"} {
		f := openFixture(t, "llm_"+name)
		embeds := f.floats("inputs_embeds")
		for _, several := range []int{16, 1} {
			c := on.cache(m.Decoder, 1, len(embeds)/m.Decoder.Hidden)
			out := n.positioned(m, embeds, []int{0}, c, 0, none, several)
			on.near(name+" hidden", f.floats("hidden_after_norm_last16")[(16-several)*m.Decoder.Hidden:], out["hidden_states"].floats)
			on.near(name+" logits", f.floats("logits_last8")[7*vocab:], out["logits"].floats)
		}
	}
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
	if m.float == models.WeightsFloat16 {
		most = half
	}
	worst := away(tb, want, have)
	tb.Logf("%s: %.2g", what, worst)
	require.LessOrEqual(tb, worst, most, what)
}

// forms runs a test with the graphs for the CPU and those for CUDA in float16 and in float32.
func forms(t *testing.T, run func(t *testing.T, on *machine)) {
	t.Helper()
	if !*cuda {
		t.Run("cpu", func(t *testing.T) { run(t, startMachine(t)) })
	}
	for float, bound := range map[models.Weights]float64{models.WeightsFloat16: halfBound, models.WeightsFloat32: exactBound} {
		t.Run("cuda "+string(float), func(t *testing.T) {
			on := startMachine(t)
			on.kind, on.float, on.bound = models.DeviceCUDA, float, bound
			run(t, on)
		})
	}
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

// codeLM is the language model of the codes for the stages. It checks the inputs of a sampler against each row of logits.
type codeLM struct {
	*network

	t testing.TB
	m model
	c *cache
}

func (l codeLM) Feed(codes []int64, inputs []float32, past int, history []int64) stages.Row {
	out := l.code(l.m, codes, inputs, []int{past}, l.c, history)
	requireChoice(l.t, out, history, 0.8)
	return stages.Row{Logits: out["logits"].floats, TopValues: out["top_values"].floats, TopIDs: out["top_ids"].ints}
}

// TestTTS: a piece of text, then 60 codes.
func TestTTS(t *testing.T) {
	forms(t, func(t *testing.T, on *machine) {
		t.Helper()
		m := voiceModel(t)
		tts := m.Speech.TTS
		c := on.cache(models.Decoder{Layers: tts.Layers, KVHeads: tts.Heads, HeadDim: tts.HeadDim()}, 1, 128)
		lm := codeLM{on.speech(m, graph.TTS, false), t, m, c}
		require.NoError(t, replay(t, on, m).Greedy(lm, on.float == models.WeightsFloat32))
	})
}

// TestTTSSlots: codes of slots with past of different lengths in one run give what each gives alone. Keys of later positions in the
// cache, here of padding, do not count.
func TestTTSSlots(t *testing.T) {
	forms(t, func(t *testing.T, on *machine) {
		t.Helper()
		m := voiceModel(t)
		s := m.Speech.TTS
		sizes := models.Decoder{Layers: s.Layers, KVHeads: s.Heads, HeadDim: s.HeadDim()}
		lm := on.speech(m, graph.TTS, false)
		codes := func(n, from int) (out []int64) {
			for i := range n {
				out = append(out, int64((from+37*i)%s.Codes))
			}
			return out
		}
		history := make([]int64, graph.SpeechHistory)
		lengths, together := []int{5, 9}, on.cache(sizes, 2, 64)
		lm.code(m, slices.Concat(codes(9, 100), codes(9, 200)), nil, []int{0, 0}, together, slices.Repeat(history, 2))
		both := lm.code(m, []int64{7, 8}, nil, lengths, together, slices.Repeat(history, 2))
		for i, n := range lengths {
			alone := on.cache(sizes, 1, 64)
			lm.code(m, codes(n, 100*(i+1)), nil, []int{0}, alone, history)
			want := lm.code(m, []int64{int64(7 + i)}, nil, []int{n}, alone, history)["logits"].floats
			on.near("logits of slot "+strconv.Itoa(i), want, both["logits"].floats[i*s.Codes:(i+1)*s.Codes])
		}
	})
}

// requireChoice checks the inputs of a sampler against the row of logits.
func requireChoice(tb testing.TB, out map[string]array, history []int64, temperature float64) {
	tb.Helper()
	logits := out["logits"].floats
	largest := float64(slices.Max(logits))
	var sum float64
	for _, l := range logits {
		sum += math.Exp((float64(l) - largest) / temperature)
	}
	for k, id := range out["top_ids"].ints {
		require.Equal(tb, logits[id], out["top_values"].floats[k])
		share := math.Exp((float64(logits[id])-largest)/temperature) / sum
		require.InDelta(tb, share, out["top_shares"].floats[k], 1e-5)
	}
	for k, code := range history {
		require.Equal(tb, logits[code], out["history_values"].floats[k])
	}
}
