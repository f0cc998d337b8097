//go:build integration

package minicpmo_test

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"touchline/models/graph"
)

const (
	ringRows  = promptRows + 150
	convRows  = 52
	forgotten = float32(-1e4) // of a mask
)

// flow runs the flow matching network over the speech of the fixtures.
type flow struct {
	of          model
	chunk, once *network
	rings       map[string]array
	prompt      int   // frames
	order       []int // rows of the rings in use, the newest frame first
	next        int   // the row of the rings to write to
	conv        int   // the row of the convolutions' rings to write to
	speaker     array
	random      []float32
}

func newFlow(on *machine, m model) *flow {
	f := &flow{
		of: m, chunk: on.speech(m, graph.FlowDiT, true), once: on.speech(m, graph.FlowDiTOnce, false), rings: map[string]array{},
		random: hashNoise(30000*m.Speech.Flow.Mel, 20251), prompt: promptRows,
	}
	for _, p := range f.chunk.Inputs {
		switch {
		case !strings.HasPrefix(p.Name, "past."):
		case p.Shape[1] == "S":
			f.rings[p.Name] = zeros(2, ringRows, int64(m.Speech.Flow.DiT.Heads*m.Speech.Flow.DiT.HeadDim))
		default:
			f.rings[p.Name] = zeros(2, convRows, int64(m.Speech.Flow.DiT.Hidden))
		}
	}
	embedding := openFixture(on.tb, "voice_prompt").floats("spk_embedding")
	var sum float64
	for _, v := range embedding {
		sum += float64(v) * float64(v)
	}
	for i := range embedding {
		embedding[i] /= float32(math.Sqrt(sum))
	}
	f.speaker = floatArray(embedding, 1, 1, int64(len(embedding)))
	return f
}

// noise returns rows of the recorded noise, [rows,mel].
func (f *flow) noise(from, rows int) []float32 {
	bins := f.of.Speech.Flow.Mel
	out := make([]float32, 0, rows*bins)
	for t := from; t < from+rows; t++ {
		for b := range bins {
			out = append(out, f.random[b*30000+t])
		}
	}
	return out
}

// inputs returns what both forms of the network take. All keys but those in use and
// count from first on are masked.
func (f *flow) inputs(noise, mu []float32, keys, first, count int) map[string]array {
	bins := f.of.Speech.Flow.Mel
	frames := int64(len(mu) / bins)
	mask := slices.Repeat([]float32{forgotten}, keys)
	for _, row := range f.order {
		mask[row] = 0
	}
	clear(mask[first : first+count])
	return map[string]array{
		"noise": floatArray(noise, 1, frames, int64(bins)), "mu": floatArray(mu, 1, frames, int64(bins)),
		"speaker": f.speaker, "mask": floatArray(slices.Concat(mask, mask), 2, 1, 1, int64(keys)),
	}
}

// single runs the form for any number of frames.
func (f *flow) single(noise, mu, prompt []float32) map[string]array {
	frames := len(mu) / f.of.Speech.Flow.Mel
	in := f.inputs(noise, mu, ringRows+frames, ringRows, frames)
	maps.Copy(in, f.rings)
	in["prompt"] = floatArray(prompt, 1, int64(frames), int64(f.of.Speech.Flow.Mel))
	two := []int64{int64(f.conv+convRows-2) % convRows, int64(f.conv+convRows-1) % convRows}
	in["conv_rows"] = intArray([]int64{two[0], two[1], convRows + two[0], convRows + two[1]}, 2, 2)
	f.once.sizes["S"] = ringRows
	return f.once.run(in, nil, 0, 0)
}

// fill copies keys, values and the last frames of the prompt to the rings.
func (f *flow) fill(out map[string]array) {
	for name, ring := range f.rings {
		from := out["present."+strings.TrimPrefix(name, "past.")]
		at := 0
		if ring.shape[1] == convRows {
			at = convRows - 2
		}
		width := int(ring.shape[2])
		rows := int(from.shape[1])
		for r := range 2 {
			copy(ring.floats[(r*int(ring.shape[1])+at)*width:], from.floats[r*rows*width:(r+1)*rows*width])
		}
	}
	f.use(f.prompt)
}

