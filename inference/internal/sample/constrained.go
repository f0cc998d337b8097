package sample

import (
	"fmt"
	"math"
	"slices"
)

// constrainedFull is Full for an answer with a constraint.
func (s *Sampler) constrainedFull(set *Settings, logits []float32) (int32, error) {
	c := set.Constraint
	if id, ok := c.Only(); ok {
		return s.only(id, 0)
	}
	best := Candidate{Logit: float32(math.Inf(-1))}
	if id, ok := c.Best(logits); ok {
		best = Candidate{ID: id, Logit: logits[id]}
	}
	if c.Ends() {
		for _, id := range set.Stop {
			best = better(best, id, logits[id])
		}
	}
	return s.only(best.ID, best.Logit)
}

// constrainedTop is Top for an answer with a constraint.
func (s *Sampler) constrainedTop(set *Settings, values []float32, ids []int64) (id int32, ok bool, err error) {
	c := set.Constraint
	if id, ok = c.Only(); ok {
		id, err = s.only(id, 0)
		return id, true, err
	}
	best, ends := Candidate{Logit: float32(math.Inf(-1))}, c.Ends()
	for i, v := range values {
		switch {
		case !(v <= math.MaxFloat32):
			return 0, false, ErrNotFinite
		case ids[i] < 0 || ids[i] >= int64(s.vocab):
			return 0, false, fmt.Errorf("expected ids below %d, got %d: the graph and the manifest do not fit each other", s.vocab, ids[i])
		case v < best.Logit:
			continue // the values descend: only equal ones can still be chosen
		}
		id := int32(ids[i])
		if slices.Contains(set.Stop, id) && ends || c.Allows(id) {
			best = better(best, id, v)
		}
	}
	// An id outside the list may have its last value.
	if len(values) < s.vocab && best.Logit <= values[len(values)-1] {
		return 0, false, nil
	}
	id, err = s.only(best.ID, best.Logit)
	return id, true, err
}

// better returns the candidate with the larger logit, of equal ones the lower id.
func better(best Candidate, id int32, v float32) Candidate {
	if v > best.Logit || v == best.Logit && id < best.ID {
		return Candidate{ID: id, Logit: v}
	}
	return best
}
