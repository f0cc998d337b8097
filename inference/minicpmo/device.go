package minicpmo

import (
	"errors"
	"fmt"
	"slices"
	"time"

	networks "touchline/inference/internal/device"
	"touchline/inference/internal/ort"
	"touchline/inference/internal/sample"
	"touchline/inference/internal/vision"
	"touchline/models"
)

// device is the backend on ONNX Runtime.
type device struct {
	sel    *selection
	bundle *models.Bundle
	now    func() time.Time
	stats  *counters

	runtime *ort.Runtime
	dev     *ort.Device
	table   *networks.Table
	elem    int // bytes of F, the graphs' float
	float   models.Type

	sessions []*ort.Session // of the decoder, by weight set
	decoder  *networks.Text
	vision   *visionRunner

	masks    []*sample.Set // of each slot's row of bias
	biasRows map[*sample.Set][]float32
	wide     []float32 // hidden states
	lastRun  time.Time // end of the last decode step; zero if other work followed
	fetched  int       // hidden states of each slot of the last run
}

// openDevice loads the graphs and allocates the memory. progress receives the
// bytes of weights loaded so far.
func openDevice(b *models.Bundle, sel *selection, rt *ort.Runtime, dev *ort.Device, o deviceOptions) (_ *device, err error) {
	d := &device{
		sel: sel, bundle: b, runtime: rt, dev: dev, now: o.now, stats: o.stats, elem: int(sel.elem()),
		float: models.Float32, biasRows: map[*sample.Set][]float32{},
		masks: make([]*sample.Set, sel.layout.Slots),
	}
	pad := max(o.pad, 1)
	if sel.device == models.DeviceCUDA {
		d.float, pad = models.Float16, networks.PadTo
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, d.close())
		}
	}()
	var loaded int64
	report := func(stage string) { o.progress(stage, loaded) }
	report("embedding table")
	if d.table, err = networks.OpenTable(b, sel.embed, d.elem); err != nil {
		return nil, err
	}
	// A memory plan for each prompt length would only make the arenas grow.
	options := ort.SessionOptions{CUDAGraph: true, Threads: o.threads, NoMemoryPattern: true}
	for _, g := range sel.decoders {
		report(string(g.Weights) + " decoder")
		s, err := rt.NewSession(b.Path(g.File), dev, options)
		if err != nil {
			return nil, fmt.Errorf("load the %s decoder: %w", g.Weights, err)
		}
		d.sessions = append(d.sessions, s)
		loaded += g.WeightBytes
	}
	if sel.vision != nil {
		report("vision tower")
		if d.vision, err = d.openVision(*sel.vision, options, o.vision); err != nil {
			return nil, fmt.Errorf("load the vision tower: %w", err)
		}
		loaded += sel.vision.WeightBytes
	}
	report("cache and buffers")
	c := sel.dims.Decoder
	d.decoder, err = networks.NewText(rt, dev, d.table, networks.TextOptions{
		Decoder: networks.DecoderOptions{
			Sessions: d.sessions, Captured: sel.captured, Layout: sel.layout, Float: d.float, Chunk: sel.chunk,
		},
		Hidden: c.Hidden, Vocab: c.Vocab, Top: min(topK, c.Vocab), States: true, Several: sel.several(), Pad: pad,
	})
	return d, err
}

type deviceOptions struct {
	pad      int // on the CPU, for tests
	threads  int
	vision   vision.Config
	now      func() time.Time
	stats    *counters
	progress func(stage string, bytes int64)
}

// close frees everything, the sessions last.
func (d *device) close() error {
	var err error
	if d.vision != nil {
		err = d.vision.close()
	}
	if d.decoder != nil {
		err = errors.Join(err, d.decoder.Close())
	}
	for _, s := range slices.Backward(d.sessions) {
		err = errors.Join(err, s.Close())
	}
	d.sessions = nil
	return errors.Join(err, d.table.Close())
}
