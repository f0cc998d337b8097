package stage

import (
	"context"
	"fmt"
	"iter"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"touchline/inference"
	"touchline/media"
	"touchline/worlds"
)

// Engine is a model with a random latency: it answers each prompt with a different sentence and records the frame
// counter of the newest picture in the prompt.
type Engine struct {
	// Least and Most bound the latency.
	Least, Most time.Duration
	// Text returns the text of comment n; nil for sentences of about three seconds.
	Text func(n int) string

	mu      sync.Mutex
	rand    *rand.Rand
	asked   int
	counter map[string]uint32 // of the newest frame, by answer
}

// NewEngine returns an engine with seeded random latencies between least and most.
func NewEngine(seed uint64, least, most time.Duration) *Engine {
	return &Engine{
		Least: least, Most: most,
		rand:    rand.New(rand.NewPCG(seed, 1)),
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

// CounterOf returns the frame counter of the newest picture in the prompt of an answer; false for an unknown answer.
func (e *Engine) CounterOf(text string) (uint32, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	n, ok := e.counter[text]
	return n, ok
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
	count, _ := counterOf(p)
	switch {
	case len(p.Rules) > 0:
		text = `{"fired":[]}`
	case e.Text != nil:
		text = e.Text(n)
	default:
		text = fmt.Sprintf("Number %d: the reds move the ball across the pitch and look for space.", n)
	}
	e.counter[text] = count
	latency = e.Least
	if e.Most > e.Least {
		latency += time.Duration(e.rand.Int64N(int64(e.Most - e.Least)))
	}
	return text, latency
}

// Counted wraps a model and records its answers with the frame counter of the newest picture in their prompts.
type Counted struct {
	inference.Model

	mu      sync.Mutex
	counter map[string][]uint32 // by answer, which may come more than once
}

// NewCounted wraps a model.
func NewCounted(m inference.Model) *Counted {
	return &Counted{Model: m, counter: map[string][]uint32{}}
}

// NewSession implements inference.Model.
func (c *Counted) NewSession() (inference.Session, error) {
	s, err := c.Model.NewSession()
	if err != nil {
		return nil, err
	}
	return countedSession{s, c}, nil
}

// CounterOf returns the frame counter of the newest picture in the prompt of an answer; false unless the answer occurred once.
func (c *Counted) CounterOf(text string) (uint32, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n := c.counter[text]; len(n) == 1 {
		return n[0], true
	}
	return 0, false
}

func (c *Counted) note(text string, count uint32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.counter[text] = append(c.counter[text], count)
}

type countedSession struct {
	inference.Session

	c *Counted
}

var _ inference.VoiceCanceller = countedSession{}

// CancelVoice implements inference.VoiceCanceller.
func (s countedSession) CancelVoice() {
	if h, ok := s.Session.(inference.VoiceCanceller); ok {
		h.CancelVoice()
	}
}

// Speak implements inference.Speaker.
func (s countedSession) Speak(ctx context.Context, text, voice, language string) iter.Seq2[inference.Chunk, error] {
	if speaker, ok := s.Session.(inference.Speaker); ok {
		return speaker.Speak(ctx, text, voice, language)
	}
	return func(yield func(inference.Chunk, error) bool) { yield(inference.Chunk{}, inference.ErrNoVoice) }
}

// Generate implements inference.Session.
func (s countedSession) Generate(ctx context.Context, p inference.Prompt) iter.Seq2[inference.Chunk, error] {
	return func(yield func(inference.Chunk, error) bool) {
		count, read := counterOf(p)
		var text strings.Builder
		defer func() {
			if read {
				s.c.note(strings.TrimSpace(text.String()), count)
			}
		}()
		for c, err := range s.Session.Generate(ctx, p) {
			text.WriteString(c.Text)
			if !yield(c, err) {
				return
			}
		}
	}
}

// counterOf reads the counter of a prompt's newest picture.
func counterOf(p inference.Prompt) (count uint32, ok bool) {
	if len(p.Frames) == 0 {
		return 0, false
	}
	newest := p.Frames[len(p.Frames)-1]
	return worlds.ReadCounter(media.VideoFrame{Width: newest.Width, Height: newest.Height, Pix: newest.Pix})
}
