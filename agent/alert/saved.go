package alert

import (
	"errors"
	"fmt"
)

// Saved are the rules of a room in the form that survives restarts.
type Saved struct {
	// Last is the number of the last id.
	Last  int         `json:"last"`
	Rules []SavedRule `json:"rules"`
}

// SavedRule is a rule with its id.
type SavedRule struct {
	ID string `json:"id"`
	RuleText
}

// Saved returns the rules.
func (s *Set) Saved() Saved {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := Saved{Last: s.last, Rules: make([]SavedRule, len(s.rules))}
	for i, r := range s.rules {
		k.Rules[i] = SavedRule{r.id, r.text}
	}
	return k
}

// Restore replaces all rules with saved ones. It leaves out invalid rules, and returns the reasons, joined.
func (s *Set) Restore(k Saved) error {
	var errs []error
	var rules []*rule
	for _, saved := range k.Rules {
		text, t, err := parse(saved.RuleText)
		if err == nil && len(rules) >= MaxRules {
			err = ErrTooManyRules
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("rule %s: %w", saved.ID, err))
			continue
		}
		rules = append(rules, &rule{terms: t, id: saved.ID, text: text, votes: t.votes()})
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rules, s.last = rules, max(s.last, k.Last)
	return errors.Join(errs...)
}

// OnChange sets a function that is called after each change of the rules, possibly concurrently. Call OnChange before the
// Set is shared.
func (s *Set) OnChange(f func()) { s.changed = f }

func (s *Set) notify() {
	if s.changed != nil {
		s.changed()
	}
}
