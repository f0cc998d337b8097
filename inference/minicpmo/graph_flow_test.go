//go:build integration

package minicpmo_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"touchline/models/graph"
)

const (
	silence     = 4218 // a code
	promptRows  = 104  // frames of the fixtures' prompt
	fixtureRuns = 5    // chunks of the fixtures; the last one ends the speech
)

// kept moves the caches of a run to the inputs of the next.
func kept(state, out map[string]array) {
	for name, a := range out {
		if name, ok := strings.CutPrefix(name, "present."); ok {
			state["past."+name] = a
		}
	}
}

// flowEncoder runs the encoder over the speech of the fixtures.
type flowEncoder struct {
	*network

	of     model
	state  map[string]array
	filled map[string]int // rows, by rate
}

// zeros returns a tensor of zeros.
func zeros(shape ...int64) array {
	n := int64(1)
	for _, d := range shape {
		n *= d
	}
	return floatArray(make([]float32, n), shape...)
}

func newFlowEncoder(on *machine, m model) *flowEncoder {
	e := &flowEncoder{network: on.speech(m, graph.FlowEncoder, false), of: m, filled: map[string]int{}, state: map[string]array{}}
	for _, p := range e.Inputs {
		if strings.HasPrefix(p.Name, "past.") {
			rows := map[string]int64{"2": 2, "4": 4, "C25": promptRows/2 + 50, "C50": promptRows + 100}[p.Shape[1]]
			e.state[p.Name] = zeros(1, rows, int64(m.Speech.Flow.Hidden))
		}
	}
	return e
}

// run encodes codes and padding, in which coded codes are followed by blank rows.
func (e *flowEncoder) encode(codes []int64, coded, padding int) []float32 {
	e.tb.Helper()
	rows := len(codes) - graph.Lookahead
	marks := make([]float32, len(codes))
	for i := range coded {
		marks[i] = 1
	}
	in := maps.Clone(e.state)
	in["codes"], in["coded"] = intArray(codes, 1, int64(len(codes))), floatArray(marks, 1, int64(len(codes)), 1)
	for rate, cached := range map[string]int{"25": promptRows/2 + 50, "50": promptRows + 100} {
		run, padding := rows, padding
		if rate == "50" {
			run, padding = 2*rows, 2*padding
		}
		mask := make([]float32, cached+run)
		for i := range mask {
			if i < cached-e.filled[rate] || i >= len(mask)-padding {
				mask[i] = -1e4
			}
		}
		var keep []int64
		for i := range cached {
			switch {
			case e.filled[rate]+run <= cached: // the newest
				keep = append(keep, int64(run+i))
			case rate == "25": // the oldest, as the official code
				keep = append(keep, int64(i))
			case i < promptRows:
				keep = append(keep, int64(i))
			default:
				keep = append(keep, int64(run+i))
			}
		}
		e.filled[rate] = min(cached, e.filled[rate]+run)
		all := int64(cached + run)
		in["mask."+rate] = floatArray(mask, 1, 1, 1, all)
		in["distances."+rate] = intArray(graph.FlowDistances(e.of.Speech.Flow, rate == "50", run, cached), int64(run), all)
		in["keep."+rate] = intArray(keep, 1, int64(cached))
	}
	out := e.run(in, nil, 0, 0)
	kept(e.state, out)
	return out["mu"].floats
}

// TestFlowEncoder: the prompt, four chunks of which the third trims the caches, and the
// end of the speech, also with padding.
func TestFlowEncoder(t *testing.T) { forms(t, testFlowEncoder) }

func testFlowEncoder(t *testing.T, on *machine) {
	t.Helper()
	const exact, half = 1e-5, 6e-3
	m := voice(t)
	e := newFlowEncoder(on, m)
	prompt := openFixture(t, "voice_prompt")
	codes := append(prompt.ints("prompt_codes"), silence, silence, silence)
	on.within(t, "prompt", prompt.floats("mu"), e.encode(codes, len(codes), 0), exact, half)
	for i := range fixtureRuns {
		f := openFixture(t, fmt.Sprint("voice_chunk_", i))
		codes, want := f.ints("codes"), f.floats("mu")
		if i+1 < fixtureRuns {
			on.within(t, fmt.Sprint("chunk ", i), want, e.encode(codes, len(codes), 0), exact, half)
			if i == 0 {
				e.rooms(map[string]int64{"keep.25": promptRows/2 + 75, "keep.50": promptRows + 150})
			}
			continue
		}
		count, before := len(codes), flowEncoder{e.network, m, maps.Clone(e.state), maps.Clone(e.filled)}
		codes = append(slices.Clip(codes), 0, 0, 0)
		on.within(t, "end", want, e.encode(codes, count, 0), exact, half)
		full := slices.Concat(codes, make([]int64, 28-len(codes)))
		padded := before.encode(full, count, 25-count)
		on.within(t, "padded end", want, padded[:len(want)], exact, half)
		require.Len(t, padded, 50*m.Speech.Flow.Mel)
	}
}
