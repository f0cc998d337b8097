package sample

import "math/rand/v2"

// State is the state of one answer's draws: its rules, the ids generated so far,
// its random numbers. It is not safe for concurrent use.
type State struct {
	set       Settings
	vocab     int
	generated int
	ids       []int32 // for the window: all ids of this answer
	seen      *Set    // ids that the penalty applies to
	distinct  []int32 // the same as a list
	source    rand.PCG
	uniform   func() float64
}

// NewState returns a state for a vocabulary. Reset it before use.
func NewState(vocab int) *State {
	s := &State{
		vocab: vocab, seen: NewSet(vocab), ids: make([]int32, 0, 1024), distinct: make([]int32, 0, 1024),
	}
	random := rand.New(&s.source)
	s.uniform = random.Float64
	return s
}

// Reset begins a new answer. Equal seeds give equal draws.
func (s *State) Reset(set Settings, seed, stream uint64) {
	s.set = set
	s.generated = 0
	s.ids = s.ids[:0]
	s.forget()
	s.source.Seed(seed, stream)
}

func (s *State) forget() {
	for _, id := range s.distinct {
		s.seen.remove(id)
	}
	s.distinct = s.distinct[:0]
}

// Accept adds a generated id. It ignores ids outside the vocabulary.
func (s *State) Accept(id int32) {
	if id < 0 || int(id) >= s.vocab {
		return
	}
	s.generated++
	if s.set.Constraint != nil {
		s.set.Constraint.Accept(id)
	}
	if s.set.Window > 0 {
		s.ids = append(s.ids, id)
	}
	s.see(id)
}

// see adds an id to the ids with a penalty.
func (s *State) see(id int32) {
	if s.seen.add(id) {
		s.distinct = append(s.distinct, id)
	}
}

// NewChunk begins a chunk: from now on the penalty applies to the last Window ids before it.
// Without a Window it does nothing.
func (s *State) NewChunk() {
	if s.set.Window == 0 {
		return
	}
	s.forget()
	for _, id := range s.ids[max(0, len(s.ids)-s.set.Window):] {
		s.see(id)
	}
}

// Complete reports whether the answer's constraint allows no further id.
func (s *State) Complete() bool { return s.set.Constraint != nil && s.set.Constraint.Complete() }

// barred reports whether the stop ids must not be chosen yet.
func (s *State) barred() bool { return s.generated < s.set.MinTokens }

// adjust applies the repetition penalty to the logit of id.
func (s *State) adjust(id int32, v float32) float32 {
	if s.set.RepetitionPenalty != 1 && s.seen.Has(id) {
		v = penalise(v, s.set.RepetitionPenalty)
	}
	return v
}

func penalise(v float32, by float64) float32 {
	if v > 0 {
		return v / float32(by)
	}
	return v * float32(by)
}
