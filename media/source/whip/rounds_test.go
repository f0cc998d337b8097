package whip_test

import (
	"net/http"
	"os"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"touchline/media"
	"touchline/media/signaling/signalingtest"
)

// TestRounds connects and disconnects repeatedly without leaks, `make soak` more often. Each session ends by DELETE or by the next one.
func TestRounds(t *testing.T) {
	rounds := 40
	if v, ok := os.LookupEnv("TOUCHLINE_ROUNDS"); ok {
		var err error
		rounds, err = strconv.Atoi(v)
		require.NoError(t, err)
	}
	srv := start(t, nil)
	units := signalingtest.Clip(t, media.VP8)
	files := func() int {
		list, err := os.ReadDir("/proc/self/fd")
		require.NoError(t, err)
		return len(list)
	}
	one := func(leave bool) {
		s := srv.connect(t, senderOptions{codec: vp8})
		s.play(units)
		p := <-srv.opened
		p.next(t)
		if leave {
			s.close() // without a word; the next one takes its place
			return
		}
		resp, _ := srv.request(t, http.MethodDelete, s.location, "")
		require.Equal(t, http.StatusOK, resp.StatusCode)
		<-p.closed
		s.close()
	}
	for range 5 {
		one(false)
	}
	goroutines, open := runtime.NumGoroutine(), files()
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for i := range rounds {
		one(i%4 == 3 && i != rounds-1)
	}
	require.Eventually(t, func() bool {
		return runtime.NumGoroutine() <= goroutines+5 && files() <= open+2
	}, 2*time.Minute, 50*time.Millisecond, "%d goroutines and %d files at first, %d and %d now",
		goroutines, open, runtime.NumGoroutine(), files())
	srv.mu.Lock()
	srv.places = nil
	srv.mu.Unlock()
	runtime.GC()
	runtime.ReadMemStats(&after)
	grown := int64(after.HeapAlloc) - int64(before.HeapAlloc)
	t.Logf("%d rounds: heap %+d KiB", rounds, grown>>10)
	require.Less(t, grown, int64(8<<20))
	require.Empty(t, srv.Sessions())
}
