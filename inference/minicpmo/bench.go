package minicpmo

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"time"

	"touchline/inference/internal/kvcache"
	"touchline/inference/internal/vision"
	"touchline/inference/step"
	"touchline/models"
)

// Runs holds the durations of single runs of one kind, sorted.
type Runs []time.Duration

// Stages holds the durations of the device's runs without the loop: copies in,
// the graph, copies out.
type Stages struct {
	Device string
	// Vision by images per run, of the grid of a 16:9 picture.
	Vision map[int]Runs
	// Prefill of a whole prompt by weight set; Decode of a step by set and rooms.
	Prefill map[models.Weights]Runs
	Decode  map[models.Weights]map[int]Runs
	// Memory planned and used, in bytes, without the voice.
	Planned, Used int64
	Speech        SpeechStages
}

// StageOptions are the parameters of TimeStages.
type StageOptions struct {
	Runs          int   // of each kind, after three that are not counted
	Prompt        int   // tokens
	Images, Rooms []int // in one run
	Speaking      []int // rooms of the voice's runs
}

// TimeStages loads a bundle and times each kind of run. The device must be
// otherwise idle.
func TimeStages(ctx context.Context, b *models.Bundle, o Options, so StageOptions) (s Stages, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		// Captured graphs belong to the thread.
		runtime.LockOSThread()
		s, err = timeStages(ctx, b, o, so)
	}()
	<-done
	return s, err
}

func timeStages(ctx context.Context, b *models.Bundle, o Options, so StageOptions) (s Stages, err error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	e, err := prepare(b, o)
	if err != nil {
		return s, err
	}
	options, err := choose(b, o.Config.MiniCPM, maxLen(&b.Manifest, o.Config, max(o.Frames, 4)))
	if err != nil {
		return s, err
	}
	c := o.Config.MiniCPM
	rt, dev, release, err := step.OpenDevice(c.Runtime, c.Device, c.GPU, step.Commentary)
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, release()) }()
	before, _, err := dev.MemInfo()
	if err != nil {
		return s, err
	}
	sel, err := e.fit(options, dev, o.test)
	if err != nil {
		return s, err
	}
	d, err := openDevice(b, sel, rt, dev, deviceOptions{
		threads: o.Threads, vision: e.vision, now: o.Now, stats: newCounters(make([]string, len(sel.decoders))),
		progress: func(string, int64) {},
	})
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, d.close()) }()
	if _, err := d.warm(ctx, func(int) {}); err != nil {
		return s, err
	}
	after, _, err := dev.MemInfo()
	if err != nil {
		return s, err
	}
	s = Stages{
		Device: dev.Name(), Vision: map[int]Runs{}, Prefill: map[models.Weights]Runs{}, Decode: map[models.Weights]map[int]Runs{},
		Planned: e.plan.Total(), Used: before - after,
	}
	t := timer{ctx: ctx, now: o.Now, runs: so.Runs}
	t.vision(d, e.vision, so, &s)
	t.decoders(d, so, &s)
	if t.err == nil && len(so.Speaking) > 0 {
		if err := t.speech(e, b, d, o, so, &s.Speech); err != nil {
			return s, fmt.Errorf("the voice: %w", err)
		}
	}
	return s, t.err
}

// timer times runs and keeps the first error.
type timer struct {
	ctx  context.Context //nolint:containedctx // lives for one call
	now  func() time.Time
	runs int
	err  error
}

// warmRuns are not counted.
const warmRuns = 3

func (t *timer) time(what string, work func() error) Runs {
	var r Runs
	for i := range t.runs + warmRuns {
		if t.err == nil {
			t.err = t.ctx.Err()
		}
		if t.err != nil {
			return nil
		}
		begin := t.now()
		if err := work(); err != nil {
			t.err = fmt.Errorf("%s: %w", what, err)
			return nil
		}
		if i >= warmRuns {
			r = append(r, t.now().Sub(begin))
		}
	}
	slices.Sort(r)
	return r
}

func (t *timer) vision(d *device, cfg vision.Config, so StageOptions, s *Stages) {
	if d.vision == nil {
		return
	}
	layout, err := cfg.Layout(1280, 720, 1)
	if err != nil {
		t.err = errors.Join(t.err, err)
		return
	}
	rows, cols := layout.Overview.H/cfg.PatchSize, layout.Overview.W/cfg.PatchSize
	var images []*image
	for range batchLimit {
		images = append(images, d.vision.grey(rows, cols))
	}
	for _, n := range so.Images {
		if n >= 1 && n <= batchLimit {
			s.Vision[n] = t.time(fmt.Sprintf("vision of %d", n), func() error { return d.embed(images[:n]) })
		}
	}
}

func (t *timer) decoders(d *device, so StageOptions, s *Stages) {
	l := d.sel.layout
	p := &prompt{ids: make([]int32, min(so.Prompt, d.sel.chunk, l.MaxLen-1))}
	for i := range p.ids {
		p.ids[i] = int32(i % d.sel.dims.Decoder.Vocab) //nolint:gosec // below the vocabulary
	}
	for set, g := range d.sel.decoders {
		s.Prefill[g.Weights] = t.time("prefill", func() error { return d.prefill(set, 0, p, 0, len(p.ids), 0) })
		s.Decode[g.Weights] = map[int]Runs{}
		tokens, lengths := make([]int32, l.Slots), make([]int32, l.Slots)
		for i := range lengths {
			lengths[i] = int32(len(p.ids)) //nolint:gosec // bounded by the layout
		}
		for _, n := range so.Rooms {
			if n > l.Slots || d.sel.device == models.DeviceCUDA && n > d.sel.captured[set] {
				continue
			}
			r := kvcache.Range{Start: 0, Size: n}
			s.Decode[g.Weights][n] = t.time(fmt.Sprintf("decode of %d", n), func() error {
				return d.decode(set, r, tokens, lengths, false)
			})
		}
	}
}
