package netfault

import (
	"container/heap"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"time"

	"touchline/internal/wake"
)

// Impairment describes a network. The zero value is a perfect one.
type Impairment struct {
	// Loss is the share of lost packets, 0 to 1.
	Loss float64
	// Delay of every packet.
	Delay time.Duration
	// Jitter bounds a random addition to the delay, drawn every 20 ms. Packets keep their order.
	Jitter time.Duration
	// Reorder is the share of packets delayed by HoldBack, so that others overtake them.
	Reorder  float64
	HoldBack time.Duration
}

// Stats are counts of packets, of both directions.
type Stats struct{ Passed, Lost, HeldBack, Overflowed uint64 }

// Bounds of concurrent clients, and of packets in flight in one direction of a client.
const (
	maxFlows   = 64
	maxWaiting = 8192
	maxPacket  = 1 << 16
	// jitterStep is the interval between draws of the jitter.
	jitterStep = 20 * time.Millisecond
	// idleFlow is the silence after which a client is replaced by another one. Connected clients send every few
	// seconds (RFC 7675 section 5.1).
	idleFlow = time.Minute
)

// relay forwards the packets of clients to the server, each client from its own socket, and the answers back.
type relay struct {
	to   netip.AddrPort
	conn *net.UDPConn
	idle time.Duration // idleFlow

	mu    sync.Mutex
	imp   Impairment
	rand  *rand.Rand
	stats Stats
}

func newRelay(to netip.AddrPort, seed uint64) (*relay, error) {
	conn, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return nil, fmt.Errorf("open the relay for media: %w", err)
	}
	_ = conn.SetReadBuffer(1 << 20)
	return &relay{to: to, conn: conn, idle: idleFlow, rand: rand.New(rand.NewPCG(seed, 2))}, nil
}

func (r *relay) addr() netip.AddrPort { return r.conn.LocalAddr().(*net.UDPAddr).AddrPort() } //nolint:forcetypeassert // a UDP socket's

func (r *relay) set(i Impairment) {
	r.mu.Lock()
	r.imp = i
	r.mu.Unlock()
}

func (r *relay) counts() Stats {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.stats
}

// flow is one client.
type flow struct {
	up    *line
	heard time.Time // last, by run only
	end   func()
}

// run relays until ctx ends.
func (r *relay) run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = r.conn.Close() })
	defer stop()
	flows := map[netip.AddrPort]*flow{}
	buf := make([]byte, maxPacket)
	for {
		n, from, err := r.conn.ReadFromUDPAddrPort(buf)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, net.ErrClosed):
			return fmt.Errorf("relay media: %w", err)
		case err != nil:
			continue // ICMP for an answer to a closed port
		}
		now := time.Now()
		f := flows[from]
		if f == nil {
			maps.DeleteFunc(flows, func(_ netip.AddrPort, f *flow) bool {
				idle := now.Sub(f.heard) > r.idle
				if idle {
					f.end()
				}
				return idle
			})
			if len(flows) >= maxFlows {
				continue
			}
			out, err := net.DialUDP("udp4", nil, net.UDPAddrFromAddrPort(r.to))
			if err != nil {
				return fmt.Errorf("relay media: %w", err)
			}
			_ = out.SetReadBuffer(1 << 20)
			ctx, end := context.WithCancel(ctx)
			wg.Go(func() { <-ctx.Done(); _ = out.Close() })
			up := newLine(r, func(b []byte) { _, _ = out.Write(b) }) // an unsent packet is lost
			down := newLine(r, func(b []byte) { _, _ = r.conn.WriteToUDPAddrPort(b, from) })
			f = &flow{up: up, end: end}
			flows[from] = f
			wg.Go(func() { up.run(ctx) })
			wg.Go(func() { down.run(ctx) })
			wg.Go(func() { down.read(ctx, out) })
		}
		f.heard = now
		f.up.push(append([]byte(nil), buf[:n]...), now)
	}
}

// line is one direction of one client.
type line struct {
	r    *relay
	send func([]byte)
	wake wake.Signal

	mu      sync.Mutex
	waiting packets
	number  uint64
	extra   time.Duration // of this step
	step    time.Time
	last    time.Time // due time of the previous packet
}

func newLine(r *relay, send func([]byte)) *line {
	return &line{r: r, send: send, wake: wake.New()}
}

// read pushes the packets from the server.
func (l *line) read(ctx context.Context, conn *net.UDPConn) {
	buf := make([]byte, maxPacket)
	for ctx.Err() == nil {
		n, err := conn.Read(buf)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err == nil { // else: the server is away
			l.push(append([]byte(nil), buf[:n]...), time.Now())
		}
	}
}

// push drops, delays or queues a packet.
func (l *line) push(b []byte, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := l.r
	r.mu.Lock()
	defer r.mu.Unlock()
	imp := r.imp
	if r.rand.Float64() < imp.Loss {
		r.stats.Lost++
		return
	}
	if len(l.waiting) >= maxWaiting {
		r.stats.Overflowed++
		return
	}
	r.stats.Passed++
	if now.Sub(l.step) >= jitterStep {
		l.step, l.extra = now, 0
		if imp.Jitter > 0 {
			l.extra = time.Duration(r.rand.Int64N(int64(imp.Jitter)))
		}
	}
	due := now.Add(imp.Delay + l.extra)
	if due.Before(l.last) {
		due = l.last
	}
	if r.rand.Float64() < imp.Reorder {
		r.stats.HeldBack++
		due = due.Add(imp.HoldBack)
	} else {
		l.last = due
	}
	l.number++
	heap.Push(&l.waiting, packet{due: due, number: l.number, data: b})
	l.wake.Set()
}

// run sends each packet when it is due.
func (l *line) run(ctx context.Context) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		b, wait := l.next(time.Now())
		if b != nil {
			l.send(b)
			continue
		}
		timer.Reset(wait)
		select {
		case <-ctx.Done():
			return
		case <-l.wake:
		case <-timer.C:
		}
	}
}

func (l *line) next(now time.Time) (b []byte, wait time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.waiting) == 0 {
		return nil, time.Hour
	}
	if wait := l.waiting[0].due.Sub(now); wait > 0 {
		return nil, wait
	}
	return heap.Pop(&l.waiting).(packet).data, 0 //nolint:forcetypeassert // it holds nothing else
}

type packet struct {
	due    time.Time
	number uint64
	data   []byte
}

// packets is a heap by due time, then by order of arrival.
type packets []packet

func (p packets) Len() int { return len(p) }
func (p packets) Less(i, j int) bool {
	if !p[i].due.Equal(p[j].due) {
		return p[i].due.Before(p[j].due)
	}
	return p[i].number < p[j].number
}
func (p packets) Swap(i, j int) { p[i], p[j] = p[j], p[i] }
func (p *packets) Push(x any)   { *p = append(*p, x.(packet)) } //nolint:forcetypeassert // only line pushes
func (p *packets) Pop() any {
	old := *p
	x := old[len(old)-1]
	old[len(old)-1] = packet{}
	*p = old[:len(old)-1]
	return x
}
