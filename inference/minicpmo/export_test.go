package minicpmo

import (
	"math"
	"time"

	"touchline/inference/internal/kvcache"
)

// Faults stand between the loop and the device. Each hook may be nil; one
// that returns an error is the device's error.
type Faults struct {
	Prefill func(slot, from, to int) error
	Decode  func(start, size int) error
	See     func(images int) error
	NaN     func(slot int) bool
	// Poison makes a prompt's numbers NaN before they are fed.
	Poison func(slot int) bool
	Clear  func(slot int)
}

type faulty struct {
	backend

	f *Faults
}

func (d faulty) prefill(set, slot int, p *prompt, from, to int, hidden bool) error {
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

func (d faulty) see(images []*image) error {
	if d.f.See != nil {
		if err := d.f.See(len(images)); err != nil {
			return err
		}
	}
	return d.backend.see(images)
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

// WithFaults puts hooks before the device.
func (o Options) WithFaults(f *Faults) Options {
	o.test.wrap = func(b backend) backend { return faulty{b, f} }
	return o
}

// WithChunk feeds prompts in pieces of n, one of them a turn.
func (o Options) WithChunk(n int) Options {
	o.test.chunk, o.test.stall = n, time.Nanosecond
	return o
}

// WithBoth holds int4 and fp32 on the CPU, and decodes with the one that the
// costs (by set, in steps of a power of two) make the faster.
func (o Options) WithBoth(costs [][]time.Duration) Options {
	o.test.both = costs
	return o
}

// WithPad rounds the lengths of prompts up, as on CUDA.
func (o Options) WithPad(n int) Options {
	o.test.pad = n
	return o
}

// WithFree makes the engine believe that the device has so much memory.
func (o Options) WithFree(n int64) Options {
	o.test.free = n
	return o
}
