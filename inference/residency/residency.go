// Package residency keeps a model in memory as long as a session needs it.
//
// A Keeper wraps any engine: it loads and warms the model when the first
// session opens (or at once), reports the progress, retries a load that failed,
// frees the model when no session has been open for a while, and lets a bounded
// number of prompts through, first come first served.
//
// A device that is lost ends Run: the model on it is given up after a moment in
// which probes and sessions see why.
//
// It knows nothing of what a model is made of, never looks into a prompt, and
// never ends an answer of its own accord except when it is closed itself. Run
// owns all goroutines and all loading and closing.
package residency

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"touchline/inference"
	"touchline/internal/rescue"
	"touchline/internal/wake"
)

// ErrClosed is returned for prompts and sessions after the Keeper has ended.
var ErrClosed = errors.New("the model was closed")

const (
	// lostGrace is how long Run goes on after its device was lost, so that sessions and probes see the reason.
	lostGrace = time.Second
	// lostPatience limits the wait for an orderly end on a lost device.
	lostPatience = 3 * time.Second
)

// device is implemented by models whose device may be lost.
type device interface {
	// Lost is closed when the device is lost.
	Lost() <-chan struct{}
}

// Progress receives how far loading or warming is, 0 to 100, and a description.
type Progress func(percent int, detail string)

// Load brings a model into memory. It is called by Run only, never twice at
// once, and again after an unload or a failure.
type Load func(ctx context.Context, progress Progress) (inference.Model, error)

// Options of a Keeper. Zero values mean what each field says.
type Options struct {
	// Name while nothing is loaded; "" is "model".
	Name string
	// Capabilities while nothing is loaded.
	Capabilities inference.Capabilities
	// Warm makes a loaded model ready for its first prompt; nil does nothing.
	Warm func(ctx context.Context, m inference.Model, progress Progress) error
	// Preload loads as soon as Run starts, not with the first session. After an
	// idle unload the model comes back with the next session all the same.
	Preload bool
	// IdleUnload frees the model when no session has been open for this long; 0 keeps it.
	IdleUnload time.Duration
	// Parallel is how many prompts the model works on at once; 0 is 1.
	Parallel int
	// MaxQueue is how many more may wait; 0 is 64.
	MaxQueue int
	// RetryMin and RetryMax bound the wait after a failed load; it doubles
	// with each failure. 0 is 2 s and 1 min.
	RetryMin, RetryMax time.Duration
	// FirstLoadFatal reports whether Run returns the error of the first load
	// instead of retrying it; nil retries. It is asked when that load fails.
	FirstLoadFatal func() bool
	// ErrLost is the error of a load whose device is lost, and what Run returns
	// when a loaded model closes the channel of its method Lost() <-chan struct{}.
	// nil when the model has no device to lose.
	ErrLost error
	// OnLost is called once, as soon as the device is lost; nil does nothing.
	OnLost func(err error)
	// Logger for loads, unloads and failures; the zero value discards.
	Logger zerolog.Logger
}

// Keeper is a model that is loaded on demand. Safe for concurrent use.
type Keeper struct {
	load Load
	opts Options
	log  zerolog.Logger
	wake wake.Signal   // a state that Run checks has changed
	stop chan struct{} // Close was called
	done chan struct{} // Run has returned
	lost chan struct{} // closed when the device is lost

	loaded chan inference.Model // by the last load
	failed chan error           // of loads

	mu         sync.Mutex
	started    bool
	stopped    bool
	closed     bool
	preload    bool // wanted by Preload and not done yet
	model      inference.Model
	generation uint64 // of the model: counts loads
	broken     bool   // the model says it failed: no new prompts until it is loaded again
	stage      int    // of loading: counts, so that a late report is known as such
	phase      inference.Phase
	percent    int
	detail     string
	failure    error
	failures   int
	retryAt    time.Time
	idleSince  time.Time // when the last session closed
	sessions   map[*session]struct{}
	queue      queue
	stats      Stats
}

// Stats counts what a Keeper did. Sessions, Running and Waiting are of now, the rest since the start.
type Stats struct {
	Sessions, Running, Waiting int
	Loads, Failures, Unloads   uint64
	// Overloaded prompts were refused because too many waited.
	Overloaded uint64
}

