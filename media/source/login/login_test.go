package login_test

import (
	"crypto/md5"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/hex"
	"fmt"
	"hash"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"touchline/media/source"
	"touchline/media/source/login"
)

// server checks answers as cameras do.
type server struct {
	challenges []string // %s is the nonce
	hash       func() hash.Hash
	password   string
	once       bool // a nonce is valid for one request
	changes    bool // each refusal has a new nonce
	info       bool // the next nonce is announced

	nonce  int
	asked  int // answers that were checked
	counts []string
}

func value(header, name string) string {
	if m := regexp.MustCompile(`[ ,]` + name + `="?([^",]*)"?`).FindStringSubmatch(header); m != nil {
		return m[1]
	}
	return ""
}

func (s *server) current() string { return fmt.Sprintf("n%d", s.nonce) }

func (s *server) refuse() []string {
	if s.changes {
		s.nonce++
	}
	var out []string
	for _, c := range s.challenges {
		out = append(out, strings.ReplaceAll(c, "%s", s.current()))
	}
	return out
}

// check returns the challenges of a refusal, nil if it accepts an answer.
func (s *server) check(method, uri, got string) (challenges, info []string) {
	if got == "" {
		return s.refuse(), nil
	}
	s.asked++
	if strings.HasPrefix(got, "Basic ") {
		if got != "Basic YWRtaW46cEBzcw==" { // admin:p@ss
			return s.refuse(), nil
		}
		return nil, nil
	}
	h := func(parts ...string) string {
		x := s.hash()
		x.Write([]byte(strings.Join(parts, ":")))
		return hex.EncodeToString(x.Sum(nil))
	}
	a1, a2 := h("admin", "cam", s.password), h(method, uri)
	nonce, nc, cnonce, qop := value(got, "nonce"), value(got, "nc"), value(got, "cnonce"), value(got, "qop")
	if strings.HasSuffix(value(got, "algorithm"), "-sess") {
		a1 = h(a1, nonce, cnonce)
	}
	if qop == "auth-int" {
		a2 = h(method, uri, h(""))
	}
	want := h(a1, nonce, a2)
	if strings.Contains(s.challenges[0], "qop=\"auth") || strings.Contains(s.challenges[0], "qop=auth") {
		want = h(a1, nonce, nc, cnonce, qop, a2)
	}
	s.counts = append(s.counts, nc)
	if nonce != s.current() || value(got, "response") != want || value(got, "uri") != uri {
		return s.refuse(), nil
	}
	if s.once {
		s.nonce++
		if s.info {
			return nil, []string{`nextnonce="` + s.current() + `", qop=auth`}
		}
	}
	return nil, nil
}

// ask makes one request and returns the number of its tries.
func (s *server) ask(l *login.Login) (tries int, ok bool) {
	for tries = 1; ; tries++ {
		challenges, info := s.check("DESCRIBE", "rtsp://cam/1", l.Authorization("DESCRIBE", "rtsp://cam/1"))
		if challenges == nil {
			l.Accepted(info)
			return tries, true
		}
		if !l.Refused(challenges) {
			return tries, false
		}
	}
}

func newLogin(password, literal string) *login.Login {
	var typed *url.Userinfo
	if literal != "" {
		typed = url.UserPassword("admin", literal)
	}
	return login.New(url.UserPassword("admin", password), typed, func() string { return "c" })
}

