// Package scene is an engine without a model. It measures the pictures it is
// shown and says, in plain English, what measurably changed: a cut, movement
// and where and how fast, a change of its direction, of brightness, of
// colour, a flash, a graphic laid over the picture. When nothing changed it
// answers with silence.
//
// It never says what is in the picture, because it does not know. It starts
// no goroutines and keeps no pictures, only a few seconds of coarse grids.
package scene

import (
	"context"
	"errors"
	"iter"
	"slices"
	"strings"
	"sync"
	"time"

	"touchline/inference"
)

// Detail is what Status says about the engine, word for word.
const Detail = "scene: no model; it only says what measurably changed in the picture"

// Options of the engine.
type Options struct {
	// Seed chooses among wordings that mean the same.
	Seed uint64
}

// Model is the engine. Sessions share nothing, so it holds only its options.
type Model struct{ options Options }

var (
	_ inference.Model   = (*Model)(nil)
	_ inference.Session = (*Session)(nil)
)

// New returns the engine, which is ready at once.
func New(o Options) *Model { return &Model{options: o} }

// Name is "scene".
func (m *Model) Name() string { return "scene" }

// NewSession opens one room's conversation. It never fails.
func (m *Model) NewSession() (inference.Session, error) {
	return &Session{analyzer: NewAnalyzer(), seed: m.options.Seed}, nil
}

// Status is always ready.
func (m *Model) Status() inference.Status {
	return inference.Status{Phase: inference.PhaseReady, Percent: 100, Detail: Detail}
}

// Capabilities are to answer in English, whatever it is asked.
func (m *Model) Capabilities() inference.Capabilities {
	return inference.Capabilities{Languages: []string{"en"}}
}

// Close does nothing: there is nothing to free.
func (m *Model) Close() error { return nil }

// errNoFrames is returned by Generate when it has nothing to look at.
var errNoFrames = errors.New("look at the scene: expected at least one frame in the prompt, got none")

// atOnce is how many statements an answer holds at most.
const atOnce = 2

// backlogAge is how long a statement that found no room waits for the next answer.
const backlogAge = 2 * time.Second

// Session measures one room's pictures. Observe may run beside Generate.
type Session struct {
	seed uint64

	mu       sync.Mutex
	analyzer *Analyzer
	observed bool
	backlog  []Statement
	answers  uint64
	last     string // the last sentence
	said     []Statement
}

// Observe measures one picture as it comes.
func (s *Session) Observe(f inference.Frame) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.observed = true
	s.analyzer.Push(f)
}

// Generate says what happened since it was last asked, in at most two short
// English sentences, or inference.Silence. Frames of the prompt that Observe
// was not shown are measured first; text, language and instruction make no
// difference to what was measured.
func (s *Session) Generate(ctx context.Context, p inference.Prompt) iter.Seq2[inference.Chunk, error] {
	return func(yield func(inference.Chunk, error) bool) {
		if err := ctx.Err(); err != nil {
			yield(inference.Chunk{}, err)
			return
		}
		if len(p.Frames) == 0 {
			yield(inference.Chunk{}, errNoFrames)
			return
		}
		for _, piece := range pieces(s.answer(p)) {
			if err := ctx.Err(); err != nil {
				yield(inference.Chunk{}, err)
				return
			}
			if !yield(inference.Chunk{Text: piece}, nil) {
				return
			}
		}
	}
}

// Close frees nothing: the session is only memory.
func (s *Session) Close() error { return nil }

// Said returns the statements behind the last answer, one for each sentence; none after silence.
func (s *Session) Said() []Statement {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.said)
}

func (s *Session) answer(p inference.Prompt) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range p.Frames {
		// Frames of another epoch than the one observed are of the past.
		if !s.observed || f.Epoch == s.analyzer.epoch {
			s.analyzer.Push(f)
		}
	}
	now := s.analyzer.now.at
	found := slices.DeleteFunc(s.backlog, func(x Statement) bool { return now-x.At > backlogAge || x.At > now })
	found = append(found, s.analyzer.Take()...)
	slices.SortStableFunc(found, func(x, y Statement) int { return int(x.Kind) - int(y.Kind) })
	most := atOnce
	if p.MaxTokens > 0 && p.MaxTokens < 2*sentenceTokens {
		most = 1
	}
	var sentences []string
	s.said = nil
	for len(found) > 0 && len(sentences) < most {
		sentences = append(sentences, s.word(found[0]))
		s.said = append(s.said, found[0])
		found = found[1:]
	}
	s.backlog = slices.Clone(found)
	if len(sentences) == 0 {
		return inference.Silence
	}
	return strings.Join(sentences, " ")
}

// sentenceTokens is how many tokens a model would need for the longest sentence.
const sentenceTokens = 24

// word puts a statement into words, never the same twice in a row.
func (s *Session) word(x Statement) string {
	all := wordings(x)
	for range all {
		s.answers++
		text := all[(s.seed+s.answers)%uint64(len(all))]
		if text != s.last {
			s.last = text
			return text
		}
	}
	return s.last
}

// pieces cuts an answer after every third word.
func pieces(text string) []string {
	var out []string
	words := strings.SplitAfter(text, " ")
	for part := range slices.Chunk(words, 3) {
		out = append(out, strings.Join(part, ""))
	}
	return out
}
