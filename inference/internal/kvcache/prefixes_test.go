package kvcache_test

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"touchline/inference/internal/kvcache"
)

// one has 4 bytes a position.
var one = kvcache.Layout{Layers: 1, Slots: 1, KVHeads: 1, MaxLen: 100, HeadDim: 1, ElemSize: 2}

func words(n int, tail ...int64) (out []int64) {
	for i := range n {
		out = append(out, int64(i))
	}
	return append(out, tail...)
}

func TestPrefixes(t *testing.T) {
	p := kvcache.NewPrefixes(one, 40, 40+4*10)
	put := func(from int, room uint64, words []int64, offset int64) {
		t.Helper()
		piece, ok := p.Put(words, from, room)
		require.True(t, ok)
		require.Equal(t, kvcache.Piece{From: from, To: len(words), Offset: offset}, piece)
	}
	has := func(words []int64, from, to int, offset int64) {
		t.Helper()
		piece, end := p.Find(words, from)
		require.Equal(t, to, end)
		if to > from {
			require.Equal(t, offset, piece.Offset)
		}
	}
	has(words(5), 0, 0, 0)
	put(0, 0, words(4), 40)
	has(words(9), 0, 4, 40)
	has(words(2), 0, 2, 40)
	has(words(2, 7, 7), 0, 2, 40)
	has([]int64{9}, 0, 0, 0)
	_, ok := p.Put(words(3), 0, 0)
	require.False(t, ok, "a part of another piece")
	put(4, 1, words(4, -5, -5), 56)
	has(words(4, -5, -5, 9), 4, 6, 56)
	has(words(4, -5, -5, 9), 0, 4, 40)
	has(words(3, 9, -5, -5), 4, 4, 0)
	put(4, 2, words(4, -6, -6), 64)
	put(4, 1, words(4, -5, -7), 56) // in place of the room's other one
	has(words(4, -6, -6), 4, 6, 64)
	has(words(4), 0, 4, 40)
	put(0, 0, []int64{8, 8, 8, 8}, 56) // 56 to 64 was the least recently used, and 72 to 80 is free: the next one goes too
	has(words(4, -6, -6), 4, 4, 0)
	has(words(4), 0, 4, 40)
	p.Drop(kvcache.Piece{From: 0, To: 4, Offset: 40})
	has(words(4), 0, 0, 0)
	_, ok = p.Put(words(11), 0, 0)
	require.False(t, ok, "larger than the part")
	put(0, 0, words(10), 40)
	has([]int64{8, 8, 8, 8}, 0, 0, 0)
}

// Pieces lie in the part and do not overlap, and each word of a position is that of the prompt that wrote it.
func TestPrefixesNeverOverlap(t *testing.T) {
	const begin, size = 12, 50
	p := kvcache.NewPrefixes(one, begin*4, (begin+size)*4)
	rng := rand.New(rand.NewPCG(1, 2))
	memory := make([]int64, begin+size)
	for range 50_000 {
		w := make([]int64, 1+rng.IntN(60))
		for i := range w {
			w[i] = rng.Int64N(2)
		}
		from := rng.IntN(len(w))
		if piece, to := p.Find(w, from); to > from {
			require.LessOrEqual(t, piece.From, from)
			require.Equal(t, w[from:to], memory[piece.Offset/4:][from-piece.From:to-piece.From])
		}
		if piece, ok := p.Put(w, from, rng.Uint64N(3)); ok {
			at := int(piece.Offset / 4)
			require.True(t, at >= begin && at+len(w)-from <= begin+size)
			copy(memory[at:], w[from:])
		}
	}
}
