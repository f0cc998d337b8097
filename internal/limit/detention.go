package limit

import (
	"context"
	"time"
)

const (
	// detention is how long a client beyond a limit waits for its answer.
	detention = 300 * time.Millisecond
	// maxDetained is how many clients wait so at the same time.
	maxDetained = 64
)

// Detention has clients beyond a limit wait for their answer: one that asks again at once costs less.
type Detention struct{ places chan struct{} }

// NewDetention returns a Detention with 64 places.
func NewDetention() Detention { return Detention{make(chan struct{}, maxDetained)} }

// Wait returns after 0.3 s or at the end of ctx. It returns at once while all places are taken, and for the operator.
func (d Detention) Wait(ctx context.Context) {
	if ClientOf(ctx).Operator {
		return
	}
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
