// Package kvcache tracks the use of a decoder's key/value cache: one buffer per
// layer and side, divided into slots of one answer each, the ranges of slots
// that one run may cover, and a store of the beginnings of prompts. It allocates no memory and starts no goroutines; callers
// move bytes by its offsets.
package kvcache

import (
	"fmt"

	"touchline/internal/check"
)

// Layout is the memory layout of the buffers. The buffer for the keys or values of
// one layer is [Slots, KVHeads, MaxLen, HeadDim], row-major.
type Layout struct {
	Layers, Slots, KVHeads, MaxLen, HeadDim int
	ElemSize                                int // bytes
}

// MaxSlots is the maximum number of slots.
const MaxSlots = 256

// Validate returns all invalid sizes, joined.
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

// SlotBytes returns the size of one slot in one buffer; slot i begins at i*SlotBytes.
func (l Layout) SlotBytes() int64 {
	return int64(l.KVHeads) * int64(l.MaxLen) * int64(l.HeadDim) * int64(l.ElemSize)
}

// BufferBytes returns the size of one buffer.
func (l Layout) BufferBytes() int64 { return int64(l.Slots) * l.SlotBytes() }

// Buffers returns the number of buffers: keys and values of each layer.
func (l Layout) Buffers() int { return 2 * l.Layers }

// Bytes returns the size of all buffers.
func (l Layout) Bytes() int64 { return int64(l.Buffers()) * l.BufferBytes() }

// PositionBytes returns the size of one position in all buffers.
func (l Layout) PositionBytes() int64 {
	return int64(l.Buffers()) * int64(l.KVHeads) * int64(l.HeadDim) * int64(l.ElemSize)
}

// Shape returns the shape of a range in a buffer.
func (l Layout) Shape(r Range) []int64 {
	return []int64{int64(r.Size), int64(l.KVHeads), int64(l.MaxLen), int64(l.HeadDim)}
}

// Range is a set of consecutive slots that one run covers, a row of the batch each.
// Size is a power of two and Start a multiple of it.
type Range struct{ Start, Size int }

// Offset returns the offset of a range in a buffer.
func (l Layout) Offset(r Range) int64 { return int64(r.Start) * l.SlotBytes() }

// Has reports whether a slot is in the range.
func (r Range) Has(slot int) bool { return slot >= r.Start && slot < r.Start+r.Size }

// Ranges returns all ranges of at most most slots, small ones first: the ranges to
// capture for the results of Cover.
func (l Layout) Ranges(most int) []Range {
	var rs []Range
	for size := 1; size <= min(l.Slots, most); size *= 2 {
		for start := 0; start < l.Slots; start += size {
			rs = append(rs, Range{start, size})
		}
	}
	return rs
}

// Index returns the position of a range in the result of Ranges.
func (l Layout) Index(r Range) int {
	n := 0
	for size := 1; size < r.Size; size *= 2 {
		n += l.Slots / size
	}
	return n + r.Start/r.Size
}

// Cover returns the smallest range with all slots from low to high.
func (l Layout) Cover(low, high int) Range {
	size := 1
	for low/size != high/size {
		size *= 2
	}
	return Range{low / size * size, size}
}
