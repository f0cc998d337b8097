package kvcache_test

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"touchline/inference/internal/kvcache"
)

// The published decoder with 64 slots of 1024 positions in float16.
var published = kvcache.Layout{Layers: 36, Slots: 64, KVHeads: 8, MaxLen: 1024, HeadDim: 128, ElemSize: 2}

func TestLayout(t *testing.T) {
	require.NoError(t, published.Validate())
	require.EqualValues(t, 2<<20, published.SlotBytes())
	require.EqualValues(t, 147456*1024*64, published.Bytes(), "144 KiB a position")
	require.Equal(t, 3*published.SlotBytes(), published.Offset(kvcache.Range{Start: 3, Size: 1}))
	require.Equal(t, []int64{4, 8, 1024, 128}, published.Shape(kvcache.Range{Start: 8, Size: 4}))

	err := kvcache.Layout{Slots: 48, KVHeads: 1, MaxLen: 1 << 21, ElemSize: 2}.Validate()
	for _, name := range []string{"layers", "power of two", "max_len", "head_dim"} {
		require.ErrorContains(t, err, name)
	}
}

func TestRanges(t *testing.T) {
	rs := published.Ranges(64)
	require.Len(t, rs, 127)
	for i, r := range rs {
		require.Equal(t, i, published.Index(r))
		require.Zero(t, r.Start%r.Size)
	}
	require.Len(t, published.Ranges(8), 64+32+16+8)
	for _, tt := range []struct {
		low, high int
		want      kvcache.Range
	}{
		{5, 5, kvcache.Range{Start: 5, Size: 1}},
		{63, 63, kvcache.Range{Start: 63, Size: 1}},
		{4, 5, kvcache.Range{Start: 4, Size: 2}},
		{5, 6, kvcache.Range{Start: 4, Size: 4}},
		{0, 2, kvcache.Range{Start: 0, Size: 4}},
		{7, 8, kvcache.Range{Start: 0, Size: 16}},
		{0, 63, kvcache.Range{Start: 0, Size: 64}},
	} {
		require.Equal(t, tt.want, published.Cover(tt.low, tt.high))
	}
}

func TestPool(t *testing.T) {
	l := kvcache.Layout{Layers: 1, Slots: 4, KVHeads: 1, MaxLen: 10, HeadDim: 16, ElemSize: 4}
	p, err := kvcache.NewPool(l)
	require.NoError(t, err)
	for want := range 4 {
		slot, dirty, ok := p.Take()
		require.True(t, ok)
		require.False(t, dirty)
		require.Equal(t, want, slot)
	}
	_, _, ok := p.Take()
	require.False(t, ok)
	require.NoError(t, p.Advance(2, 10))
	require.ErrorContains(t, p.Advance(2, 1), "at most 10")
	require.Zero(t, p.Room(2))
	require.NoError(t, p.Release(2))
	require.Zero(t, p.Length(2))
	require.Error(t, p.Release(2))
	require.Error(t, p.Release(-1))
	require.Error(t, p.Release(4))
	require.Error(t, p.Advance(2, 1))
	slot, dirty, ok := p.Take()
	require.True(t, ok && dirty && slot == 2)
	require.Zero(t, p.Length(2))
}

func TestPoolTakesRanges(t *testing.T) {
	p, err := kvcache.NewPool(kvcache.Layout{Layers: 1, Slots: 8, KVHeads: 1, MaxLen: 10, HeadDim: 16, ElemSize: 4})
	require.NoError(t, err)
	_, _, ok := p.Take()
	require.True(t, ok)
	r, ok := p.TakeRange(4)
	require.True(t, ok)
	require.Equal(t, kvcache.Range{Start: 4, Size: 4}, r)
	_, ok = p.TakeRange(4)
	require.False(t, ok)
	r, ok = p.TakeRange(2)
	require.True(t, ok)
	require.Equal(t, kvcache.Range{Start: 2, Size: 2}, r)
	require.Equal(t, 7, p.InUse())
	require.NoError(t, p.Advance(3, 10))
	require.NoError(t, p.Release(3))
	slot, _, ok := p.Take()
	require.True(t, ok)
	require.Equal(t, 1, slot, "the lowest")
	_, ok = p.TakeRange(2)
	require.False(t, ok)
}

// The pool stays consistent for any order of Take and Release.
func TestPoolNeverLosesASlot(t *testing.T) {
	for _, slots := range []int{1, 8, 64, 256} {
		l := published
		l.Slots = slots
		p, err := kvcache.NewPool(l)
		require.NoError(t, err)
		rng := rand.New(rand.NewPCG(uint64(slots), 1))
		held := map[int]bool{}
		for range 20_000 {
			if rng.IntN(2) == 0 {
				slot, _, ok := p.Take()
				require.Equal(t, len(held) < slots, ok)
				if ok {
					require.False(t, held[slot])
					for low := range slot {
						require.True(t, held[low], "slot %d was free below %d", low, slot)
					}
					held[slot] = true
				}
			} else {
				slot := rng.IntN(slots)
				require.Equal(t, held[slot], p.Release(slot) == nil)
				delete(held, slot)
			}
			require.Equal(t, len(held), p.InUse())
			require.Equal(t, slots-len(held), p.Free())
		}
	}
}
