// Package wake holds the signal that one goroutine sets and another waits for.
//
// It owns the non-blocking send to a channel of capacity one; it carries no
// data and knows no order.
package wake

// Signal is level-triggered: any number of calls of Set before the receiver
// comes are one wake-up. Receive from it to wait. A nil Signal never wakes.
type Signal chan struct{}

// New returns a Signal that is not set.
func New() Signal { return make(Signal, 1) }

// Set wakes the receiver, now or when it next receives. It never blocks and is
// safe for concurrent use.
func (s Signal) Set() {
	select {
	case s <- struct{}{}:
	default:
	}
}
