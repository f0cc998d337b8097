// Package engine owns the use of a model by rooms. A Session is one room's conversation: it passes the admission, waits for the model and
// a place in its queue, asks the model's own session, and adds the voice.
//
// A ModelManager keeps a model in memory while sessions use it: it loads and warms the model with the first session (or at once), reports
// the progress, retries a failed load, frees the model after a time without sessions, and runs a limited number of prompts at once, first
// come, first served. Run owns all goroutines and all loading and closing. The loss of the model's device ends it, shortly after probes
// and sessions have seen the reason.
//
// It does not read prompts, and ends an answer only when it is closed.
package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"touchline/inference"
	"touchline/inference/voice"
	"touchline/internal/wake"
)

// ErrClosed is returned for prompts and sessions after the ModelManager has ended.
var ErrClosed = errors.New("the model was closed")

// Progress receives the progress of loading or warming, 0 to 100, and a description.
type Progress func(percent int, detail string)

// Load loads a model into memory. Run calls it, one call at a time, and again
// after an unload or a failure.
type Load func(ctx context.Context, progress Progress) (inference.Model, error)

// Options of a ModelManager.
type Options struct {
	// Name while no model is loaded; "" is "model".
	Name string
	// Capabilities while no model is loaded.
	Capabilities inference.Capabilities
	// Programs are voice programs in addition to the model's own voice; nil for none.
	Programs *voice.Synthesizer
	// Warm prepares a loaded model for its first prompt; nil does nothing.
	Warm func(ctx context.Context, m inference.Model, progress Progress) error
	// Preload loads the model when Run starts instead of with the first session.
	Preload bool
	// IdleUnload frees the model after this time without a session; 0 keeps it.
	IdleUnload time.Duration
	// Parallel is how many prompts the model answers at once; 0 is 1.
	Parallel int
	// Ahead is how many more it takes, for a queue of its own.
	Ahead int
	// MaxQueue is the largest number of waiting prompts; 0 is 64.
	MaxQueue int
	// RetryMin and RetryMax bound the wait after a failed load; it doubles
	// with each failure. 0 is 2 s and 1 min.
	RetryMin, RetryMax time.Duration
	// FirstLoadFatal reports whether Run returns the error of the first load
	// instead of retrying it; nil retries. Run calls it when that load fails.
	FirstLoadFatal func() bool
	// ErrLost is the error of a load whose device is lost, and the error of Run
	// when a loaded model closes the channel of its method Lost() <-chan struct{}.
	// nil for a model without a device.
	ErrLost error
	// OnLost is called once, when the device is lost; nil does nothing.
	OnLost func(err error)
	// Logger for loads, unloads and failures; the zero value discards.
	Logger zerolog.Logger
}

// ModelManager is a model that is loaded on demand, with its voice, shared by all rooms. Safe for concurrent use.
type ModelManager struct {
	load  Load       // nil for a model that is always loaded
	voice *voice.Mix // nil for the model's own alone
	opts  Options
	log   zerolog.Logger
	wake  wake.Signal   // the state has changed
	stop  chan struct{} // Close was called
	done  chan struct{} // Run has returned
	lost  chan struct{} // closed when the device is lost

	loaded chan inference.Model // by the last load
	failed chan error           // of loads

	mu         sync.Mutex
	started    bool
	stopped    bool
	closed     bool
	preload    bool // a preload is pending
	model      inference.Model
	generation uint64 // number of loads
	broken     bool   // the model has failed: no new prompts before the next load
	stage      int    // number of loading stages, to recognise late reports
	phase      inference.Phase
	percent    int
	detail     string
	failure    error
	failures   int
	retryAt    time.Time
	idleSince  time.Time // when the last session closed
	sessions   map[*Session]struct{}
	queue      queue
	stats      Stats
}

// Stats holds the counters of a ModelManager: Sessions, Running and Waiting at present, the others since the start.
type Stats struct {
	Sessions, Running, Waiting int
	Loads, Failures, Unloads   uint64
	// Overloaded prompts were refused because the queue was full.
	Overloaded uint64
}

