// Package redact keeps access tokens out of what is logged and told.
//
// A LiveKit server answers a token that it refuses with that token, and the
// client library logs the answer; what was refused here may be good elsewhere.
package redact

import (
	"bytes"
	"io"
	"regexp"
)

// jwt is a JSON Web Token in compact form (RFC 7519, section 3): the first two parts begin
// with {" in base64.
var jwt = regexp.MustCompile(`eyJ[A-Za-z0-9_-]+\.eyJ[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+`)

const instead = "(an access token)"

// Text returns s with each access token replaced.
func Text(s string) string { return jwt.ReplaceAllString(s, instead) }

// Error hides the access tokens in what err says; errors.Is and errors.As see err itself.
func Error(err error) error {
	if err == nil || !jwt.MatchString(err.Error()) {
		return err
	}
	return hidden{err}
}

type hidden struct{ error }

func (h hidden) Error() string { return Text(h.error.Error()) }
func (h hidden) Unwrap() error { return h.error }

// Writer hides the access tokens in what is written to it. A token must come in
// one Write, as it does in the lines of a logger.
type Writer struct{ Out io.Writer }

// Write implements io.Writer.
func (w Writer) Write(b []byte) (int, error) {
	out := b
	if bytes.Contains(b, []byte("eyJ")) {
		out = jwt.ReplaceAll(b, []byte(instead))
	}
	if _, err := w.Out.Write(out); err != nil {
		return 0, err //nolint:wrapcheck // a Writer's error is the Writer's below
	}
	return len(b), nil
}
