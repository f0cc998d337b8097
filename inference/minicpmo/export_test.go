package minicpmo

import (
	"math"
	"slices"
	"time"

	"touchline/inference/internal/kvcache"
	"touchline/inference/minicpmo/voice"
	"touchline/models"
)

// For the tests outside the package.
var (
	NeedGPU    = needGPU
	CUDABundle = cudaBundle
)

// Faults are hooks before calls of the device. Each may be nil. An error of a hook
// replaces the call.
type Faults struct {
	Prefill func(slot, from, to int) error
	Decode  func(start, size int) error
	See     func(images int) error
	NaN     func(slot int) bool
	// Poison sets a prompt's image embeddings to NaN.
	Poison func(slot int) bool
	Clear  func(slot int)
}

type faulty struct {
	backend

	f *Faults
}

func (d faulty) prefill(set, slot int, p *prompt, from, to, hidden int) error {
	if d.f.Prefill != nil {
		if err := d.f.Prefill(slot, from, to); err != nil {
			return err
		}
	}
	if d.f.Poison != nil && d.f.Poison(slot) {
		bad := *p
		bad.images = nil
		for _, m := range p.images {
			c := *m
			c.embeds = make([]byte, len(m.embeds))
			for i := range c.embeds {
				c.embeds[i] = 0xff // NaN as float16 and as float32
			}
			bad.images = append(bad.images, &c)
		}
		p = &bad
	}
	return d.backend.prefill(set, slot, p, from, to, hidden)
}

func (d faulty) decode(set int, r kvcache.Range, tokens, lengths []int32, hidden bool) error {
	if d.f.Decode != nil {
		if err := d.f.Decode(r.Start, r.Size); err != nil {
			return err
		}
	}
	return d.backend.decode(set, r, tokens, lengths, hidden)
}

func (d faulty) embed(images []*image) error {
	if d.f.See != nil {
		if err := d.f.See(len(images)); err != nil {
			return err
		}
	}
	return d.backend.embed(images)
}

func (d faulty) clear(slot int) error {
	if d.f.Clear != nil {
		d.f.Clear(slot)
	}
	return d.backend.clear(slot)
}

func (d faulty) top(slot int) ([]float32, []int64) {
	v, ids := d.backend.top(slot)
	if d.f.NaN != nil && d.f.NaN(slot) {
		v = append([]float32(nil), v...)
		v[0] = float32(math.NaN())
	}
	return v, ids
}

// together embeds each picture alone, and then in one run behind earlier ones of its grid.
type together struct {
	backend

	earlier []*image
	compare func(alone, together [][]byte)
}

func (d *together) embed(images []*image) error {
	if err := d.backend.embed(images); err != nil {
		return err
	}
	var alone, all [][]byte
	var run []*image
	for _, m := range append(d.earlier, images...) {
		if m.rows == images[0].rows && m.cols == images[0].cols {
			alone, run = append(alone, m.embeds), append(run, &image{rows: m.rows, cols: m.cols, patches: m.patches})
		}
	}
	if err := d.backend.embed(run[max(0, len(run)-batchLimit):]); err != nil {
		return err
	}
	for _, m := range run[max(0, len(run)-batchLimit):] {
		all = append(all, m.embeds)
	}
	d.compare(alone[max(0, len(run)-batchLimit):], all)
	for _, m := range images {
		d.earlier = append(d.earlier, &image{rows: m.rows, cols: m.cols, patches: slices.Clone(m.patches), embeds: m.embeds})
	}
	return nil
}

// Together calls compare with the embeddings of pictures, one by one and in one run of several rooms.
func (o Options) Together(compare func(alone, together [][]byte)) Options {
	o.test.wrap = func(b backend) backend { return &together{backend: b, compare: compare} }
	return o
}

// WithFaults adds hooks before the device.
func (o Options) WithFaults(f *Faults) Options {
	o.test.wrap = func(b backend) backend { return faulty{b, f} }
	return o
}

// WithChunk feeds prompts in chunks of n, one per turn.
func (o Options) WithChunk(n int) Options {
	o.test.chunk, o.test.pause = n, time.Nanosecond
	return o
}

// WithBoth loads int4 and fp32 on the CPU, with the given costs of their steps (by
// set and by range size as a power of two).
func (o Options) WithBoth(costs [][]time.Duration) Options {
	o.test.options, o.test.steps = both, costs
	return o
}

// WithStages loads the first weight set alone, and the rest after a call of rest.
func (o Options) WithStages(rest func()) Options {
	o.Staged, o.test.rest = true, rest
	return o
}

// TokenByToken has the states of given texts as of a bundle whose decoder returns one state of a run.
func (o Options) TokenByToken() Options {
	o.test.single = true
	return o
}

// WithPad pads prompts to multiples of n, as on CUDA.
func (o Options) WithPad(n int) Options {
	o.test.pad = n
	return o
}

// WithFree sets the device's free memory.
func (o Options) WithFree(n int64) Options {
	o.test.free = n
	return o
}

// WithVoices replaces the voices of the bundle.
func (o Options) WithVoices(voices map[string]voice.Reference) Options {
	o.test.voices = voices
	return o
}

// WithCards opens each GPU of the settings as a CPU, with the options that card returns.
func (o Options) WithCards(card func(gpu int, o Options) Options) Options {
	o.test.card = func(o Options) Options {
		gpu := o.Config.MiniCPM.GPU
		o.Config.MiniCPM.GPU = 0
		return card(gpu, o)
	}
	return o
}

// both joins a float and an int4 selection into one with two weight sets.
func both(options []selection) []selection {
	s := options[len(options)-1]
	s.decoders = []models.Graph{s.decoders[0], options[0].decoders[0]}
	s.captured, s.prefill = []int{s.layout.Slots, s.layout.Slots}, 1
	return []selection{s}
}
