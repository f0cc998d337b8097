// Package timing measures single runs of the engines' devices, without their loops: copies in, the graph, copies out. It serves
// `touchline-model bench`.
package timing

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"time"

	"touchline/inference/minicpmo"
	"touchline/models"
)

// Runs holds the durations of single runs of one kind, sorted.
type Runs []time.Duration

// Stages holds the durations of the runs of commentary.
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
func TimeStages(ctx context.Context, b *models.Bundle, o minicpmo.Options, so StageOptions) (s Stages, err error) {
	onThread(func() { s, err = timeStages(ctx, b, o, so) })
	return s, err
}

// onThread runs a function on a thread of its own, to which captured graphs belong.
func onThread(work func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		work()
	}()
	<-done
}

func timeStages(ctx context.Context, b *models.Bundle, o minicpmo.Options, so StageOptions) (s Stages, err error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	d, err := minicpmo.OpenDevice(ctx, b, o)
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	free, err := d.Free()
	if err != nil {
		return s, err
	}
	s = Stages{
		Device: d.Name, Vision: map[int]Runs{}, Prefill: map[models.Weights]Runs{}, Decode: map[models.Weights]map[int]Runs{},
		Planned: d.Planned, Used: d.Before - free,
	}
	t := timer{ctx: ctx, now: o.Now, runs: so.Runs}
	for _, n := range so.Images {
		if run, ok := d.Embed(n); ok {
			s.Vision[n] = t.time(fmt.Sprintf("vision of %d", n), run)
		}
	}
	for set, w := range d.Weights {
		s.Prefill[w] = t.time("prefill", func() error { return d.Prefill(set, so.Prompt) })
		s.Decode[w] = map[int]Runs{}
		for _, n := range so.Rooms {
			if run, ok := d.Decode(set, n, so.Prompt); ok {
				s.Decode[w][n] = t.time(fmt.Sprintf("decode of %d", n), run)
			}
		}
	}
	if t.err == nil && len(so.Speaking) > 0 && b.Manifest.Dims.Speech != nil {
		if err := t.speech(b, d, o, so, &s.Speech); err != nil {
			return s, err
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
