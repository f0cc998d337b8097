// Package pacing decides when to look, when to speak and how far the picture
// lags: PlaybackClock, Gate, DelayEstimator and Release.
//
// It is pure: every method takes the present moment as an argument, nothing
// here reads a clock, starts a goroutine or imports more than the standard
// library. None of its types is safe for concurrent use; agent.Session guards
// them.
//
// # How a comment meets its frame
//
// A comment is about the newest frame of its window, the anchor, which arrived
// at a. The delayed picture shows the anchor at a + D. The comment starts then,
// not before (Release), so its alignment error is zero unless it was ready
// later than that. D therefore follows a high quantile of "ready minus
// arrival" (DelayEstimator).
//
// Speech follows speech: when the comment under way ends at e, the next one
// should start at e + pause, hence its anchor should arrive at e + pause - D,
// and that is when the gate opens for the next look (Gate).
package pacing

import (
	"fmt"
	"slices"
	"time"

	"touchline/internal/quantile"
)

// fewSamples is how many observations a quantile needs before it says more
// than the largest of them.
const fewSamples = 20

// memory is how many observations the estimator keeps.
const memory = 100

// DelayEstimator learns D from how long comments take to be ready.
type DelayEstimator struct {
	cfg     Config
	samples []time.Duration // oldest first, at most memory
}

// NewDelayEstimator returns an estimator that knows nothing yet.
func NewDelayEstimator(cfg Config) *DelayEstimator {
	return &DelayEstimator{cfg: cfg}
}

// Configure changes the settings and keeps what was learned.
func (e *DelayEstimator) Configure(cfg Config) { e.cfg = cfg }

// Observe takes one comment's "ready minus arrival of its anchor". Skipped and
// silent looks are left out.
func (e *DelayEstimator) Observe(d time.Duration) {
	if len(e.samples) == memory {
		e.samples = slices.Delete(e.samples, 0, 1)
	}
	e.samples = append(e.samples, max(d, 0))
}

// Forget drops what was learned, for a source or engine that has changed.
func (e *DelayEstimator) Forget() { e.samples = e.samples[:0] }

// Quantile returns the q-quantile (nearest rank) of the observations, the
// largest while there are few, and false when there are none.
func (e *DelayEstimator) Quantile(q float64) (time.Duration, bool) {
	if len(e.samples) == 0 {
		return 0, false
	}
	if len(e.samples) < fewSamples {
		return slices.Max(e.samples), true
	}
	return quantile.Of(e.samples, q), true
}

// Target is where D should go.
func (e *DelayEstimator) Target() time.Duration {
	if e.cfg.FixedDelay > 0 {
		return e.cfg.FixedDelay
	}
	if e.cfg.InitialDelay == 0 {
		return 0 // the adaptive delay is off
	}
	q, ok := e.Quantile(e.cfg.Quantile)
	if !ok {
		return e.clamp(e.cfg.InitialDelay)
	}
	return e.clamp(q + e.cfg.Margin)
}

func (e *DelayEstimator) clamp(d time.Duration) time.Duration {
	return min(max(d, e.cfg.MinDelay), e.cfg.MaxDelay)
}

// PlaybackClock knows until when the voice will be heard. It counts audible
// time only: the caller trims silence before telling it.
type PlaybackClock struct {
	end time.Time
}

// Start begins an utterance of the given audible time (so far) at a moment
// that may lie ahead. It never begins before the one under way has ended.
func (c *PlaybackClock) Start(at time.Time, audible time.Duration) (begin time.Time) {
	if at.Before(c.end) {
		at = c.end
	}
	c.end = at.Add(max(audible, 0))
	return at
}

// Finish corrects the estimate by what was really heard.
func (c *PlaybackClock) Finish(end time.Time) { c.end = end }

// Cut ends playback now.
func (c *PlaybackClock) Cut(now time.Time) {
	if c.end.After(now) {
		c.end = now
	}
}

// End is the moment the last sound will have been heard; zero before the first.
func (c *PlaybackClock) End() time.Time { return c.end }

// minGap is the least silence between two utterances when the second is late
// or the picture's delay is shrinking.
const minGap = 150 * time.Millisecond

