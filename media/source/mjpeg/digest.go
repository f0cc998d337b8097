package mjpeg

import (
	"cmp"
	"crypto/md5" //nolint:gosec // required by cameras
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"golang.org/x/net/http/httpguts"
)

// digest answers a challenge of HTTP digest authentication (RFC 7616).
type digest struct {
	realm, nonce, opaque, algorithm string
	qop                             bool // "auth"; older servers (RFC 2069) have none
	count                           int
}

// readChallenge returns the best digest challenge, nil for none. One that is no valid header (RFC 9110, section 5.5) is
// passed over, as the answer repeats its realm and nonce.
func readChallenge(headers []string) (best *digest) {
	for _, h := range headers {
		scheme, rest, _ := strings.Cut(strings.TrimSpace(h), " ")
		if !strings.EqualFold(scheme, "Digest") || len(h) > 4096 || !httpguts.ValidHeaderFieldValue(h) {
			continue
		}
		p := parameters(rest)
		d := &digest{realm: p["realm"], nonce: p["nonce"], opaque: p["opaque"], algorithm: strings.ToUpper(p["algorithm"])}
		d.algorithm = cmp.Or(d.algorithm, "MD5")
		for q := range strings.SplitSeq(p["qop"], ",") {
			d.qop = d.qop || strings.TrimSpace(q) == "auth"
		}
		if d.nonce == "" || d.algorithm != "MD5" && d.algorithm != "SHA-256" || p["qop"] != "" && !d.qop {
			continue
		}
		if best == nil || d.algorithm == "SHA-256" {
			best = d
		}
	}
	return best
}

// parameters parses a list of name=value and name="value", separated by commas.
func parameters(s string) map[string]string {
	out := map[string]string{}
	for len(out) < 32 {
		s = strings.TrimLeft(s, " \t,")
		name, rest, ok := strings.Cut(s, "=")
		if !ok {
			break
		}
		name, rest = strings.ToLower(strings.TrimSpace(name)), strings.TrimLeft(rest, " \t")
		var value strings.Builder
		if strings.HasPrefix(rest, `"`) {
			i := 1
			for ; i < len(rest) && rest[i] != '"'; i++ {
				if rest[i] == '\\' && i+1 < len(rest) {
					i++
				}
				value.WriteByte(rest[i])
			}
			s = rest[min(i+1, len(rest)):]
		} else {
			v, after, _ := strings.Cut(rest, ",")
			value.WriteString(strings.TrimSpace(v))
			s = after
		}
		out[name] = value.String()
	}
	return out
}

// sign adds the Authorization header to a request. Without a challenge, net/http uses
// basic authentication with the URL's user and password.
func (d *digest) sign(r *http.Request, u *url.URL) {
	if d == nil || u.User == nil {
		return
	}
	user := u.User.Username()
	password, _ := u.User.Password()
	h := func(s string) string {
		sum := md5.New() //nolint:gosec // required by cameras
		if d.algorithm == "SHA-256" {
			sum = sha256.New()
		}
		sum.Write([]byte(s))
		return hex.EncodeToString(sum.Sum(nil))
	}
	uri := u.RequestURI()
	a1, a2 := h(user+":"+d.realm+":"+password), h(r.Method+":"+uri)
	text := fmt.Sprintf(`Digest username=%s, realm=%s, nonce=%s, uri=%s, algorithm=%s`,
		quote(user), quote(d.realm), quote(d.nonce), quote(uri), d.algorithm)
	if d.opaque != "" {
		text += ", opaque=" + quote(d.opaque)
	}
	if d.qop {
		cnonce := rand.Text()
		d.count++
		nc := fmt.Sprintf("%08x", d.count)
		text += fmt.Sprintf(`, qop=auth, nc=%s, cnonce="%s", response="%s"`, nc, cnonce,
			h(a1+":"+d.nonce+":"+nc+":"+cnonce+":auth:"+a2))
	} else {
		text += fmt.Sprintf(`, response="%s"`, h(a1+":"+d.nonce+":"+a2))
	}
	r.Header.Set("Authorization", text)
	r.URL.User = nil
}

func quote(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(s) + `"`
}
