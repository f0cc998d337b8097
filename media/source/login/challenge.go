package login

import (
	"cmp"
	"crypto/md5" //nolint:gosec // required by cameras
	"crypto/sha256"
	"crypto/sha512"
	"encoding/hex"
	"fmt"
	"hash"
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"
)

// challenge is one offer of a WWW-Authenticate header (RFC 7235).
type challenge struct {
	scheme string // in lower case
	params map[string]string
	// Of digest:
	hash func() hash.Hash
	name string // of the algorithm, as the server writes it
	sess bool
	qop  string // "" for servers before RFC 2617
}

// usable returns whether the challenge can be answered.
func (c *challenge) usable() bool {
	if c.scheme == "basic" {
		return true
	}
	if c.params["nonce"] == "" || c.scheme != "digest" && c.scheme != "" {
		return false
	}
	c.name = c.params["algorithm"]
	name, sess := strings.CutSuffix(strings.ToUpper(c.name), "-SESS")
	switch cmp.Or(name, "MD5") {
	case "MD5":
		c.hash = md5.New
	case "SHA-256":
		c.hash = sha256.New
	case "SHA-512-256":
		c.hash = sha512.New512_256
	default:
		return false
	}
	c.sess = sess
	offered := strings.FieldsFunc(c.params["qop"], func(r rune) bool { return r == ',' || r == ' ' })
	for _, q := range []string{"auth-int", "auth"} { // the body is empty
		if slices.Contains(offered, q) {
			c.qop = q
		}
	}
	return true
}

// known returns whether the challenge is of a scheme that servers use, though it cannot be answered.
func (c *challenge) known() bool {
	switch c.scheme {
	case "negotiate", "ntlm", "kerberos", "bearer":
		return true
	}
	return c.params["nonce"] != ""
}

// kind names what is tried.
func (c *challenge) kind() string { return c.scheme + " " + strings.ToUpper(c.params["algorithm"]) }

// rank orders the challenges, the best first.
func (c *challenge) rank() int {
	switch {
	case c.scheme == "basic":
		return 2
	case strings.HasPrefix(strings.ToUpper(c.name), "SHA"):
		return 0
	}
	return 1
}

// answer returns the Authorization header by RFC 7616. count is the number of answers to this nonce.
func (c *challenge) answer(user, password, method, uri string, count int, cnonce string) string {
	h := func(parts ...string) string {
		sum := c.hash()
		sum.Write([]byte(strings.Join(parts, ":")))
		return hex.EncodeToString(sum.Sum(nil))
	}
	realm, nonce := c.params["realm"], c.params["nonce"]
	a1, a2 := h(user, realm, password), h(method, uri)
	if c.sess {
		a1 = h(a1, nonce, cnonce)
	}
	if c.qop == "auth-int" {
		a2 = h(method, uri, h(""))
	}
	text := fmt.Sprintf(`Digest username=%s, realm=%s, nonce=%s, uri=%s`, quote(user), quote(realm), quote(nonce), quote(uri))
	if c.name != "" {
		text += ", algorithm=" + c.name
	}
	if opaque, ok := c.params["opaque"]; ok {
		text += ", opaque=" + quote(opaque)
	}
	if c.qop == "" {
		if c.sess {
			text += fmt.Sprintf(`, cnonce="%s"`, cnonce)
		}
		return text + fmt.Sprintf(`, response="%s"`, h(a1, nonce, a2))
	}
	nc := fmt.Sprintf("%08x", count)
	return text + fmt.Sprintf(`, qop=%s, nc=%s, cnonce="%s", response="%s"`, c.qop, nc, cnonce, h(a1, nonce, nc, cnonce, c.qop, a2))
}

func quote(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(s) + `"`
}

// readChallenges parses WWW-Authenticate headers with one or several challenges each. A header with control characters is
// skipped, as the answer repeats its values.
func readChallenges(headers []string) (out []*challenge) {
	for _, h := range headers {
		if len(h) > 4096 || !httpguts.ValidHeaderFieldValue(h) {
			continue
		}
		var c *challenge
		begin := func(scheme string) {
			c = &challenge{scheme: strings.ToLower(strings.TrimSuffix(scheme, ":")), params: map[string]string{}}
			out = append(out, c)
		}
		for range 64 {
			h = strings.TrimLeft(h, " \t,")
			if h == "" {
				break
			}
			end := strings.IndexAny(h, " \t,=")
			if end < 0 {
				end = len(h)
			}
			word := h[:end]
			h = strings.TrimLeft(h[end:], " \t")
			value, isParam := strings.CutPrefix(h, "=")
			switch {
			case !isParam && c != nil && (word == "auth" || word == "auth-int"): // of a list without quotes
				c.params["qop"] += "," + word
			case !isParam:
				begin(word)
			default:
				if c == nil {
					begin("") // a digest if it has a nonce
				}
				c.params[strings.ToLower(word)], h = readValue(strings.TrimLeft(value, " \t"))
			}
		}
	}
	return out
}

// readValue returns a parameter's value, quoted or not, and the text after it.
func readValue(s string) (value, rest string) {
	if !strings.HasPrefix(s, `"`) {
		value, rest, _ = strings.Cut(s, ",")
		return strings.TrimSpace(value), rest
	}
	var b strings.Builder
	i := 1
	for ; i < len(s) && s[i] != '"'; i++ {
		if s[i] == '\\' && i+1 < len(s) {
			i++
		}
		b.WriteByte(s[i])
	}
	return b.String(), s[min(i+1, len(s)):]
}
