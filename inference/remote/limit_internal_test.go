package remote

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// TestLimit: a server that can answer four requests at once, and refuses more, gets four or fewer within seconds; when it can
// answer ten, it gets all eight that the setting allows.
func TestLimit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		l := newLimit(8)
		can, running, refused := 4, 0, 0 // of the server
		done := make(chan struct{})
		for range 16 {
			go func() {
				defer func() { done <- struct{}{} }()
				for l.acquire(ctx, false) == nil {
					l.mu.Lock() // the test's counters too
					running++
					over := running > can
					if over {
						refused++
					}
					l.mu.Unlock()
					if over {
						l.cut(time.Now())
						time.Sleep(10 * time.Millisecond)
					} else {
						time.Sleep(300 * time.Millisecond)
					}
					l.mu.Lock()
					running--
					l.mu.Unlock()
					if l.release(map[bool]time.Duration{false: 100 * time.Millisecond}[over]); over {
						time.Sleep(time.Second)
					}
				}
			}()
		}
		end := sync.OnceFunc(func() {
			cancel()
			for range 16 {
				<-done
			}
		})
		defer end()
		time.Sleep(30 * time.Second)
		synctest.Wait()
		was := refused
		most := 0
		for range 300 {
			time.Sleep(100 * time.Millisecond)
			synctest.Wait()
			now, _, _ := l.state()
			most = max(most, now)
		}
		require.LessOrEqual(t, most, 5, "it tries one more now and then")
		require.GreaterOrEqual(t, most, 3)
		require.Less(t, refused-was, 15, "of some 350 answers")
		l.mu.Lock()
		can = 10
		l.mu.Unlock()
		time.Sleep(time.Minute)
		synctest.Wait()
		now, busy, waiting := l.state()
		require.Equal(t, []int{8, 8, 8}, []int{now, busy, waiting})
		end()
		_, busy, waiting = l.state()
		require.Zero(t, busy+waiting)
	})
}

// TestLimitHoldsLatency: answers that take twice as long as the best end the growth.
func TestLimitHoldsLatency(t *testing.T) {
	t.Parallel()
	l := newLimit(8)
	now, changed := l.cut(time.Unix(10, 0))
	require.True(t, changed)
	require.Equal(t, 4, now)
	now, changed = l.cut(time.Unix(10, 5e8))
	require.False(t, changed, "of the same moment")
	require.Equal(t, 4, now)
	round := func(first time.Duration) {
		for range 4 {
			require.NoError(t, l.acquire(t.Context(), false))
		}
		for range 4 {
			l.release(first)
		}
	}
	round(100 * time.Millisecond)
	for range 5 {
		round(250 * time.Millisecond)
	}
	now, _, _ = l.state()
	require.Equal(t, 4, now)
	for i := range 3 {
		now, _ = l.cut(time.Unix(100+int64(i)*10, 0))
	}
	require.Equal(t, 1, now, "one request is always sent")
}

// TestUrgentRequests: an urgent request gets the next place.
func TestUrgentRequests(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLimit(1)
		require.NoError(t, l.acquire(t.Context(), false))
		order := make(chan int, 4)
		for i, urgent := range []bool{false, true, false, true} {
			go func() {
				if l.acquire(t.Context(), urgent) == nil {
					order <- i
					l.release(0)
				}
			}()
			synctest.Wait()
		}
		l.release(0)
		for _, want := range []int{1, 3, 0, 2} {
			require.Equal(t, want, <-order)
		}
	})
}
