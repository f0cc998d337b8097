package console

import (
	"cmp"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"touchline/agent/access"
	"touchline/internal/limit"
)

// tokenCookie is the cookie that POST /api/login sets.
const tokenCookie = "touchline_token"

const (
	cookieLife = 30 * 24 * time.Hour
	// maxCookies is how many cookies of a request are read as links, as each costs the check of a signature. A browser may have one for
	// each path and domain.
	maxCookies = 4
)

// guard checks the access to the console.
//
//   - Host must be one of the console's names. Otherwise another site could rebind its name to this address and read
//     everything (DNS rebinding). IP addresses cannot be rebound.
//   - Origin and Sec-Fetch-Site must match this host. Otherwise a page of another site could control the bot.
//   - A token is required unless listen address, peer and Host are all loopback, without a proxy in between. A forwarder
//     on this machine may pass on any Host without adding a header, so a configured token, allowed host or trusted proxy ends the
//     exemption.
type guard struct {
	loopback bool // the listen address is loopback
	exempt   bool // requests that stay on this machine need no token
	anyHost  bool // the listen address is 0.0.0.0 or ::
	names    []string
	proxies  proxies
	token    string
	keys     access.Keys // of shared links' tokens
	made     bool        // the token was generated
	cookie   string      // the cookie's value for the token, derived from it
	cross    *http.CrossOriginProtection

	logins    *limit.Limiter[netip.Addr] // by peer
	cookies   *limit.Limiter[netip.Addr] // wrong cookies and tokens of players, by peer
	allLogins *limit.Limiter[struct{}]
	loginLog  *limit.Limiter[struct{}] // log lines about refused logins
	refused   atomic.Int64             // refused logins since the last log line
}

const (
	// loginBurst is the number of logins that a peer may try at once, loginRate the number per second after that.
	loginBurst, loginRate = 10, 0.2
	// cookieBurst and cookieRate are the same for wrong cookies. A page with the cookie of an earlier token sends it with each request
	// until its user logs in, and is not refused by then.
	cookieBurst, cookieRate = 60, 1
	// allLoginBurst and allLoginRate are the same for the wrong logins of all peers together. What keeps guesses from many addresses
	// out is the length of the token: a refused guess differs from a right one, which is let in.
	allLoginBurst, allLoginRate = 100, 5
	// loginLogBurst and loginLogRate bound the log lines about refused logins.
	loginLogBurst, loginLogRate = 3, 0.1
)

func newGuard(cfg Config, keys access.Keys) (*guard, error) {
	host, _, err := net.SplitHostPort(cfg.Listen)
	if err != nil {
		return nil, fmt.Errorf("%w: console.listen: expected HOST:PORT, got %q: %w", ErrConfig, cfg.Listen, err)
	}
	host = strings.ToLower(host)
	g := &guard{
		names: []string{}, token: string(cfg.Token), keys: keys, cross: http.NewCrossOriginProtection(),
		logins:    limit.New[netip.Addr](loginRate, loginBurst),
		cookies:   limit.New[netip.Addr](cookieRate, cookieBurst),
		allLogins: limit.New[struct{}](allLoginRate, allLoginBurst),
		loginLog:  limit.New[struct{}](loginLogRate, loginLogBurst),
	}
	ip, ipErr := netip.ParseAddr(host)
	switch {
	case host == "localhost" || ipErr == nil && ip.Unmap().IsLoopback():
		g.loopback = true
	case host == "" || ipErr == nil && ip.IsUnspecified():
		g.anyHost = true
		g.names = append(g.names, machineNames()...)
	default:
		g.names = append(g.names, host)
	}
	for _, n := range cfg.AllowedHosts {
		name, ok := hostName(n)
		if !ok {
			return nil, fmt.Errorf("%w: console.allowed_hosts: must be host names, is %q", ErrConfig, n)
		}
		g.names = append(g.names, name)
	}
	if g.proxies, err = parseProxies(cfg.TrustedProxies); err != nil {
		return nil, fmt.Errorf("%w: console.trusted_proxies: %w", ErrConfig, err)
	}
	if err := cfg.checkToken(); err != nil {
		return nil, fmt.Errorf("%w: console.%w", ErrConfig, err)
	}
	if g.token == "" {
		g.token, g.made = rand.Text(), true // 128 random bits
	}
	g.exempt = g.loopback && g.made && len(cfg.AllowedHosts) == 0 && len(g.proxies) == 0
	mac := hmac.New(sha256.New, []byte(g.token))
	mac.Write([]byte("touchline console cookie"))
	g.cookie = base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
	return g, nil
}