// use makes the first rows those in use.
func (f *flow) use(rows int) {
	f.order, f.next = nil, rows
	for i := range rows {
		f.order = append(f.order, i)
	}
}

// run runs the form for a chunk, of which count frames are real.
func (f *flow) run(noise, mu []float32, count int) map[string]array {
	f.chunk.tb.Helper()
	in := f.inputs(noise, mu, ringRows, f.next, count)
	maps.Copy(in, f.rings)
	in["write"] = intArray([]int64{int64(f.next), int64(f.next)}, 2)
	in["conv_write"] = intArray([]int64{int64(f.conv), int64(f.conv)}, 2)
	var rows []int64
	for r := range 2 {
		for t := range graph.ChunkFrames {
			for k := range 3 {
				rows = append(rows, int64(r*convRows+(f.conv+t+k-2+convRows)%convRows))
			}
		}
	}
	in["conv_rows"] = intArray(rows, 2, graph.ChunkFrames, 3)
	out := f.chunk.run(in, nil, 0, 0)
	kept(f.rings, out)
	return out
}

// keep returns the rows to keep after a chunk, the newest first: as the official code,
// as many as the prompt has, and the last 100 of the prompt. Others are dropped.
func (f *flow) keep() (order, dropped []int) {
	for i := range graph.ChunkFrames {
		order = append(order, f.next+i)
	}
	order = append(order, f.order...)
	if n := len(order) - graph.FlowKept; n > f.prompt {
		dropped = slices.Sorted(slices.Values(order[f.prompt:n]))
		order = slices.Delete(order, f.prompt, n)
	}
	f.conv = (f.conv + graph.ChunkFrames) % convRows
	return order, dropped
}

// turn goes on to the rows that a chunk makes free. They are a range of the rings if the
// prompt is a number of chunks long.
func (f *flow) turn() {
	order, dropped := f.keep()
	f.order, f.next = order, f.next+graph.ChunkFrames
	if len(dropped) > 0 {
		require.Equal(f.chunk.tb, graph.ChunkFrames-1, dropped[len(dropped)-1]-dropped[0], "one range")
		f.next = dropped[0]
	}
}

// move goes on after a chunk with the rows to keep at the front of the rings.
func (f *flow) move() {
	order, _ := f.keep()
	for name, ring := range f.rings {
		if ring.shape[1] != ringRows {
			continue
		}
		width := int(ring.shape[2])
		moved := zeros(ring.shape...)
		for r := range 2 {
			for i, from := range order {
				copy(moved.floats[(r*ringRows+i)*width:][:width], ring.floats[(r*ringRows+from)*width:])
			}
		}
		f.rings[name] = moved
	}
	f.use(len(order))
}

// The agreed errors of a spectrogram.
const (
	melExact = 5e-5
	melHalf  = 4e-3
)

// TestFlowDiT: the prompt, four chunks of which the third is the first to forget rows, and
// the end of the speech, exact and padded.
func TestFlowDiT(t *testing.T) { forms(t, testFlowDiT) }

func testFlowDiT(t *testing.T, on *machine) {
	t.Helper()
	m := voice(t)
	f, prompt := newFlow(on, m), openFixture(t, "voice_prompt")
	bins := m.Speech.Flow.Mel
	f.fill(f.single(f.noise(0, promptRows), prompt.floats("mu"), prompt.floats("prompt_mel")))
	for i := range fixtureRuns {
		x := openFixture(t, fmt.Sprint("voice_chunk_", i))
		mu, want := x.floats("mu"), rowsOf(x.floats("mel"), bins)
		count := len(mu) / bins
		noise := f.noise(len(f.order), count)
		if i+1 < fixtureRuns {
			on.within(t, fmt.Sprint("chunk ", i), want, f.run(noise, mu, count)["mel"].floats, melExact, melHalf)
			if i == 0 {
				f.chunk.rooms(map[string]int64{"conv_rows": 2 * convRows})
			}
			f.move()
			continue
		}
		exact := f.single(noise, mu, make([]float32, len(mu)))["mel"].floats
		on.within(t, "end", want, exact, melExact, melHalf)
		padding := slices.Repeat([]float32{0.37}, (graph.ChunkFrames-count)*bins)
		padded := f.run(append(noise, padding...), append(mu, padding...), count)["mel"].floats[:len(want)]
		on.within(t, "padded end", want, padded, melExact, melHalf)
		on.within(t, "padded end against the exact one", exact, padded, 1e-5, melHalf)
	}
}

