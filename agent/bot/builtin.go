package bot

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"touchline/inference"
	"touchline/inference/minicpmo"
	"touchline/inference/residency"
	"touchline/models"
)

// loaded is a model in this process, as minicpmo.Engine is one.
type loaded interface {
	inference.Model
	Lost() <-chan struct{}
	Stats() minicpmo.Stats
}

// builtIn loads the model of a bundle and watches whether its device lives.
type builtIn struct {
	name, note string
	open       func(ctx context.Context, progress residency.Progress) (loaded, error)
	log        zerolog.Logger

	fresh   chan loaded // has just been loaded
	failed  chan error  // a load failed
	current atomic.Pointer[resident]
	lost    chan struct{} // closed when the device is lost
	once    sync.Once
}

const (
	// lostGrace is how long a process whose device is lost stays: rooms are told why their looks fail, and probes see
	// that it is not ready.
	lostGrace = time.Second
	// lostPatience bounds the wait for an orderly end on a device that does not answer.
	lostPatience = 3 * time.Second
)

// newBuiltIn reads the bundle's manifest; the weights are read by load.
func newBuiltIn(cfg minicpmo.Settings, frames int, log zerolog.Logger) (*builtIn, error) {
	bundle, err := models.OpenBundle(cfg.MiniCPM.Path)
	if err != nil {
		return nil, err
	}
	if bundle.Manifest.Dims.Vision == nil {
		return nil, fmt.Errorf("%s: %w", bundle.Dir, minicpmo.ErrNoVision)
	}
	var note string
	if bundle.Manifest.Random {
		note = "The model's weights are random: its words mean nothing."
	}
	if len(bundle.Manifest.Missing) > 0 {
		note = strings.TrimSpace(note + " The model lacks: " + strings.Join(bundle.Manifest.Missing, ", ") + ".")
	}
	open := func(ctx context.Context, progress residency.Progress) (loaded, error) {
		log.Info().Str("bundle", bundle.Dir).Str("device", cfg.MiniCPM.Device).Msg("loading the model")
		e, err := minicpmo.Open(ctx, bundle, minicpmo.Options{Config: cfg, Frames: frames, Progress: progress, Logger: log})
		if err != nil {
			return nil, err
		}
		return e, nil
	}
	return builtInOf(bundle.Manifest.Name, note, open, log), nil
}

func builtInOf(name, note string, open func(context.Context, residency.Progress) (loaded, error), log zerolog.Logger) *builtIn {
	return &builtIn{
		name: name, note: note, open: open, log: log,
		fresh: make(chan loaded), failed: make(chan error, 1), lost: make(chan struct{}),
	}
}

// load implements residency.Load.
func (b *builtIn) load(ctx context.Context, progress residency.Progress) (inference.Model, error) {
	e, err := b.open(ctx, progress)
	if err != nil {
		select {
		case b.failed <- err:
		default: // one is waiting to be seen
		}
		return nil, err
	}
	select {
	case b.fresh <- e:
	case <-ctx.Done():
		return nil, errors.Join(ctx.Err(), e.Close())
	}
	r := &resident{loaded: e, b: b}
	b.current.Store(r)
	return r, nil
}

// run keeps the model by keep until ctx ends, the first load fails (unless
// patient) or the device is lost.
func (b *builtIn) run(ctx context.Context, keep func(context.Context) error, patient bool) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	kept := make(chan error, 1)
	go func() { kept <- keep(ctx) }()
	var lost <-chan struct{}
	for {
		select {
		case err := <-kept:
			return err
		case e := <-b.fresh:
			lost, patient = e.Lost(), true
		case err := <-b.failed:
			switch {
			case errors.Is(err, minicpmo.ErrDeviceLost):
				return b.abandon(ctx, cancel, kept, err)
			case !patient && ctx.Err() == nil:
				cancel()
				return errors.Join(fmt.Errorf("load the model: %w", err), <-kept)
			}
		case <-lost:
			return b.abandon(ctx, cancel, kept, minicpmo.ErrDeviceLost)
		}
	}
}

// abandon gives up a device that is lost, after a moment in which all can see it.
func (b *builtIn) abandon(ctx context.Context, cancel func(), kept <-chan error, err error) error {
	b.log.Error().Err(err).Int("exit_code", minicpmo.ExitDeviceLost).
		Msg("the GPU does not answer any more: this program ends, start it anew")
	b.once.Do(func() { close(b.lost) })
	timer := time.NewTimer(lostGrace)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
	cancel()
	timer.Reset(lostPatience)
	select {
	case more := <-kept:
		return errors.Join(err, more)
	case <-timer.C:
		return fmt.Errorf("%w; freeing it took too long", err)
	}
}

// resident is a model until it is unloaded: what is freed is not to be kept by
// whoever counts.
type resident struct {
	loaded

	b *builtIn
}

// Close implements inference.Model.
func (r *resident) Close() error {
	r.b.current.CompareAndSwap(r, nil)
	return r.loaded.Close()
}

// untilLost does not wait for the end of a model whose device is lost: that
// may never come.
type untilLost struct {
	*residency.Keeper

	b *builtIn
}

// Close implements inference.Model.
func (u untilLost) Close() error {
	select {
	case <-u.b.lost:
		return nil
	default:
		return u.Keeper.Close()
	}
}
