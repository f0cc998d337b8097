package minicpmo

import (
	"fmt"
	"sync"
	"time"

	networks "touchline/inference/internal/device"
)

// loading reports the progress of loading: by stages and, between them, by the
// device's memory in use.
type loading struct {
	report func(percent int, detail string)
	total  int64 // planned bytes

	mu    sync.Mutex
	stage string
	bytes int64
}

// loadingPercent is the share of loading in the reported progress; warming up is
// the rest.
const loadingPercent = 80

// stageAt starts a stage, with the bytes loaded before it.
func (l *loading) stageAt(stage string, bytes int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stage, l.bytes = stage, max(l.bytes, bytes)
	l.send()
}

// taken records the device's memory in use.
func (l *loading) taken(bytes int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if bytes > l.bytes && l.stage != "" {
		l.bytes = min(bytes, l.total)
		l.send()
	}
}

func (l *loading) send() {
	percent := 1 + int(l.bytes*(loadingPercent-1)/max(l.total, 1))
	l.report(min(percent, loadingPercent), fmt.Sprintf("loading: %s, %s of %s", l.stage, networks.Bytes(l.bytes), networks.Bytes(l.total)))
}

// watch reads the memory in use every 250 ms until stop, which waits for its end.
func (l *loading) watch(used func() (int64, error)) (stop func()) {
	const every = 250 * time.Millisecond
	end := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		t := time.NewTicker(every)
		defer t.Stop()
		for {
			select {
			case <-end:
				return
			case <-t.C:
				if n, err := used(); err == nil {
					l.taken(n)
				}
			}
		}
	})
	return func() { close(end); wg.Wait() }
}
