package stages

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"touchline/models"
)

// encoder runs the encoder of codes over one turn.
type encoder struct {
	Graph

	flow   models.Flow
	prompt int // frames
	state  map[string]Array
	filled map[string]int // rows, by rate
}

func (e *encoder) cached() map[string]int {
	return map[string]int{"25": e.prompt/2 + models.FlowKept/2, "50": e.prompt + models.FlowKept}
}

// encode encodes codes and padding. After the first coded codes, the rows are blank.
func (e *encoder) encode(codes []int64, coded, padding int) []float32 {
	rows := len(codes) - models.Lookahead
	marks := make([]float32, len(codes))
	for i := range coded {
		marks[i] = 1
	}
	in := maps.Clone(e.state)
	in["codes"], in["coded"] = Ints(codes, 1, int64(len(codes))), Floats(marks, 1, int64(len(codes)), 1)
	for rate, cached := range e.cached() {
		run, padding := rows, padding
		if rate == "50" {
			run, padding = 2*rows, 2*padding
		}
		mask := make([]float32, cached+run)
		for i := range mask {
			if i < cached-e.filled[rate] || i >= len(mask)-padding {
				mask[i] = forgotten
			}
		}
		keep := make([]int64, cached)
		for i := range keep {
			keep[i] = int64(run + i) // the newest
			// A full cache keeps the oldest rows at 25 rows a second, and the prompt and the newest at 50, as in the official code.
			if e.filled[rate]+run > cached && (rate == "25" || i < e.prompt) {
				keep[i] = int64(i)
			}
		}
		e.filled[rate] = min(cached, e.filled[rate]+run)
		all := int64(cached + run)
		in["mask."+rate] = Floats(mask, 1, 1, 1, all)
		in["distances."+rate] = Ints(models.FlowDistances(e.flow, rate == "50", run, cached), int64(run), all)
		in["keep."+rate] = Ints(keep, 1, int64(cached))
	}
	out := e.Run(in, nil)
	kept(e.state, out)
	return out["mu"].Floats
}

// Encoder replays the prompt, the chunks, and the end of the speech, also with padding. The third chunk is the first that trims the
// caches.
func (r *Replay) Encoder() {
	limit := agreed().mu
	prompt := r.Fixture("prompt")
	g := r.Graph(models.KindFlowEncoder, false)
	codes := prompt.Ints("prompt_codes")
	e := &encoder{Graph: g, flow: r.Dims.Speech.Flow, prompt: 2 * len(codes), state: map[string]Array{}, filled: map[string]int{}}
	for _, p := range g.Ports() {
		if strings.HasPrefix(p.Name, "past.") {
			rows := map[string]int{"2": 2, "4": 4, "C25": e.cached()["25"], "C50": e.cached()["50"]}[p.Shape[1]]
			e.state[p.Name] = Zeros(1, int64(rows), int64(e.flow.Hidden))
		}
	}
	codes = append(slices.Clip(codes), silence, silence, silence)
	mu := e.encode(codes, len(codes), 0)
	r.Near("prompt", prompt.Floats("mu"), mu, limit)
	for i, c := range r.Recording.Chunks {
		f := r.Fixture(fmt.Sprint("chunk_", i))
		if c.Last {
			r.encodeEnd(e, f, limit)
			return
		}
		codes := f.Ints("codes")
		mu = e.encode(codes, len(codes), 0)
		r.Near(fmt.Sprint("chunk ", i), f.Floats("mu"), mu, limit)
		if i == 0 {
			later := map[string]int64{"keep.25": int64(e.cached()["25"] + 25), "keep.50": int64(e.cached()["50"] + 50)}
			r.batch(g, later)
		}
	}
}

// encodeEnd encodes the last codes of a turn, exact and padded.
func (r *Replay) encodeEnd(e *encoder, f Fixture, limit Limit) {
	codes, want := f.Ints("codes"), f.Floats("mu")
	count := len(codes)
	padded := *e
	padded.state, padded.filled = maps.Clone(e.state), maps.Clone(e.filled)
	codes = append(slices.Clip(codes), 0, 0, 0)
	mu := e.encode(codes, count, 0)
	r.Near("end", want, mu, limit)
	const window = models.ChunkFrames/2 + models.Lookahead
	mu = padded.encode(append(codes, make([]int64, window-len(codes))...), count, models.ChunkFrames/2-count)
	r.Near("padded end", want, mu[:len(want)], limit)
}
