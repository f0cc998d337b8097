package kvcache

import (
	"cmp"
	"slices"
)

// Piece is the place of positions [From, To) of a prompt in a store: at Offset, their keys and values are
// [Buffers, KVHeads, To-From, HeadDim], row-major.
type Piece struct {
	From, To int
	Offset   int64
}

// Prefixes tracks the pieces in one part of a store, and drops the least recently used. A piece belongs to the words of all
// positions before its end: a word is what a position's state depends on. It is not safe for concurrent use.
type Prefixes struct {
	position   int64 // bytes
	begin, end int64 // of the part
	pieces     []prefix
}

type prefix struct {
	Piece

	words []int64
	room  uint64
}

// NewPrefixes returns an empty part, of bytes [begin, end) of a store.
func NewPrefixes(l Layout, begin, end int64) *Prefixes {
	return &Prefixes{position: l.PositionBytes(), begin: begin, end: end}
}

// Find returns the piece that has the most positions of a prompt from a position on, and the end of these positions: from if
// there are none.
func (p *Prefixes) Find(words []int64, from int) (piece Piece, to int) {
	found := -1
	to = from
	for i, e := range p.pieces {
		if e.From > from || e.To <= to {
			continue
		}
		if n := common(e.words, words); n > to {
			found, to = i, n
		}
	}
	if found < 0 {
		return Piece{}, from
	}
	e := p.pieces[found]
	p.pieces = append(slices.Delete(p.pieces, found, found+1), e)
	return e.Piece, to
}

// common returns the number of words at the beginning that are the same.
func common(a, b []int64) int {
	n := 0
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	return n
}

// Put adds a piece for positions from from to the end of words, which it keeps. It drops the pieces of the same room, if that is
// not 0, that end with another word. ok is false if the positions are there already or the part is too small for them.
func (p *Prefixes) Put(words []int64, from int, room uint64) (piece Piece, ok bool) {
	to, most := len(words), p.end-p.begin
	bytes := int64(to-from) * p.position
	if bytes <= 0 || bytes > most || slices.ContainsFunc(p.pieces, func(e prefix) bool {
		return e.From <= from && e.To >= to && slices.Equal(e.words[:to], words)
	}) {
		return Piece{}, false
	}
	p.pieces = slices.DeleteFunc(p.pieces, func(e prefix) bool {
		return room != 0 && e.room == room && e.words[e.To-1] != words[to-1]
	})
	offset, ok := p.gap(bytes)
	for !ok {
		p.pieces = slices.Delete(p.pieces, 0, 1)
		offset, ok = p.gap(bytes)
	}
	piece = Piece{from, to, offset}
	p.pieces = append(p.pieces, prefix{piece, words, room})
	return piece, true
}

// Fits reports whether the part has room for a number of positions.
func (p *Prefixes) Fits(positions int) bool { return int64(positions)*p.position <= p.end-p.begin }

// gap returns the first place with that many free bytes. An empty part is one gap, so Put ends.
func (p *Prefixes) gap(bytes int64) (offset int64, ok bool) {
	offset = p.begin
	for _, e := range slices.SortedFunc(slices.Values(p.pieces), func(a, b prefix) int { return cmp.Compare(a.Offset, b.Offset) }) {
		if e.Offset-offset >= bytes {
			break
		}
		offset = e.Offset + int64(e.To-e.From)*p.position
	}
	return offset, p.end-offset >= bytes
}

// Drop removes a piece whose bytes are not valid.
func (p *Prefixes) Drop(piece Piece) {
	p.pieces = slices.DeleteFunc(p.pieces, func(e prefix) bool { return e.Piece == piece })
}
