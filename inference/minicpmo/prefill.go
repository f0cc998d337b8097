package minicpmo

import "time"

// place gives a free slot to the first waiting answer whose pictures are embedded, unless loading has waited long for slots.
func (l *loop) place() error {
	if l.Pool.Free() == 0 || l.claimed {
		return nil
	}
	for _, c := range l.Queue {
		if !c.ready() {
			continue
		}
		if c.seenAt.IsZero() {
			c.seenAt = l.now()
		}
		c.report.Vision = c.seenAt.Sub(c.arrived)
		l.Dequeue(c)
		slot, dirty, _ := l.Pool.Take()
		l.Hold(c, slot)
		l.filling = c
		l.stats.held(l.Pool.InUse())
		c.report.Wait = l.now().Sub(c.arrived)
		var err error
		if dirty {
			err = l.dev.clear(c.Slot)
		}
		if err == nil {
			err = l.dev.mask(c.Slot, c.Settings.Forbidden)
		}
		if err == nil {
			err = l.restore(c)
		}
		return l.Failing(c, err)
	}
	return nil
}

// chunk returns the maximum number of positions to feed in one run.
func (l *loop) chunk(left time.Duration) int {
	if l.Active == 0 {
		return l.shape.chunk
	}
	const least = 32
	n := l.prefillCost.fitting(left, l.shape.chunk)
	return max(n/least*least, min(least, l.shape.chunk)) // few different lengths are cheaper on CUDA
}

// prefill feeds the next n positions of a prompt and, after the last, draws the
// first token.
func (l *loop) prefill(c *cycle, n int) error {
	to := c.Filled + n
	last := to == len(c.prompt.ids)
	hidden := 0
	if c.hidden {
		hidden = max(0, to-max(c.Filled, c.firstState()))
	}
	took, err := l.client.Do(func() error {
		return l.dev.prefill(l.shape.prefillSet, c.Slot, &c.prompt, c.Filled, to, hidden)
	})
	if err == nil {
		l.prefillCost.learn(n, took)
		l.demand.took += took
		l.stats.count(func(s *Stats) {
			s.Prefill.took(took)
			s.Prompt += uint64(n)
		})
		err = l.Pool.Advance(c.Slot, n)
	}
	if err != nil {
		return l.Failing(c, err)
	}
	c.Filled = to
	if c.given > 0 && hidden > 0 {
		c.hiddens = append(c.hiddens, l.dev.hidden(c.Slot)...)
	}
	if !last {
		return nil
	}
	l.demand.prompt(c.seenAt)
	slot := c.Slot
	l.filling, l.ranAt = nil, l.now()
	c.report.Prefill = l.ranAt.Sub(c.arrived) - c.report.Wait
	if c.given > 0 {
		c.report.FirstToken = l.ranAt.Sub(c.arrived)
		c.pushGiven(len(c.hiddens) / (c.given + 1))
		l.Finish(c, nil)
	} else {
		l.Begin(c)
	}
	return l.save(c, slot)
}
