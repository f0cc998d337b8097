//go:build integration

package minicpmo_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"touchline/inference/conformance/stages"
	"touchline/models"
	"touchline/models/graph"
)

// promptRows are the frames of the fixtures' prompt.
const promptRows = 104

// stageGraph is a network for the stages.
type stageGraph struct{ *network }

func (g stageGraph) Ports() []models.Port { return g.Inputs }

func (g stageGraph) Run(in map[string]stages.Array, sizes map[string]int64) map[string]stages.Array {
	for name, n := range sizes {
		g.sizes[name] = n
	}
	arrays := map[string]array{}
	for name, a := range in {
		arrays[name] = array{a.Shape, a.Floats, a.Ints}
	}
	out := map[string]stages.Array{}
	for name, a := range g.run(arrays, nil, 0, 0) {
		out[name] = stages.Array{Shape: a.shape, Floats: a.floats, Ints: a.ints}
	}
	return out
}

// recorded is a fixture for the stages.
type recorded struct{ fixture }

func (f recorded) Has(name string) bool         { return f.has(name) }
func (f recorded) Floats(name string) []float32 { return f.floats(name) }
func (f recorded) Ints(name string) []int64     { return f.ints(name) }

// recording returns how the sound was recorded.
func recording(t *testing.T) stages.Recording {
	t.Helper()
	r, err := stages.ParseRecording(unpacked(t, "voice_stream.json.gz"))
	require.NoError(t, err)
	return r
}

// replay returns the stages of the voice on a machine.
func replay(t *testing.T, on *machine, m model) *stages.Replay {
	t.Helper()
	loaded := map[string]stageGraph{}
	return &stages.Replay{
		Dims: m.Dims, Recording: recording(t),
		Fixture: func(name string) stages.Fixture {
			if name == "lm" {
				return recorded{openFixture(t, "tts_lm")}
			}
			return recorded{openFixture(t, "voice_"+name)}
		},
		Graph: func(kind models.Kind, check bool) stages.Graph {
			describe := map[models.Kind]func(models.Dims, graph.Options) (*graph.Description, error){
				models.KindTTSCondition: graph.TTSCondition, models.KindFlowEncoder: graph.FlowEncoder, models.KindFlowDiT: graph.FlowDiT,
				models.KindFlowDiTOnce: graph.FlowDiTOnce, models.KindVocoder: graph.Vocoder,
				models.KindVocoderTail: graph.VocoderTail,
			}[kind]
			key := string(kind)
			if check {
				key += " with parts"
			}
			if _, ok := loaded[key]; !ok {
				loaded[key] = stageGraph{on.speech(m, describe, check)}
			}
			return loaded[key]
		},
		Near: func(what string, want, got []float32, limit stages.Limit) {
			t.Helper()
			require.Len(t, got, len(want))
			off, bound := limit.Compare(want, got, on.float != models.WeightsFloat16)
			t.Logf("%s: %.2g of %.2g", what, off, bound)
			require.LessOrEqual(t, off, bound, what)
		},
		Batch: func(g stages.Graph, later map[string]int64) { g.(stageGraph).rooms(later) },
	}
}

func TestFlowEncoder(t *testing.T) {
	forms(t, func(t *testing.T, on *machine) {
		t.Helper()
		replay(t, on, voiceModel(t)).Encoder()
	})
}

func TestVocoder(t *testing.T) {
	forms(t, func(t *testing.T, on *machine) {
		t.Helper()
		r := replay(t, on, voiceModel(t))
		r.Pitch()
		r.Vocoder()
	})
}

func TestTTSCondition(t *testing.T) {
	forms(t, func(t *testing.T, on *machine) {
		t.Helper()
		replay(t, on, voiceModel(t)).Condition()
	})
}
