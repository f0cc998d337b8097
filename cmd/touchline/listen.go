package main

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/netip"

	"touchline/agent/console"
)

// pageFlags are the flags of commands that serve the page.
type pageFlags struct {
	TLS    bool   `help:"Serve the page over TLS, with the certificate of the settings or a self-signed one." name:"tls"`
	Listen string `help:"Address of the page; overrides the settings." placeholder:"HOST:PORT"`
}

// apply overrides the settings.
func (p pageFlags) apply(c *console.Config) {
	c.Listen = cmp.Or(p.Listen, c.Listen)
	if p.TLS && c.TLSCert == "" {
		c.SelfSigned = true
	}
}

// mediaIP returns the IPv4 address at which clients of the page at listen reach this machine's media sockets: "" for a
// page on loopback, and the first public address for a page on all addresses, on a host name or on IPv6.
func mediaIP(ctx context.Context, listen string) (string, error) {
	host, _, err := net.SplitHostPort(listen)
	if err != nil {
		return "", fmt.Errorf("page address %q: expected HOST:PORT: %w", listen, err)
	}
	if host != "" {
		ips, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host) // an IP address needs no query
		if err != nil {
			return "", fmt.Errorf("page address: look up %q: %w", host, err)
		}
		for _, ip := range ips {
			if ip = ip.Unmap(); ip.IsLoopback() {
				return "", nil
			} else if ip.Is4() && !ip.IsUnspecified() {
				return ip.String(), nil
			}
		}
	}
	own, err := net.InterfaceAddrs()
	if err != nil {
		return "", fmt.Errorf("list this machine's addresses: %w", err)
	}
	for _, a := range own {
		if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr().Is4() && p.Addr().IsGlobalUnicast() {
			return p.Addr().String(), nil
		}
	}
	return "", nil
}
