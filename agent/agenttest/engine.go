package agenttest

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"slices"
	"strings"
	"sync"
	"time"

	"touchline/inference"
	"touchline/inference/engine"
)

// Answer is the answer of an Engine to one prompt.
type Answer struct {
	Latency time.Duration // to the first word and sound
	Text    string
	Anchor  time.Duration // of the text; 0 is the newest picture
	Facts   []inference.Fact
	Speech  time.Duration // length of the audio, sent in two halves
	// Behind is the time from the end of the text, which is then reported, to the first sound.
	Behind time.Duration
	// Second is the time between the halves.
	Second time.Duration
	Err    error // after the text
	// TimedWords gives each word its time in the audio.
	TimedWords bool
}

// Engine is an inference.Model with scripted answers.
type Engine struct {
	Answer  func(n int, p inference.Prompt) Answer
	Phase   func() inference.Status // nil: ready
	Can     *inference.Capabilities // nil: it reads instructions
	Mute    bool                    // Speak yields no sound
	Called  string                  // its name; "scripted" when empty
	Forgets bool                    // Prompts stays empty, for long runs

	mu      sync.Mutex
	asked   int
	open    int // sessions
	using   int // calls of sessions
	Prompts []Asked
}

// Asked is a prompt with its time.
type Asked struct {
	At time.Time
	inference.Prompt
}

// Open opens a room's session of a model.
func Open(m inference.Model) *engine.Session {
	s, err := engine.Of(m, nil).Open(nil)
	if err != nil {
		panic(err)
	}
	return s
}

// Name implements inference.Model.
func (e *Engine) Name() string { return cmp.Or(e.Called, "scripted") }

// NewSession implements inference.Model.
func (e *Engine) NewSession() (inference.Session, error) {
	e.count(1, 0)
	return engineSession{e}, nil
}

// count adds open sessions and running calls.
func (e *Engine) count(open, using int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.open += open
	e.using += using
}

// Answering returns the number of running answers.
func (e *Engine) Answering() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.using
}

// Sessions returns the number of open sessions.
func (e *Engine) Sessions() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.open
}

// Status implements inference.Model.
func (e *Engine) Status() inference.Status {
	if e.Phase != nil {
		return e.Phase()
	}
	return inference.Status{Phase: inference.PhaseReady, Percent: 100}
}

// Capabilities implements inference.Model.
func (e *Engine) Capabilities() inference.Capabilities {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.Can != nil {
		return *e.Can
	}
	return inference.Capabilities{Instructions: true}
}

// Become changes the capabilities of an engine in use.
func (e *Engine) Become(can inference.Capabilities) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.Can = &can
}

// Close implements inference.Model.
func (e *Engine) Close() error { return nil }

// Questions returns the prompts so far.
func (e *Engine) Questions() []Asked {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.Prompts)
}

// words spreads half of the text over half of the audio, a word for each.
func (a Answer) words(half int) []inference.WordTime {
	if !a.TimedWords {
		return nil
	}
	all := strings.Fields(a.Text)
	n := (len(all) + 1) / 2
	mine := all[:n]
	if half == 1 {
		mine = all[n:]
	}
	out := make([]inference.WordTime, len(mine))
	for i, w := range mine {
		out[i] = inference.WordTime{
			Text:  strings.Trim(w, ".,"),
			Start: a.Speech / 2 * time.Duration(i) / time.Duration(len(mine)),
			End:   a.Speech / 2 * time.Duration(i+1) / time.Duration(len(mine)),
		}
	}
	return out
}

type engineSession struct{ e *Engine }

// Observe implements inference.Session.
func (engineSession) Observe(inference.Frame) {}

// Close implements inference.Session. It fails while an answer runs.
func (s engineSession) Close() error {
	s.e.count(-1, 0)
	s.e.mu.Lock()
	defer s.e.mu.Unlock()
	if s.e.open == 0 && s.e.using > 0 {
		return errors.New("a session was closed during an answer")
	}
	return nil
}

const speechRate = 24000

// Speak implements inference.Speaker: a second of sound after a tenth of a second.
func (s engineSession) Speak(ctx context.Context, text, _, _ string) iter.Seq2[inference.Chunk, error] {
	return func(yield func(inference.Chunk, error) bool) {
		if !yield(inference.Chunk{Text: text}, nil) {
			return
		}
		if err := sleep(ctx, 100*time.Millisecond); err != nil {
			yield(inference.Chunk{}, err)
			return
		}
		if s.e.Mute {
			return
		}
		yield(inference.Chunk{Audio: slices.Repeat([]int16{5000}, speechRate), AudioRate: speechRate}, nil)
	}
}

// Generate implements inference.Session.
func (s engineSession) Generate(ctx context.Context, p inference.Prompt) iter.Seq2[inference.Chunk, error] {
	return func(yield func(inference.Chunk, error) bool) {
		s.e.count(0, 1)
		defer s.e.count(0, -1)
		s.e.mu.Lock()
		n := s.e.asked
		s.e.asked++
		if !s.e.Forgets {
			s.e.Prompts = append(s.e.Prompts, Asked{time.Now(), p})
		}
		s.e.mu.Unlock()
		a := s.e.Answer(n, p)
		if p.Trace != nil {
			p.Trace(inference.Exchange{Request: p.System + "\n" + p.Text, Answer: a.Text})
		}
		if err := sleep(ctx, a.Latency); err != nil {
			yield(inference.Chunk{}, err)
			return
		}
		if !yield(inference.Chunk{Text: a.Text, Anchor: a.Anchor, Facts: a.Facts}, nil) {
			return
		}
		if a.Behind > 0 && (!yield(inference.Chunk{TextEnds: true}, nil) || sleep(ctx, a.Behind) != nil) {
			return
		}
		if p.Speech && a.Speech > 0 {
			half := make([]int16, int(a.Speech.Seconds()*speechRate/2))
			for i := range half {
				half[i] = 5000
			}
			for i := range 2 {
				if i == 1 {
					if err := sleep(ctx, a.Second); err != nil {
						yield(inference.Chunk{}, err)
						return
					}
				}
				if !yield(inference.Chunk{Audio: half, AudioRate: speechRate, Words: a.words(i)}, nil) {
					return
				}
			}
		}
		if a.Err != nil {
			yield(inference.Chunk{}, a.Err)
		}
	}
}
