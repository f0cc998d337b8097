// Package pacing determines the start of cycles (Gate), the start of speech
// (Release, PlaybackClock) and the delay of the picture (DelayEstimator).
//
// Its functions are pure: they take the current time as an argument, read no
// clock and start no goroutine. Its types are not safe for concurrent use;
// agent.Session guards them.
//
// # Alignment of comments and frames
//
// A comment describes the newest frame of its window, the anchor, which arrived
// at a. The delayed picture shows the anchor at a + D. The comment starts then,
// not before (Release), so its alignment error is zero unless it is ready later.
// D therefore follows a high quantile of "ready minus arrival" (DelayEstimator).
//
// If the current comment ends at e, the next one should start at e + pause. Its
// anchor should then arrive at e + pause - D, which is the start of the next
// cycle (Gate). On a machine that has too much to do, so that speech loses time,
// the pause grows (PlaybackClock.Rest).
package pacing

import (
	"fmt"
	"math"
	"slices"
	"time"

	"touchline/internal/quantile"
)

const (
	// fewSamples is the least number of observations for a quantile below their maximum.
	fewSamples = 20
	// memory is the largest number of observations of the estimator.
	memory = 100
)

// DelayEstimator estimates D from the latencies of comments.
type DelayEstimator struct {
	cfg     Config
	samples []time.Duration // oldest first, at most memory
}

// NewDelayEstimator returns an estimator without observations.
func NewDelayEstimator(cfg Config) *DelayEstimator {
	return &DelayEstimator{cfg: cfg}
}

// Configure changes the settings and keeps the observations.
func (e *DelayEstimator) Configure(cfg Config) { e.cfg = cfg }

// Observe adds one comment's "ready minus arrival of its anchor". Skipped and
// silent cycles do not count.
func (e *DelayEstimator) Observe(d time.Duration) {
	if len(e.samples) == memory {
		e.samples = slices.Delete(e.samples, 0, 1)
	}
	e.samples = append(e.samples, max(d, 0))
}

// Forget drops the observations, after a change of source or engine.
func (e *DelayEstimator) Forget() { e.samples = e.samples[:0] }

// Quantile returns the q-quantile (nearest rank) of the observations, or their maximum if there are
// few, and false if there are none.
func (e *DelayEstimator) Quantile(q float64) (time.Duration, bool) {
	if len(e.samples) == 0 {
		return 0, false
	}
	if len(e.samples) < fewSamples {
		return slices.Max(e.samples), true
	}
	return quantile.Of(e.samples, q), true
}

// Target returns the target of D.
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

// PlaybackClock tracks the end of speech. It counts audible time, without the silence before and
// after speech.
type PlaybackClock struct {
	end    time.Time
	losses [keptLosses]loss // of the last utterances
	latest int              // index of the latest utterance's
	rest   time.Duration    // Rest before the latest
}

// loss is the time that an utterance lost.
type loss struct{ audible, lost time.Duration }

// keptLosses is the number of utterances whose lost time counts. leastAudible is the shortest
// audible time that it is divided by: a gap in one word is no measure. restMore and mostRest bound the growth of Rest and Rest.
const (
	keptLosses         = 8
	leastAudible       = time.Second
	restMore, mostRest = time.Second, 10 * time.Second
)

// Slip sets how much time the latest utterance has lost so far, because the machine
// was too busy for its voice, in how much audible time.
func (c *PlaybackClock) Slip(audible, lost time.Duration) {
	c.losses[c.latest] = loss{audible, lost}
}

// Expect returns the planned duration of speech whose length is not known yet. It is longer after
// utterances that lost time, by the largest loss: if too little is planned, the next comment is
// late; if too much, it follows a longer pause.
func (c *PlaybackClock) Expect(audible time.Duration) time.Duration {
	audible = max(audible, 0)
	worst := time.Duration(0)
	for _, l := range c.losses {
		part := audible.Seconds() / max(l.audible, leastAudible).Seconds()
		worst = max(worst, time.Duration(float64(l.lost)*max(part, math.Sqrt(part))))
	}
	return audible + worst
}

// Rest returns how much longer than configured the pause after the latest utterance should be. An utterance that lost time makes the
// pauses of its room longer by as much, up to a second; one that lost none makes them shorter by a quarter. So a crowded machine
// says less, on time: with 64 rooms on two cores (touchline-bench run --only crowded) speech lost 3 s of 4.6 s without this and
// 0.2 s with it, at the same number of comments.
func (c *PlaybackClock) Rest() time.Duration {
	if lost := c.losses[c.latest].lost; lost > 0 {
		return min(c.rest+min(lost, restMore), mostRest)
	}
	return c.rest * 3 / 4
}

