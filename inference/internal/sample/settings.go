package sample

import (
	"fmt"
	"math"

	"touchline/internal/check"
)

// Settings are the rules one answer is drawn by. Read-only once in use.
type Settings struct {
	// Greedy takes the largest logit. Penalties and forbidden ids still count.
	Greedy bool
	// Temperature divides the logits.
	Temperature float64
	// TopK keeps the K largest logits; 0 keeps all.
	TopK int
	// TopP keeps the most probable ids that together reach P; 1 keeps all.
	TopP float64
	// RepetitionPenalty divides positive logits of ids that were generated
	// before and multiplies the others; 1 is off.
	RepetitionPenalty float64
	// Window bounds the ids the penalty sees: the last Window before the chunk
	// under way and all of this chunk. 0 means every generated id.
	Window int
	// Chunked selects the rules of the speech path: exactly K ids survive
	// top-k, and top-p keeps the first id that crosses P. Without it the rules
	// are those of the chat path: top-k keeps all that equal the K-th, and
	// top-p drops from the small end while the sum is at most 1-P.
	Chunked bool
	// MinTokens bars the stop ids before so many ids were generated.
	MinTokens int
	// Stop are the ids that end an answer.
	Stop []int32
	// LengthPenalty is laid on the stop ids like RepetitionPenalty; 1 or 0 is off.
	LengthPenalty float64
	// Forbidden ids are never chosen; nil forbids none.
	Forbidden *Set
}

// Chat returns the rules of the official chat call.
func Chat() Settings {
	return Settings{Temperature: 0.7, TopK: 100, TopP: 0.8, RepetitionPenalty: 1.02}
}

// Speech returns the rules of the official streaming call, which draws its
// text in chunks that are spoken.
func Speech() Settings {
	return Settings{Temperature: 0.7, TopK: 100, TopP: 0.8, RepetitionPenalty: 1.02, Window: 128, Chunked: true}
}

// Validate reports every setting that nothing can be drawn with.
func (s Settings) Validate(vocab int) error {
	var bad check.Settings
	positive := func(v float64) bool { return v > 0 && !math.IsInf(v, 0) }
	bad.That(s.Greedy || positive(s.Temperature), "temperature", "a positive number", s.Temperature)
	bad.That(s.TopK >= 0, "top_k", "0 or more", s.TopK)
	bad.That(s.TopP > 0 && s.TopP <= 1, "top_p", "above 0 and at most 1", s.TopP)
	bad.That(positive(s.RepetitionPenalty), "repetition_penalty", "a positive number", s.RepetitionPenalty)
	bad.That(s.Window >= 0, "penalty window", "0 or more ids", s.Window)
	bad.That(s.MinTokens >= 0, "min_tokens", "0 or more", s.MinTokens)
	bad.That(s.LengthPenalty == 0 || positive(s.LengthPenalty), "length_penalty", "a positive number", s.LengthPenalty)
	for _, id := range s.Stop {
		bad.That(id >= 0 && int(id) < vocab, "stop id", fmt.Sprintf("below the vocabulary of %d", vocab), id)
	}
	bad.That(s.Forbidden == nil || s.Forbidden.Len() < vocab, "forbidden ids", "fewer than the vocabulary", vocab)
	return bad.Err()
}

// Set is a set of token ids. Read-only use is safe for many goroutines.
type Set struct {
	bits  []uint64
	count int
}

// NewSet returns the set of the ids that lie inside the vocabulary.
func NewSet(vocab int, ids ...int32) *Set {
	s := &Set{bits: make([]uint64, (vocab+63)/64)}
	for _, id := range ids {
		if id >= 0 && int(id) < vocab {
			s.add(id)
		}
	}
	return s
}

// Has reports whether id is in the set; a nil set is empty.
func (s *Set) Has(id int32) bool {
	return s != nil && s.bits[uint32(id)>>6]>>(uint32(id)&63)&1 != 0
}

// Len is the number of ids.
func (s *Set) Len() int {
	if s == nil {
		return 0
	}
	return s.count
}

// add reports whether id is new.
func (s *Set) add(id int32) bool {
	if s.Has(id) {
		return false
	}
	s.bits[uint32(id)>>6] |= 1 << (uint32(id) & 63)
	s.count++
	return true
}

func (s *Set) remove(id int32) {
	if s.Has(id) {
		s.bits[uint32(id)>>6] &^= 1 << (uint32(id) & 63)
		s.count--
	}
}
