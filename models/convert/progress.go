package convert

import (
	"sync"
	"time"
)

// meter counts processed bytes and reports them.
type meter struct {
	now    func() time.Time
	report func(Progress)
	start  time.Time

	mu sync.Mutex
	p  Progress
}

// newMeter starts counting towards the source bytes and the hashed bytes.
func newMeter(o Options, source, hashed int64) *meter {
	m := &meter{now: o.Now, report: o.Progress, p: Progress{Total: source + hashed}}
	if m.now != nil {
		m.start = m.now()
	}
	return m
}

func (m *meter) add(source, hashed int64) {
	if m.report == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.p.Source += source
	m.p.Done += source + hashed
	if m.now != nil {
		if t := m.now().Sub(m.start).Seconds(); t > 0 && m.p.Done > 0 {
			m.p.Rate = float64(m.p.Source) / t
			left := t / float64(m.p.Done) * float64(m.p.Total-m.p.Done)
			m.p.ETA = time.Duration(left * float64(time.Second))
		}
	}
	m.report(m.p)
}
