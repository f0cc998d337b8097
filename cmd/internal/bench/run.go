package bench

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"time"
)

// Run is one run of a scenario. As in a testing.T, an error ends the scenario at once, and its methods are for the scenario's goroutine.
type Run struct {
	Figures []Figure

	ctx      context.Context //nolint:containedctx // of this run only, as in a testing.T
	cleanups []func()
	err      error
}

// Measure runs a scenario to its end, and returns its figures and its error.
func Measure(ctx context.Context, scenario func(r *Run)) ([]Figure, error) {
	r := &Run{ctx: ctx}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		r.Part(func() { scenario(r) })
	}()
	<-ended
	return r.Figures, r.err
}

// Context is the context of the run.
func (r *Run) Context() context.Context { return r.ctx }

// Part runs a part of the scenario. What it leaves to Cleanup is done at its end.
func (r *Run) Part(part func()) {
	outer := r.cleanups
	r.cleanups = nil
	defer func() {
		for _, f := range slices.Backward(r.cleanups) {
			f()
		}
		r.cleanups = outer
	}()
	part()
}

// Cleanup calls f at the end of the part or the scenario, the last f first.
func (r *Run) Cleanup(f func()) { r.cleanups = append(r.cleanups, f) }

// Fail notes an error; the scenario continues.
func (r *Run) Fail(err error) { r.err = errors.Join(r.err, err) }

// Failed reports whether an error was noted.
func (r *Run) Failed() bool { return r.err != nil }

// Check ends the scenario if there is an error.
func (r *Run) Check(err error) {
	if err != nil {
		r.Fail(err)
		runtime.Goexit()
	}
}

// Wait waits for a duration.
func (r *Run) Wait(d time.Duration) {
	select {
	case <-r.ctx.Done():
		r.Check(r.ctx.Err())
	case <-time.After(d):
	}
}
