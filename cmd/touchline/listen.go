package main

import (
	"context"
	"fmt"
	"net"
	"net/netip"

	"touchline/agent/console"
)

// pageFlags are the flags of all commands that serve the page.
type pageFlags struct {
	TLS    bool   `help:"Serve the page over TLS, with the files of the settings or a self-made certificate." name:"tls"`
	Listen string `help:"Address of the page, over the settings' own." placeholder:"HOST:PORT"`
}

// apply puts them over the settings.
func (p pageFlags) apply(c *console.Config) {
	if p.Listen != "" {
		c.Listen = p.Listen
	}
	if p.TLS && c.TLSCert == "" {
		c.SelfSigned = true
	}
}

// mediaIP is the IPv4 address at which those who can open the page at listen
// can reach this machine's media sockets: "" when the page is for this machine
// alone, the first address that others can reach when the page is on every
// address, on a name of this machine or on an IPv6 one.
func mediaIP(ctx context.Context, listen string) (string, error) {
	host, _, err := net.SplitHostPort(listen)
	if err != nil {
		return "", fmt.Errorf("expected HOST:PORT for the page's address, got %q: %w", listen, err)
	}
	if host != "" {
		ips, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host) // a number needs no asking
		if err != nil {
			return "", fmt.Errorf("find the page's address %q: %w", host, err)
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
