package minicpmo

import (
	"time"

	"touchline/inference/internal/kvcache"
)

// decode takes one step of every active answer.
func (l *loop) decode() error {
	r := l.cover()
	set := l.weights.choose(r.Size)
	for slot := r.Start; slot < r.Start+r.Size; slot++ {
		// A slot that is being filled is written at where its next chunk begins.
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
	l.stats.step(l.active, r.Size, set, at.Sub(begin))
	for slot := r.Start; slot < r.Start+r.Size; slot++ {
		if c := l.rows[slot]; c != nil {
			l.stepped(c, at)
		}
	}
	return nil
}

// stepped notes that a token was fed and goes on with the next.
func (l *loop) stepped(c *cycle, at time.Time) {
	if err := l.pool.Advance(c.slot, 1); err != nil {
		l.finish(c, err)
		return
	}
	l.stats.gap(at.Sub(c.lastStep))
	c.lastStep = at
	l.advance(c, at)
}

// alone repeats a step that failed for each answer by itself: it writes what
// it wrote before, and only those that fail again end.
func (l *loop) alone(set int, cause error) error {
	l.stats.failedRuns.Add(1)
	if l.active == 1 {
		for _, c := range l.rows {
			if c != nil {
				l.finish(c, cause)
			}
		}
		return nil
	}
	for slot, c := range l.rows {
		if c == nil {
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
