// Package login answers the challenges of cameras and servers over HTTP and RTSP: basic (RFC 7617) and digest (RFC 7616,
// RFC 2617, RFC 2069), as cameras send them: several at once, with a new nonce for each request, or malformed.
//
// It owns what is known of one server's challenge and decides whether a refused request is worth another try. It sends
// nothing.
package login

import (
	"encoding/base64"
	"net/url"
	"slices"
	"strings"
	"sync"

	"touchline/media/source"
)

// maxTries bounds the answers to one request.
const maxTries = 6

// ErrOtherHost refuses a redirect of an address with a password.
var ErrOtherHost = source.Refused(source.Errorf("the camera redirects to another host, which must not receive its password"))

// Login is a user with a password at one server. Its requests are sent one after the other.
type Login struct {
	users  []*url.Userinfo
	random func() string
	mu     sync.Mutex // held by a Transport for each request

	// The challenge that answers use; nil for none.
	now   *challenge
	count int  // answers to its nonce
	used  bool // by an accepted request
	best  string

	// Of the request that is being answered:
	tried       map[try]bool
	tries       int
	unsupported []string // schemes
}

// try is an answer that may be wrong.
type try struct {
	kind string
	user *url.Userinfo
}

// New returns the login of a user, nil for none. literal, which may be nil, is tried when user is refused. random returns a
// new text for each call.
func New(user, literal *url.Userinfo, random func() string) *Login {
	l := &Login{random: random}
	for _, u := range []*url.Userinfo{user, literal} {
		if u != nil {
			l.users = append(l.users, u)
		}
	}
	l.begin()
	return l
}

// begin prepares for another request.
func (l *Login) begin() { l.tried, l.tries, l.unsupported = map[try]bool{}, 0, nil }

// Authorization returns the header of a request, "" before the first challenge.
func (l *Login) Authorization(method, uri string) string {
	if l.now == nil || len(l.users) == 0 {
		return ""
	}
	user := l.users[0].Username()
	password, _ := l.users[0].Password()
	if l.now.scheme == "basic" {
		return "Basic " + base64.StdEncoding.EncodeToString([]byte(user+":"+password))
	}
	l.count++
	return l.now.answer(user, password, method, uri, l.count, l.random())
}

// Forget drops a challenge that was answered well. A further connection begins without it, as some servers take an answer to a former
// nonce for a wrong password. A server may also close the connection after its challenge, so one without an accepted answer stays.
func (l *Login) Forget() {
	if l.used {
		l.now, l.used, l.count = nil, false, 0
	}
}

// Accepted records that a request was not refused. info is its Authentication-Info headers.
func (l *Login) Accepted(info []string) {
	l.begin()
	if l.now == nil {
		return
	}
	l.used, l.best = true, l.now.kind()
	if c := readChallenges(info); len(c) > 0 && c[0].params["nextnonce"] != "" && l.now.scheme != "basic" {
		l.now.params["nonce"], l.count = c[0].params["nextnonce"], 0
	}
}

// Refused reads the challenges of a refused request and reports whether it may be accepted with another answer.
func (l *Login) Refused(headers []string) (again bool) {
	if len(l.users) == 0 {
		return false
	}
	all := readChallenges(headers)
	usable := slices.DeleteFunc(slices.Clone(all), func(c *challenge) bool { return !c.usable() })
	slices.SortStableFunc(usable, func(a, b *challenge) int {
		if (a.kind() == l.best) != (b.kind() == l.best) {
			if a.kind() == l.best {
				return -1
			}
			return 1
		}
		return a.rank() - b.rank()
	})
	if len(usable) == 0 {
		for _, c := range all {
			if c.known() {
				l.unsupported = append(l.unsupported, strings.TrimSpace(c.kind()))
			}
		}
		if len(l.unsupported) == 0 && l.now == nil && len(l.tried) == 0 {
			usable = []*challenge{{scheme: "basic"}} // nonsense; basic needs no parameters
		}
	}
	if l.now != nil {
		expired := slices.ContainsFunc(usable, func(c *challenge) bool {
			return strings.EqualFold(c.params["stale"], "true") || l.used && c.params["nonce"] != l.now.params["nonce"]
		})
		if !expired {
			l.tried[try{l.now.kind(), l.users[0]}] = true
		}
	}
	l.now, l.used, l.count = nil, false, 0
	l.tries++
	if c, user := l.next(usable); c != nil && l.tries <= maxTries {
		l.now = c
		// The first user is the one to use.
		l.users = append([]*url.Userinfo{user}, slices.DeleteFunc(l.users, func(u *url.Userinfo) bool { return u == user })...)
		return true
	}
	return false
}

// next returns the best answer that was not tried, nil for none. Basic does not follow a refused digest.
func (l *Login) next(usable []*challenge) (*challenge, *url.Userinfo) {
	for _, c := range usable {
		if c.scheme == "basic" && c != usable[0] {
			break
		}
		for _, u := range l.users {
			if !l.tried[try{c.kind(), u}] {
				return c, u
			}
		}
	}
	return nil, nil
}

// Err returns the reason of a refusal after which Refused returned false, and prepares for another request. scheme is the
// address's.
func (l *Login) Err(scheme string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.begin()
	switch {
	case len(l.users) == 0:
		// Bytes, as strings may be hidden.
		return source.Locked(source.Errorf("the camera requires a user and a password: %s://USER:PASSWORD@HOST/PATH", []byte(scheme)))
	case len(l.tried) == 0 && len(l.unsupported) > 0:
		return source.Refused(source.Errorf("the camera asks for a login by %s, which is not supported; set it to digest or basic",
			strings.Join(l.unsupported, ", ")))
	}
	return source.Locked(source.Errorf("the camera refuses the user or the password"))
}
