// Package check collects the violations of rules for settings.
//
// It owns the format of a violation, "path: must be rule, is value". The Validate
// of each struct owns the rules.
package check

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Settings collects violations. The zero value is ready to use.
type Settings struct {
	// Prefix goes before each path, with its dot: "agent.livekit.".
	Prefix string
	errs   []error
}

// That records a violation unless ok: the setting at path must be rule, is value.
func (s *Settings) That(ok bool, path, rule string, value any) {
	if !ok {
		s.errs = append(s.errs, fmt.Errorf("%s%s: must be %s, is %v", s.Prefix, path, rule, value))
	}
}

// Add records violations with their own messages: one error, joined errors, or nil.
func (s *Settings) Add(err error) {
	for _, e := range Split(err) {
		if s.Prefix != "" {
			e = fmt.Errorf("%s%w", s.Prefix, e)
		}
		s.errs = append(s.errs, e)
	}
}

// Pair records a violation at the missing one of two settings that go together; variables are their names.
func (s *Settings) Pair(path1, value1, path2, value2, variables string) {
	if (value1 == "") == (value2 == "") {
		return
	}
	missing := path2
	if value1 == "" {
		missing = path1
	}
	s.Add(fmt.Errorf("%s: must be set when the other half of the pair is: %s go together", missing, variables))
}

// Part adds the violations of one part, with its name and a dot before each path.
func (s *Settings) Part(name string, err error) {
	for _, e := range Split(err) {
		s.errs = append(s.errs, fmt.Errorf("%s%s.%w", s.Prefix, name, e))
	}
}

// Split returns the errors joined by errors.Join; nil for nil.
func Split(err error) []error {
	if err == nil {
		return nil
	}
	if j, ok := err.(interface{ Unwrap() []error }); ok { // only the outermost error
		return j.Unwrap()
	}
	return []error{err}
}

// Err returns all violations joined, or nil.
func (s *Settings) Err() error { return errors.Join(s.errs...) }

// Within reports whether v is in [low, high].
func Within[T cmp.Ordered](v, low, high T) bool { return low <= v && v <= high }

// Name reports whether s is a valid name for LiveKit and logs: 1 to 128 printable
// characters, without white space around them.
func Name(s string) bool {
	if s == "" || utf8.RuneCountInString(s) > 128 || strings.TrimSpace(s) != s {
		return false
	}
	return !strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) || r == utf8.RuneError })
}
