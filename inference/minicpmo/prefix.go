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
	c.words = c.prompt.words(c.firstState()) // one token at least is fed
	for _, part := range []*kvcache.Prefixes{l.systems, l.looks} {
		piece, to := part.Find(c.words, c.Filled)
		n := to - c.Filled
		if n < leastPrefix {
			continue
		}
		err := l.dev.restore(c.Slot, c.Filled, to, piece)
		if err != nil && !step.Lost(err) {
			part.Drop(piece) // its positions are fed instead
			l.stats.count(func(s *Stats) { s.FailedRuns++ })
			break
		}
		if err = errors.Join(err, l.Pool.Advance(c.Slot, n)); err != nil {
			return err
		}
		c.Filled = to
	}
	c.copied = c.Filled
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
// pictures for further looks at them. A prompt without pictures is stored as a whole, unless its beginning was there: the rest, such as a
// text to translate, seldom comes again. All are stored at once, since a copy costs less than to find out which come again.
func (l *loop) save(c *cycle, slot int) error {
	if l.systems == nil || c.failed || len(c.prompt.spans) == 0 && c.copied >= leastPrefix {
		return nil
	}
	words := c.words
	first, last, room := 0, len(words), uint64(0)
	if spans := c.prompt.spans; len(spans) > 0 {
		first, last, room = spans[0].Start, min(spans[len(spans)-1].End, last), c.pictures[0].key.source
	}
	if first < leastPrefix || !l.systems.Fits(first) {
		first = 0 // the pictures' piece has these positions too
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

// checkStore compares a prompt whose beginning was copied to the store and back, as two pieces, with the same prompt fed in the same runs.
// It returns what differs, after which the store must not be used. The store and the two slots, which may be the same, have other contents
// afterwards.
func (d *device) checkStore(slot, other int) (differs string, err error) {
	l := d.sel.layout
	stored := min(150, l.MaxLen/2, int(d.sel.prefixes/l.PositionBytes())) / 2 * 2
	if stored < leastPrefix {
		return "", nil
	}
	p := &prompt{}
	for i := range stored + stored/3 {
		p.ids = append(p.ids, int32((i*7919+17)%d.sel.dims.Decoder.Vocab))
	}
	feed := func(slot, from, to int) ([]float32, error) {
		for ; from < to; from += d.sel.chunk {
			if err := d.prefill(d.prefillSet(), slot, p, from, min(from+d.sel.chunk, to), 0); err != nil {
				return nil, err
			}
		}
		row, err := d.logits(slot)
		return slices.Clone(row), err
	}
	if _, err := feed(slot, 0, stored); err != nil {
		return "", err
	}
	pieces := []kvcache.Piece{{To: stored / 2}, {From: stored / 2, To: stored, Offset: d.sel.prefixes / 2}}
	for _, piece := range pieces {
		err = errors.Join(err, d.save(slot, piece))
	}
	want, failed := feed(slot, stored, len(p.ids))
	err = errors.Join(err, failed, d.clear(other))
	for _, piece := range pieces {
		err = errors.Join(err, d.restore(other, piece.From, piece.To, piece))
	}
	got, failed := feed(other, stored, len(p.ids))
	if err := errors.Join(err, failed); err != nil {
		return "", err
	}
	return differ(got, want), nil
}
