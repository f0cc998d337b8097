package rescue_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"touchline/internal/rescue"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func explode() { panic("no such tile") }

func TestCall(t *testing.T) {
	require.NoError(t, rescue.Call(func() error { return nil }))
	require.ErrorIs(t, rescue.Call(func() error { return context.Canceled }), context.Canceled)

	err := rescue.Call(func() error { explode(); return nil })
	p, ok := rescue.Of(fmt.Errorf("one bot: %w", err))
	require.True(t, ok)
	require.Equal(t, "no such tile", p.Value)
	require.Contains(t, string(p.Stack), "rescue_test.explode", "the stack of the panic")
	require.EqualError(t, err, "the code panicked: no such tile")
	require.Equal(t, p.Stack, rescue.Stack(fmt.Errorf("one bot: %w", err)))
	require.Empty(t, rescue.Stack(context.Canceled), "not a panic")

	// A panic with context.Canceled is still a panic.
	err = rescue.Call(func() error { panic(context.Canceled) })
	require.NotErrorIs(t, err, context.Canceled)
}

// TestUnlessCanceled: a requested end is no error. A panic and a timeout are.
func TestUnlessCanceled(t *testing.T) {
	require.NoError(t, rescue.UnlessCanceled(nil))
	require.NoError(t, rescue.UnlessCanceled(fmt.Errorf("read: %w", context.Canceled)))
	require.ErrorIs(t, rescue.UnlessCanceled(context.DeadlineExceeded), context.DeadlineExceeded)
	crash := rescue.Call(func() error { panic(context.Canceled) })
	require.Equal(t, crash, rescue.UnlessCanceled(crash))
}

func TestGuard(t *testing.T) {
	var got error
	callback := func() {
		defer rescue.Guard(func(err error) { got = err })
		var none []int
		none[0] = 1
	}
	callback()
	_, ok := rescue.Of(got)
	require.True(t, ok)
	require.ErrorContains(t, got, "index out of range")

	got = nil
	func() { defer rescue.Guard(func(err error) { got = err }) }()
	require.NoError(t, got)
}

func TestGroup(t *testing.T) {
	plain := errors.New("plain")
	for name, c := range map[string]struct {
		work  func(ctx context.Context, g *rescue.Group)
		crash bool
		want  string
	}{
		"all well": {work: func(_ context.Context, g *rescue.Group) { g.Go(func() error { return nil }) }},
		"first error": {work: func(ctx context.Context, g *rescue.Group) {
			g.Go(func() error { return plain })
			g.Go(func() error { <-ctx.Done(); return ctx.Err() })
		}, want: "plain"},
		"panic": {work: func(ctx context.Context, g *rescue.Group) {
			g.Go(func() error { explode(); return nil })
			g.Go(func() error { <-ctx.Done(); return ctx.Err() })
		}, crash: true, want: "the code panicked: no such tile"},
		"a panic counts before an error": {work: func(ctx context.Context, g *rescue.Group) {
			g.Go(func() error { return plain })
			g.Go(func() error { <-ctx.Done(); explode(); return nil })
		}, crash: true, want: "the code panicked: no such tile"},
		"from outside": {work: func(ctx context.Context, g *rescue.Group) {
			g.Go(func() error { <-ctx.Done(); return ctx.Err() })
			g.Fail(rescue.Call(func() error { panic(7) }))
		}, crash: true, want: "the code panicked: 7"},
		"later work": {work: func(_ context.Context, g *rescue.Group) {
			g.Go(func() error { g.Go(func() error { explode(); return nil }); return nil })
		}, crash: true, want: "the code panicked: no such tile"},
	} {
		t.Run(name, func(t *testing.T) {
			g, ctx := rescue.WithContext(t.Context())
			c.work(ctx, g)
			err := g.Wait()
			require.Error(t, ctx.Err(), "the context ends with the group")
			if c.want == "" {
				require.NoError(t, err)
				return
			}
			require.EqualError(t, err, c.want)
			_, crash := rescue.Of(err)
			require.Equal(t, c.crash, crash)
		})
	}
}

// TestStuck: a goroutine that waits for a lock held by the panic does not block
// Wait.
func TestStuck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lock := make(chan struct{})
		g, _ := rescue.WithContext(t.Context())
		g.Go(func() error { explode(); return nil })
		g.Go(func() error { <-lock; return nil })
		began := time.Now()
		err := g.Wait()
		require.ErrorIs(t, err, rescue.ErrStuck)
		_, ok := rescue.Of(err)
		require.True(t, ok)
		require.Equal(t, rescue.Grace, time.Since(began))
		close(lock)
	})
}
