package limit

import (
	"net"
	"net/netip"

	"github.com/prometheus/client_golang/prometheus"
)

// Connections are the places of a server's TCP connections, which clients need no token for. An address has an eighth of them. This machine
// and proxies, behind whose connections there may be many people, have as many places of their own, of which an address has three quarters.
type Connections struct {
	others, proxies *Seats
	proxy           func(netip.Addr) bool
}

// NewConnections returns Connections with a number of places. Proxy reports whether an address is that of a proxy; nil for none.
func NewConnections(all int64, proxy func(netip.Addr) bool) *Connections {
	return &Connections{
		others:  NewSeats("connections", Bounds{All: all, Network: all / 8}),
		proxies: NewSeats("proxy_connections", Bounds{All: all, Network: all / 4 * 3}),
		proxy:   proxy,
	}
}

// Bind returns a listener that closes the TCP connections of l for which there is no place.
func (c *Connections) Bind(l net.Listener) net.Listener { return listener{l, c} }

// Describe implements prometheus.Collector.
func (c *Connections) Describe(ch chan<- *prometheus.Desc) {
	c.others.Describe(ch)
	c.proxies.Describe(ch)
}

// Collect implements prometheus.Collector.
func (c *Connections) Collect(ch chan<- prometheus.Metric) {
	c.others.Collect(ch)
	c.proxies.Collect(ch)
}

func (c *Connections) take(from netip.Addr) (*Seat, error) {
	from = from.Unmap().WithZone("")
	seats := c.others
	if from.IsLoopback() || c.proxy != nil && c.proxy(from) {
		seats = c.proxies
	}
	return seats.take(Client{From: from}, "", 1, func(error) {})
}

type listener struct {
	net.Listener

	places *Connections
}

// Accept implements net.Listener.
func (l listener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		tcp, ok := c.(*net.TCPConn)
		if err != nil || !ok {
			return c, err
		}
		from, _ := tcp.RemoteAddr().(*net.TCPAddr)
		seat, err := l.places.take(from.AddrPort().Addr())
		if err == nil {
			return &connection{tcp, seat}, nil
		}
		_ = tcp.SetLinger(0) // the kernel keeps nothing of it either
		_ = tcp.Close()
	}
}

// connection is a TCP connection with its place.
type connection struct {
	*net.TCPConn

	seat *Seat
}

// Close implements net.Conn.
func (c *connection) Close() error {
	defer c.seat.Leave()
	return c.TCPConn.Close()
}