// Start adds an utterance with its audible time so far, at a time that may be in
// the future, and returns its start: not before the end of the previous one.
func (c *PlaybackClock) Start(at time.Time, audible time.Duration) (begin time.Time) {
	at = latest(at, c.end)
	c.end = at.Add(max(audible, 0))
	c.rest = c.Rest()
	c.latest = (c.latest + 1) % keptLosses
	c.losses[c.latest] = loss{}
	return at
}

// Finish sets the actual end of speech.
func (c *PlaybackClock) Finish(end time.Time) { c.end = end }

// Cut ends playback now.
func (c *PlaybackClock) Cut(now time.Time) {
	if c.end.After(now) {
		c.end = now
	}
}

// End returns the end of the last utterance; zero before the first.
func (c *PlaybackClock) End() time.Time { return c.end }

// latest returns the latest of the given times; the zero time is before all others.
func latest(times ...time.Time) time.Time { return slices.MaxFunc(times, time.Time.Compare) }

// minGap is the shortest silence between two utterances if the second is late or
// the picture's delay shrinks.
const minGap = 150 * time.Millisecond

// Release returns the start of a comment: with its frame, after the previous
// comment. due is the time at which the delayed picture shows the anchor (zero
// without a delayed picture), voiceEnd the end of the previous speech (zero
// without any).
func Release(now, due, voiceEnd time.Time, pause time.Duration) time.Time {
	return latest(now, due, voiceEnd.Add(min(pause, minGap)))
}

// Approach returns how long to sleep before the next check of a moment that is wait away and moves with the delay of the picture. The delay
// changes by at most a tenth of the elapsed time, so the sleep never ends too late.
func Approach(wait time.Duration) time.Duration {
	if wait > 10*time.Millisecond {
		return wait * 9 / 10
	}
	return wait
}

// Earliest returns the earlier of two times; the zero time is never.
func Earliest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// GateState is the state of a Gate.
type GateState uint8

// The gate's states.
const (
	// GateOpen: no generation is in flight; Next returns the start of the next cycle.
	GateOpen GateState = iota
	// GateGenerating: a generation is in flight.
	GateGenerating
	// GateBlocked: a finished comment cannot leave the generator because the
	// previous one still waits for its frame.
	GateBlocked
)

// String returns the state in lower case.
func (s GateState) String() string {
	return [...]string{GateOpen: "open", GateGenerating: "generating", GateBlocked: "blocked"}[s]
}

// GateError is returned for an event that is not allowed in a state.
type GateError struct {
	State GateState
	Event string
}

// Error names event and state.
func (e *GateError) Error() string {
	return fmt.Sprintf("gate: event %q cannot happen while %s", e.Event, e.State)
}

// Gate enforces the two rules of cycles: one generation in flight, and at most
// one finished comment that waits for its frame. It also times the next cycle.
type Gate struct {
	state    GateState
	waiting  bool // a finished comment waits for its frame
	released bool // the comment in flight has started already
	urgent   bool
	last     time.Time // start of the last cycle
}

// Begin starts a cycle with its generation.
func (g *Gate) Begin(now time.Time) error {
	if g.state != GateOpen {
		return &GateError{g.state, "begin"}
	}
	g.state, g.released, g.urgent, g.last = GateGenerating, false, false, now
	return nil
}

// Finish ends the generation in flight. spoken is false for a cycle without a comment: silent,
// skipped, failed or cancelled.
func (g *Gate) Finish(spoken bool) error {
	switch {
	case g.state != GateGenerating:
		return &GateError{g.state, "finish"}
	case !spoken || g.released:
		g.state = GateOpen
	case g.waiting:
		g.state = GateBlocked
	default:
		g.state, g.waiting = GateOpen, true
	}
	return nil
}

// Release records the start or drop of the oldest comment that has not started.
// A comment may start before its generation ends.
func (g *Gate) Release() error {
	switch {
	case g.state == GateBlocked:
		g.state = GateOpen // now the blocked comment waits
	case g.waiting:
		g.waiting = false
	case g.state == GateGenerating && !g.released:
		g.released = true
	default:
		return &GateError{g.state, "release"}
	}
	return nil
}

// Interrupt makes the next cycle urgent: due at once, also during speech.
func (g *Gate) Interrupt() { g.urgent = true }

// Urgent reports whether the next cycle is due at once.
func (g *Gate) Urgent() bool { return g.urgent }

// Next returns the start of the next cycle, and false while none may start.
// voiceEnd is the end of the last spoken or queued comment (zero without any); d
// is the delay of the picture.
func (g *Gate) Next(now, voiceEnd time.Time, d time.Duration, cfg Config) (time.Time, bool) {
	switch {
	case g.state != GateOpen:
		return time.Time{}, false
	case g.urgent:
		return now, true
	}
	return latest(now, g.last.Add(cfg.MinInterval), voiceEnd.Add(cfg.PauseAfter-d)), true
}
