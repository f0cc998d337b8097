package source

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"time"
)

// Allow says which addresses may be opened. The zero value allows none.
type Allow struct {
	// Public addresses of the internet.
	Public bool
	// Private ones: RFC 1918, RFC 4193, RFC 6598. An IP camera has one.
	Private bool
	// Loopback is this machine.
	Loopback bool
	// LinkLocal is 169.254.0.0/16 and fe80::/10, where clouds keep their machines' secrets.
	LinkLocal bool
	// Files of this machine, its devices included.
	Files bool
}

// AllowEverything is for addresses typed on the command line.
func AllowEverything() Allow {
	return Allow{Public: true, Private: true, Loopback: true, LinkLocal: true, Files: true}
}

// AllowCameras is for addresses typed into the page of one's own machine.
func AllowCameras() Allow { return Allow{Public: true, Private: true} }

// AllowPublic is for addresses that strangers give.
func AllowPublic() Allow { return Allow{Public: true} }

// ParseAllow reads a list of public, private, loopback, link-local, files, all and none.
func ParseAllow(words []string) (Allow, error) {
	var a Allow
	for _, w := range words {
		switch strings.ToLower(strings.TrimSpace(w)) {
		case "public":
			a.Public = true
		case "private":
			a.Private = true
		case "loopback":
			a.Loopback = true
		case "link-local":
			a.LinkLocal = true
		case "files":
			a.Files = true
		case "all":
			a = AllowEverything()
		case "none":
		default:
			return Allow{}, fmt.Errorf("expected public, private, loopback, link-local, files, all or none, got %q", w)
		}
	}
	return a, nil
}

// Ranges that the standard library does not distinguish.
func sharedRanges() []netip.Prefix { // RFC 6598, RFC 2544, RFC 6890, RFC 5737, RFC 3849: inside a private network at best
	return []netip.Prefix{
		netip.MustParsePrefix("100.64.0.0/10"), netip.MustParsePrefix("198.18.0.0/15"),
		netip.MustParsePrefix("192.0.0.0/24"), netip.MustParsePrefix("192.0.2.0/24"),
		netip.MustParsePrefix("198.51.100.0/24"), netip.MustParsePrefix("203.0.113.0/24"),
		netip.MustParsePrefix("2001:db8::/32"),
	}
}

func deadRanges() []netip.Prefix { // RFC 1122, RFC 1112, Teredo and old site-local: no camera's
	return []netip.Prefix{
		netip.MustParsePrefix("0.0.0.0/8"), netip.MustParsePrefix("240.0.0.0/4"),
		netip.MustParsePrefix("2001::/32"), netip.MustParsePrefix("fec0::/10"),
	}
}

// Check judges one address.
func (a Allow) Check(ip netip.Addr) error {
	kind, ok := a.judge(ip)
	if !ok {
		return fmt.Errorf("%w: %s is %s; sources.allow says which addresses may be opened", ErrNotAllowed, ip, kind)
	}
	return nil
}

func (a Allow) judge(ip netip.Addr) (kind string, ok bool) {
	ip = ip.Unmap().WithZone("")
	in := func(p netip.Prefix) bool { return p.Contains(ip) }
	switch {
	case !ip.IsValid():
		return "not an address", false
	case ip.IsUnspecified(): // the kernel takes it for loopback
		return "this machine", a.Loopback
	case ip.IsLoopback():
		return "this machine", a.Loopback
	case ip.IsMulticast(), slices.ContainsFunc(deadRanges(), in):
		return "an unusable address", false
	case ip.IsLinkLocalUnicast():
		return "link-local", a.LinkLocal
	case ip.IsPrivate(), slices.ContainsFunc(sharedRanges(), in):
		return "private", a.Private
	}
	if inner, wrapped := embedded(ip); wrapped {
		return a.judge(inner)
	}
	return "public", a.Public
}

// embedded takes the IPv4 address out of one of NAT64 (RFC 6052), 6to4 (RFC
// 3056) or an IPv4-compatible one (RFC 4291): the packet may end up there.
func embedded(ip netip.Addr) (netip.Addr, bool) {
	if !ip.Is6() {
		return ip, false
	}
	b := ip.As16()
	switch {
	case netip.MustParsePrefix("64:ff9b::/96").Contains(ip), netip.MustParsePrefix("::/96").Contains(ip):
		return netip.AddrFrom4([4]byte(b[12:16])), true
	case netip.MustParsePrefix("2002::/16").Contains(ip):
		return netip.AddrFrom4([4]byte(b[2:6])), true
	}
	return ip, false
}

// Control is a net.Dialer's: it sees the address that is really dialled, after
// names were resolved and redirects followed, and refuses what is not allowed.
func (a Allow) Control(_, address string, _ syscall.RawConn) error {
	ap, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("%w: expected an IP address and a port, got %q", ErrNotAllowed, address)
	}
	return a.Check(ap.Addr())
}

// Dialer dials allowed addresses only. A camera that is off must be noticed
// soon, because it may come back any moment.
func (a Allow) Dialer() *net.Dialer {
	return &net.Dialer{Timeout: 3 * time.Second, KeepAlive: 15 * time.Second, Control: a.Control}
}

// Insecure has a client of Allow take any certificate: most cameras make their own.
func Insecure(c *http.Client) {
	if t, ok := c.Transport.(*http.Transport); ok {
		t.TLSClientConfig = &tls.Config{InsecureSkipVerify: true} //nolint:gosec // the user's choice, off by default
	}
}

// maxRedirects bounds the redirects that are followed.
const maxRedirects = 5

// Client opens allowed addresses only, whatever it is redirected to. It uses no
// proxy and keeps no connection for later; the answer's headers must come within
// ten seconds.
func (a Allow) Client() *http.Client {
	return &http.Client{
		Transport: &http.Transport{
			DialContext:            a.Dialer().DialContext,
			TLSHandshakeTimeout:    5 * time.Second,
			ResponseHeaderTimeout:  10 * time.Second,
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
			return nil
		},
	}
}

// PacketConn is one whose WriteTo reaches allowed addresses only.
func (a Allow) PacketConn(c net.PacketConn) net.PacketConn {
	if udp, ok := c.(*net.UDPConn); ok {
		return &checkedUDP{UDPConn: udp, allow: a}
	}
	return &checkedConn{PacketConn: c, allow: a}
}

func (a Allow) checkUDP(to net.Addr) error {
	udp, ok := to.(*net.UDPAddr)
	if !ok {
		return fmt.Errorf("%w: expected a UDP address, got %v", ErrNotAllowed, to)
	}
	ip, _ := netip.AddrFromSlice(udp.IP)
	return a.Check(ip)
}

type checkedConn struct {
	net.PacketConn
	allow Allow
}

// WriteTo implements net.PacketConn.
func (c *checkedConn) WriteTo(b []byte, to net.Addr) (int, error) {
	if err := c.allow.checkUDP(to); err != nil {
		return 0, err
	}
	return c.PacketConn.WriteTo(b, to)
}

// checkedUDP keeps what a UDP socket can do beside reading and writing.
type checkedUDP struct {
	*net.UDPConn
	allow Allow
}

// WriteTo implements net.PacketConn.
func (c *checkedUDP) WriteTo(b []byte, to net.Addr) (int, error) {
	if err := c.allow.checkUDP(to); err != nil {
		return 0, err
	}
	return c.UDPConn.WriteTo(b, to)
}
