// Package wake has a sleep that a context ends, and a signal between two goroutines, without data: a non-blocking
// send to a channel of capacity one.
package wake

// Signal is level-triggered: calls of Set before a receive count as one. Receive
// from it to wait. A nil Signal blocks.
type Signal chan struct{}

// New returns a Signal that is not set.
func New() Signal { return make(Signal, 1) }

// Set wakes the receiver, or its next receive. It does not block and is safe for
// concurrent use.
func (s Signal) Set() {
	select {
	case s <- struct{}{}:
	default:
	}
}
