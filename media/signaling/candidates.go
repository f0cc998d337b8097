package signaling

import (
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/pion/sdp/v3"

	"touchline/media/source"
)

const (
	// maxDestinations bounds the addresses (IP and port) to which one session sends connectivity checks.
	maxDestinations = 32
	// maxChecks bounds the checks to an address that does not answer.
	maxChecks = 3
)

// destinations filters the candidates of a session. A candidate makes this server send
// packets to an address that the client chooses, so their number is limited and the
// server's network excluded. A client without accepted candidates still connects by its
// own checks.
type destinations struct {
	allow source.Allow
	known map[netip.AddrPort]struct{} // of the session
	tried map[netip.AddrPort]struct{} // of the current ICE session
}

func newDestinations(allow source.Allow) *destinations {
	return &destinations{allow: allow, known: map[netip.AddrPort]struct{}{}, tried: map[netip.AddrPort]struct{}{}}
}

// accept reports whether to try a candidate, given as "FOUNDATION 1 udp PRIORITY
// IP PORT ..." with or without "candidate:" in front.
func (d *destinations) accept(candidate string) bool {
	words := strings.Fields(candidate)
	if len(words) < 6 || words[1] != "1" || !strings.EqualFold(words[2], "udp") {
		return false // another component than 1 is for RTCP without rtcp-mux
	}
	ip, err := netip.ParseAddr(words[4])
	port, perr := strconv.ParseUint(words[5], 10, 16)
	if err != nil || perr != nil || d.allow.Check(ip) != nil {
		return false
	}
	to := netip.AddrPortFrom(ip.Unmap().WithZone(""), uint16(port))
	if _, again := d.tried[to]; again {
		return false
	}
	if _, ok := d.known[to]; !ok && len(d.known) >= maxDestinations {
		return false
	}
	d.known[to], d.tried[to] = struct{}{}, struct{}{}
	return true
}

// filter returns an offer with the accepted candidates only.
func (d *destinations) filter(offer string) string {
	ignored := func(a sdp.Attribute) bool { return a.Key == "candidate" && !d.accept(a.Value) }
	return EditSDP(offer, func(desc *sdp.SessionDescription) bool {
		desc.Attributes = slices.DeleteFunc(desc.Attributes, ignored)
		for _, m := range desc.MediaDescriptions {
			m.Attributes = slices.DeleteFunc(m.Attributes, ignored)
		}
		return true
	})
}

// reach returns the addresses to which sessions may send checks. Private ones are
// included if the server has no public address, as it is then in the clients' network.
func reach(o PortOptions, own []netip.Addr, local bool) source.Allow {
	if o.LoopbackOnly {
		return source.Allow{Loopback: true}
	}
	for _, s := range o.ExternalIPs {
		if ip, err := netip.ParseAddr(s); err == nil {
			own = append(own, ip)
		}
	}
	// Home networks have public IPv6 addresses, so only IPv4 counts.
	public := slices.ContainsFunc(own, func(ip netip.Addr) bool {
		return ip.Unmap().Is4() && source.AllowPublic().Check(ip) == nil
	})
	return source.Allow{Public: true, Private: !public, Loopback: local}
}

// ownAddresses lists the addresses of the machine's interfaces.
func ownAddresses() []netip.Addr {
	list, _ := net.InterfaceAddrs() // without them, the server counts as private
	var out []netip.Addr
	for _, a := range list {
		if p, err := netip.ParsePrefix(a.String()); err == nil {
			out = append(out, p.Addr())
		}
	}
	return out
}
