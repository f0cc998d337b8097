package stages

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"touchline/models"
)

const (
	convRows  = models.ChunkFrames + 2
	forgotten = float32(-1e4) // of a mask
)

// Flow runs the flow matching network over the frames of one turn. The rings of keys and values have room for one chunk more than the
// rows that are kept.
type Flow struct {
	// Prompt is the number of its frames.
	Prompt int
	// Order lists the rows of the rings in use, the newest frame first.
	Order []int
	// Chunk is the graph for a chunk, with outputs for checks.
	Chunk Graph
	// Noise returns rows of the recorded noise, [rows,mel].
	Noise func(from, rows int) []float32

	dims    models.Flow
	once    Graph
	rings   map[string]Array
	next    int // the row of the rings to write to
	conv    int // the row of the convolutions' rings to write to
	speaker Array
}

// NewFlow returns the networks before a prompt of some frames.
func (r *Replay) NewFlow(prompt int) *Flow {
	fixture := r.Fixture("prompt")
	chunk := r.Graph(models.KindFlowDiT, true)
	once := r.Graph(models.KindFlowDiTOnce, false)
	dims := r.Dims.Speech.Flow
	f := &Flow{
		dims: dims, Chunk: chunk, once: once, rings: map[string]Array{}, Noise: r.Recording.FlowNoise, Prompt: prompt,
	}
	for _, p := range chunk.Ports() {
		switch {
		case !strings.HasPrefix(p.Name, "past."):
		case p.Shape[1] == "S":
			f.rings[p.Name] = Zeros(2, int64(f.rows()), int64(dims.DiT.Heads*dims.DiT.HeadDim))
		default:
			f.rings[p.Name] = Zeros(2, convRows, int64(dims.DiT.Hidden))
		}
	}
	embedding := slices.Clone(fixture.Floats("spk_embedding"))
	var sum float64
	for _, v := range embedding {
		sum += float64(v) * float64(v)
	}
	for i := range embedding {
		embedding[i] /= float32(math.Sqrt(sum))
	}
	f.speaker = Floats(embedding, 1, 1, int64(len(embedding)))
	return f
}

// rows returns the length of the rings of keys and values.
func (f *Flow) rows() int { return f.Prompt + models.FlowKept + models.ChunkFrames }

// Copy returns the same state with rings of its own.
func (f *Flow) Copy() *Flow {
	other := *f
	other.rings = maps.Clone(f.rings)
	return &other
}

// inputs returns the inputs that both graphs share. It masks all keys except the rows in use, which
// are counted from first.
func (f *Flow) inputs(noise, mu []float32, keys, first, count int) map[string]Array {
	bins := f.dims.Mel
	frames := int64(len(mu) / bins)
	mask := slices.Repeat([]float32{forgotten}, keys)
	for _, row := range f.Order {
		mask[row] = 0
	}
	clear(mask[first : first+count])
	return map[string]Array{
		"noise": Floats(noise, 1, frames, int64(bins)), "mu": Floats(mu, 1, frames, int64(bins)),
		"speaker": f.speaker, "mask": Floats(slices.Concat(mask, mask), 2, 1, 1, int64(keys)),
	}
}

// Single runs the graph for any number of frames.
func (f *Flow) Single(noise, mu, prompt []float32) map[string]Array {
	frames := len(mu) / f.dims.Mel
	in := f.inputs(noise, mu, f.rows()+frames, f.rows(), frames)
	maps.Copy(in, f.rings)
	in["prompt"] = Floats(prompt, 1, int64(frames), int64(f.dims.Mel))
	two := []int64{int64(f.conv+convRows-2) % convRows, int64(f.conv+convRows-1) % convRows}
	in["conv_rows"] = Ints([]int64{two[0], two[1], convRows + two[0], convRows + two[1]}, 2, 2)
	return f.once.Run(in, map[string]int64{"S": int64(f.rows())})
}

