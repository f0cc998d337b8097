package source

import (
	"net/http"
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"
)

// Bounds of the headers of a source.
const (
	maxHeaders = 16
	maxHeader  = 4096 // bytes
)

// ParseHeader reads headers of the form "Name: value" for the server of an HTTP address. It refuses names that belong to the connection
// or that the program sets. No error repeats a value, which may be a key.
func ParseHeader(lines []string) (http.Header, error) {
	if len(lines) > maxHeaders {
		return nil, Errorf("at most %d headers, got %d", maxHeaders, len(lines))
	}
	out := http.Header{}
	for i, line := range lines {
		name, value, ok := strings.Cut(line, ":")
		name, value = http.CanonicalHeaderKey(strings.Trim(name, " \t")), strings.Trim(value, " \t")
		switch {
		case !ok || !httpguts.ValidHeaderFieldName(name):
			return nil, Errorf("header %d: must be 'Name: value'", i+1)
		case len(line) > maxHeader || value == "" || !httpguts.ValidHeaderFieldValue(value):
			return nil, Errorf("header %d: its value must have 1 to %d characters in one line", i+1, maxHeader)
		case ownHeader(name):
			return nil, Errorf("header %d: %s is set by the program or belongs to the connection; leave it out", i+1, name)
		}
		out.Add(name, value)
	}
	return out, nil
}

// ownHeader reports whether a header belongs to the connection (RFC 9110 section 7.6.1) or to the program.
func ownHeader(name string) bool {
	own := []string{
		"Host", "Connection", "Keep-Alive", "Te", "Trailer", "Transfer-Encoding", "Upgrade", "Content-Length", "Content-Encoding", "Range",
		"Accept-Encoding", "Expect", "Http2-Settings",
	}
	return slices.Contains(own, name) || strings.HasPrefix(name, "Proxy-")
}
