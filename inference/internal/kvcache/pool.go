package kvcache

import (
	"fmt"
	"math/bits"
)

// Pool keeps which slots are held, how far each is filled, and which must be
// zeroed before they are held again. It belongs to one goroutine.
type Pool struct {
	layout Layout
	held   [MaxSlots / 64]uint64
	inUse  int
	most   int
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

// Layout is that of the pool's buffers.
func (p *Pool) Layout() Layout { return p.layout }

// Take holds the lowest free slot, so that ranges stay small. dirty tells that
// it has to be zeroed first; ok is false when all are held.
func (p *Pool) Take() (slot int, dirty, ok bool) {
	for w := range p.held {
		if free := ^p.held[w]; free != 0 {
			slot = w<<6 + bits.TrailingZeros64(free)
			if slot >= p.layout.Slots {
				break
			}
			p.held[w] |= 1 << (slot & 63)
			p.inUse++
			p.most = max(p.most, p.inUse)
			dirty, p.dirty[slot] = p.dirty[slot], true
			p.length[slot] = 0
			return slot, dirty, true
		}
	}
	return 0, false, false
}

// Release gives a slot back. It parks at length 0, where a run that covers it
// costs least.
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

// Length is how many positions of a slot are filled. A run that covers the
// slot without decoding it writes at this position, which the next real write
// overwrites.
func (p *Pool) Length(slot int) int { return p.length[slot] }

// Advance notes n more filled positions.
func (p *Pool) Advance(slot, n int) error {
	if !p.Held(slot) {
		return fmt.Errorf("fill slot %d: it is not held", slot)
	}
	if n < 0 || p.length[slot]+n > p.layout.MaxLen {
		return fmt.Errorf("fill slot %d: expected at most %d positions, would be %d", slot, p.layout.MaxLen, p.length[slot]+n)
	}
	p.length[slot] += n
	return nil
}

// Room is how many positions a slot has left.
func (p *Pool) Room(slot int) int { return p.layout.MaxLen - p.length[slot] }

// InUse is how many slots are held.
func (p *Pool) InUse() int { return p.inUse }

// Free is how many slots nobody holds.
func (p *Pool) Free() int { return p.layout.Slots - p.inUse }

// Most is the largest InUse there was.
func (p *Pool) Most() int { return p.most }