// TestFlowDiTRing: with a prompt of two chunks, rings that are written where rows become
// free give what moved rows give, and a repeated run gives the same.
func TestFlowDiTRing(t *testing.T) {
	m, on := voice(t), startMachine(t)
	ring, prompt := newFlow(on, m), openFixture(t, "voice_prompt")
	bins := m.Speech.Flow.Mel
	ring.prompt = 2 * graph.ChunkFrames
	n := ring.prompt * bins
	ring.fill(ring.single(ring.noise(0, ring.prompt), prompt.floats("mu")[:n], prompt.floats("prompt_mel")[:n]))
	moved := *ring
	moved.rings = maps.Clone(ring.rings)
	mu := openFixture(t, "voice_chunk_0").floats("mu")
	for range 7 {
		noise := ring.noise(len(ring.order), graph.ChunkFrames)
		first := ring.run(noise, mu, graph.ChunkFrames)["mel"].floats
		require.Equal(t, first, ring.run(noise, mu, graph.ChunkFrames)["mel"].floats)
		on.within(t, "moved", moved.run(noise, mu, graph.ChunkFrames)["mel"].floats, first, 1e-5, melHalf)
		ring.turn()
		moved.move()
		slices.Reverse(mu)
	}
}

// TestFlowDiTStep: the network's output in the first step of the first chunk, from
// recorded caches.
func TestFlowDiTStep(t *testing.T) {
	m, on := voice(t), startMachine(t)
	f, call := newFlow(on, m), openFixture(t, "voice_dit_call")
	d := m.Speech.Flow.DiT
	bins := m.Speech.Flow.Mel
	rows, convs := call.floats("in.att_cache"), call.floats("in.cnn_cache")
	require.Len(t, rows, d.Layers*2*d.Heads*promptRows*2*d.HeadDim)
	for i := range d.Layers {
		p := fmt.Sprintf("flow.decoder.estimator.blocks.%d.attn.", i)
		scale, shift, bias := m.weights[p+"k_norm.weight"].values, m.weights[p+"k_norm.bias"].values, m.weights[p+"to_v.bias"].values
		key, value := f.rings[fmt.Sprintf("past.0.%d.key", i)], f.rings[fmt.Sprintf("past.0.%d.value", i)]
		for r := range 2 {
			for h := range d.Heads {
				for c := range promptRows {
					from := rows[((((i*2+r)*d.Heads+h)*promptRows)+c)*2*d.HeadDim:]
					at := ((r*ringRows)+c)*d.Heads*d.HeadDim + h*d.HeadDim
					for k := range d.HeadDim {
						// The graph's caches are without the scale and the shifts of the recorded ones.
						key.floats[at+k] = (from[k] - shift[k]) / scale[k]
						value.floats[at+k] = from[d.HeadDim+k] - bias[h*d.HeadDim+k]
					}
				}
			}
			for which := range 2 {
				ring := f.rings[fmt.Sprintf("past.0.%d.conv%d", i, which+1)]
				for c := range d.Hidden {
					from := convs[((i*2+r)*2*d.Hidden+which*d.Hidden+c)*2:]
					for k := range 2 {
						ring.floats[(r*convRows+convRows-2+k)*d.Hidden+c] = from[k]
					}
				}
			}
		}
	}
	f.use(promptRows)
	half := len(call.floats("in.x")) / 2 // both rows have the same noise, and one has the condition
	out := f.run(rowsOf(call.floats("in.x")[:half], bins), rowsOf(call.floats("in.mu")[:half], bins), graph.ChunkFrames)
	v := call.floats("out.v")
	want := slices.Concat(rowsOf(v[:half], bins), rowsOf(v[half:], bins))
	on.within(t, "velocity", want, out["velocity.0"].floats, melExact, melHalf)
}
