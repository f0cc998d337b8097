package minicpmo

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"touchline/inference/internal/kvcache"
	"touchline/inference/minicpmo/voice"
	"touchline/inference/step"
	"touchline/models"
)

// Device is an engine's device without the loop, for measurements. All calls come from the thread that opened it.
type Device struct {
	// Name is the name of the device. Planned is the planned memory, Before the free memory before loading, in bytes.
	Name            string
	Planned, Before int64
	// MaxLen is the maximum number of positions of a slot.
	MaxLen int
	// Weights are the weight sets of the decoder.
	Weights []models.Weights

	d       *device
	e       *Engine
	release func() error
	grey    []*image
}

// OpenDevice loads and warms up the networks of a bundle, without a voice.
func OpenDevice(ctx context.Context, b *models.Bundle, o Options) (_ *Device, err error) {
	e, err := prepare(b, o)
	if err != nil {
		return nil, err
	}
	c := o.Config.MiniCPM
	options, err := choose(b, c, lengths(&b.Manifest, o.Config, max(o.Frames, 4))...)
	if err != nil {
		return nil, err
	}
	rt, dev, release, err := step.OpenDevice(c.Runtime, c.Device, c.GPU, step.Commentary)
	if err != nil {
		return nil, err
	}
	m := &Device{Name: dev.Name(), e: e, release: release}
	defer func() {
		if err != nil {
			err = errors.Join(err, m.Close())
		}
	}()
	sel, err := e.fit(options, dev, o.test)
	if err != nil {
		return nil, err
	}
	m.Planned, m.Before, m.MaxLen = e.plan.Total(), e.before, sel.layout.MaxLen
	for _, g := range sel.decoders {
		m.Weights = append(m.Weights, g.Weights)
	}
	e.stats, o.Progress = newCounters(sel.names()), func(int, string) {}
	if m.d, err = e.openDevice(ctx, b, sel, rt, dev, o); err != nil {
		return nil, err
	}
	w, err := m.d.warm(ctx, func(int) {})
	if err != nil {
		return nil, err
	}
	for set := len(m.d.sessions); set < len(sel.decoders); set++ {
		s, err := m.d.openDecoder(ctx, set, o)
		if err != nil {
			return nil, err
		}
		if err := m.d.addSet(ctx, s, &w, m.d.alone()); err != nil {
			return nil, err
		}
	}
	if v := m.d.vision; v != nil {
		if m.grey, err = v.grey(batchLimit); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// Close frees everything.
func (m *Device) Close() error {
	var err error
	if m.d != nil {
		err = m.d.close()
	}
	return errors.Join(err, m.release())
}

// Free returns the bytes that are free on the device.
func (m *Device) Free() (int64, error) {
	free, _, err := m.d.dev.MemInfo()
	return free, err
}

// Embed runs the vision tower for n pictures of 16:9, and ok is false if it has no such run.
func (m *Device) Embed(n int) (run func() error, ok bool) {
	return func() error { return m.d.embed(m.grey[:n]) }, n >= 1 && n <= len(m.grey)
}

// Prefill feeds a prompt of n tokens at most.
func (m *Device) Prefill(set, n int) error {
	p := &prompt{ids: make([]int32, min(n, m.d.sel.chunk, m.d.sel.layout.MaxLen-1))}
	for i := range p.ids {
		p.ids[i] = int32(i % m.d.sel.dims.Decoder.Vocab)
	}
	return m.d.prefill(set, 0, p, 0, len(p.ids), 0)
}

// Decode returns a step of n rooms with the given number of positions each; ok is false if there is no such run.
func (m *Device) Decode(set, n, positions int) (run func() error, ok bool) {
	l := m.d.sel.layout
	if n > l.Slots || m.d.sel.device == models.DeviceCUDA && n > m.d.sel.captured[set] {
		return nil, false
	}
	tokens, lengths := make([]int32, l.Slots), make([]int32, l.Slots)
	for i := range lengths {
		lengths[i] = int32(min(positions, l.MaxLen-1))
	}
	return func() error { return m.d.decode(set, kvcache.Range{Size: n}, tokens, lengths, false) }, true
}

// OwnRows returns the maximum number of rooms of a step by own kernels, of the first weight set; 0 without them, and why.
func (m *Device) OwnRows() (rows int, why error) { return m.d.decoder.Own.Rows(), m.d.why }

// Force feeds ids to n rooms, the last ones in steps of the first weight set, and returns the logits of the last room after each step.
func (m *Device) Force(n int, ids []int32, steps int) (rows [][]float32, err error) {
	d, past := m.d, len(ids)-steps
	for slot := range n {
		for from := 0; from < past; from += d.sel.chunk {
			if err := d.prefill(d.prefillSet(), slot, &prompt{ids: ids}, from, min(from+d.sel.chunk, past), 0); err != nil {
				return nil, err
			}
		}
	}
	for at := past; at < len(ids); at++ {
		tokens, lengths := make([]int32, d.sel.layout.Slots), slices.Repeat([]int32{int32(at)}, d.sel.layout.Slots)
		for slot := range n {
			tokens[slot] = ids[at]
		}
		if err := d.decode(0, kvcache.Range{Size: n}, tokens, lengths, false); err != nil {
			return nil, err
		}
		row, err := d.logits(n - 1)
		if err != nil {
			return nil, err
		}
		rows = append(rows, slices.Clone(row))
	}
	return rows, nil
}

// Voice returns the voice of the bundle with a number of slots and one reference, and the options of its parts on this device.
func (m *Device) Voice(ctx context.Context, o Options, slots int) (*voice.Selection, voice.Options, error) {
	vo := m.e.voiceOptions(m.d.runtime, m.d.dev, o)
	c := o.Config.Voice
	c.Enabled, c.Slots = true, slots
	s, err := voice.Choose(m.d.bundle, m.d.sel.device, m.d.sel.layout.Slots, c)
	if err == nil {
		err = s.LoadReferences(ctx, vo)
	}
	if err != nil {
		return nil, vo, fmt.Errorf("the voice: %w", err)
	}
	s.OnlyDefault()
	return s, vo, nil
}
