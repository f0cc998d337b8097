package minicpmo

import (
	"fmt"
	"sync"
	"time"
)

// loading tells how far loading is: by stages, and between them, where the
// device's memory shows it, by bytes.
type loading struct {
	tell  func(percent int, detail string)
	total int64 // planned

	mu    sync.Mutex
	stage string
	bytes int64
}

// The part of loading in all that Progress tells of, in percent; warming up is
// the rest.
const loadingPercent = 80

// at begins a stage, with so many bytes loaded before it.
func (l *loading) at(stage string, bytes int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stage, l.bytes = stage, max(l.bytes, bytes)
	l.say()
}

// taken notes how much of the device's memory is in use.
func (l *loading) taken(bytes int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if bytes > l.bytes && l.stage != "" {
		l.bytes = min(bytes, l.total)
		l.say()
	}
}

func (l *loading) say() {
	percent := 1 + int(l.bytes*(loadingPercent-1)/max(l.total, 1))
	l.tell(min(percent, loadingPercent), fmt.Sprintf("loading: %s, %s of %s", l.stage, size(l.bytes), size(l.total)))
}

// watch asks for the memory in use now and then, until stop is called, which
// waits for it.
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
