package alert

import (
	"errors"
	"fmt"

	"touchline/agent"
)

// Kept are the rules of a room, as they are kept across restarts.
type Kept struct {
	// Last is the number of the last id.
	Last  int        `json:"last"`
	Rules []KeptRule `json:"rules"`
}

// KeptRule is a rule with its id.
type KeptRule struct {
	ID string `json:"id"`
	agent.AlertRule
}

// Kept returns the rules.
func (s *Set) Kept() Kept {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := Kept{Last: s.last, Rules: make([]KeptRule, len(s.rules))}
	for i, r := range s.rules {
		k.Rules[i] = KeptRule{r.id, r.text}
	}
	return k
}

// Restore replaces all rules by kept ones. It leaves out rules that are not valid, and returns why, joined.
func (s *Set) Restore(k Kept) error {
	var errs []error
	var rules []*rule
	for _, kept := range k.Rules {
		text, t, err := parse(kept.AlertRule)
		if err == nil && len(rules) >= MaxRules {
			err = agent.ErrTooManyRules
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("rule %s: %w", kept.ID, err))
			continue
		}
		rules = append(rules, &rule{terms: t, id: kept.ID, text: text, votes: t.votes()})
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rules, s.last = rules, max(s.last, k.Last)
	return errors.Join(errs...)
}

// OnChange sets a function that is called after each change of the rules, perhaps concurrently. Call it before the
// Set is shared.
func (s *Set) OnChange(f func()) { s.changed = f }

func (s *Set) notify() {
	if s.changed != nil {
		s.changed()
	}
}
