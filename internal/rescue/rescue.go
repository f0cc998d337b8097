// Package rescue converts a panic in one part of the program to an error of that
// part: a panic in one room's bot does not affect the others.
//
// It owns goroutines and the reports of their panics, with value and stack. It
// does not hide a panic: the error ends the part. Fatal errors of Go (a concurrent
// map write, out of memory) and panics in a library's own goroutines cannot be
// recovered.
package rescue

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"
)

// PanicError is a panic as an error. It does not wrap the panic's value.
type PanicError struct {
	Value any
	Stack []byte // of the goroutine that panicked
}

// Error returns the panic's value as text.
func (e *PanicError) Error() string { return fmt.Sprintf("the code panicked: %v", e.Value) }

// Of returns the panic in the error chain of err; false without one.
func Of(err error) (*PanicError, bool) { return errors.AsType[*PanicError](err) }

// Stack returns the stack of the panic in the error chain of err, or nil.
func Stack(err error) []byte {
	if p, ok := Of(err); ok {
		return p.Stack
	}
	return nil
}

// ErrStuck is joined to a PanicError if other goroutines did not end within Grace.
var ErrStuck = errors.New("goroutines did not end after the panic")

// Grace bounds the wait of Group.Wait after a panic, because the goroutine may
// have held a lock that others need.
const Grace = 2 * time.Second

// Call runs f and returns its error, or its panic as a *PanicError.
func Call(f func() error) (err error) {
	defer Guard(func(e error) { err = e })
	return f()
}

// UnlessCanceled returns err, or nil if it is context.Canceled: a part that was asked to end did not fail.
func UnlessCanceled(err error) error {
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// Guard recovers a panic of the deferring function and passes it to report as a
// *PanicError. It is for callbacks in a library's goroutines: defer
// rescue.Guard(fail).
func Guard(report func(err error)) {
	if v := recover(); v != nil {
		report(&PanicError{Value: v, Stack: debug.Stack()})
	}
}

// Group is a group of goroutines, as in errgroup: the first error or panic ends
// the context of all. Create it with WithContext.
type Group struct {
	cancel   context.CancelCauseFunc
	wg       sync.WaitGroup
	panicked chan struct{} // closed by the first panic

	mu  sync.Mutex
	err error
}

// WithContext returns a group and its context, which ends with the first error,
// after Wait, or with ctx.
func WithContext(ctx context.Context) (*Group, context.Context) {
	ctx, cancel := context.WithCancelCause(ctx)
	return &Group{cancel: cancel, panicked: make(chan struct{})}, ctx
}

// Go runs f in a goroutine. After the call of Wait, only the group's own
// goroutines may call it.
func (g *Group) Go(f func() error) {
	g.wg.Go(func() {
		if err := Call(f); err != nil {
			g.Fail(err)
		}
	})
}

// Fail ends the group with an external error, such as a guarded callback's.
// The first error counts, but a panic takes precedence.
func (g *Group) Fail(err error) {
	g.mu.Lock()
	_, crash := Of(err)
	_, was := Of(g.err)
	if g.err == nil || crash && !was {
		g.err = err
	}
	if crash && !was {
		close(g.panicked)
	}
	g.mu.Unlock()
	g.cancel(err)
}

// Wait waits for all goroutines and returns the group's error. After a panic it
// waits at most Grace, then adds ErrStuck.
func (g *Group) Wait() error {
	all := make(chan struct{})
	go func() {
		defer close(all)
		g.wg.Wait()
	}()
	stuck := false
	select {
	case <-all:
	case <-g.panicked:
		limit := time.NewTimer(Grace)
		defer limit.Stop()
		select {
		case <-all:
		case <-limit.C:
			stuck = true
		}
	}
	g.mu.Lock()
	err := g.err
	g.mu.Unlock()
	g.cancel(err)
	if stuck {
		return fmt.Errorf("%w; %w", err, ErrStuck)
	}
	return err
}
