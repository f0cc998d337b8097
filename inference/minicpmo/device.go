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
	pad     int // lengths of prompt chunks are rounded up to a multiple of it
	float   models.Type

	sessions []*ort.Session // of the decoder, by weight set
	decoder  *networks.Decoder
	vision   *visionRunner

	// Rows of the decoder.
	fed, prompt, bias, logitsRows, values, ids, states *networks.Rows
	hostLogits                                         *ort.Memory // of one slot

	top256   int
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
		float: models.Float32, biasRows: map[*sample.Set][]float32{}, top256: min(topK, sel.dims.Decoder.Vocab),
		masks: make([]*sample.Set, sel.layout.Slots),
	}
	d.pad = max(o.pad, 1)
	if sel.device == models.DeviceCUDA {
		d.float, d.pad = models.Float16, padTo
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
	return d, d.allocate()
}

// allocate allocates the decoder's memory.
func (d *device) allocate() (err error) {
	c, k := d.sel.dims.Decoder, int64(d.top256)
	states := networks.Port{Name: "hidden_states", Type: d.float, Shape: []int64{1, int64(c.Hidden)}, Host: true}
	var several *networks.Port
	if d.sel.several() {
		several = &networks.Port{Name: states.Name, Type: d.float, Shape: states.Shape[1:], Host: true}
	}
	d.decoder, err = networks.NewDecoder(d.runtime, d.dev, networks.DecoderOptions{
		Sessions: d.sessions, Captured: d.sel.captured, Layout: d.sel.layout, Float: d.float, Chunk: d.sel.chunk,
		Several: several,
		Fed:     []networks.Port{{Name: "inputs_embeds", Type: d.float, Shape: []int64{int64(c.Hidden)}, Host: true}},
		Inputs:  []networks.Port{{Name: "logits_bias", Type: models.Float32, Shape: []int64{int64(c.Vocab)}}},
		Outputs: []networks.Port{
			{Name: "logits", Type: models.Float32, Shape: []int64{1, int64(c.Vocab)}},
			{Name: "top_values", Type: models.Float32, Shape: []int64{1, k}, Host: true},
			{Name: "top_ids", Type: models.Int64, Shape: []int64{1, k}, Host: true},
			states,
		},
	})
	if err != nil {
		return err
	}
	d.fed, d.prompt = d.decoder.Input("inputs_embeds"), d.decoder.Prompt("inputs_embeds")
	d.bias = d.decoder.Input("logits_bias")
	out := d.decoder.Output
	d.logitsRows, d.states, d.values, d.ids = out("logits"), out("hidden_states"), out("top_values"), out("top_ids")
	d.hostLogits = d.decoder.Host("logits", int64(c.Vocab)*4)
	return d.decoder.Err()
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
