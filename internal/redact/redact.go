// Package redact removes access tokens from logs and errors.
//
// A LiveKit server repeats a rejected token in its answer, which the client
// library logs; the token may be valid at another server.
package redact

import (
	"bytes"
	"io"
	"regexp"
	"strings"
)

// jwt matches a JSON Web Token in compact form (RFC 7519, section 3): the first two parts begin with {" in base64.
var jwt = regexp.MustCompile(`eyJ[A-Za-z0-9_-]+\.eyJ[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+`)

const instead = "(an access token)"

// Text returns s with each access token replaced.
func Text(s string) string { return jwt.ReplaceAllString(s, instead) }

// address matches the address of a server, without the punctuation after it.
var address = regexp.MustCompile(`\b(?:https?|wss?|rtsps?)://[^\s"'` + "`" + `,;)]*[^\s"'` + "`" + `,;):.]`)

// network matches the beginning of an error of package net up to its addresses.
var network = regexp.MustCompile(`\b((?:dial|read|write) (?:tcp|udp|unix)[46]?|lookup) \S+(?: on \S+)?:`)

// certificates are the errors of package crypto/x509 with names of servers and authorities, and what is shown of each.
var certificates = []struct { //nolint:gochecknoglobals // compiled once, as the other expressions
	text  *regexp.Regexp
	shown string
}{
	{regexp.MustCompile(`(x509: certificate is valid for) .*, not [^\s;]+`), "$1 other names"},
	{regexp.MustCompile(`(x509: certificate is not valid for any names), but wanted to match [^\s;]+`), "$1"},
	{regexp.MustCompile(`(x509: cannot validate certificate for) \S+`), "$1 the server"},
	{regexp.MustCompile(`(x509: .* not authorized to sign for this name):.*`), "$1"},
	{regexp.MustCompile(` \(possibly because of ".*" while trying to verify candidate authority certificate ".*"\)`), ""},
}

// refused matches the beginning of an error of a source whose address is not allowed.
var refused = regexp.MustCompile(`(this address may not be opened): \S+ is `)

// example ends an address in an error that shows how to write one.
const example = "://USER:PASSWORD@HOST/PATH"

// Addresses returns s with each URL of a server replaced, and without the addresses and names of servers in errors of packages net,
// crypto/x509 and media/source: people in a room read the state of its commentator and its cameras, and need not know the servers of its
// operator.
func Addresses(s string) string {
	s = address.ReplaceAllStringFunc(s, func(url string) string {
		if strings.HasSuffix(url, example) {
			return url
		}
		return "the server"
	})
	for _, c := range certificates {
		s = c.text.ReplaceAllString(s, c.shown)
	}
	return network.ReplaceAllString(refused.ReplaceAllString(s, "$1: it is "), "$1:")
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
