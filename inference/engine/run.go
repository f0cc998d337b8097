package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"touchline/inference"
	"touchline/internal/rescue"
)

const (
	// lostGrace is the time between the loss of the device and the end of Run, in which sessions and probes see the reason.
	lostGrace = time.Second
	// lostTimeout bounds the orderly end on a lost device.
	lostTimeout = 3 * time.Second
)

// device is implemented by models whose device may be lost.
type device interface {
	// Lost is closed when the device is lost.
	Lost() <-chan struct{}
}

// Run loads, warms and frees the model as sessions open and close. When ctx ends
// or Close is called, it ends all prompts, closes the model and returns nil. It
// retries a failed load, see FirstLoadFatal. When the device is lost, Run returns
// an error that wraps ErrLost; the model stays open if closing takes too long.
func (k *ModelManager) Run(ctx context.Context) error {
	if k.load == nil {
		<-ctx.Done()
		return nil
	}
	k.mu.Lock()
	if k.started {
		k.mu.Unlock()
		return errors.New("keep a model: Run was called before; call it once")
	}
	k.started = true
	k.idleSince = time.Now()
	k.mu.Unlock()
	defer close(k.done)

	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// In its own goroutine, since loading may take minutes and freeing a lost device may never end.
	ended := make(chan error, 1)
	go func() { ended <- rescue.Call(func() error { k.keep(ctx); return nil }) }()
	stop, retry := k.stop, k.opts.FirstLoadFatal == nil
	var lost <-chan struct{}
	for {
		select {
		case err := <-ended:
			return err
		case <-stop:
			cancel()
			stop = nil
		case model := <-k.loaded:
			retry, lost = true, nil
			if d, ok := model.(device); ok {
				lost = d.Lost()
			}
		case <-lost:
			return k.abandon(ctx, cancel, ended, cmp.Or(k.opts.ErrLost, errors.New("the model's device is lost")))
		case err := <-k.failed:
			switch {
			case k.opts.ErrLost != nil && errors.Is(err, k.opts.ErrLost):
				return k.abandon(ctx, cancel, ended, err)
			case !retry && ctx.Err() == nil && k.opts.FirstLoadFatal():
				cancel()
				return errors.Join(fmt.Errorf("load the model: %w", err), <-ended)
			}
		}
	}
}

// abandon ends Run after the loss of the device and lostGrace.
func (k *ModelManager) abandon(ctx context.Context, cancel func(), ended <-chan error, err error) error {
	if k.opts.OnLost != nil {
		k.opts.OnLost(err)
	}
	close(k.lost)
	timer := time.NewTimer(lostGrace)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
	cancel()
	timer.Reset(lostTimeout)
	select {
	case more := <-ended:
		return errors.Join(err, more)
	case <-timer.C:
		return fmt.Errorf("%w; freeing it took too long", err)
	}
}