// New checks the options and returns a Keeper with nothing loaded. Run must be
// running for anything to be loaded.
func New(load Load, o Options) (*Keeper, error) {
	if load == nil {
		return nil, errors.New("keep a model: expected a load function, got none")
	}
	for _, v := range []struct {
		name string
		bad  bool
	}{
		{"IdleUnload", o.IdleUnload < 0},
		{"Parallel", o.Parallel < 0},
		{"MaxQueue", o.MaxQueue < 0},
		{"RetryMin", o.RetryMin < 0},
		{"RetryMax", o.RetryMax < 0},
	} {
		if v.bad {
			return nil, fmt.Errorf("keep a model: expected %s of 0 or more", v.name)
		}
	}
	o.Name = cmp.Or(o.Name, "model")
	o.Parallel = cmp.Or(o.Parallel, 1)
	o.MaxQueue = cmp.Or(o.MaxQueue, 64)
	o.RetryMin = cmp.Or(o.RetryMin, 2*time.Second)
	o.RetryMax = max(cmp.Or(o.RetryMax, time.Minute), o.RetryMin)
	return &Keeper{
		load: load, opts: o, log: o.Logger.With().Str("component", "residency").Logger(),
		wake: wake.New(), stop: make(chan struct{}), done: make(chan struct{}), lost: make(chan struct{}),
		loaded: make(chan inference.Model), failed: make(chan error, 1),
		preload: o.Preload, detail: "loads when it is needed",
		sessions: map[*session]struct{}{},
		queue:    queue{free: o.Parallel, room: o.MaxQueue},
	}, nil
}

// Name is the loaded model's, else that of the options.
func (k *Keeper) Name() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.model != nil {
		return k.model.Name()
	}
	return k.opts.Name
}

// Capabilities are the loaded model's, else those of the options.
func (k *Keeper) Capabilities() inference.Capabilities {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.model != nil {
		return k.model.Capabilities()
	}
	return k.opts.Capabilities
}

// NewSession opens a session at once. As long as it is open, the model is
// loaded and stays, however silent the session is.
func (k *Keeper) NewSession() (inference.Session, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed || k.stopped {
		return nil, ErrClosed
	}
	s := &session{k: k}
	k.sessions[s] = struct{}{}
	k.wake.Set()
	return s, nil
}

// Status returns how far loading and warming are; of a ready model, what it says itself.
func (k *Keeper) Status() inference.Status {
	k.mu.Lock()
	model, st := k.model, inference.Status{Phase: k.phase, Percent: k.percent, Detail: k.detail}
	if k.phase == inference.PhaseFailed {
		if wait := time.Until(k.retryAt); wait > 0 {
			st.Detail += fmt.Sprintf("; next attempt in %v", wait.Round(time.Second))
		}
	}
	k.mu.Unlock()
	if model == nil || st.Phase != inference.PhaseReady {
		return st
	}
	inner := model.Status()
	if inner.Phase == inference.PhaseFailed {
		k.mu.Lock()
		k.breakLocked(model)
		k.mu.Unlock()
		return inner
	}
	// A loaded and warmed model is ready, whatever it has to say about details.
	inner.Phase, inner.Percent = inference.PhaseReady, 100
	return inner
}

// breakLocked notes that the model says it failed, and has it loaded again.
func (k *Keeper) breakLocked(model inference.Model) {
	if k.model == model && !k.broken {
		k.broken, k.queue.open = true, false
		k.wake.Set()
	}
}

// Loaded returns the model in memory, nil when there is none.
func (k *Keeper) Loaded() inference.Model {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.model
}

// Stats returns the counters.
func (k *Keeper) Stats() Stats {
	k.mu.Lock()
	defer k.mu.Unlock()
	st := k.stats
	st.Sessions, st.Running, st.Waiting = len(k.sessions), len(k.queue.running), k.queue.waiting()
	return st
}

// Close ends Run, if it runs, and waits for it: prompts under way end with
// ErrClosed, then the model is closed. Sessions may still be open; they are dead.
// It does not wait when the device is lost.
func (k *Keeper) Close() error {
	select {
	case <-k.lost:
		return nil
	default:
	}
	k.mu.Lock()
	if !k.stopped {
		k.stopped = true
		close(k.stop)
	}
	started := k.started
	if !started {
		k.endLocked()
	}
	k.mu.Unlock()
	if started {
		select {
		case <-k.done:
		case <-k.lost:
		}
	}
	return nil
}

