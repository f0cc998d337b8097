// Package sample chooses the next token from a row of logits, in the order and
// with the rounding of the official MiniCPM-o code: forbidden ids, repetition
// penalty, length, temperature, top-k, top-p, draw. A draw sums the probabilities
// of the kept ids, in the order of the ids, in float64 and chooses the first id
// whose sum exceeds u times the total.
//
// Full uses a whole row; Top uses its largest values, as a GPU returns them.
// Both choose the same id, unless Top reports that its values are not enough.
//
// The package starts no goroutines and allocates nothing per token.
package sample

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"slices"
)

// ErrNotFinite is returned for a row with a logit that is NaN or +Inf, or without
// any id to choose from.
var ErrNotFinite = errors.New("the model's output is not finite")

// Candidate is an id that may be chosen.
type Candidate struct {
	ID int32
	// Logit after penalties and temperature.
	Logit float32
	// Prob among the kept ids.
	Prob float32
}

// Sampler holds the scratch memory of draws, for any states. It is not safe for
// concurrent use.
type Sampler struct {
	vocab int
	row   []float32
	heap  []float32
	kept  []Candidate
}

// New returns a sampler for a vocabulary.
func New(vocab int) *Sampler {
	return &Sampler{vocab: vocab, kept: make([]Candidate, 0, 512), heap: make([]float32, 0, 512)}
}

// Kept returns the candidates of the last draw, by id. The slice is valid until the
// next call.
func (s *Sampler) Kept() []Candidate { return s.kept }

// Full draws from a whole row, which it does not change. u in [0,1) replaces the
// state's random number; a negative u does not.
func (s *Sampler) Full(st *State, logits []float32, u float64) (int32, error) {
	if len(logits) != s.vocab {
		return 0, fmt.Errorf("expected a row of %d logits, got %d", s.vocab, len(logits))
	}
	for _, v := range logits {
		if !(v <= math.MaxFloat32) {
			return 0, ErrNotFinite
		}
	}
	if st.set.Constraint != nil {
		return s.constrainedFull(&st.set, logits)
	}
	s.row = append(s.row[:0], logits...)
	row, set := s.row, &st.set
	low := float32(math.Inf(-1))
	if set.Forbidden != nil {
		for w, word := range set.Forbidden.bits {
			for ; word != 0; word &= word - 1 {
				row[w<<6+bits.TrailingZeros64(word)] = low
			}
		}
	}
	if set.RepetitionPenalty != 1 {
		for _, id := range st.distinct {
			row[id] = penalise(row[id], set.RepetitionPenalty)
		}
	}
	for i, id := range set.Stop {
		if !slices.Contains(set.Stop[:i], id) {
			row[id] = stop(st, row[id])
		}
	}
	if set.Greedy {
		best := int32(0)
		for id, v := range row {
			if v > row[best] {
				best = int32(id)
			}
		}
		return s.only(best, row[best])
	}
	if t := float32(set.Temperature); t != 1 {
		for i := range row {
			row[i] /= t
		}
	}
	s.kept = s.kept[:0]
	least := low
	if set.TopK > 0 && set.TopK < len(row) {
		least = s.kth(row, set.TopK)
	}
	for id, v := range row {
		if v >= least && v > low {
			s.kept = append(s.kept, Candidate{ID: int32(id), Logit: v})
		}
	}
	s.sort(set.Chunked)
	return s.drawSorted(st, u)
}

// Top draws from the largest values of a row and their ids, largest first, after it lowers the
// forbidden ones. ok is false if these values do not determine the id; then the state is unchanged
// and Full must be used.
//
//nolint:funlen // hot: it runs for each token of each slot
func (s *Sampler) Top(st *State, values []float32, ids []int64, u float64) (id int32, ok bool, err error) {
	set := &st.set
	if len(values) == 0 || len(values) != len(ids) {
		return 0, false, fmt.Errorf("expected as many values as ids, at least one, got %d and %d", len(values), len(ids))
	}
	if set.Constraint != nil {
		return s.constrainedTop(set, values, ids)
	}
	// With factors below 1 an id outside the list could rise into it.
	complete := len(values) >= s.vocab
	rises := set.RepetitionPenalty < 1 && len(st.distinct) > 0 || set.LengthPenalty != 0 && set.LengthPenalty < 1
	if !complete && (rises || !set.Greedy && set.TopK == 0) {
		return 0, false, nil
	}
	s.kept = s.kept[:0]
	low := float32(math.Inf(-1))
	for i, v := range values {
		if !(v <= math.MaxFloat32) {
			return 0, false, ErrNotFinite
		}
		if ids[i] < 0 || ids[i] >= int64(s.vocab) {
			return 0, false, fmt.Errorf("expected ids below %d, got %d: the graph and the manifest do not fit each other", s.vocab, ids[i])
		}
		id := int32(ids[i])
		if set.Forbidden.Has(id) {
			continue
		}
		v = st.adjust(id, v)
		if slices.Contains(set.Stop, id) {
			v = stop(st, v)
		}
		if v > low {
			s.kept = append(s.kept, Candidate{ID: id, Logit: v})
		}
	}
	// No id outside the list is above its last value.
	outside := values[len(values)-1]
	if set.Greedy {
		if len(s.kept) == 0 {
			if complete {
				return 0, true, ErrNotFinite
			}
			return 0, false, nil
		}
		best := s.kept[0]
		for _, c := range s.kept[1:] {
			if c.Logit > best.Logit || c.Logit == best.Logit && c.ID < best.ID {
				best = c
			}
		}
		if !complete && best.Logit <= outside {
			return 0, false, nil
		}
		id, err = s.only(best.ID, best.Logit)
		return id, true, err
	}
	t := float32(set.Temperature)
	if set.Temperature != 1 {
		outside /= t
		for i := range s.kept {
			s.kept[i].Logit /= t
		}
	}
	if !complete && len(s.kept) < set.TopK {
		return 0, false, nil
	}
	s.sort(set.Chunked)
	if set.TopK > 0 && len(s.kept) > set.TopK {
		least := s.kept[set.TopK-1].Logit
		if !complete && least <= outside {
			return 0, false, nil
		}
	} else if !complete && s.kept[len(s.kept)-1].Logit <= outside {
		return 0, false, nil
	}
	id, err = s.drawSorted(st, u)
	return id, true, err
}

