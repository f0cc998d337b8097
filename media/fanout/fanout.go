// Package fanout passes media on to any number of readers without waiting for one of them.
//
// A [Fanout] sends values of any kind over channels. [Pictures] writes the delayed picture to the room first, in the
// caller's goroutine, and then queues it for the readers; each has a ring and a goroutine of its own. The package
// decides what a slow reader loses, and reads no clock but to pace replays.
package fanout

import (
	"slices"
	"sync"
)

// Fanout sends values to subscribers without waiting for them. All methods are safe for concurrent use. The zero value has no
// subscribers.
type Fanout[T any] struct {
	mu          sync.Mutex
	subscribers []chan T
	closed      bool
}

// Subscribe returns a channel with space for backlog values. Close closes it. cancel, which may be called more than once,
// ends the subscription without closing it.
func (f *Fanout[T]) Subscribe(backlog int) (values <-chan T, cancel func()) {
	c := make(chan T, backlog)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		close(c)
		return c, func() {}
	}
	f.subscribers = append(f.subscribers, c)
	return c, func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.subscribers = slices.DeleteFunc(f.subscribers, func(s chan T) bool { return s == c })
	}
}

// Len returns the number of subscribers.
func (f *Fanout[T]) Len() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.subscribers)
}

// Send sends a value; a full channel loses it. It returns the number of values lost.
func (f *Fanout[T]) Send(value T) (lost uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, s := range f.subscribers {
		select {
		case s <- value:
		default:
			lost++
		}
	}
	return lost
}

// Replace sends a value; a full channel loses its oldest one for it. It returns the number of values lost.
func (f *Fanout[T]) Replace(value T) (lost uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, s := range f.subscribers {
		select {
		case s <- value:
			continue
		default:
		}
		select {
		case <-s:
			lost++
		default: // read meanwhile
		}
		s <- value // values are added under the lock only, so there is space for one
	}
	return lost
}

// Close closes the channels of the subscribers, and of later ones.
func (f *Fanout[T]) Close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	for _, s := range f.subscribers {
		close(s)
	}
	f.subscribers = nil
}
