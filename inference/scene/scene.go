// Package scene is an engine without a model. It measures changes of the picture
// and states them in English: a cut, movement with place and speed, a change of
// its direction, of brightness or of colour, a flash, a graphic over the picture.
// Without a change it answers with silence.
//
// It does not recognise the content of the picture. It starts no goroutines and
// keeps no pictures, only a few seconds of coarse grids.
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

// Detail is the detail of Status.
const Detail = "scene: no model; it only says what measurably changed in the picture"

// Model is the engine.
type Model struct{}

var (
	_ inference.Model   = Model{}
	_ inference.Session = (*Session)(nil)
)

// Name returns "scene".
func (Model) Name() string { return "scene" }

// NewSession opens one room's conversation.
func (Model) NewSession() (inference.Session, error) { return &Session{analyzer: NewAnalyzer()}, nil }

// Status returns ready.
func (Model) Status() inference.Status {
	return inference.Status{Phase: inference.PhaseReady, Percent: 100, Detail: Detail}
}

// Capabilities returns English without instructions, and the alert rules that it can measure.
func (Model) Capabilities() inference.Capabilities {
	return inference.Capabilities{
		Languages: []string{"en"}, RuleNames: RuleNames(), CheckRule: func(when string, _ []inference.Region) error { return CheckRule(when) },
	}
}

// Close does nothing.
func (Model) Close() error { return nil }

// errNoFrames is returned by Generate for a prompt without frames.
var errNoFrames = errors.New("measure the scene: the prompt has no frame")

const (
	// maxStatements is the largest number of statements in an answer.
	maxStatements = 2
	// backlogAge is the longest wait of a statement for the next answer.
	backlogAge = 2 * time.Second
	// sentenceTokens is a model's number of tokens for the longest sentence.
	sentenceTokens = 24
)

// Session measures one room's pictures. Observe and Generate may run at the same time.
type Session struct {
	mu       sync.Mutex
	analyzer *Analyzer
	observed bool
	backlog  []Statement
	answers  int
	last     string // the last sentence
	said     []Statement
}

// Observe measures one picture.
func (s *Session) Observe(f inference.Frame) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.observed = true
	s.analyzer.Push(f)
}

// Generate states the changes since the last answer in at most two short English
// sentences, or answers inference.Silence. It first measures the frames of the
// prompt that Observe has not received. Text, language and instruction have no
// effect. A prompt with rules gets an answer about these alone, in JSON.
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
		for _, piece := range Pieces(s.answer(p)) {
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

// Close does nothing.
func (s *Session) Close() error { return nil }

func (s *Session) answer(p inference.Prompt) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range p.Frames {
		// A frame of another epoch is old.
		if !s.observed || f.Epoch == s.analyzer.epoch {
			s.analyzer.Push(f)
		}
	}
	if len(p.Rules) > 0 {
		return AnswerRules(p.Rules, s.analyzer.Holds)
	}
	now := s.analyzer.now.at
	found := slices.DeleteFunc(s.backlog, func(x Statement) bool { return now-x.At > backlogAge || x.At > now })
	found = append(found, s.analyzer.Take()...)
	slices.SortStableFunc(found, func(x, y Statement) int { return int(x.Kind) - int(y.Kind) })
	most := min(maxStatements, len(found))
	if p.MaxTokens > 0 && p.MaxTokens < 2*sentenceTokens {
		most = min(1, most)
	}
	s.said, s.backlog = slices.Clone(found[:most]), slices.Clone(found[most:])
	if most == 0 {
		return inference.Silence
	}
	sentences := make([]string, most)
	for i, x := range s.said {
		sentences[i] = s.word(x)
	}
	return strings.Join(sentences, " ")
}

// word returns a sentence for a statement, other than the last sentence.
func (s *Session) word(x Statement) string {
	all := wordings(x)
	for range all {
		s.answers++
		text := all[s.answers%len(all)]
		if text != s.last {
			s.last = text
			return text
		}
	}
	return s.last
}

// Pieces cuts an answer after every third word.
func Pieces(text string) []string {
	var out []string
	for part := range slices.Chunk(strings.SplitAfter(text, " "), 3) {
		out = append(out, strings.Join(part, ""))
	}
	return out
}
