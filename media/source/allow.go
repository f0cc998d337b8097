package source

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"time"
)

// Allow selects the addresses that may be opened. The zero value allows none.
type Allow struct {
	// Public addresses of the internet.
	Public bool
	// Private addresses, such as of IP cameras: RFC 1918, RFC 4193, RFC 6598.
	Private bool
	// Loopback is this machine.
	Loopback bool
	// LinkLocal is 169.254.0.0/16 and fe80::/10, where cloud providers serve credentials, and their other addresses for that.
	LinkLocal bool
	// Files of this machine, its devices included.
	Files bool
}

// AllowEverything is for addresses typed on the command line.
func AllowEverything() Allow {
	return Allow{Public: true, Private: true, Loopback: true, LinkLocal: true, Files: true}
}

// AllowCameras is for addresses typed into the page on the user's own machine.
func AllowCameras() Allow { return Allow{Public: true, Private: true} }

// AllowPublic is for untrusted addresses.
func AllowPublic() Allow { return Allow{Public: true} }

// ParseAllow reads a list of public, private, loopback, link-local, files, all and none.
func ParseAllow(words []string) (Allow, error) {
	var a Allow
	kinds := map[string]*bool{
		"public": &a.Public, "private": &a.Private, "loopback": &a.Loopback, "link-local": &a.LinkLocal, "files": &a.Files, "none": new(bool),
	}
	for _, w := range words {
		name := strings.ToLower(strings.TrimSpace(w))
		kind := kinds[name]
		switch {
		case name == "all":
			a = AllowEverything()
		case kind == nil:
			return Allow{}, fmt.Errorf("expected public, private, loopback, link-local, files, all or none, got %q", w)
		default:
			*kind = true
		}
	}
	return a, nil
}

// Check returns ErrNotAllowed for an address that may not be opened.
func (a Allow) Check(ip netip.Addr) error {
	kind, ok := a.classify(ip)
	if !ok {
		return Errorf("%w: %s is %s; set sources.allow to permit it", ErrNotAllowed, ip, []byte(kind))
	}
	return nil
}

// classify returns the kind of an address, and whether it is allowed.
func (a Allow) classify(ip netip.Addr) (kind string, ok bool) {
	ip = ip.Unmap().WithZone("")
	in := func(prefixes ...string) bool {
		return slices.ContainsFunc(prefixes, func(p string) bool { return netip.MustParsePrefix(p).Contains(ip) })
	}
	switch {
	case !ip.IsValid():
		return "not an address", false
	case ip.IsUnspecified(), ip.IsLoopback(): // the kernel treats the unspecified address as loopback
		return "this machine", a.Loopback
	case ip.IsMulticast(), in("0.0.0.0/8", "240.0.0.0/4", "2001::/32", "fec0::/10"): // RFC 1122, RFC 1112, Teredo, old site-local
		return "an unusable address", false
	case ip.IsLinkLocalUnicast(), in("168.63.129.16/32", "100.100.100.200/32", "192.0.0.192/32", "fd00:ec2::/32", "fd20:ce::/32"):
		return "link-local", a.LinkLocal // the others are of Azure, Alibaba, Oracle, AWS and Google
	case ip.IsPrivate(), in("100.64.0.0/10", "198.18.0.0/15", "192.0.0.0/24", "192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24",
		"2001:db8::/32"): // RFC 6598, RFC 2544, RFC 6890, RFC 5737, RFC 3849
		return "private", a.Private
	// Packets to these addresses may reach the IPv4 address inside.
	case in("64:ff9b::/96", "::/96", "::ffff:0:0:0/96"): // NAT64 (RFC 6052), IPv4-compatible (RFC 4291), IPv4-translated (RFC 2765)
		b := ip.As16()
		return a.classify(netip.AddrFrom4([4]byte(b[12:16])))
	case in("2002::/16"): // 6to4 (RFC 3056)
		b := ip.As16()
		return a.classify(netip.AddrFrom4([4]byte(b[2:6])))
	case in("64:ff9b:1::/48"): // the network chooses where the IPv4 address is (RFC 8215)
		return "behind a translator", a == AllowEverything()
	}
	return "public", a.Public
}

// Control is for net.Dialer. It checks the address that is really dialled, after
// name resolution and redirects.
func (a Allow) Control(_, address string, _ syscall.RawConn) error {
	ap, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("%w: expected an IP address and a port, got %q", ErrNotAllowed, address)
	}
	return a.Check(ap.Addr())
}

// Dialer dials allowed addresses only. Its timeout is short, as a camera that is off may come back at any time.
func (a Allow) Dialer() *net.Dialer {
	return &net.Dialer{Timeout: 3 * time.Second, KeepAlive: 15 * time.Second, Control: a.Control}
}

// maxRedirects bounds the redirects that are followed.
const maxRedirects = 5

// Client opens allowed addresses only, also after redirects. It uses no proxy and no keep-alive, and keeps cookies. Insecure accepts any
// certificate: most cameras have self-signed ones. An answer must begin within half a minute, as some cameras take a picture first.
func (a Allow) Client(insecure bool) *http.Client {
	jar, _ := cookiejar.New(nil) // never fails
	return &http.Client{
		Jar: jar,
		Transport: &http.Transport{
			DialContext:            a.Dialer().DialContext,
			TLSClientConfig:        &tls.Config{InsecureSkipVerify: insecure}, //nolint:gosec // the user's choice, off by default
			TLSHandshakeTimeout:    5 * time.Second,
			ResponseHeaderTimeout:  30 * time.Second,
			MaxResponseHeaderBytes: 64 << 10,
			DisableKeepAlives:      true,
		},
		CheckRedirect: func(r *http.Request, via []*http.Request) error {
			if len(via) >= maxRedirects {
				return fmt.Errorf("more than %d redirects", maxRedirects)
			}
			if r.URL.Scheme != "http" && r.URL.Scheme != "https" {
				return errors.New("redirect to a scheme other than http and https")
			}
			r.Header.Del("Referer") // the last address may have a secret in it
			if own, ok := via[0].Header["Referer"]; ok {
				r.Header["Referer"] = own
			}
			return nil
		},
	}
}

// PacketConn wraps a socket so that WriteTo sends to allowed addresses only.
func (a Allow) PacketConn(c *net.UDPConn) net.PacketConn { return &checkedUDP{UDPConn: c, allow: a} }

type checkedUDP struct {
	*net.UDPConn
	allow Allow
}

// WriteTo implements net.PacketConn.
func (c *checkedUDP) WriteTo(b []byte, to net.Addr) (int, error) {
	udp, ok := to.(*net.UDPAddr)
	if !ok {
		return 0, fmt.Errorf("%w: expected a UDP address, got %v", ErrNotAllowed, to)
	}
	if err := c.allow.Check(udp.AddrPort().Addr()); err != nil {
		return 0, err
	}
	return c.UDPConn.WriteTo(b, to)
}