// Fill copies keys, values and the last frames of the prompt to the rings.
func (f *Flow) Fill(out map[string]Array) {
	for name, ring := range f.rings {
		from := out["present."+strings.TrimPrefix(name, "past.")]
		at := 0
		if ring.Shape[1] == convRows {
			at = convRows - 2
		}
		width := int(ring.Shape[2])
		rows := int(from.Shape[1])
		for r := range 2 {
			copy(ring.Floats[(r*int(ring.Shape[1])+at)*width:], from.Floats[r*rows*width:(r+1)*rows*width])
		}
	}
	f.use(f.Prompt)
}

// use marks the first rows as in use.
func (f *Flow) use(rows int) {
	f.Order, f.next = nil, rows
	for i := range rows {
		f.Order = append(f.Order, i)
	}
}

// Run runs the graph for a chunk with count real frames; the rest is padding.
func (f *Flow) Run(noise, mu []float32, count int) map[string]Array {
	in := f.inputs(noise, mu, f.rows(), f.next, count)
	maps.Copy(in, f.rings)
	in["write"] = Ints([]int64{int64(f.next), int64(f.next)}, 2)
	in["conv_write"] = Ints([]int64{int64(f.conv), int64(f.conv)}, 2)
	var rows []int64
	for r := range 2 {
		for t := range models.ChunkFrames {
			for k := range 3 {
				rows = append(rows, int64(r*convRows+(f.conv+t+k-2+convRows)%convRows))
			}
		}
	}
	in["conv_rows"] = Ints(rows, 2, models.ChunkFrames, 3)
	out := f.Chunk.Run(in, nil)
	kept(f.rings, out)
	return out
}

// keep returns the rows to keep after a chunk, the newest first. As in the official code: as many
// as the prompt has, and the last 100 of the prompt.
func (f *Flow) keep() (order, dropped []int) {
	for i := range models.ChunkFrames {
		order = append(order, f.next+i)
	}
	order = append(order, f.Order...)
	if n := len(order) - models.FlowKept; n > f.Prompt {
		dropped = slices.Sorted(slices.Values(order[f.Prompt:n]))
		order = slices.Delete(order, f.Prompt, n)
	}
	f.conv = (f.conv + models.ChunkFrames) % convRows
	return order, dropped
}

// Turn continues in place with the rows that a chunk frees. They are a range of the rings if the length of the prompt is a multiple of
// the chunk's.
func (f *Flow) Turn() error {
	order, dropped := f.keep()
	f.Order, f.next = order, f.next+models.ChunkFrames
	if len(dropped) > 0 {
		if dropped[len(dropped)-1]-dropped[0] != models.ChunkFrames-1 {
			return errors.New("the rows that become free are not one range")
		}
		f.next = dropped[0]
	}
	return nil
}

// Move copies the rows to keep to the front of the rings after a chunk.
func (f *Flow) Move() {
	order, _ := f.keep()
	for name, ring := range f.rings {
		if int(ring.Shape[1]) != f.rows() {
			continue
		}
		width := int(ring.Shape[2])
		moved := Zeros(ring.Shape...)
		for r := range 2 {
			for i, from := range order {
				copy(moved.Floats[(r*f.rows()+i)*width:][:width], ring.Floats[(r*f.rows()+from)*width:])
			}
		}
		f.rings[name] = moved
	}
	f.use(len(order))
}

// Flow replays the prompt, the chunks, and the end of the speech, exact and padded. The third chunk is the first that drops rows.
func (r *Replay) Flow() {
	limit := agreed().mel
	prompt := r.Fixture("prompt")
	bins := r.Dims.Speech.Flow.Mel
	f := r.NewFlow(len(prompt.Floats("prompt_mel")) / bins)
	out := f.Single(f.Noise(0, f.Prompt), prompt.Floats("mu"), prompt.Floats("prompt_mel"))
	f.Fill(out)
	for i, c := range r.Recording.Chunks {
		x := r.Fixture(fmt.Sprint("chunk_", i))
		mu, want := x.Floats("mu"), Rows(x.Floats("mel"), bins)
		if c.Last {
			r.flowEnd(f, mu, want, limit)
			return
		}
		count := len(mu) / bins
		out = f.Run(f.Noise(len(f.Order), count), mu, count)
		r.Near(fmt.Sprint("chunk ", i), want, out["mel"].Floats, limit)
		if i == 0 {
			r.batch(f.Chunk, map[string]int64{"conv_rows": 2 * convRows})
		}
		f.Move()
	}
}

