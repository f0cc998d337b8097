package limit

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// Bounds are the numbers of places of Seats; 0 is no bound.
type Bounds struct {
	All     int64 // for all clients together
	Room    int64 // in a room
	Token   int64 // for a token
	Network int64 // for an address, or a /64 network of IPv6
}

// Shares returns bounds with a quarter of all places for a token and half of them for a network, but at least least.
func Shares(all, least int64) Bounds {
	least = min(least, all)
	return Bounds{All: all, Token: max(all/4, least), Network: max(all/2, least)}
}

// Seats are the places of one kind that clients hold, such as open streams or bytes of uploads. An operator that finds none gets that of
// the client that has held its own for the longest time. Safe for concurrent use.
type Seats struct {
	kind   string
	bounds Bounds
	refused
	gauge prometheus.GaugeFunc

	mu        sync.Mutex
	taken     map[place]int64
	strangers []*Seat // all but the operator's, the oldest first
}

// place is what a bound counts: the seats of one room, token or network.
type place struct{ reason, name string }

// NewSeats returns Seats of a kind, a plural for texts and metrics.
func NewSeats(kind string, b Bounds) *Seats {
	s := &Seats{kind: kind, bounds: b, refused: newRefused(kind, ofAll, ofRoom, ofToken, ofNetwork, pushedOut), taken: map[place]int64{}}
	s.gauge = prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "touchline_limit_taken", Help: "Places that clients hold.", ConstLabels: prometheus.Labels{"kind": kind},
	}, func() float64 { return float64(s.Taken()) })
	return s
}

// Describe implements prometheus.Collector.
func (s *Seats) Describe(ch chan<- *prometheus.Desc) {
	s.refused.Describe(ch)
	s.gauge.Describe(ch)
}

// Collect implements prometheus.Collector.
func (s *Seats) Collect(ch chan<- prometheus.Metric) {
	s.refused.Collect(ch)
	s.gauge.Collect(ch)
}

// Taken returns the number of taken places.
func (s *Seats) Taken() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.taken[place{reason: ofAll}]
}

// Seat is one client's part of the places, until Leave.
type Seat struct {
	seats    *Seats
	operator bool
	places   []place
	end      context.CancelCauseFunc

	n    int64
	left bool
}

// Take takes n places in a room ("" for none) for the client of ctx. The context that it returns ends when the seat has to be left for the
// operator, with a *FullError as its cause, as is the error of Take.
func (s *Seats) Take(ctx context.Context, room string, n int64) (context.Context, *Seat, error) {
	ctx, end := context.WithCancelCause(ctx)
	x, err := s.take(ClientOf(ctx), room, n, end)
	if err != nil {
		end(err)
		return nil, nil, err
	}
	return ctx, x, nil
}

// take takes n places for a client. End is called once the seat is left, with the reason if it has to be.
func (s *Seats) take(c Client, room string, n int64, end context.CancelCauseFunc) (*Seat, error) {
	x := &Seat{seats: s, operator: c.Operator, end: end}
	if room != "" {
		x.places = append(x.places, place{ofRoom, room})
	}
	if holder := c.Holder(); holder != "" && !c.Operator {
		x.places = append(x.places, place{ofToken, holder})
	}
	if c.From.IsValid() && !c.Operator {
		x.places = append(x.places, place{ofNetwork, Network(c.From).String()})
	}
	x.places = append(x.places, place{reason: ofAll}) // the last, so that an operator that is refused by another bound ends no seat
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.growLocked(x, n); err != nil {
		return nil, err
	}
	if !c.Operator {
		s.strangers = append(s.strangers, x)
	}
	return x, nil
}

// Grow takes n more places.
func (x *Seat) Grow(n int64) error {
	x.seats.mu.Lock()
	defer x.seats.mu.Unlock()
	return x.seats.growLocked(x, n)
}

func (s *Seats) growLocked(x *Seat, n int64) error {
	if x.left {
		return &FullError{kind: s.kind, reason: pushedOut}
	}
	for _, p := range x.places {
		bound := s.bound(p.reason)
		for bound > 0 && s.taken[p]+n > bound {
			if !x.operator || !s.pushOutLocked(p) {
				s.WithLabelValues(p.reason).Inc()
				return &FullError{s.kind, p.reason, bound}
			}
		}
	}
	x.n += n
	for _, p := range x.places {
		s.taken[p] += n
	}
	return nil
}

func (s *Seats) bound(reason string) int64 {
	switch reason {
	case ofRoom:
		return s.bounds.Room
	case ofToken:
		return s.bounds.Token
	case ofNetwork:
		return s.bounds.Network
	}
	return s.bounds.All
}

// pushOutLocked ends the oldest seat of a place that is not the operator's; false without one.
func (s *Seats) pushOutLocked(p place) bool {
	i := slices.IndexFunc(s.strangers, func(x *Seat) bool { return slices.Contains(x.places, p) })
	if i < 0 {
		return false
	}
	s.WithLabelValues(pushedOut).Inc()
	s.leaveLocked(s.strangers[i], &FullError{kind: s.kind, reason: pushedOut})
	return true
}

// Leave gives the places back. It may be called several times.
func (x *Seat) Leave() {
	x.seats.mu.Lock()
	defer x.seats.mu.Unlock()
	x.seats.leaveLocked(x, nil)
}

func (s *Seats) leaveLocked(x *Seat, why error) {
	if x.left {
		return
	}
	x.left = true
	x.end(why)
	for _, p := range x.places {
		if s.taken[p] -= x.n; s.taken[p] == 0 {
			delete(s.taken, p)
		}
	}
	s.strangers = slices.DeleteFunc(s.strangers, func(other *Seat) bool { return other == x })
}

// FullError is the error of a client that finds no place, or has to leave its own.
type FullError struct {
	kind, reason string
	bound        int64
}

// Error is a text for the client.
func (e *FullError) Error() string {
	kind := strings.ReplaceAll(e.kind, "_", " ")
	switch e.reason {
	case pushedOut:
		return "the operator needed this place"
	case ofToken:
		return fmt.Sprintf("this link has reached its limit of %d %s", e.bound, kind)
	case ofNetwork:
		return fmt.Sprintf("this address has reached its limit of %d %s (behind a proxy: agent.console.trusted_proxies)", e.bound, kind)
	}
	return fmt.Sprintf("the limit of %d %s is reached", e.bound, kind)
}

// Why returns the text of a *FullError, or all if the places of all clients are taken.
func Why(err error, all string) string {
	if e, ok := errors.AsType[*FullError](err); ok && e.reason == ofAll {
		return all
	}
	return err.Error()
}