// stop applies the length rules to the logit of a stop id.
func stop(st *State, v float32) float32 {
	if st.barred() {
		return float32(math.Inf(-1))
	}
	if p := st.set.LengthPenalty; p != 0 && p != 1 {
		return penalise(v, p)
	}
	return v
}

func (s *Sampler) only(id int32, v float32) (int32, error) {
	if math.IsInf(float64(v), -1) {
		return 0, ErrNotFinite
	}
	s.kept = append(s.kept[:0], Candidate{ID: id, Logit: v, Prob: 1})
	return id, nil
}

// sort sorts the kept ids, largest logit first. Of equal ones those that top-p (or,
// on the speech path, top-k) drops first come last: the official code sorts stably,
// on the chat path in ascending order.
func (s *Sampler) sort(chunked bool) {
	before := func(a, b Candidate) int {
		if c := cmp.Compare(b.Logit, a.Logit); c != 0 {
			return c
		}
		if chunked {
			return int(a.ID) - int(b.ID)
		}
		return int(b.ID) - int(a.ID)
	}
	if len(s.kept) > 512 {
		slices.SortFunc(s.kept, before)
		return
	}
	// An insertion sort: the list is nearly sorted, only penalised ids moved.
	for i := 1; i < len(s.kept); i++ {
		c := s.kept[i]
		j := i
		for ; j > 0 && before(c, s.kept[j-1]) < 0; j-- {
			s.kept[j] = s.kept[j-1]
		}
		s.kept[j] = c
	}
}

// drawSorted limits the sorted kept ids to top-k and top-p and draws one.
func (s *Sampler) drawSorted(st *State, u float64) (int32, error) {
	set := &st.set
	if len(s.kept) == 0 {
		return 0, ErrNotFinite
	}
	if n := set.TopK; n > 0 && n < len(s.kept) {
		if !set.Chunked {
			for least := s.kept[n-1].Logit; n < len(s.kept) && s.kept[n].Logit == least; {
				n++
			}
		}
		s.kept = s.kept[:n]
	}
	softmax(s.kept)
	if set.TopP < 1 {
		s.kept = s.kept[:nucleus(s.kept, set.TopP, set.Chunked)]
		softmax(s.kept)
	}
	slices.SortFunc(s.kept, func(a, b Candidate) int { return int(a.ID) - int(b.ID) })
	var total float64
	for _, c := range s.kept {
		total += float64(c.Prob)
	}
	if u < 0 {
		u = st.uniform()
	}
	var sum float64
	for _, c := range s.kept {
		if sum += float64(c.Prob); sum > u*total {
			return c.ID, nil
		}
	}
	return s.kept[len(s.kept)-1].ID, nil
}

// nucleus returns the number of sorted ids that top-p keeps. The running sum is
// rounded to float32, as in a float32 tensor.
func nucleus(kept []Candidate, p float64, chunked bool) int {
	var sum float64
	if chunked {
		for i, c := range kept {
			if sum += float64(c.Prob); float32(sum) > float32(p) {
				return i + 1
			}
		}
		return len(kept)
	}
	for i := len(kept) - 1; i > 0; i-- {
		if sum += float64(kept[i].Prob); float32(sum) > float32(1-p) {
			return i + 1
		}
	}
	return 1
}

// softmax sets the probabilities of candidates sorted by logit.
func softmax(kept []Candidate) {
	top := kept[0].Logit
	var total float64
	for i := range kept {
		e := math.Exp(float64(kept[i].Logit - top))
		kept[i].Prob = float32(e)
		total += e
	}
	for i := range kept {
		kept[i].Prob = float32(float64(kept[i].Prob) / total)
	}
}
