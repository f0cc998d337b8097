package tokenizer

import (
	"container/heap"
	"hash/maphash"
	"math"
	"slices"
	"strings"
	"sync/atomic"
)

// mergeTable maps a pair of tokens to its rank and the merged token: open
// addressing with linear probing, at most half full.
type mergeTable struct {
	slots []merge
	shift uint
}

type merge struct {
	left, right int32 // -1 left: free
	rank, id    int32
}

// unmerged is the rank of a pair that does not merge.
const unmerged = math.MaxInt32

func newMergeTable(n int) mergeTable {
	bits := uint(1)
	for 1<<bits < 2*n {
		bits++
	}
	t := mergeTable{slots: make([]merge, 1<<bits), shift: 64 - bits}
	for i := range t.slots {
		t.slots[i].left = -1
	}
	return t
}

// slot returns the slot of a pair, free if the pair is not in the table.
func (t *mergeTable) slot(left, right int32) *merge {
	key := uint64(uint32(left))<<32 | uint64(uint32(right))
	for i := key * 0x9e3779b97f4a7c15 >> t.shift; ; i = (i + 1) & uint64(len(t.slots)-1) {
		if s := &t.slots[i]; s.left < 0 || s.left == left && s.right == right {
			return s
		}
	}
}

func (t *mergeTable) rank(left, right int32) int32 {
	if s := t.slot(left, right); s.left >= 0 {
		return s.rank
	}
	return unmerged
}

const (
	cacheSlots  = 1 << 13
	cachedBytes = 48 // the longest word in the cache
	shortWord   = 48 // the longest word for which a scan is faster than a heap
)

// wordCache holds the tokens of recent words, one word per slot.
type wordCache struct {
	seed  maphash.Seed
	slots [cacheSlots]atomic.Pointer[cachedWord]
}

type cachedWord struct {
	word string
	ids  []int32
}

// encodeWord appends the tokens of one word.
func (t *Tokenizer) encodeWord(dst []int32, word string) []int32 {
	if len(word) == 1 {
		return append(dst, t.byteIDs[word[0]])
	}
	if t.whole {
		if id, ok := t.vocab[word]; ok {
			return append(dst, id)
		}
	}
	if len(word) > cachedBytes {
		return t.merge(dst, word)
	}
	slot := &t.words.slots[maphash.String(t.words.seed, word)%cacheSlots]
	if c := slot.Load(); c != nil && c.word == word {
		return append(dst, c.ids...)
	}
	n := len(dst)
	dst = t.merge(dst, word)
	slot.Store(&cachedWord{word: strings.Clone(word), ids: slices.Clone(dst[n:])}) // clones, to release the caller's text
	return dst
}

func (t *Tokenizer) merge(dst []int32, word string) []int32 {
	if len(word) > shortWord {
		return t.mergeLong(dst, word)
	}
	var idArray, rankArray [shortWord]int32
	ids, ranks := idArray[:len(word)], rankArray[:len(word)]
	for i := range len(word) {
		ids[i] = t.byteIDs[word[i]]
	}
	for i := range len(ids) - 1 {
		ranks[i] = t.merges.rank(ids[i], ids[i+1])
	}
	for len(ids) > 1 {
		best := 0
		for i, r := range ranks[1 : len(ids)-1] {
			if r < ranks[best] {
				best = i + 1
			}
		}
		if ranks[best] == unmerged {
			break
		}
		ids[best] = t.merges.slot(ids[best], ids[best+1]).id
		ids = slices.Delete(ids, best+1, best+2)
		copy(ranks[best:], ranks[best+1:])
		if best > 0 {
			ranks[best-1] = t.merges.rank(ids[best-1], ids[best])
		}
		if best+1 < len(ids) {
			ranks[best] = t.merges.rank(ids[best], ids[best+1])
		}
	}
	return append(dst, ids...)
}

// mergeLong is merge in O(n log n), for long words.
func (t *Tokenizer) mergeLong(dst []int32, word string) []int32 {
	nodes := make([]node, len(word))
	queue := make(candidates, 0, len(word))
	for i := range len(word) {
		nodes[i] = node{id: t.byteIDs[word[i]], prev: i - 1, next: i + 1}
	}
	nodes[len(word)-1].next = -1
	consider := func(i int) {
		if i < 0 || nodes[i].next < 0 {
			return
		}
		left, right := nodes[i].id, nodes[nodes[i].next].id
		if s := t.merges.slot(left, right); s.left >= 0 {
			heap.Push(&queue, candidate{merge: *s, at: i})
		}
	}
	for i := range nodes {
		consider(i)
	}
	for len(queue) > 0 {
		c := heap.Pop(&queue).(candidate)
		n := &nodes[c.at]
		// The pair may have changed since it was queued.
		if n.gone || n.next < 0 || n.id != c.left || nodes[n.next].id != c.right {
			continue
		}
		n.id = c.id
		merged := &nodes[n.next]
		merged.gone = true
		n.next = merged.next
		if n.next >= 0 {
			nodes[n.next].prev = c.at
		}
		consider(n.prev)
		consider(c.at)
	}
	for i := 0; i >= 0; i = nodes[i].next {
		dst = append(dst, nodes[i].id)
	}
	return dst
}

type node struct {
	id         int32
	prev, next int // -1 at the ends
	gone       bool
}

type candidate struct {
	merge
	at int
}

// candidates is a heap: lowest rank first, then leftmost.
type candidates []candidate

func (c candidates) Len() int { return len(c) }

func (c candidates) Less(i, j int) bool {
	return c[i].rank < c[j].rank || c[i].rank == c[j].rank && c[i].at < c[j].at
}

func (c candidates) Swap(i, j int) { c[i], c[j] = c[j], c[i] }
func (c *candidates) Push(x any)   { *c = append(*c, x.(candidate)) }

func (c *candidates) Pop() any {
	last := (*c)[len(*c)-1]
	*c = (*c)[:len(*c)-1]
	return last
}
