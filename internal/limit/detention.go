package limit

import (
	"context"
	"time"
)

const (
	// detention is how long a client beyond a rate waits for its answer.
	detention = 300 * time.Millisecond
	// maxDetained is how many clients wait so at the same time.
	maxDetained = 64
)

// Detention has clients beyond a rate wait for their answer: one that asks again at once costs less.
type Detention struct{ places chan struct{} }

// NewDetention returns a Detention with 64 places.
func NewDetention() Detention { return Detention{make(chan struct{}, maxDetained)} }

// Wait returns after 0.3 s or at the end of ctx. It returns at once while all places are taken.
func (d Detention) Wait(ctx context.Context) {
	select {
	case d.places <- struct{}{}:
	default:
		return
	}
	defer func() { <-d.places }()
	select {
	case <-time.After(detention):
	case <-ctx.Done():
	}
}
