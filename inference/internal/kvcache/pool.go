package kvcache

import (
	"fmt"
	"math/bits"
)

// Pool tracks which slots are in use, how far each is filled, and which must be
// zeroed before their next use. It is not safe for concurrent use.
type Pool struct {
	layout Layout
	held   [MaxSlots / 64]uint64
	inUse  int
	length []int
	dirty  []bool
}

// NewPool returns a pool with all slots free and zeroed.
func NewPool(l Layout) (*Pool, error) {
	if err := l.Validate(); err != nil {
		return nil, err
	}
	return &Pool{layout: l, length: make([]int, l.Slots), dirty: make([]bool, l.Slots)}, nil
}

// Take takes the lowest free slot, so that ranges stay small. A dirty slot must be
// zeroed first. ok is false if no slot is free.
func (p *Pool) Take() (slot int, dirty, ok bool) {
	for w := range p.held {
		if free := ^p.held[w]; free != 0 {
			slot = w<<6 + bits.TrailingZeros64(free)
			if slot >= p.layout.Slots {
				break
			}
			p.held[w] |= 1 << (slot & 63)
			p.inUse++
			dirty, p.dirty[slot] = p.dirty[slot], true
			p.length[slot] = 0
			return slot, dirty, true
		}
	}
	return 0, false, false
}

// TakeRange takes the lowest free range of a number of slots, a power of two. Dirty slots must be zeroed first. ok is false if there is
// none.
func (p *Pool) TakeRange(size int) (r Range, ok bool) {
	for r = (Range{0, size}); r.Start+size <= p.layout.Slots; r.Start += size {
		ok = true
		for slot := r.Start; slot < r.Start+size; slot++ {
			ok = ok && !p.Held(slot)
		}
		if !ok {
			continue
		}
		for slot := r.Start; slot < r.Start+size; slot++ {
			p.held[slot>>6] |= 1 << (slot & 63)
			p.dirty[slot], p.length[slot] = true, 0
		}
		p.inUse += size
		return r, true
	}
	return Range{}, false
}

// Release frees a slot. Its length becomes 0, the cheapest for a run that covers it.
func (p *Pool) Release(slot int) error {
	if !p.Held(slot) {
		return fmt.Errorf("release slot %d: it is not held", slot)
	}
	p.held[slot>>6] &^= 1 << (slot & 63)
	p.inUse--
	p.length[slot] = 0
	return nil
}

// Held reports whether a slot is in use.
func (p *Pool) Held(slot int) bool {
	return slot >= 0 && slot < p.layout.Slots && p.held[slot>>6]>>(slot&63)&1 != 0
}

// Length returns the number of filled positions of a slot. A run that covers the
// slot without decoding it writes at this position, and the next real write
// overwrites it.
func (p *Pool) Length(slot int) int { return p.length[slot] }

// Advance adds n filled positions.
func (p *Pool) Advance(slot, n int) error {
	if !p.Held(slot) {
		return fmt.Errorf("fill slot %d: it is not held", slot)
	}
	if n < 0 || p.length[slot]+n > p.layout.MaxLen {
		return fmt.Errorf("fill slot %d: at most %d positions, not %d", slot, p.layout.MaxLen, p.length[slot]+n)
	}
	p.length[slot] += n
	return nil
}

// Room returns the number of free positions of a slot.
func (p *Pool) Room(slot int) int { return p.layout.MaxLen - p.length[slot] }

// InUse returns the number of slots in use.
func (p *Pool) InUse() int { return p.inUse }

// Free returns the number of free slots.
func (p *Pool) Free() int { return p.layout.Slots - p.inUse }
