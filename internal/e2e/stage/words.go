package stage

import (
	"context"
	"iter"
	"math"
	"strings"
	"sync"
	"time"

	"touchline/inference"
	"touchline/internal/ticks"
)

// soundBook records the onsets of the words of each answer, as the voice reports them.
type soundBook struct {
	inference.Model

	mu      sync.Mutex
	answers map[string][]time.Duration // by text: onset of each word after the first audible block
}

func newSoundBook(m inference.Model) *soundBook {
	return &soundBook{Model: m, answers: map[string][]time.Duration{}}
}

// NewSession implements inference.Model.
func (b *soundBook) NewSession() (inference.Session, error) {
	s, err := b.Model.NewSession()
	if err != nil {
		return nil, err
	}
	return &soundSession{s, b}, nil
}

// words returns the onset of each word of an answer after its first audible moment.
func (b *soundBook) words(text string) []time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.answers[text]
}

type soundSession struct {
	inference.Session
	book *soundBook
}

// Generate implements inference.Session.
func (s *soundSession) Generate(ctx context.Context, p inference.Prompt) iter.Seq2[inference.Chunk, error] {
	return func(yield func(inference.Chunk, error) bool) {
		var text strings.Builder
		var words []time.Duration
		var written time.Duration
		onset := time.Duration(-1)
		for c, err := range s.Session.Generate(ctx, p) {
			text.WriteString(c.Text)
			for _, w := range c.Words {
				words = append(words, written+w.Start)
			}
			if len(c.Audio) > 0 {
				if at, ok := firstAudible(c.Audio, c.AudioRate); ok && onset < 0 {
					onset = written + at
				}
				written += ticks.Duration(int64(len(c.Audio)), int64(c.AudioRate))
			}
			if onset >= 0 { // before the chunk is passed on, because it may be played at once
				s.book.note(strings.TrimSpace(text.String()), words, onset)
			}
			if !yield(c, err) {
				return
			}
		}
	}
}

func (b *soundBook) note(text string, words []time.Duration, onset time.Duration) {
	after := make([]time.Duration, len(words))
	for i, at := range words {
		after[i] = max(at-onset, 0)
	}
	b.mu.Lock()
	b.answers[text] = after
	b.mu.Unlock()
}

// firstAudible finds the first 10 ms that are loud enough for a viewer.
func firstAudible(pcm []int16, rate int) (time.Duration, bool) {
	n := rate / 100
	for i := 0; n > 0 && i+n <= len(pcm); i += n {
		var sum float64
		for _, v := range pcm[i : i+n] {
			sum += float64(v) * float64(v)
		}
		if math.Sqrt(sum/float64(n)) >= audibleRMS {
			return ticks.Duration(int64(i), int64(rate)), true
		}
	}
	return 0, false
}
