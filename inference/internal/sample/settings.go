package sample

import (
	"fmt"
	"math"

	"touchline/internal/check"
)

// Settings are the rules for drawing one answer. Read-only once in use.
type Settings struct {
	// Greedy chooses the largest logit, after penalties and forbidden ids.
	Greedy bool
	// Temperature divides the logits.
	Temperature float64
	// TopK keeps the K largest logits; 0 keeps all.
	TopK int
	// TopP keeps the most probable ids with a total probability of P; 1 keeps all.
	TopP float64
	// RepetitionPenalty divides positive logits of ids generated before and
	// multiplies negative ones; 1 is off.
	RepetitionPenalty float64
	// Window limits the penalty to the last Window ids before the current chunk and
	// all ids of this chunk. 0 means all generated ids.
	Window int
	// Chunked selects the rules of the speech path: top-k keeps exactly K ids, and
	// top-p keeps the first id that crosses P. On the chat path top-k also keeps all
	// ids equal to the K-th, and top-p drops the smallest while their sum is at most
	// 1-P.
	Chunked bool
	// MinTokens is the number of generated ids before the first stop id.
	MinTokens int
	// Stop are the ids that end an answer.
	Stop []int32
	// LengthPenalty applies to the stop ids like RepetitionPenalty; 1 or 0 is off.
	LengthPenalty float64
	// Forbidden ids are never chosen; nil forbids none.
	Forbidden *Set
	// Constraint, if not nil, limits the ids of this one answer, which then is greedy: of the other
	// rules only Stop applies, if the constraint lets the answer end.
	Constraint Constraint
}

// Constraint restricts each next id of an answer.
type Constraint interface {
	// Only returns the next id if there is a single possibility.
	Only() (id int32, ok bool)
	// Allows reports whether id, which is not a stop id, may come next.
	Allows(id int32) bool
	// Best returns the allowed id with the largest logit of a whole row, of equal ones
	// the lowest; ok is false if all are -Inf.
	Best(row []float32) (id int32, ok bool)
	// Ends reports whether the answer may end here, Complete whether it must.
	Ends() bool
	Complete() bool
	// Accept adds an allowed id.
	Accept(id int32)
}

// Chat returns the rules of the official chat call.
func Chat() Settings {
	return Settings{Temperature: 0.7, TopK: 100, TopP: 0.8, RepetitionPenalty: 1.02}
}

// Speech returns the rules of the official streaming call, which draws spoken text
// in chunks.
func Speech() Settings {
	return Settings{Temperature: 0.7, TopK: 100, TopP: 0.8, RepetitionPenalty: 1.02, Window: 128, Chunked: true}
}

// Validate returns all invalid settings, joined.
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

// NewSet returns the set of the ids that are in the vocabulary.
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

// Len returns the number of ids.
func (s *Set) Len() int {
	if s == nil {
		return 0
	}
	return s.count
}

// add adds an id and reports whether it is new.
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
