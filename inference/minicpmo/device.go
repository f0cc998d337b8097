package minicpmo

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"touchline/inference/internal/ort"
	"touchline/inference/internal/sample"
	"touchline/inference/internal/vision"
	"touchline/models"
)

// device is the backend on ONNX Runtime. The inputs and outputs of the decode
// step have fixed addresses, a row per slot, because a captured graph reads and
// writes the addresses of its capture. A range of slots is a view of them.
type device struct {
	sel    *selection
	bundle *models.Bundle
	now    func() time.Time
	stats  *counters

	runtime *ort.Runtime
	dev     *ort.Device
	table   *table
	elem    int // bytes of F, the graphs' float
	pad     int // lengths of prompt chunks are rounded up to a multiple of it
	float   models.Type

	decoders []*ort.Session
	vision   *visionRunner
	owned    []interface{ Close() error } // all but sessions, in the order of creation

	kv                                                       []*ort.Memory
	embeds, lengths, bias, logitsAt, values, ids, hiddens    *ort.Memory
	chunkEmbeds, chunkLength, first                          *ort.Memory
	hostEmbeds, hostLengths, hostValues, hostIDs, hostHidden *ort.Memory
	hostChunk, hostChunkLength, hostLogits                   *ort.Memory
	total, chunkTotal                                        *ort.Tensor
	rangeViews                                               []*rangeView // by kvcache index, made when needed
	decodes                                                  [][]*runner  // by set and index
	prefills                                                 []*runner    // by slot
	plain                                                    *ort.RunOptions

	top256    int
	masks     []*sample.Set // of each slot's row of bias
	biasRows  map[*sample.Set][]float32
	row       []float32 // a hidden state
	lastRun   time.Time // end of the last decode step; zero if other work followed
	hasHidden bool
}

// rangeView holds the tensors of a range of slots.
type rangeView struct {
	kv                                                []*ort.Tensor
	embeds, lengths, bias, logits, values, ids, state *ort.Tensor
}

// runner is a binding with its run options.
type runner struct {
	session *ort.Session
	binding *ort.Binding
	options *ort.RunOptions
}

func (r *runner) run() error { return r.session.Run(r.binding, r.options) }

// openDevice loads the graphs and allocates the memory. progress receives the
// bytes of weights loaded so far.
func openDevice(b *models.Bundle, sel *selection, rt *ort.Runtime, dev *ort.Device, o deviceOptions) (_ *device, err error) {
	d := &device{
		sel: sel, bundle: b, runtime: rt, dev: dev, now: o.now, stats: o.stats, elem: int(sel.elem()),
		float: models.Float32, biasRows: map[*sample.Set][]float32{}, top256: min(topK, sel.dims.Decoder.Vocab),
		masks: make([]*sample.Set, sel.layout.Slots), row: make([]float32, sel.dims.Decoder.Hidden),
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
	if d.table, err = openTable(b, sel.embed, d.elem); err != nil {
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
		d.decoders = append(d.decoders, s)
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
	if err := d.allocate(); err != nil {
		return nil, err
	}
	return d, nil
}

type deviceOptions struct {
	pad      int // on the CPU, for tests
	threads  int
	vision   vision.Config
	now      func() time.Time
	stats    *counters
	progress func(stage string, bytes int64)
}

// keep closes c with the device.
func (d *device) keep(c interface{ Close() error }) { d.owned = append(d.owned, c) }

// close frees everything, in reverse order, the sessions last.
func (d *device) close() error {
	var err error
	if d.vision != nil {
		err = d.vision.close()
	}
	err = errors.Join(err, closeAll(d.owned))
	for _, s := range slices.Backward(d.decoders) {
		err = errors.Join(err, s.Close())
	}
	d.owned, d.decoders = nil, nil
	return errors.Join(err, d.table.close())
}

// closeAll closes handles in reverse order.
func closeAll(handles []interface{ Close() error }) error {
	var err error
	for _, c := range slices.Backward(handles) {
		err = errors.Join(err, c.Close())
	}
	return err
}