// flowEnd runs the last frames of a turn, exact and padded.
func (r *Replay) flowEnd(f *Flow, mu, want []float32, limit Limit) {
	bins := f.dims.Mel
	count := len(mu) / bins
	noise := f.Noise(len(f.Order), count)
	out := f.Single(noise, mu, make([]float32, len(mu)))
	exact := out["mel"].Floats
	r.Near("end", want, exact, limit)
	padding := slices.Repeat([]float32{0.37}, (models.ChunkFrames-count)*bins)
	out = f.Run(append(noise, padding...), append(slices.Clip(mu), padding...), count)
	padded := out["mel"].Floats[:len(want)]
	r.Near("padded end", want, padded, limit)
	r.Near("padded end against the exact one", exact, padded, Limit{1e-5, limit.Half, limit.Of})
}

// Step replays the network's output in the first step of the first chunk, from recorded caches. weights returns a tensor of the
// checkpoint.
func (r *Replay) Step(weights func(name string) []float32) {
	call := r.Fixture("dit_call")
	d, bins := r.Dims.Speech.Flow.DiT, r.Dims.Speech.Flow.Mel
	recorded := call.Floats("in.att_cache")
	f := r.NewFlow(len(recorded) / (d.Layers * 2 * d.Heads * 2 * d.HeadDim))
	for i := range d.Layers {
		f.fillLayer(i, recorded, weights)
		f.fillConvs(i, call.Floats("in.cnn_cache"))
	}
	f.use(f.Prompt)
	half := len(call.Floats("in.x")) / 2 // both rows have the same noise, and one has the condition
	out := f.Run(Rows(call.Floats("in.x")[:half], bins), Rows(call.Floats("in.mu")[:half], bins), models.ChunkFrames)
	v := call.Floats("out.v")
	r.Near("velocity", slices.Concat(Rows(v[:half], bins), Rows(v[half:], bins)), out["velocity.0"].Floats, agreed().velocity)
}

// fillLayer copies the recorded keys and values of a layer, without the scale and the shifts that the graph merges into weights.
func (f *Flow) fillLayer(layer int, recorded []float32, weights func(name string) []float32) {
	d := f.dims.DiT
	p := fmt.Sprintf("flow.decoder.estimator.blocks.%d.attn.", layer)
	scale, shift, bias := weights(p+"k_norm.weight"), weights(p+"k_norm.bias"), weights(p+"to_v.bias")
	key, value := f.rings[fmt.Sprintf("past.0.%d.key", layer)], f.rings[fmt.Sprintf("past.0.%d.value", layer)]
	for r := range 2 {
		for h := range d.Heads {
			for c := range f.Prompt {
				from := recorded[((((layer*2+r)*d.Heads+h)*f.Prompt)+c)*2*d.HeadDim:]
				at := ((r*f.rows())+c)*d.Heads*d.HeadDim + h*d.HeadDim
				for k := range d.HeadDim {
					key.Floats[at+k] = (from[k] - shift[k]) / scale[k]
					value.Floats[at+k] = from[d.HeadDim+k] - bias[h*d.HeadDim+k]
				}
			}
		}
	}
}

// fillConvs copies the recorded frames before the convolutions of a layer.
func (f *Flow) fillConvs(layer int, recorded []float32) {
	d := f.dims.DiT
	for r := range 2 {
		for which := range 2 {
			ring := f.rings[fmt.Sprintf("past.0.%d.conv%d", layer, which+1)]
			for c := range d.Hidden {
				from := recorded[((layer*2+r)*2*d.Hidden+which*d.Hidden+c)*2:]
				for k := range 2 {
					ring.Floats[(r*convRows+convRows-2+k)*d.Hidden+c] = from[k]
				}
			}
		}
	}
}