// hostName returns the name in a Host header: lower case, without port, brackets and final dot. A valid Host has only letters,
// digits and "-._:[]", so it may be repeated in a header.
func hostName(host string) (string, bool) {
	name := host
	if h, port, err := net.SplitHostPort(host); err == nil {
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			return "", false
		}
		name = h
	} else {
		name = strings.TrimSuffix(strings.TrimPrefix(name, "["), "]")
	}
	name = strings.TrimSuffix(strings.ToLower(name), ".")
	if ip, err := netip.ParseAddr(name); err == nil {
		// A zone may hold any characters, and browsers send none.
		return ip.Unmap().String(), ip.Zone() == ""
	}
	bad := func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '-' && r != '.' && r != '_'
	}
	if name == "" || len(name) > 253 || strings.ContainsFunc(name, bad) || strings.Contains("."+name+".", "..") {
		return "", false
	}
	return name, true
}

func isLoopbackName(name string) bool {
	ip, err := netip.ParseAddr(name)
	return name == "localhost" || strings.HasSuffix(name, ".localhost") || err == nil && ip.IsLoopback()
}

// checkHost returns an error unless the Host header names this console.
func (g *guard) checkHost(host string) error {
	name, ok := hostName(host)
	if !ok {
		return fmt.Errorf("the Host header %q is not a host name", host)
	}
	if isLoopbackName(name) || slices.Contains(g.names, name) {
		return nil
	}
	if g.anyHost {
		if _, err := netip.ParseAddr(name); err == nil {
			return nil
		}
	}
	return fmt.Errorf("the host %q is not allowed: open the page by its address, "+
		"or add the name to agent.console.allowed_hosts", name)
}

// checkOrigin refuses requests from pages of other sites, whether they read or change.
func (g *guard) checkOrigin(r *http.Request) error {
	if origin := r.Header.Get("Origin"); origin != "" {
		u, err := url.Parse(origin)
		if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") || !strings.EqualFold(u.Host, r.Host) {
			return fmt.Errorf("requests from the origin %q are refused; use the console's own page", origin)
		}
	}
	switch site := r.Header.Get("Sec-Fetch-Site"); site {
	case "", "same-origin", "none":
	default:
		// A link on another site may be followed: that site cannot read the answer.
		if r.Method != http.MethodGet || r.Header.Get("Sec-Fetch-Mode") != "navigate" ||
			r.Header.Get("Sec-Fetch-Dest") != "document" {
			return fmt.Errorf("requests from a %s page are refused; use the console's own page", site)
		}
	}
	if err := g.cross.Check(r); err != nil {
		return fmt.Errorf("check the origin: %w", err)
	}
	return nil
}

// visitor is the client of a request.
type visitor struct {
	id     string       // a hash of its token; "" for the operator
	link   string       // that the token comes from; "" for none
	grant  access.Grant // of its token; zero for the operator
	rights access.Rights
	ended  error // why it has none any more, the answer to it; nil if it never had any

	room    *roomEntry // of the request, which the rights are for; nil for none
	missing error      // why there is none
}

// client returns the client for limits.
func (v visitor) client(r *http.Request) limit.Client {
	return limit.Client{Token: v.id, Link: v.link, From: peerOf(r), Operator: v.rights.Allow(access.Process)}
}

// visitor returns the client of a request for a room; "" for no particular room. Without a required token, the client has no
// rights.
func (g *guard) visitor(r *http.Request, room string, now time.Time) visitor {
	operator := visitor{rights: access.Everything}
	if g.trusted(r) {
		return operator
	}
	t, ok := bearer(r)
	if ok && equal(t, g.token) {
		return operator
	}
	v := g.granted(t, room, now)
	if v.rights != 0 {
		return v
	}
	ended := v.ended
	cookies := r.CookiesNamed(tokenCookie)
	if slices.ContainsFunc(cookies, func(c *http.Cookie) bool { return equal(c.Value, g.cookie) }) {
		return operator
	}
	for _, c := range cookies[:min(len(cookies), maxCookies)] {
		if v = g.granted(c.Value, room, now); v.rights != 0 {
			return v
		}
		ended = cmp.Or(v.ended, ended)
	}
	return visitor{ended: ended}
}