func TestChallenges(t *testing.T) {
	for name, tt := range map[string]struct {
		challenges []string
		hash       func() hash.Hash
	}{
		"RFC 2069":                 {[]string{`Digest realm="cam", nonce="%s"`}, md5.New},
		"empty qop":                {[]string{`Digest realm="cam", nonce="%s", qop=""`}, md5.New},
		"unknown qop":              {[]string{`Digest realm="cam", nonce="%s", qop="token"`}, md5.New},
		"qop and opaque":           {[]string{`Digest qop="auth-int,auth", realm="cam", nonce="%s", opaque="o"`}, md5.New},
		"qop without quotes":       {[]string{`Digest realm="cam", qop=auth,auth-int, nonce="%s"`}, md5.New},
		"integrity only":           {[]string{`Digest realm="cam", qop="auth-int", nonce="%s"`}, md5.New},
		"SHA-256":                  {[]string{`Digest realm="cam", nonce="%s", algorithm=SHA-256, qop="auth"`}, sha256.New},
		"SHA-512-256":              {[]string{`Digest realm="cam", nonce="%s", algorithm=SHA-512-256, qop="auth"`}, sha512.New512_256},
		"sessions":                 {[]string{`Digest realm="cam", nonce="%s", algorithm=MD5-sess, qop="auth"`}, md5.New},
		"quoted algorithm":         {[]string{`Digest realm="cam", nonce="%s", algorithm="MD5"`}, md5.New},
		"no commas, small letters": {[]string{`digest realm="cam" nonce="%s" stale=FALSE`}, md5.New},
		"a colon":                  {[]string{`Digest: realm="cam",nonce="%s"`}, md5.New},
		"no scheme":                {[]string{`realm="cam", nonce="%s"`}, md5.New},
		"two in a header":          {[]string{`Basic realm="cam", Digest realm="cam", nonce="%s"`}, md5.New},
		"two algorithms":           {[]string{`Digest realm="cam", nonce="%s", algorithm=MD5`, `Digest realm="cam", nonce="%s", algorithm=SHA-256`}, md5.New},
		"nonsense before":          {[]string{`Digest realm="cam", nonce="%s"`, "", "x=,,=y", "NTLM", "Digest nonce=\x01"}, md5.New},
		"strange algorithm before": {[]string{`Basic realm="cam"`, `Digest realm="cam", nonce="%s", algorithm=ROT13`}, md5.New},
		"nothing":                  {[]string{""}, md5.New},
		"a word":                   {[]string{"please"}, md5.New},
		"digest without a nonce":   {[]string{`Digest realm="cam"`}, md5.New},
	} {
		t.Run(name, func(t *testing.T) {
			for _, changes := range []bool{false, true} {
				s := &server{challenges: tt.challenges, hash: tt.hash, password: "p@ss", changes: changes}
				l := newLogin("p@ss", "")
				_, ok := s.ask(l)
				require.True(t, ok)
				tries, ok := s.ask(l)
				require.True(t, ok)
				require.Equal(t, 1, tries, "the challenge is remembered")
			}
			s := &server{challenges: tt.challenges, hash: tt.hash, password: "another", changes: true}
			_, ok := s.ask(newLogin("p@sst", ""))
			require.False(t, ok)
			require.LessOrEqual(t, s.asked, 2, "cameras lock accounts")
		})
	}
}

// A nonce may be valid for one request, or the next one may be announced.
func TestNonces(t *testing.T) {
	for _, info := range []bool{false, true} {
		s := &server{challenges: []string{`Digest realm="cam", nonce="%s", qop="auth"`}, hash: md5.New, password: "p@ss", once: true, info: info}
		l := newLogin("p@ss", "")
		for i := range 4 {
			tries, ok := s.ask(l)
			require.True(t, ok)
			if i > 0 && info {
				require.Equal(t, 1, tries)
			}
		}
	}
	// An answer with an expired nonce does not count as wrong.
	s := &server{challenges: []string{`Digest realm="cam", nonce="%s", qop="auth", stale=true`}, hash: md5.New, password: "p@ss"}
	l := newLogin("p@ss", "")
	for range 3 {
		_, ok := s.ask(l)
		require.True(t, ok)
	}
	require.Equal(t, []string{"00000001", "00000002", "00000003"}, s.counts)
	s.nonce++
	_, ok := s.ask(l)
	require.True(t, ok)
	require.Equal(t, "00000001", s.counts[len(s.counts)-1])
	s.password = "new"
	_, ok = s.ask(l)
	require.False(t, ok, "a server that always says stale")
	require.ErrorContains(t, l.Err("rtsp"), "the camera refuses the user or the password")
}

// A password with % and two digits is tried as it was typed, and remembered.
func TestLiteral(t *testing.T) {
	s := &server{challenges: []string{`Digest realm="cam", nonce="%s"`}, hash: md5.New, password: "a%41b"}
	l := newLogin("aAb", "a%41b")
	tries, ok := s.ask(l)
	require.True(t, ok)
	require.Equal(t, 3, tries)
	tries, ok = s.ask(l)
	require.True(t, ok)
	require.Equal(t, 1, tries)
}

func TestReasons(t *testing.T) {
	l := login.New(nil, nil, nil)
	require.False(t, l.Refused([]string{`Basic realm="cam"`}))
	require.EqualError(t, l.Err("rtsp"), "the camera requires a user and a password: rtsp://USER:PASSWORD@HOST/PATH")
	l = newLogin("p@ss", "")
	require.False(t, l.Refused([]string{"Negotiate", "NTLM"}))
	err := l.Err("rtsp")
	require.ErrorContains(t, err, "a login by negotiate, ntlm, which is not supported")
	require.False(t, source.IsPermanent(err))
}

func FuzzChallenge(f *testing.F) {
	f.Add(`Digest realm="cam", nonce="n\"1", qop="auth,auth-int"`)
	f.Add("Digest realm=cam\n\nX-Header: 1, nonce=n")
	f.Add(`Basic realm="a", Digest nonce=,qop=auth,auth-int`)
	f.Fuzz(func(t *testing.T, s string) {
		l := newLogin("hunter2", "")
		if l.Refused([]string{s}) {
			signed := l.Authorization("GET", "/")
			require.NotContains(t, signed, "hunter2")
			require.NotRegexp(t, `[\x00-\x08\x0a-\x1f\x7f]`, signed)
		}
	})
}
