package console

import (
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// proxies are the reverse proxies whose forwarded addresses count: addresses and networks.
type proxies []netip.Prefix

func parseProxies(list []string) (out proxies, err error) {
	for _, text := range list {
		p, err := netip.ParsePrefix(text)
		if a, addrErr := netip.ParseAddr(text); addrErr == nil && a.Zone() == "" {
			p, err = netip.PrefixFrom(a.Unmap(), a.Unmap().BitLen()), nil
		}
		if err != nil {
			return nil, fmt.Errorf("must be addresses or networks, such as 127.0.0.1 or 10.0.0.0/8, is %q", text)
		}
		out = append(out, p.Masked())
	}
	return out, nil
}

func (p proxies) trust(a netip.Addr) bool {
	return slices.ContainsFunc(p, func(n netip.Prefix) bool { return n.Contains(a) })
}

// behind replaces the address of a request from a trusted proxy with the client's.
func (p proxies) behind(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		peer := peerOf(r)
		if client := p.client(peer, r.Header); client != peer {
			r.RemoteAddr = netip.AddrPortFrom(client, 0).String()
		}
		h.ServeHTTP(w, r)
	})
}

// peerOf returns the address of a request's client.
func peerOf(r *http.Request) netip.Addr {
	peer, _ := netip.ParseAddrPort(r.RemoteAddr) // always valid
	return peer.Addr().Unmap().WithZone("")
}

// client returns the address that X-Forwarded-For or Forwarded (RFC 7239) names. A proxy writes one of them and may pass on the other as
// its client sent it. So if they differ, the client's address is unknown and the proxy's own one counts.
func (p proxies) client(peer netip.Addr, h http.Header) netip.Addr {
	var found []netip.Addr
	if list := h.Values("X-Forwarded-For"); len(list) > 0 {
		found = append(found, p.walk(peer, list, address))
	}
	if list := h.Values("Forwarded"); len(list) > 0 {
		found = append(found, p.walk(peer, list, forwardedFor))
	}
	if len(found) == 0 || found[0] != found[len(found)-1] {
		return peer
	}
	return found[0]
}

// walk reads a list from its end, where each proxy appends the address of its client, up to the first that is no trusted proxy.
func (p proxies) walk(peer netip.Addr, lists []string, read func(string) (netip.Addr, bool)) netip.Addr {
	list := strings.Join(lists, ",")
	for p.trust(peer) && list != "" {
		i := strings.LastIndexByte(list, ',')
		a, ok := read(list[i+1:])
		if !ok {
			break // such as "unknown"
		}
		peer, list = a, list[:max(i, 0)]
	}
	return peer
}

// forwardedFor returns the address in an element of Forwarded.
func forwardedFor(element string) (netip.Addr, bool) {
	for pair := range strings.SplitSeq(element, ";") {
		if name, value, _ := strings.Cut(pair, "="); strings.EqualFold(strings.TrimSpace(name), "for") {
			return address(strings.Trim(strings.TrimSpace(value), `"`))
		}
	}
	return netip.Addr{}, false
}

// address reads an address with or without a port.
func address(text string) (netip.Addr, bool) {
	text = strings.TrimSpace(text)
	a, err := netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(text, "["), "]"))
	if err != nil {
		var with netip.AddrPort
		with, err = netip.ParseAddrPort(text)
		a = with.Addr()
	}
	return a.Unmap().WithZone(""), err == nil
}