// keep repeats step until ctx ends, then closes everything.
func (k *ModelManager) keep(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		next := k.step(ctx)
		if next > 0 {
			timer.Reset(next)
		}
		select {
		case <-ctx.Done():
			k.end()
			return
		case <-k.wake:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// step loads or unloads the model if that is due, and returns the time until the next step; 0 waits for a change.
func (k *ModelManager) step(ctx context.Context) time.Duration {
	k.mu.Lock()
	now := time.Now()
	switch {
	case ctx.Err() != nil:
	case k.model == nil:
		if !k.preload && len(k.sessions) == 0 {
			break
		}
		if wait := k.retryAt.Sub(now); wait > 0 {
			k.mu.Unlock()
			return wait
		}
		k.mu.Unlock()
		k.loadModel(ctx)
		return k.step(ctx)
	case k.broken:
		if k.queue.idle() {
			k.mu.Unlock()
			k.unload("it failed")
			return k.step(ctx)
		}
	case k.opts.IdleUnload > 0 && len(k.sessions) == 0 && k.queue.idle():
		if wait := k.idleSince.Add(k.opts.IdleUnload).Sub(now); wait > 0 {
			k.mu.Unlock()
			return wait
		}
		k.mu.Unlock()
		k.unload("no session is open")
		return k.step(ctx)
	}
	k.mu.Unlock()
	return 0
}

// loadModel loads and warms the model.
func (k *ModelManager) loadModel(ctx context.Context) {
	start := time.Now()
	share := 100 // of loading in the percentage
	if k.opts.Warm != nil {
		share = 80
	}
	model, err := k.load(ctx, k.progress(inference.PhaseLoading, 0, share))
	if err == nil && model == nil {
		err = errors.New("expected a model from the load function, got none")
	}
	if err == nil && k.opts.Warm != nil {
		err = k.opts.Warm(ctx, model, k.progress(inference.PhaseWarming, share, 100-share))
		if err != nil {
			if cerr := model.Close(); cerr != nil {
				k.log.Warn().Err(cerr).Msg("closing a model that did not warm up")
			}
		}
	}

	if err != nil {
		select {
		case k.failed <- err:
		default: // Run has not read the last one.
		}
	} else {
		select {
		case k.loaded <- model:
		case <-ctx.Done(): // end closes the model
		}
	}

	k.mu.Lock()
	defer k.mu.Unlock()
	k.stage++ // Later progress reports are ignored.
	if err != nil && ctx.Err() != nil {
		return // end refuses the waiting prompts.
	}
	if err != nil {
		wait := min(k.opts.RetryMin<<min(k.failures, 20), k.opts.RetryMax)
		k.failures++
		k.stats.Failures++
		k.failure, k.retryAt = err, time.Now().Add(wait)
		k.phase, k.percent, k.detail = inference.PhaseFailed, 0, err.Error()
		k.log.Error().Err(err).Int64("retry_in_ms", wait.Milliseconds()).Msg("the model did not load")
		k.queue.fail(fmt.Errorf("%w: %w", inference.ErrNotReady, err))
		return
	}
	k.model, k.generation, k.broken, k.preload = model, k.generation+1, false, false
	k.failure, k.failures, k.retryAt = nil, 0, time.Time{}
	k.phase, k.percent, k.detail = inference.PhaseReady, 100, ""
	k.stats.Loads++
	k.idleSince = time.Now() // Loading does not count as idling.
	k.queue.open = true
	k.queue.admit()
	k.log.Info().Str("model", model.Name()).Float64("took_s", time.Since(start).Seconds()).Msg("the model is ready")
}

// progress begins a stage of loading, which covers share percent after from. The
// percentage never falls; reports after the end of the stage are ignored.
func (k *ModelManager) progress(phase inference.Phase, from, share int) Progress {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.stage++
	stage := k.stage
	k.phase, k.percent, k.detail = phase, from, phase.String()+" "+k.opts.Name
	return func(percent int, detail string) {
		k.mu.Lock()
		defer k.mu.Unlock()
		if k.stage == stage {
			k.percent = max(k.percent, from+min(max(percent, 0), 100)*share/100)
			k.detail = detail
		}
	}
}

// unload closes the model. No prompt runs, and none starts meanwhile.
func (k *ModelManager) unload(why string) {
	k.mu.Lock()
	if !k.queue.idle() || (!k.broken && !k.closed && len(k.sessions) > 0) {
		k.mu.Unlock()
		return // A session or prompt has started since.
	}
	model, broken := k.model, k.broken
	k.model, k.broken, k.queue.open = nil, false, false
	k.phase, k.percent, k.detail = inference.PhaseUnloaded, 0, "not loaded: "+why+"; loads again on demand"
	if broken {
		// The pause avoids a loop of loads.
		k.retryAt = time.Now().Add(k.opts.RetryMin)
		k.phase = inference.PhaseFailed
		k.detail = model.Status().Detail
		k.failure = errors.New(k.detail)
		k.queue.fail(fmt.Errorf("%w: %w", inference.ErrNotReady, k.failure))
	}
	k.stats.Unloads++
	open := slices.Collect(maps.Keys(k.sessions))
	k.mu.Unlock()

	// From here on no session opens an inner one.
	for _, s := range open {
		s.closeInner()
	}
	if err := model.Close(); err != nil {
		k.log.Warn().Err(err).Msg("closing the model")
	}
	k.log.Info().Str("why", why).Msg("the model was unloaded")
}

// end closes prompts, sessions and model, in this order.
func (k *ModelManager) end() {
	k.mu.Lock()
	k.endLocked()
	for !k.queue.idle() {
		k.mu.Unlock()
		<-k.wake // set by the end of each prompt
		k.mu.Lock()
	}
	loaded := k.model != nil
	k.mu.Unlock()
	if loaded {
		k.unload("closed")
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.phase, k.percent, k.detail = inference.PhaseUnloaded, 0, "closed"
}

// endLocked refuses new and waiting prompts and cancels the running ones.
func (k *ModelManager) endLocked() {
	k.closed = true
	k.queue.open = false
	k.queue.fail(ErrClosed)
	for p := range k.queue.running {
		p.cancel(ErrClosed)
	}
	for p := range k.queue.sounds {
		p.cancel(ErrClosed)
	}
}
