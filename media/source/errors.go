package source

import (
	"errors"
	"fmt"
	"strings"

	"touchline/internal/rescue"
)

var (
	// ErrEnded is returned at the end of a source, such as a file.
	ErrEnded = Errorf("the source came to its end")
	// ErrStalled is returned when pictures have stopped.
	ErrStalled = Errorf("no picture for some seconds")
	// ErrNotAllowed is returned for an address that may not be opened. It is permanent.
	ErrNotAllowed = Errorf("this address may not be opened")
)

// sentence is an error in the program's own words.
type sentence struct {
	error
	format string
	args   []any
}

// Unwrap returns the wrapped errors.
func (s *sentence) Unwrap() error { return s.error }

// Errorf is fmt.Errorf for texts that contain secrets in their arguments only: its own words are never hidden.
func Errorf(format string, args ...any) error {
	return &sentence{fmt.Errorf(format, args...), format, args}
}

// text returns an error's text with the secrets of its foreign parts hidden.
func text(err error, hide func(string) string) string {
	switch e := err.(type) { //nolint:errorlint // each layer has a text of its own
	case *classError:
		return text(e.err, hide)
	case *sentence:
		args := make([]any, len(e.args))
		for i, a := range e.args {
			switch a := a.(type) {
			case error:
				args[i] = text(a, hide)
			case string:
				args[i] = hide(a)
			case fmt.Stringer:
				args[i] = hide(a.String())
			default:
				args[i] = a
			}
		}
		return fmt.Sprintf(strings.ReplaceAll(e.format, "%w", "%v"), args...)
	case interface{ Unwrap() []error }:
		var parts, plain []string
		for _, p := range e.Unwrap() {
			parts, plain = append(parts, text(p, hide)), append(plain, p.Error())
		}
		if strings.Join(plain, "\n") == err.Error() { // errors.Join
			return strings.Join(parts, "\n")
		}
	}
	whole := err.Error()
	if own, ok := errors.AsType[*sentence](err); ok { // within a foreign text
		if before, after, found := strings.Cut(whole, own.Error()); found {
			return hide(before) + text(own, hide) + hide(after)
		}
	}
	return hide(whole)
}

// class decides about the retries after an error.
type class int

const (
	passing class = iota
	permanent
	refused
	locked
)

// classError is an error of a class.
type classError struct {
	err   error
	class class
}

func (e *classError) Error() string { return e.err.Error() }
func (e *classError) Unwrap() error { return e.err }

func classify(err error, c class) error {
	if err == nil {
		return nil
	}
	return &classError{err, c}
}

// Permanent marks an error of what was typed, such as a folder instead of a file: before the source's first picture
// there is no retry. After it, Permanent is like Refused.
func Permanent(err error) error { return classify(err, permanent) }

// Refused marks a refusal by a camera or server that may take back its decision: it is retried slowly.
func Refused(err error) error { return classify(err, refused) }

// Locked marks a refused user or password. Before the source's first picture it is retried every five minutes, as
// cameras lock accounts; after it, it is like Refused.
func Locked(err error) error { return classify(err, locked) }

// IsPermanent reports whether a retry is useless. It is after a panic, as the same pictures would cause it again.
func IsPermanent(err error) bool {
	_, crash := rescue.Of(err)
	return crash || classOf(err) == permanent
}

func classOf(err error) class {
	if c, ok := errors.AsType[*classError](err); ok {
		return c.class
	}
	if errors.Is(err, ErrNotAllowed) {
		return permanent
	}
	return passing
}
