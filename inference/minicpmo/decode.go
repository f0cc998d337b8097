package minicpmo

import (
	"time"

	"touchline/inference/internal/kvcache"
)

// decode runs one step of every active answer.
func (l *loop) decode() error {
	r := l.cover()
	set := l.weights.choose(r.Size)
	for slot := r.Start; slot < r.Start+r.Size; slot++ {
		// The step writes a slot that is being filled at the start of its next chunk.
		l.lengths[slot] = int32(l.pool.Length(slot)) //nolint:gosec // bounded by the layout
	}
	begin := l.now()
	if err := l.dev.decode(set, r, l.tokens, l.lengths, l.hiddens > 0); err != nil {
		if fatal(err) {
			return err
		}
		return l.alone(set, err)
	}
	at := l.now()
	l.stepAt, l.took = at, at.Sub(begin)
	l.stats.step(l.active, set, l.took)
	for slot := r.Start; slot < r.Start+r.Size; slot++ {
		if c := l.rows[slot]; c != nil {
			l.stepped(c, at)
		}
	}
	return nil
}

// stepped records a fed token and draws the next.
func (l *loop) stepped(c *cycle, at time.Time) {
	if err := l.pool.Advance(c.slot, 1); err != nil {
		l.finish(c, err)
		return
	}
	l.stats.gaps.took(at.Sub(c.lastStep))
	c.lastStep = at
	l.advance(c, at)
}

// alone repeats a failed step for each answer separately, and ends only the
// answers that fail again. Repeating a step writes the same data.
func (l *loop) alone(set int, cause error) error {
	l.stats.failedRuns.Add(1)
	single := l.active == 1
	for slot, c := range l.rows {
		if c == nil {
			continue
		}
		if single {
			l.finish(c, cause)
			continue
		}
		l.lengths[slot] = int32(l.pool.Length(slot)) //nolint:gosec // bounded by the layout
		if err := l.dev.decode(set, kvcache.Range{Start: slot, Size: 1}, l.tokens, l.lengths, c.hidden); err != nil {
			if fatal(err) {
				return err
			}
			l.finish(c, err)
			continue
		}
		l.stepped(c, l.now())
	}
	return nil
}
