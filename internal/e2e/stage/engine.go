package stage

import (
	"context"
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"touchline/inference"
	"touchline/media"
	"touchline/media/toyworld"
)

// Engine is a model with a random latency: it answers each prompt with a different sentence and records the frame
// counter of the newest picture in the prompt.
type Engine struct {
	// Least and Most bound the latency.
	Least, Most time.Duration
	// Text returns the text of comment n; nil for sentences of about three seconds.
	Text func(n int) string
	// Rules returns the answer to look n with alert rules; nil for none that holds.
	Rules func(n int) string

	mu      sync.Mutex
	rand    *rand.Rand
	asked   int
	rules   int               // looks with alert rules
	counter map[string]uint32 // of the newest frame, by answer
	looks   []Look
}

// Look is one prompt of the engine.
type Look struct {
	At          time.Time
	Instruction string
	Counter     uint32
}

// NewEngine returns an engine with seeded random latencies between least and most.
func NewEngine(seed uint64, least, most time.Duration) *Engine {
	return &Engine{
		Least: least, Most: most,
		rand:    rand.New(rand.NewPCG(seed, 1)), //nolint:gosec // latencies, not secrets
		counter: map[string]uint32{},
	}
}

// Name implements inference.Model.
func (e *Engine) Name() string { return "measured latency" }

// NewSession implements inference.Model.
func (e *Engine) NewSession() (inference.Session, error) { return engineSession{e}, nil }

// Status implements inference.Model.
func (e *Engine) Status() inference.Status {
	return inference.Status{Phase: inference.PhaseReady, Percent: 100}
}

// Capabilities implements inference.Model.
func (e *Engine) Capabilities() inference.Capabilities {
	return inference.Capabilities{Instructions: true}
}

// Close implements inference.Model.
func (e *Engine) Close() error { return nil }

// CounterOf returns the frame counter of the newest picture in the prompt of an answer.
func (e *Engine) CounterOf(text string) (uint32, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	n, ok := e.counter[text]
	return n, ok
}

// Looks returns the prompts so far.
func (e *Engine) Looks() []Look {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.looks)
}

type engineSession struct{ e *Engine }

// Observe implements inference.Session.
func (engineSession) Observe(inference.Frame) {}

// Close implements inference.Session.
func (engineSession) Close() error { return nil }

// Generate implements inference.Session.
func (s engineSession) Generate(ctx context.Context, p inference.Prompt) iter.Seq2[inference.Chunk, error] {
	return func(yield func(inference.Chunk, error) bool) {
		text, latency := s.e.ask(p)
		t := time.NewTimer(latency)
		defer t.Stop()
		select {
		case <-ctx.Done():
			yield(inference.Chunk{}, ctx.Err())
		case <-t.C:
			yield(inference.Chunk{Text: text}, nil)
		}
	}
}

func (e *Engine) ask(p inference.Prompt) (text string, latency time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	n := e.asked
	e.asked++
	newest := p.Frames[len(p.Frames)-1]
	count, _ := toyworld.ReadCounter(media.VideoFrame{Width: newest.Width, Height: newest.Height, Pix: newest.Pix})
	switch {
	case len(p.Rules) > 0:
		n := e.rules
		e.rules++
		if text = `{"fired":[]}`; e.Rules != nil {
			text = e.Rules(n)
		}
	case e.Text != nil:
		text = e.Text(n)
	default:
		text = fmt.Sprintf("Number %d: the reds move the ball across the pitch and look for space.", n)
	}
	e.counter[text] = count
	e.looks = append(e.looks, Look{At: time.Now(), Instruction: p.Instruction, Counter: count})
	latency = e.Least
	if e.Most > e.Least {
		latency += time.Duration(e.rand.Int64N(int64(e.Most - e.Least)))
	}
	return text, latency
}
