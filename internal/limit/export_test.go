package limit

import "net/netip"

// Take takes the place of a connection from an address.
func (c *Connections) Take(from netip.Addr) (*Seat, error) { return c.take(from) }