// granted returns the client with the token of a shared link.
func (g *guard) granted(token, room string, now time.Time) visitor {
	grant, err := access.Verify(g.keys, token, now)
	if err != nil {
		return visitor{ended: endOf(err)}
	}
	v := visitor{id: nameOf(token), link: grant.Root(), grant: grant, rights: grant.Rights}
	if room != "" {
		v.rights = grant.In(room)
	}
	return v
}

// endOf returns the answer to a client whose link was valid, nil to another one.
func endOf(err error) error {
	switch {
	case errors.Is(err, access.ErrExpired):
		return errExpired
	case errors.Is(err, access.ErrRevoked):
		return errRevoked
	}
	return nil
}

// nameOf returns a name of a token that does not reveal it.
func nameOf(token string) string {
	sum := sha256.Sum256([]byte(token))
	return string(sum[:16])
}

// trusted reports whether a request needs no token because it stays on this machine.
func (g *guard) trusted(r *http.Request) bool {
	if !g.exempt {
		return false
	}
	if !peerOf(r).IsLoopback() {
		return false
	}
	if name, ok := hostName(r.Host); !ok || !isLoopbackName(name) {
		return false
	}
	for _, h := range []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Real-Ip"} {
		if r.Header.Get(h) != "" {
			return false
		}
	}
	return true
}

// mayLogin counts a login of a request's peer, a right one as well, or a peer beyond its limit could go on with guesses. Only wrong ones
// count for all peers together, or guesses from many addresses would lock out the operator. Beyond a limit, it returns the wait until the
// next attempt.
func (g *guard) mayLogin(r *http.Request, right bool, now time.Time) (wait time.Duration, ok bool) {
	if wait, ok = g.logins.Allow(limit.Network(peerOf(r)), now); !ok || right {
		return wait, ok
	}
	return g.allLogins.Allow(struct{}{}, now)
}

// mayTry counts a request whose token is wrong as an attempt, if it has one, and returns the wait as mayLogin does.
func (g *guard) mayTry(r *http.Request, now time.Time) (wait time.Duration, tried, ok bool) {
	if _, tried := bearer(r); tried {
		wait, ok := g.mayLogin(r, false, now)
		return wait, true, ok
	}
	if len(r.CookiesNamed(tokenCookie)) == 0 {
		return 0, false, true
	}
	wait, ok = g.mayTryCookie(r, now)
	return wait, true, ok
}

// mayTryCookie counts a request with a wrong cookie, or of a player with a wrong token, and returns the wait as mayLogin does.
func (g *guard) mayTryCookie(r *http.Request, now time.Time) (wait time.Duration, ok bool) {
	return g.cookies.Allow(limit.Network(peerOf(r)), now)
}

// socketKey is the prefix of the subprotocol with the token of a browser, which cannot send a header with a WebSocket.
const socketKey = "openai-insecure-api-key."

// bearer returns the token of a request, from the header Authorization or else from the subprotocol of a WebSocket; false without one.
func bearer(r *http.Request) (string, bool) {
	if r.Header.Get("Authorization") == "" {
		for protocol := range strings.SplitSeq(r.Header.Get("Sec-Websocket-Protocol"), ",") {
			if token, ok := strings.CutPrefix(strings.TrimSpace(protocol), socketKey); ok {
				return token, true
			}
		}
	}
	scheme, token, ok := strings.Cut(r.Header.Get("Authorization"), " ")
	return strings.TrimSpace(token), ok && strings.EqualFold(scheme, "Bearer")
}

// equal compares in constant time, for any lengths.
func equal(a, b string) bool {
	x, y := sha256.Sum256([]byte(a)), sha256.Sum256([]byte(b))
	return subtle.ConstantTimeCompare(x[:], y[:]) == 1
}
