// Package rescue makes a panic in one part of the program an error of that
// part: one room's crash ends that room's bot, and no other.
//
// It owns goroutines and the reports of their panics. It never hides one: what
// was rescued ends the part it came from, with value and stack. What Go itself
// makes fatal (a concurrent map write, memory that ran out, a panic in a
// goroutine that a library started for itself) cannot be rescued.
package rescue

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"
)

// PanicError is a panic as an error. It wraps nothing: what was the value is
// not the reason why a part ended, the panic is.
type PanicError struct {
	Value any
	Stack []byte // of the goroutine that panicked
}

// Error says what the panic said.
func (e *PanicError) Error() string { return fmt.Sprintf("the code panicked: %v", e.Value) }

// Of returns the panic that err is or wraps.
func Of(err error) (*PanicError, bool) { return errors.AsType[*PanicError](err) }

// Stack is the stack of the panic that err is or wraps, nil when there is none.
func Stack(err error) []byte {
	if p, ok := Of(err); ok {
		return p.Stack
	}
	return nil
}

// ErrStuck is beside a PanicError when other goroutines did not end in Grace
// after it.
var ErrStuck = errors.New("goroutines did not end after the panic")

// Grace is how long Group.Wait waits for the others after one has panicked: it
// may have held a lock that they need.
const Grace = 2 * time.Second

// Call runs f; a panic of f is its error, a *PanicError.
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

// Guard hands a panic of the function that defers it to report, as a
// *PanicError. It is for callbacks that a library calls from its own
// goroutines: defer rescue.Guard(fail).
func Guard(report func(err error)) {
	if v := recover(); v != nil {
		report(&PanicError{Value: v, Stack: debug.Stack()})
	}
}

// Group is goroutines that belong together, as errgroup's are: the first error
// ends the context of all. A panic is such an error. Make it with WithContext.
type Group struct {
	cancel   context.CancelCauseFunc
	wg       sync.WaitGroup
	panicked chan struct{} // closed by the first panic

	mu  sync.Mutex
	err error
}

// WithContext returns a group, and a context that ends with the first error,
// with the end of Wait, or with ctx.
func WithContext(ctx context.Context) (*Group, context.Context) {
	ctx, cancel := context.WithCancelCause(ctx)
	return &Group{cancel: cancel, panicked: make(chan struct{})}, ctx
}

// Go runs f in a goroutine. It may be called until Wait returns, by the group's
// own goroutines after Wait was called.
func (g *Group) Go(f func() error) {
	g.wg.Go(func() {
		if err := Call(f); err != nil {
			g.Fail(err)
		}
	})
}

// Fail ends the group with an error from elsewhere, such as a guarded
// callback's. The first counts; a panic counts before any other.
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

// Wait returns the group's error when all goroutines have ended; after a panic
// Grace later at most, and then with ErrStuck.
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
		return errors.Join(err, ErrStuck)
	}
	return err
}
