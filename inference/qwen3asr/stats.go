package qwen3asr

import (
	"errors"
	"sync/atomic"
	"time"

	"touchline/inference/step"
)

// Stats are the counters of an engine since it was opened.
type Stats struct {
	// Finals, Partials and Files count the successful jobs of each class.
	Finals, Partials, Files uint64
	// Cancelled, Failed and Overloaded count the other jobs; Overloaded jobs were refused.
	Cancelled, Failed, Overloaded uint64
	// Windows counts encoded windows of 8 s of sound at most, Encodes the runs of the encoder.
	Windows, Encodes uint64
	// Prompt counts the positions fed by prompt runs, Prompts these runs; Tokens counts the generated tokens, Steps the decoding steps.
	Prompt, Prompts, Tokens, Steps uint64
	// Slots is the number of answers at once, Busy the slots in use, Waiting the jobs without one now.
	Slots, Busy, Waiting int
	// MemoryPlanned is in bytes.
	MemoryPlanned int64
	// DeviceName is the driver's name of the GPU, or CPU.
	DeviceName string
	// Device is the device's busy time, including the current run.
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
}

func (c *counters) ended(k class, err error) {
	switch {
	case err == nil:
		c.completed[k].Add(1)
	case errors.Is(err, step.ErrCancelled), errors.Is(err, ErrClosed):
		c.cancelled.Add(1)
	default:
		c.failed.Add(1)
	}
}

// Stats returns the engine's counters.
func (e *Engine) Stats() Stats {
	c := &e.stats
	return Stats{
		Finals: c.completed[final].Load(), Partials: c.completed[partial].Load(), Files: c.completed[file].Load(),
		Cancelled: c.cancelled.Load(), Failed: c.failed.Load(), Overloaded: c.overloaded.Load(),
		Windows: c.windows.Load(), Encodes: c.encodes.Load(),
		Prompt: c.prompt.Load(), Prompts: c.prompts.Load(), Tokens: c.tokens.Load(), Steps: c.steps.Load(),
		Slots: e.loop.Layout().Slots, Busy: int(c.busy.Load()), Waiting: e.loop.Waiting(), MemoryPlanned: e.plan.Total(),
		DeviceName: e.plan.Device, Device: e.loop.client.Busy(),
	}
}
