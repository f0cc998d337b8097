package minicpmo

import (
	"context"
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
	spare   int64 // bytes for arenas beyond their plan; 0 without a budget
	table   *networks.Table
	float   models.Type // F, the graphs' float

	sessions []*ort.Session // of the decoder, by weight set
	decoder  *networks.Text
	vision   *visionRunner

	masks    []*sample.Set // of each slot's row of bias
	biasRows map[*sample.Set][]float32
	wide     []float32 // hidden states
	lastRun  time.Time // end of the last decode step; zero if other work followed
	fetched  int       // hidden states of each slot of the last run

	behind  *ort.Device            // by which the decoder's weights are loaded; nil on the CPU
	placed  []*networks.Arena      // of them
	weights map[string]ort.Pointer // of own kernels; nil without them
	ownSet  int
	why     error // why there are no own kernels
}

// openDevice loads the networks, and reports the progress.
func (e *Engine) openDevice(
	ctx context.Context, b *models.Bundle, sel *selection, rt *ort.Runtime, dev *ort.Device, o Options,
) (*device, error) {
	d := &device{
		sel: sel, bundle: b, runtime: rt, dev: dev, spare: e.spare, now: e.now, stats: e.stats, float: sel.embed.Float(),
		biasRows: map[*sample.Set][]float32{},
		masks:    make([]*sample.Set, sel.layout.Slots),
	}
	progress := &loading{report: o.Progress, total: e.plan.Total()}
	if sel.device == models.DeviceCUDA {
		o.test.pad = networks.PadTo
		defer progress.watch(func() (int64, error) {
			free, _, err := dev.MemInfo()
			return e.before - free, err
		})()
	}
	if err := d.load(ctx, progress, e.vision, o); err != nil {
		return nil, errors.Join(err, d.close())
	}
	return d, nil
}

// load loads the graphs and allocates the memory.
func (d *device) load(ctx context.Context, progress *loading, cfg vision.Config, o Options) (err error) {
	sel := d.sel
	var loaded int64
	progress.stageAt("embedding table", loaded)
	if d.table, err = networks.OpenTable(d.bundle, sel.embed, d.float.Size()); err != nil {
		return err
	}
	_, d.why = sel.ownDecoder(o)
	for set, g := range sel.decoders[:sel.first()] {
		progress.stageAt(string(g.Weights)+" decoder", loaded)
		s, err := d.openDecoder(ctx, set, o)
		if err != nil {
			return err
		}
		d.sessions = append(d.sessions, s)
		loaded += g.WeightBytes
	}
	if sel.vision != nil {
		progress.stageAt("vision tower", loaded)
		options := d.sessionOptions(o, sel.vision.WeightBytes+sel.visionBytes())
		if d.vision, err = d.openVision(*sel.vision, options, cfg); err != nil {
			return fmt.Errorf("load the vision tower: %w", err)
		}
		loaded += sel.vision.WeightBytes
	}
	progress.stageAt("cache and buffers", loaded)
	c := sel.dims.Decoder
	d.decoder, err = networks.NewText(d.runtime, d.dev, d.table, networks.TextOptions{
		Decoder: networks.DecoderOptions{
			Sessions: d.sessions, Captured: sel.captured[:len(d.sessions)], Layout: sel.layout, Float: d.float, Chunk: sel.chunk,
			Store: sel.prefixes,
		},
		Hidden: c.Hidden, Vocab: c.Vocab, Top: min(topK, c.Vocab), States: true, Several: sel.several(), Pad: max(o.test.pad, 1),
	})
	if err != nil {
		return err
	}
	return d.openOwn(o.test)
}

// sessionOptions returns the options of the decoder and the vision tower, with the planned bytes of its arena.
func (d *device) sessionOptions(o Options, planned int64) ort.SessionOptions {
	// A memory plan for each prompt length would only make the arenas grow. Sums of squares in bfloat16 would have too few bits.
	return ort.SessionOptions{
		CUDAGraph: true, Threads: o.Threads, NoMemoryPattern: true, StrictNorm: d.float == models.BFloat16,
		Limit: d.limit(planned),
	}
}

// prefillSet returns the weight set of prompts among those that are loaded.
func (d *device) prefillSet() int { return min(d.sel.prefill, len(d.sessions)-1) }

// limit returns the most bytes of an arena with its planned bytes, 0 for no limit. With a budget, one arena may have all that is spare, for
// a run of a size that the warm-up does not have: then that run fails, as it would on a GPU of this size.
func (d *device) limit(planned int64) int64 {
	if d.spare <= 0 {
		return 0
	}
	return planned + d.spare
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
	for _, a := range d.placed {
		err = errors.Join(err, a.Close())
	}
	if d.behind != nil {
		err = errors.Join(err, d.behind.Close())
	}
	return errors.Join(err, d.table.Close())
}
