// Package kvcache keeps the books of a decoder's key/value cache: one buffer
// per layer and side, cut into slots of one answer each, and the ranges of
// slots that one run may cover. It owns no memory and starts no goroutines;
// who does moves bytes by its offsets.
package kvcache

import (
	"fmt"

	"touchline/internal/check"
)

// Layout says how the buffers lie in memory. A buffer, of keys or of values of
// one layer, is [Slots, KVHeads, MaxLen, HeadDim], row-major.
type Layout struct {
	Layers, Slots, KVHeads, MaxLen, HeadDim int
	ElemSize                                int // bytes
}

// MaxSlots bounds the slots of a layout.
const MaxSlots = 256

// Validate reports every number that no cache can be made of.
func (l Layout) Validate() error {
	var s check.Settings
	upTo := func(name string, v, high int) {
		s.That(check.Within(v, 1, high), name, fmt.Sprintf("between 1 and %d", high), v)
	}
	upTo("layers", l.Layers, 1<<12)
	upTo("slots", l.Slots, MaxSlots)
	s.That(l.Slots&(l.Slots-1) == 0, "slots", "a power of two", l.Slots)
	upTo("kv_heads", l.KVHeads, 1<<12)
	upTo("max_len", l.MaxLen, 1<<20)
	upTo("head_dim", l.HeadDim, 1<<12)
	upTo("bytes per element", l.ElemSize, 8)
	return s.Err()
}

// SlotBytes is what one slot takes in one buffer; slot i begins at i*SlotBytes.
func (l Layout) SlotBytes() int64 {
	return int64(l.KVHeads) * int64(l.MaxLen) * int64(l.HeadDim) * int64(l.ElemSize)
}

// BufferBytes is the size of one buffer.
func (l Layout) BufferBytes() int64 { return int64(l.Slots) * l.SlotBytes() }

// Buffers is how many there are: keys and values of each layer.
func (l Layout) Buffers() int { return 2 * l.Layers }

// Bytes is the size of all buffers.
func (l Layout) Bytes() int64 { return int64(l.Buffers()) * l.BufferBytes() }

// Shape of the part of a buffer that a range covers.
func (l Layout) Shape(r Range) []int64 {
	return []int64{int64(r.Size), int64(l.KVHeads), int64(l.MaxLen), int64(l.HeadDim)}
}

// Range is consecutive slots that one run covers, a row of the batch each.
// Size is a power of two and Start a multiple of it.
type Range struct{ Start, Size int }

// Offset of the range's first byte in a buffer.
func (l Layout) Offset(r Range) int64 { return int64(r.Start) * l.SlotBytes() }

// Has reports whether a slot is in the range.
func (r Range) Has(slot int) bool { return slot >= r.Start && slot < r.Start+r.Size }

// Ranges lists every range of at most most slots, small ones first: what has
// to be captured so that Cover's answers can run.
func (l Layout) Ranges(most int) []Range {
	var rs []Range
	for size := 1; size <= min(l.Slots, most); size *= 2 {
		for start := 0; start < l.Slots; start += size {
			rs = append(rs, Range{start, size})
		}
	}
	return rs
}

// Index numbers the ranges from 0, small ones first, as Ranges lists them.
func (l Layout) Index(r Range) int {
	n := 0
	for size := 1; size < r.Size; size *= 2 {
		n += l.Slots / size
	}
	return n + r.Start/r.Size
}

// Cover returns the smallest range that holds all the slots from low to high.
func (l Layout) Cover(low, high int) Range {
	size := 1
	for low/size != high/size {
		size *= 2
	}
	return Range{low / size * size, size}
}
