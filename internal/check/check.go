// Package check collects the settings of a struct that break a rule.
//
// It owns the wording of a violation, "path: must be rule, is value", and
// nothing else: which values are right is decided by the struct's own Validate.
package check

import (
	"cmp"
	"errors"
	"fmt"
)

// Settings collects violations. The zero value is ready to use.
type Settings struct {
	// Prefix goes before each path, with its dot: "agent.livekit.".
	Prefix string
	errs   []error
}

// That records a violation unless ok: the setting at path must be rule, and is value.
func (s *Settings) That(ok bool, path, rule string, value any) {
	if !ok {
		s.errs = append(s.errs, fmt.Errorf("%s%s: must be %s, is %v", s.Prefix, path, rule, value))
	}
}

// Add records a violation in words of its own; nil is ignored.
func (s *Settings) Add(err error) {
	if err != nil {
		s.errs = append(s.errs, err)
	}
}

// Err returns all violations joined, or nil.
func (s *Settings) Err() error { return errors.Join(s.errs...) }

// Within reports whether v lies between low and high, both included.
func Within[T cmp.Ordered](v, low, high T) bool { return low <= v && v <= high }
