package minicpmo

import (
	"slices"
	"time"
)

// place gives a free slot to the first waiting answer whose pictures are embedded.
func (l *loop) place() error {
	if l.pool.Free() == 0 {
		return nil
	}
	for i, c := range l.waiting {
		if !c.ready() {
			continue
		}
		if c.seenAt.IsZero() {
			c.seenAt = l.now()
		}
		c.report.Vision = c.seenAt.Sub(c.arrived)
		l.waiting = slices.Delete(l.waiting, i, i+1)
		l.left()
		dirty, err := l.take(c)
		if err != nil {
			return err
		}
		l.filling = c
		l.stats.held(l.pool.InUse())
		c.report.Wait = l.now().Sub(c.arrived)
		l.states[c.slot].Reset(c.settings, c.seed, 0)
		if dirty {
			err = l.dev.clear(c.slot)
		}
		if err == nil {
			err = l.dev.mask(c.slot, c.settings.Forbidden)
		}
		return l.drop(err)
	}
	return nil
}

// take gives an answer the free slot whose prompt begins with the most of the answer's tokens: the states of these are not
// computed again. dirty reports whether the slot must be zeroed.
func (l *loop) take(c *cycle) (dirty bool, err error) {
	words := c.prompt.words()
	words = words[:min(len(words), len(c.prompt.ids)-1)] // one token at least is fed
	if c.hidden {
		words = words[:min(len(words), c.from())]
	}
	for slot, kept := range l.kept {
		if n := common(kept, words); n > c.filled && !l.pool.Held(slot) {
			c.slot, c.filled = slot, n
		}
	}
	if c.filled > 0 {
		l.kept[c.slot] = nil
		return false, l.pool.TakeAt(c.slot, c.filled)
	}
	c.slot, dirty, _ = l.pool.Take()
	l.kept[c.slot] = nil
	return dirty, nil
}

// common returns the number of tokens at the beginning that are the same.
func common(a, b []int32) int {
	n := 0
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	return n
}

// drop ends the answer that is being filled with an error. It returns the error
// only if the device is lost.
func (l *loop) drop(err error) error {
	if err == nil {
		return nil
	}
	if fatal(err) {
		return err
	}
	l.stats.failedRuns.Add(1)
	c := l.filling
	l.filling = nil
	l.finish(c, err)
	return nil
}

// chunk returns the maximum number of positions to feed in one run.
func (l *loop) chunk(left time.Duration) int {
	if l.active == 0 {
		return l.shape.chunk
	}
	const least = 32
	n := l.prefillCost.fitting(left, l.shape.chunk)
	return max(n/least*least, min(least, l.shape.chunk)) // few different lengths are cheaper on CUDA
}

// prefill feeds the next n positions of a prompt and, after the last, draws the
// first token.
func (l *loop) prefill(c *cycle, n int) error {
	begin := l.now()
	to := c.filled + n
	last := to == len(c.prompt.ids)
	hidden := 0
	if c.hidden {
		hidden = max(0, to-max(c.filled, c.from()))
	}
	if err := l.dev.prefill(l.shape.prefillSet, c.slot, &c.prompt, c.filled, to, hidden); err != nil {
		return l.drop(err)
	}
	at := l.now()
	l.prefillCost.learn(n, at.Sub(begin))
	l.stats.prefilled(n, at.Sub(begin))
	if err := l.pool.Advance(c.slot, n); err != nil {
		return l.drop(err)
	}
	c.filled = to
	if c.given > 0 && hidden > 0 {
		c.hiddens = append(c.hiddens, l.dev.hidden(c.slot)...)
	}
	if !last {
		return nil
	}
	l.filling = nil
	c.report.Prefill = at.Sub(c.arrived) - c.report.Wait
	if c.given > 0 {
		c.report.FirstToken = at.Sub(c.arrived)
		c.say(len(c.hiddens) / (c.given + 1))
		l.finish(c, nil)
		return nil
	}
	c.lastStep = at
	l.rows[c.slot] = c
	l.active++
	if c.hidden {
		l.hiddens++
	}
	l.advance(c, at)
	return nil
}
