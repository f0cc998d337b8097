package qwen3asr

import (
	"errors"
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
	// Device is how long the device worked.
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
	device                        atomic.Int64 // ns
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
		Device: time.Duration(c.device.Load()),
	}
}

// clocked is a backend whose runs are timed.
type clocked struct {
	backend
	now   func() time.Time
	stats *counters
}

func (t clocked) encode(windows []*window) error {
	defer t.since(t.now())
	return t.backend.encode(windows)
}

func (t clocked) prefill(j *job, from, to int) error {
	defer t.since(t.now())
	return t.backend.prefill(j, from, to)
}

func (t clocked) begin(jobs []*job, r kvcache.Range) error {
	defer t.since(t.now())
	return t.backend.begin(jobs, r)
}

func (t clocked) decode(r kvcache.Range, tokens, lengths []int32) error {
	defer t.since(t.now())
	return t.backend.decode(r, tokens, lengths)
}

func (t clocked) align(j *job) ([]int32, error) {
	defer t.since(t.now())
	return t.backend.align(j)
}

func (t clocked) since(begin time.Time) { t.stats.device.Add(int64(t.now().Sub(begin))) }
