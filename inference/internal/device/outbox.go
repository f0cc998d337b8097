package device

import (
	"sync"

	"touchline/internal/wake"
)

// Outbox carries the results of one answer from the goroutine that owns the device
// to a reader, which the former never waits for.
type Outbox[T any] struct {
	mu    sync.Mutex
	items []T
	taken int
	ended bool
	err   error
	wake  wake.Signal
}

// Init makes room for most results without allocating again.
func (o *Outbox[T]) Init(most int) {
	o.items = make([]T, 0, most)
	o.wake = wake.New()
}

// Push adds a result.
func (o *Outbox[T]) Push(v T) {
	o.mu.Lock()
	o.items = append(o.items, v)
	o.mu.Unlock()
	o.wake.Set()
}

// End closes the outbox. Only the first call has an effect.
func (o *Outbox[T]) End(err error) {
	o.mu.Lock()
	if !o.ended {
		o.ended, o.err = true, err
	}
	o.mu.Unlock()
	o.wake.Set()
}

// Wake is set when Take may have something new.
func (o *Outbox[T]) Wake() <-chan struct{} { return o.wake }

// Take returns the next result. ok is false if there is none yet; ended reports
// that none will come, and why.
func (o *Outbox[T]) Take() (v T, ok, ended bool, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.taken < len(o.items) {
		v = o.items[o.taken]
		o.taken++
		return v, true, false, nil
	}
	return v, false, o.ended, o.err
}
