package qwen3asr

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"touchline/inference/internal/kvcache"
)

// Stats are the counters of an engine since it was opened.
type Stats struct {
	// Finals, Partials and Files that ended well, by their class.
	Finals, Partials, Files uint64
	// Cancelled, Failed, and Overloaded ones, which were refused.
	Cancelled, Failed, Overloaded uint64
	// Windows of 8 s of sound at most, and the Encodes that they took together.
	Windows, Encodes uint64
	// Prompt counts positions fed in the runs Prompts, Tokens those generated in Steps.
	Prompt, Prompts, Tokens, Steps uint64
	// Slots is the number of answers at once, Busy that of slots in use, Waiting that of jobs without one now.
	Slots, Busy, Waiting int
	// MemoryPlanned is in bytes.
	MemoryPlanned int64
	// Device is how long the device worked, with the run that is under way.
	Device time.Duration
}

// counters collects Stats. Safe for concurrent use.
type counters struct {
	completed                     [file + 1]atomic.Uint64
	cancelled, failed, overloaded atomic.Uint64
	windows, encodes              atomic.Uint64
	prompt, prompts               atomic.Uint64
	tokens, steps                 atomic.Uint64
	busy                          atomic.Int64
	device                        stopwatch
}

// stopwatch measures how long runs took, one at a time. Safe for concurrent use.
type stopwatch struct {
	mu    sync.Mutex
	total time.Duration // of the runs that ended
	since time.Time     // begin of the run that is under way; zero for none
}

func (w *stopwatch) start(now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.since = now
}

func (w *stopwatch) stop(now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.total, w.since = w.total+now.Sub(w.since), time.Time{}
}

// read returns the time of all runs until now.
func (w *stopwatch) read(now time.Time) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.since.IsZero() {
		return w.total
	}
	return w.total + max(now.Sub(w.since), 0)
}

func (c *counters) ended(k class, err error) {
	switch {
	case err == nil:
		c.completed[k].Add(1)
	case errors.Is(err, errCancelled), errors.Is(err, ErrClosed):
		c.cancelled.Add(1)
	default:
		c.failed.Add(1)
	}
}

// Stats returns the engine's counters.
func (e *Engine) Stats() Stats {
	c := &e.stats
	e.loop.inbox.mu.Lock()
	waiting := e.loop.inbox.waiting
	e.loop.inbox.mu.Unlock()
	return Stats{
		Finals: c.completed[final].Load(), Partials: c.completed[partial].Load(), Files: c.completed[file].Load(),
		Cancelled: c.cancelled.Load(), Failed: c.failed.Load(), Overloaded: c.overloaded.Load(),
		Windows: c.windows.Load(), Encodes: c.encodes.Load(),
		Prompt: c.prompt.Load(), Prompts: c.prompts.Load(), Tokens: c.tokens.Load(), Steps: c.steps.Load(),
		Slots: e.loop.shape.layout.Slots, Busy: int(c.busy.Load()), Waiting: waiting, MemoryPlanned: e.plan.Total(),
		Device: c.device.read(e.loop.shape.now()),
	}
}

// clocked is a backend whose runs are timed.
type clocked struct {
	backend
	now   func() time.Time
	stats *counters
}

func (t clocked) encode(windows []*window) error {
	defer t.timed()()
	return t.backend.encode(windows)
}

func (t clocked) prefill(j *job, from, to int) error {
	defer t.timed()()
	return t.backend.prefill(j, from, to)
}

func (t clocked) begin(jobs []*job, r kvcache.Range) error {
	defer t.timed()()
	return t.backend.begin(jobs, r)
}

func (t clocked) decode(r kvcache.Range, tokens, lengths []int32) error {
	defer t.timed()()
	return t.backend.decode(r, tokens, lengths)
}

func (t clocked) align(j *job) ([]int32, error) {
	defer t.timed()()
	return t.backend.align(j)
}

// timed starts the time of a run, until done.
func (t clocked) timed() (done func()) {
	t.stats.device.start(t.now())
	return func() { t.stats.device.stop(t.now()) }
}