// Run loads, warms and frees the model as sessions come and go, until ctx ends
// or Close is called; then it returns nil, no prompt is under way any more and
// the model is closed. A load that fails is retried, see FirstLoadFatal. When
// the device is lost, Run returns an error that wraps ErrLost, without the model
// closed if that takes too long.
func (k *Keeper) Run(ctx context.Context) error {
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
	// Loading may take minutes and freeing a lost device may never end: neither holds up what follows.
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

// abandon ends Run on a lost device, after a moment in which sessions and probes see the reason.
func (k *Keeper) abandon(ctx context.Context, cancel func(), ended <-chan error, err error) error {
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
	timer.Reset(lostPatience)
	select {
	case more := <-ended:
		return errors.Join(err, more)
	case <-timer.C:
		return fmt.Errorf("%w; freeing it took too long", err)
	}
}

// keep does what is due until ctx ends, then closes everything.
func (k *Keeper) keep(ctx context.Context) {
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

// step does what is due and says when to look again; 0 is only when woken.
func (k *Keeper) step(ctx context.Context) time.Duration {
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
		k.bring(ctx)
		return k.step(ctx)
	case k.broken:
		if len(k.queue.running) == 0 {
			k.mu.Unlock()
			k.drop("it failed")
			return k.step(ctx)
		}
	case k.opts.IdleUnload > 0 && len(k.sessions) == 0 && len(k.queue.running) == 0:
		if wait := k.idleSince.Add(k.opts.IdleUnload).Sub(now); wait > 0 {
			k.mu.Unlock()
			return wait
		}
		k.mu.Unlock()
		k.drop("nobody needs it")
		return k.step(ctx)
	}
	k.mu.Unlock()
	return 0
}

// bring loads and warms the model.
func (k *Keeper) bring(ctx context.Context) {
	start := time.Now()
	share := 100 // of the whole that loading makes out
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
		default: // Run has an earlier one to look at.
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
		return // Run is ending, and tells those who wait.
	}
	if err != nil {
		wait := min(k.opts.RetryMin<<min(k.failures, 20), k.opts.RetryMax)
		k.failures++
		k.stats.Failures++
		k.failure, k.retryAt = err, time.Now().Add(wait)
		k.phase, k.percent, k.detail = inference.PhaseFailed, 0, err.Error()
		k.log.Error().Err(err).Int64("retry_in_ms", wait.Milliseconds()).Msg("the model did not load")
		// Each prompt that waits learns the reason now.
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

// progress begins a stage of loading, which fills a share of the percentage
// from a start. What it returns is deaf once the stage is over, and never goes back.
func (k *Keeper) progress(phase inference.Phase, from, share int) Progress {
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

// drop closes the model. No prompt is under way, and none starts meanwhile.
func (k *Keeper) drop(why string) {
	k.mu.Lock()
	if len(k.queue.running) > 0 || (!k.broken && !k.closed && len(k.sessions) > 0) {
		k.mu.Unlock()
		return // Somebody came in between.
	}
	model, broken := k.model, k.broken
	k.model, k.broken, k.queue.open = nil, false, false
	k.phase, k.percent, k.detail = inference.PhaseUnloaded, 0, "not loaded: "+why+"; loads again on demand"
	if broken {
		// After a pause: a model that breaks each time must not be loaded in a loop.
		k.retryAt = time.Now().Add(k.opts.RetryMin)
		k.phase = inference.PhaseFailed
		k.detail = model.Status().Detail
		k.failure = errors.New(k.detail)
		k.queue.fail(fmt.Errorf("%w: %w", inference.ErrNotReady, k.failure))
	}
	k.stats.Unloads++
	open := make([]*session, 0, len(k.sessions))
	for s := range k.sessions {
		open = append(open, s)
	}
	k.mu.Unlock()

	// From here on no session opens an inner one; those there are close first.
	for _, s := range open {
		s.closeInner()
	}
	if err := model.Close(); err != nil {
		k.log.Warn().Err(err).Msg("closing the model")
	}
	k.log.Info().Str("why", why).Msg("the model was unloaded")
}

// end closes everything, in the order prompts, sessions, model.
func (k *Keeper) end() {
	k.mu.Lock()
	k.endLocked()
	for len(k.queue.running) > 0 {
		k.mu.Unlock()
		<-k.wake // Each prompt that ends wakes us.
		k.mu.Lock()
	}
	loaded := k.model != nil
	k.mu.Unlock()
	if loaded {
		k.drop("closed")
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.phase, k.percent, k.detail = inference.PhaseUnloaded, 0, "closed"
}

// endLocked lets nothing new in and ends what waits or runs.
func (k *Keeper) endLocked() {
	k.closed = true
	k.queue.open = false
	k.queue.fail(ErrClosed)
	for p := range k.queue.running {
		p.cancel(ErrClosed)
	}
}