// New checks the options and returns a ModelManager without a model. Run loads it.
func New(load Load, o Options) (*ModelManager, error) {
	if load == nil {
		return nil, errors.New("keep a model: expected a load function, got none")
	}
	if min(o.IdleUnload, o.RetryMin, o.RetryMax) < 0 || min(o.Parallel, o.Ahead, o.MaxQueue) < 0 {
		return nil, fmt.Errorf("keep a model: expected IdleUnload %v, Parallel %d, MaxQueue %d, RetryMin %v and RetryMax %v of 0 or more",
			o.IdleUnload, o.Parallel, o.MaxQueue, o.RetryMin, o.RetryMax)
	}
	o.Name = cmp.Or(o.Name, "model")
	o.Parallel = cmp.Or(o.Parallel, 1)
	o.MaxQueue = cmp.Or(o.MaxQueue, 64)
	o.RetryMin = cmp.Or(o.RetryMin, 2*time.Second)
	o.RetryMax = max(cmp.Or(o.RetryMax, time.Minute), o.RetryMin)
	k := &ModelManager{
		load: load, opts: o, log: o.Logger.With().Str("component", "residency").Logger(),
		wake: wake.New(), stop: make(chan struct{}), done: make(chan struct{}), lost: make(chan struct{}),
		loaded: make(chan inference.Model), failed: make(chan error, 1),
		preload: o.Preload, detail: "loads on demand",
		sessions: map[*Session]struct{}{},
		queue:    queue{free: o.Parallel + o.Ahead, room: o.MaxQueue},
	}
	if o.Programs != nil {
		k.voice = voice.NewMix(k.modelCapabilities, o.Programs)
	}
	return k, nil
}

// unlimited is the number of prompts at once of a model that queues for itself.
const unlimited = 4096

// Of returns the ModelManager of a model that is always loaded, with a voice as New gives it one. Close leaves the model open.
func Of(m inference.Model, programs *voice.Synthesizer) *ModelManager {
	k, _ := New(func(context.Context, Progress) (inference.Model, error) { return m, nil }, Options{Programs: programs, Ahead: unlimited})
	k.load, k.model, k.queue.open = nil, m, true
	return k
}

// Name returns the loaded model's name, or the options' name while none is loaded.
func (k *ModelManager) Name() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.model != nil {
		return k.model.Name()
	}
	return k.opts.Name
}

// Capabilities returns the loaded model's capabilities, or the options' while none is loaded. With programs it always has speech.
func (k *ModelManager) Capabilities() inference.Capabilities {
	can := k.modelCapabilities()
	if k.voice != nil {
		can.Speech, can.OwnVoice = true, can.OwnVoice || can.Speech
	}
	return can
}

func (k *ModelManager) modelCapabilities() inference.Capabilities {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.model != nil {
		return k.model.Capabilities()
	}
	return k.opts.Capabilities
}

// VoiceStats counts the sentences of the speech programs.
func (k *ModelManager) VoiceStats() (st voice.Stats) {
	if k.voice != nil {
		st = k.voice.Stats()
	}
	return st
}

// Status returns the progress of loading and warming, or the status of the ready model, with the problem of its voice.
func (k *ModelManager) Status() inference.Status {
	st := k.modelStatus()
	if k.voice != nil {
		st.VoiceProblem = cmp.Or(k.voice.Problem(), st.VoiceProblem)
	}
	return st
}

func (k *ModelManager) modelStatus() inference.Status {
	if k.load == nil {
		return k.model.Status()
	}
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
	inner.Phase, inner.Percent = inference.PhaseReady, 100 // loaded and warmed
	return inner
}

// breakLocked marks a failed model, which is then loaded again.
func (k *ModelManager) breakLocked(model inference.Model) {
	if k.model == model && !k.broken && k.load != nil {
		k.broken, k.queue.open = true, false
		k.wake.Set()
	}
}

// Loaded returns the loaded model, or nil.
func (k *ModelManager) Loaded() inference.Model {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.model
}

// Failure returns why the last load failed; nil after one that did not.
func (k *ModelManager) Failure() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.failure
}

// Stats returns the counters.
func (k *ModelManager) Stats() Stats {
	k.mu.Lock()
	defer k.mu.Unlock()
	st := k.stats
	st.Sessions, st.Running, st.Waiting = len(k.sessions), len(k.queue.running), k.queue.waiting()
	return st
}

// Close ends Run and waits for it: running prompts end with ErrClosed, then the
// model is closed. Open sessions become unusable. Close does not wait if the
// device is lost.
func (k *ModelManager) Close() error {
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
