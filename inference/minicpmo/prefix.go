package minicpmo

import (
	"errors"
	"slices"

	"touchline/inference/internal/kvcache"
	"touchline/inference/step"
)

// leastPrefix is the minimum number of positions of a piece in the store: a copy for fewer saves little.
const leastPrefix = 16

// restore copies the stored beginning of a prompt to the answer's slot. All prompts of an engine go through one weight set. The chunks in
// which a prompt is fed are no part of its words: on a CPU the stored states have the same bits for all of them. Only a position that a
// kernel computes alone is rounded otherwise, and that is the last one of a prompt, which is never stored.
func (l *loop) restore(c *cycle) error {
	if l.systems == nil {
		return nil
	}
	words := c.prompt.words(c.firstState()) // one token at least is fed
	for _, part := range []*kvcache.Prefixes{l.systems, l.looks} {
		piece, to := part.Find(words, c.Filled)
		n := to - c.Filled
		if n < leastPrefix {
			continue
		}
		if err := errors.Join(l.dev.restore(c.Slot, c.Filled, to, piece), l.Pool.Advance(c.Slot, n)); err != nil {
			return err
		}
		c.Filled = to
	}
	l.stats.count(func(s *Stats) {
		if c.Filled == 0 {
			s.PrefixMisses++
			return
		}
		s.PrefixHits++
		s.PrefixTokens += uint64(c.Filled)
	})
	return nil
}

// save stores the beginning of a prompt that was fed to a slot: what precedes the first picture for prompts of all rooms, and the
// pictures for further looks at them. A prompt without pictures is stored as a whole. All are stored at once, since a copy costs less
// than to find out which come again.
func (l *loop) save(c *cycle, slot int) error {
	if l.systems == nil || c.failed {
		return nil
	}
	words := c.prompt.words(c.firstState())
	first, last, room := 0, len(words), uint64(0)
	if spans := c.prompt.spans; len(spans) > 0 {
		first, last, room = spans[0].Start, min(spans[len(spans)-1].End, last), c.pictures[0].key.source
	}
	if first < leastPrefix {
		first = 0
	}
	if err := l.put(l.systems, slot, words[:first], 0, 0); err != nil {
		return err
	}
	return l.put(l.looks, slot, words[:last], first, room)
}

// put stores the positions from from to the end of words. An error is the loss of the device.
func (l *loop) put(part *kvcache.Prefixes, slot int, words []int64, from int, room uint64) error {
	if len(words)-from < leastPrefix {
		return nil
	}
	piece, ok := part.Put(words, from, room)
	if !ok {
		return nil
	}
	err := l.dev.save(slot, piece)
	if err == nil || step.Lost(err) {
		return err
	}
	part.Drop(piece)
	l.stats.count(func(s *Stats) { s.FailedRuns++ })
	return nil
}

// checkStore compares a prompt whose beginning was copied to the store and back with the same prompt fed as a whole. It returns what
// differs, after which the store must not be used. Two slots have other contents afterwards.
func (d *device) checkStore() (differs string, err error) {
	l := d.sel.layout
	stored := min(150, l.MaxLen/2, int(d.sel.prefixes/l.PositionBytes()))
	if l.Slots < 2 || stored < leastPrefix {
		return "", nil
	}
	p := &prompt{}
	for i := range stored + stored/3 {
		p.ids = append(p.ids, int32((i*7919+17)%d.sel.dims.Decoder.Vocab))
	}
	piece := kvcache.Piece{To: stored}
	logits := func(slot, from int) ([]float32, error) {
		for ; from < len(p.ids); from += d.sel.chunk {
			if err := d.prefill(d.sel.prefill, slot, p, from, min(from+d.sel.chunk, len(p.ids)), 0); err != nil {
				return nil, err
			}
		}
		row, err := d.logits(slot)
		return slices.Clone(row), err
	}
	want, err := logits(0, 0)
	if err == nil {
		err = errors.Join(d.save(0, piece), d.clear(1), d.restore(1, 0, stored, piece))
	}
	if err != nil {
		return "", err
	}
	got, err := logits(1, stored)
	if err != nil {
		return "", err
	}
	return differ(got, want), nil
}
