package limit_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"touchline/internal/limit"
)

// TestDetention: 64 clients wait for 0.3 s, further ones and the operator not at all, and no client waits after the end of its request.
func TestDetention(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := limit.NewDetention()
		gone, leave := context.WithCancel(t.Context())
		var mu sync.Mutex
		waited := map[time.Duration]int{}
		var all sync.WaitGroup
		began := time.Now()
		wait := func(ctx context.Context) {
			d.Wait(ctx)
			mu.Lock()
			defer mu.Unlock()
			waited[time.Since(began)]++
		}
		for range 14 {
			all.Go(func() { wait(gone) })
		}
		synctest.Wait()
		for range 626 {
			all.Go(func() { wait(t.Context()) })
		}
		time.Sleep(100 * time.Millisecond)
		leave()
		synctest.Wait()
		for range 14 {
			all.Go(func() { wait(t.Context()) })
		}
		wait(limit.WithClient(t.Context(), limit.Client{Operator: true}))
		all.Wait()
		require.Equal(t, map[time.Duration]int{
			0: 576, 100 * time.Millisecond: 15, 300 * time.Millisecond: 50, 400 * time.Millisecond: 14,
		}, waited)
	})
}
