package qwen3asr

import (
	"context"
	"errors"
	"slices"

	"touchline/inference/internal/kvcache"
	"touchline/inference/internal/mel"
	"touchline/inference/step"
	"touchline/models"
)

// Device is an engine's device without the loop, for measurements. All calls come from the thread that opened it.
type Device struct {
	d       *device
	release func() error
	whole   []*window
	// Positions counts the positions of the prompts and answers.
	Positions int
}

// OpenDevice loads and warms up the networks of a bundle.
func OpenDevice(ctx context.Context, b *models.Bundle, o Options) (_ *Device, err error) {
	e := &Engine{name: b.Manifest.Name, o: o.withDefaults()}
	if err := errors.Join(ctx.Err(), e.check(b)); err != nil {
		return nil, err
	}
	rt, dev, release, err := step.OpenDevice(e.o.Runtime, e.o.Device, e.o.GPU, step.Commentary)
	if err != nil {
		return nil, err
	}
	m := &Device{release: release}
	defer func() {
		if err != nil {
			err = errors.Join(err, m.Close())
		}
	}()
	sel, err := e.choose(b, dev)
	if err != nil {
		return nil, err
	}
	if m.d, err = e.openDevice(sel, rt, dev); err != nil {
		return nil, err
	}
	h := m.d.encoder.dims
	frames := h.Chunk * h.Window
	for range sel.batch {
		m.whole = append(m.whole, &window{mel: make([]float32, mel.SpeechBins*frames), frames: frames, rows: h.Rows(frames)})
	}
	m.Positions = min(126, sel.chunk-1)
	return m, m.d.warm(func(run func() error) error { return run() })
}

// Close frees everything.
func (m *Device) Close() error {
	var err error
	if m.d != nil {
		err = m.d.close()
	}
	return errors.Join(err, m.release())
}

// Name returns the name of the device.
func (m *Device) Name() string { return m.d.dev.Name() }

// Encode returns a run of n whole windows; nil if there is no such run.
func (m *Device) Encode(n int) func() error {
	if n > len(m.whole) {
		return nil
	}
	return func() error { return m.d.encode(m.whole[:n]) }
}

// Prefill returns a run of n prompts of Positions each; nil if there is no such run.
func (m *Device) Prefill(n int) func() error {
	j := &job{prompt: prompt{ids: make([]int32, m.Positions+1)}}
	switch {
	case n == 1:
		return func() error { return m.d.prefill(j, 0, m.Positions) }
	case n <= m.d.sel.layout.Slots && n*m.Positions <= m.d.sel.together:
		return func() error { return m.d.begin(slices.Repeat([]*job{j}, n), kvcache.Range{Size: n}) }
	}
	return nil
}

// Decode returns a step of n answers; nil if there is no such run.
func (m *Device) Decode(n int) func() error {
	slots := m.d.sel.layout.Slots
	if n > slots {
		return nil
	}
	tokens, lengths := make([]int32, slots), make([]int32, slots)
	for i := range lengths {
		lengths[i] = int32(m.Positions)
	}
	return func() error { return m.d.decode(kvcache.Range{Size: n}, tokens, lengths) }
}
