package login

import (
	"io"
	"net/http"
	"net/url"
)

// maxDrain bounds what is read of a refusal, so that its connection ends cleanly.
const maxDrain = 4 << 10

// transport signs the requests of one server, one after the other.
type transport struct {
	next  http.RoundTripper
	login *Login
	home  *url.URL
}

// Transport returns next with a login, which is sent to the host of home only, and never in the clear where home is https.
// A response with status 401 is final; Err has the reason. Requests have no body.
func (l *Login) Transport(next http.RoundTripper, home *url.URL) http.RoundTripper {
	return &transport{next: next, login: l, home: home}
}

// RoundTrip implements http.RoundTripper.
func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Hostname() != t.home.Hostname() || t.home.Scheme == "https" && r.URL.Scheme != "https" || r.Header.Get("Authorization") != "" {
		return t.next.RoundTrip(r)
	}
	t.login.mu.Lock()
	defer t.login.mu.Unlock()
	for {
		signed := r.Clone(r.Context())
		signed.URL.User = nil
		if text := t.login.Authorization(r.Method, r.URL.RequestURI()); text != "" {
			signed.Header.Set("Authorization", text)
		}
		resp, err := t.next.RoundTrip(signed)
		if err != nil {
			return nil, err
		}
		if resp.StatusCode != http.StatusUnauthorized {
			t.login.Accepted(resp.Header.Values("Authentication-Info"))
			return resp, nil
		}
		if !t.login.Refused(resp.Header.Values("WWW-Authenticate")) {
			return resp, nil
		}
		_, _ = io.CopyN(io.Discard, resp.Body, maxDrain)
		_ = resp.Body.Close()
	}
}
