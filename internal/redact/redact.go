// Package redact removes access tokens from logs and errors.
//
// A LiveKit server repeats a rejected token in its answer, which the client
// library logs; the token may be valid at another server.
package redact

import (
	"bytes"
	"io"
	"regexp"
)

// jwt matches a JSON Web Token in compact form (RFC 7519, section 3): the first two parts begin with {" in base64.
var jwt = regexp.MustCompile(`eyJ[A-Za-z0-9_-]+\.eyJ[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+`)

const instead = "(an access token)"

// Text returns s with each access token replaced.
func Text(s string) string { return jwt.ReplaceAllString(s, instead) }

// address matches the address of a server, without the punctuation after it.
var address = regexp.MustCompile(`\b(?:https?|wss?)://[^\s"'` + "`" + `,;)]*[^\s"'` + "`" + `,;):.]`)

// network matches the beginning of an error of package net up to its addresses.
var network = regexp.MustCompile(`\b((?:dial|read|write) (?:tcp|udp|unix)[46]?|lookup) \S+(?: on \S+)?:`)

// Addresses returns s with each URL of a server replaced, and without the addresses in errors of package net: people in a room read the
// state of its commentator, and need not know the servers of its operator.
func Addresses(s string) string {
	return network.ReplaceAllString(address.ReplaceAllString(s, "the server"), "$1:")
}

// Error hides the access tokens in the message of err; errors.Is and errors.As still match err.
func Error(err error) error {
	if err == nil || !jwt.MatchString(err.Error()) {
		return err
	}
	return hidden{err}
}

type hidden struct{ error }

func (h hidden) Error() string { return Text(h.error.Error()) }
func (h hidden) Unwrap() error { return h.error }

// Writer hides the access tokens in the written bytes. A token must be within one
// Write, as in the lines of a logger.
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