// Release says when a comment may start: with its frame, but not into the
// voice of the comment before it. due is the moment the delayed picture shows
// the anchor (zero: there is no delayed picture), voiceEnd the end of the
// speech before it (zero: none), now the present.
func Release(now, due, voiceEnd time.Time, pause time.Duration) time.Time {
	at := now
	if due.After(at) {
		at = due
	}
	if !voiceEnd.IsZero() {
		if free := voiceEnd.Add(min(pause, minGap)); free.After(at) {
			at = free
		}
	}
	return at
}

// GateState is what the gate is doing.
type GateState uint8

// The gate's states.
const (
	// GateOpen: nothing is being generated; NextLook says when the next look is due.
	GateOpen GateState = iota
	// GateGenerating: a generation is in flight.
	GateGenerating
	// GateBlocked: a finished comment cannot leave the generator because
	// another still waits for its frame.
	GateBlocked
)

// String names the state.
func (s GateState) String() string {
	switch s {
	case GateOpen:
		return "open"
	case GateGenerating:
		return "generating"
	case GateBlocked:
		return "blocked"
	}
	return fmt.Sprintf("GateState(%d)", uint8(s))
}

// GateError is returned for an event that cannot happen in a state.
type GateError struct {
	State GateState
	Event string
}

// Error names both.
func (e *GateError) Error() string {
	return fmt.Sprintf("gate: event %q cannot happen while %s", e.Event, e.State)
}

// Gate holds the two rules of the cycle: one generation in flight, and at most
// one finished comment waiting for its frame. It also times the next look.
type Gate struct {
	state    GateState
	waiting  bool // a finished comment waits for its frame
	released bool // the comment in flight has started already
	urgent   bool
	lastLook time.Time
}

// Look begins a generation.
func (g *Gate) Look(now time.Time) error {
	switch g.state {
	case GateOpen:
		g.state, g.released, g.urgent, g.lastLook = GateGenerating, false, false, now
		return nil
	case GateGenerating, GateBlocked:
	}
	return &GateError{g.state, "look"}
}

// Finish ends the generation in flight. said is false when it came to nothing:
// silent, skipped, failed or cancelled.
func (g *Gate) Finish(said bool) error {
	switch g.state {
	case GateGenerating:
		switch {
		case !said || g.released:
			g.state = GateOpen
		case g.waiting:
			g.state = GateBlocked
		default:
			g.state, g.waiting = GateOpen, true
		}
		return nil
	case GateOpen, GateBlocked:
	}
	return &GateError{g.state, "finish"}
}

// Release says that the oldest comment not yet heard starts, or is dropped. A
// comment may start while it is still being generated.
func (g *Gate) Release() error {
	switch g.state {
	case GateOpen:
		if g.waiting {
			g.waiting = false
			return nil
		}
	case GateGenerating:
		if g.waiting {
			g.waiting = false
			return nil
		}
		if !g.released {
			g.released = true
			return nil
		}
	case GateBlocked:
		g.state = GateOpen // the blocked comment is now the one that waits
		return nil
	}
	return &GateError{g.state, "release"}
}

// Interrupt makes the next look urgent: it is due at once, whatever is being
// said.
func (g *Gate) Interrupt() { g.urgent = true }

// Urgent reports whether the next look is due at once.
func (g *Gate) Urgent() bool { return g.urgent }

// NextLook says when the next look is due, and false while none may start.
// voiceEnd is when the last comment that is spoken, or waits to be, will have
// been heard (zero: none); d is the delay of the picture.
func (g *Gate) NextLook(now, voiceEnd time.Time, d time.Duration, cfg Config) (time.Time, bool) {
	if g.state != GateOpen {
		return time.Time{}, false
	}
	if g.urgent {
		return now, true
	}
	at := now
	if !g.lastLook.IsZero() {
		if t := g.lastLook.Add(cfg.MinInterval); t.After(at) {
			at = t
		}
	}
	if !voiceEnd.IsZero() {
		if t := voiceEnd.Add(cfg.PauseAfter - d); t.After(at) {
			at = t
		}
	}
	return at, true
}
