package hub

import (
	"context"
	"sync"
	"time"
)

// Progress is the progress of a Pull.
type Progress struct {
	Done, Total int64   // bytes, including earlier runs
	Verified    int64   // bytes hashed
	Rate        float64 // bytes per second, over the last 8 s
	// ETA is the remaining time at this rate; negative if unknown.
	ETA   time.Duration
	Files int // complete files
}

// window is the period over which Rate is measured.
const window = 8 * time.Second

// interval is the time between two reports.
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

// read takes a sample and returns the progress.
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
		// Beyond a year the estimate is useless.
		if s := float64(left) / p.Rate; s < 366*24*3600 {
			p.ETA = time.Duration(s * float64(time.Second))
		}
	}
	return p
}

// run reports every interval until ctx ends, and a last time then.
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
