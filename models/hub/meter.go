package hub

import (
	"context"
	"sync"
	"time"
)

// Progress says how far a Pull is.
type Progress struct {
	Done, Total int64   // bytes; what was there before counts
	Verified    int64   // bytes whose checksum was computed
	Rate        float64 // bytes a second, over the last seconds
	// ETA is how long the rest takes at this rate; negative if there is no telling.
	ETA   time.Duration
	Files int // that have their final name
}

// window is how far back the rate looks.
const window = 8 * time.Second

// interval between two reports.
const interval = 250 * time.Millisecond

// meter counts bytes and reports them.
type meter struct {
	now func() time.Time

	mu      sync.Mutex
	p       Progress
	fresh   int64 // received in this run
	samples []sample
}

type sample struct {
	at    time.Time
	fresh int64
}

func newMeter(now func() time.Time, total int64) *meter {
	return &meter{now: now, p: Progress{Total: total}, samples: []sample{{at: now()}}}
}

func (m *meter) update(change func(p *Progress)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	change(&m.p)
}

func (m *meter) received(n int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.fresh += n
	m.p.Done += n
}

// read takes a sample and returns the state.
func (m *meter) read() Progress {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.now()
	m.samples = append(m.samples, sample{now, m.fresh})
	for len(m.samples) > 2 && now.Sub(m.samples[0].at) > window {
		m.samples = m.samples[1:]
	}
	p := m.p
	p.ETA = -1
	first := m.samples[0]
	if d := now.Sub(first.at).Seconds(); d > 0 {
		p.Rate = float64(m.fresh-first.fresh) / d
	}
	if left := p.Total - p.Done; left <= 0 {
		p.ETA = 0
	} else if p.Rate > 0 {
		// More than a year is no time to tell.
		if s := float64(left) / p.Rate; s < 366*24*3600 {
			p.ETA = time.Duration(s * float64(time.Second))
		}
	}
	return p
}

// run reports until ctx ends, and once more then. Reports come one at a time.
func (m *meter) run(ctx context.Context, report func(Progress)) {
	if report == nil {
		return
	}
	t := time.NewTicker(interval)
	defer t.Stop()
	for {
		report(m.read())
		select {
		case <-ctx.Done():
			report(m.read())
			return
		case <-t.C:
		}
	}
}
