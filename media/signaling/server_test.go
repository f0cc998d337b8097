package signaling_test

import (
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"touchline/media/signaling"
)

// Requests beyond the rate wait for their answer, 64 at a time.
func TestRequestsBeyondTheRateWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := signaling.NewServer(signaling.Options{
			Name: "whip", Client: "sender", Bounds: signaling.Bounds{PerMinute: 1, Burst: 1, MaxSessions: 8}, Now: time.Now,
		})
		get := func() (status int, took time.Duration) {
			w, began := httptest.NewRecorder(), time.Now()
			s.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/whip/room", nil))
			return w.Code, time.Since(began)
		}
		for range 20 {
			status, took := get()
			require.Equal(t, http.StatusNoContent, status)
			require.Zero(t, took)
		}
		var mu sync.Mutex
		waited := map[time.Duration]int{}
		var all sync.WaitGroup
		for range 640 {
			all.Go(func() {
				status, took := get()
				mu.Lock()
				defer mu.Unlock()
				require.Equal(t, http.StatusTooManyRequests, status)
				waited[took]++
			})
		}
		all.Wait()
		require.Equal(t, map[time.Duration]int{0: 576, 300 * time.Millisecond: 64}, waited)
	})
}
