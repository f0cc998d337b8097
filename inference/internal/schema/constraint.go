package schema

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"sort"
)

// Vocabulary holds the pieces of a tokenizer. Read-only, safe for concurrent use.
type Vocabulary struct {
	pieces [][]byte // by id
	// sorted are the ids with a piece in the order of their pieces, and shared the
	// number of first bytes that each has in common with the one before it: a trie
	// in order of its depth-first walk.
	sorted []int32
	shared []uint16
	first  [257]int // by first byte, the index of its first piece in sorted
	most   int      // bytes of the longest piece
}

// NewVocabulary returns the vocabulary of pieces by their ids. An empty piece
// never occurs in an answer. Each single byte must be a piece, so that every answer
// can be written.
func NewVocabulary(pieces [][]byte) (*Vocabulary, error) {
	v := &Vocabulary{pieces: pieces}
	var single [256]bool
	for id, p := range pieces {
		if len(p) > 0 {
			v.sorted = append(v.sorted, int32(id)) //nolint:gosec // bounded by the tokenizer
			v.most = max(v.most, len(p))
		}
		if len(p) == 1 {
			single[p[0]] = true
		}
	}
	if slices.Contains(single[:], false) {
		return nil, errors.New("schema: the tokenizer has no piece for some byte; use a byte-level tokenizer")
	}
	slices.SortFunc(v.sorted, func(a, b int32) int {
		return cmp.Or(bytes.Compare(pieces[a], pieces[b]), cmp.Compare(a, b))
	})
	v.shared = make([]uint16, len(v.sorted))
	for i, id := range v.sorted {
		v.first[int(pieces[id][0])+1] = i + 1
		if i == 0 {
			continue
		}
		a, b := pieces[v.sorted[i-1]], pieces[id]
		for n := 0; n < min(len(a), len(b), math.MaxUint16) && a[n] == b[n]; n++ {
			v.shared[i]++
		}
	}
	return v, nil
}

// Constraint is the state of one answer. Not safe for concurrent use.
type Constraint struct {
	s     *Schema
	v     *Vocabulary
	state state
	left  int
	walk  []state // by the number of bytes of a piece
}

// Constrain begins an answer of at most that many tokens, without its end token.
// The answer always closes in time: strings and arrays end early as far as needed,
// as if their maxLength and maxItems were lower. A piece counts as its single
// bytes, each of which may need a token. The error names the number of tokens that
// the shortest answer needs.
func (v *Vocabulary) Constrain(s *Schema, tokens int) (*Constraint, error) {
	if n := s.Shortest(); n > tokens {
		return nil, fmt.Errorf("schema: the shortest answer may need %d tokens, and the limit is %d; raise max_tokens or shorten the schema",
			n, tokens)
	}
	return &Constraint{s: s, v: v, left: tokens, walk: make([]state, v.most+1)}, nil
}

// Ends reports whether the answer may end here.
func (c *Constraint) Ends() bool { return c.s.ends(c.state) }

// Complete reports whether the answer ends here and cannot continue.
func (c *Constraint) Complete() bool { return c.s.complete(&c.state) }

// Allows reports whether id may come next.
func (c *Constraint) Allows(id int32) bool {
	if id < 0 || int(id) >= len(c.v.pieces) || len(c.v.pieces[id]) == 0 {
		return false
	}
	st := c.state
	for _, b := range c.v.pieces[id] {
		if !c.s.step(&st, b) {
			return false
		}
	}
	return c.inTime(&st)
}

// inTime reports whether the answer can end if the next id leads to a state.
func (c *Constraint) inTime(st *state) bool { return c.s.closing(st) < c.left }

// Accept adds an id, which must be allowed.
func (c *Constraint) Accept(id int32) {
	for _, b := range c.v.pieces[id] {
		c.s.step(&c.state, b)
	}
	c.left--
}

// Only returns the next id where the schema leaves no choice: the longest piece of
// the bytes that must follow. ok is false where a longer piece would contain a
// choice, such as the [ of an array that may be empty: the model chooses [] or [{.
func (c *Constraint) Only() (id int32, ok bool) {
	pieces, sorted := c.v.pieces, c.v.sorted
	st := c.state
	for depth := 0; ; depth++ {
		b, single := c.s.only(&st)
		if !single {
			return id, ok && !c.continues(&st, sorted, depth)
		}
		if sorted = c.v.narrow(sorted, depth, b); len(sorted) == 0 {
			return id, ok
		}
		c.s.step(&st, b)
		if first := sorted[0]; len(pieces[first]) == depth+1 {
			id, ok = first, true
		}
	}
}

// narrow returns the sorted ids whose byte at depth is b. Their bytes before are equal.
func (v *Vocabulary) narrow(sorted []int32, depth int, b byte) []int32 {
	at := func(i, least int) bool {
		p := v.pieces[sorted[i]]
		return len(p) > depth && int(p[depth]) >= least
	}
	from := sort.Search(len(sorted), func(i int) bool { return at(i, int(b)) })
	to := sort.Search(len(sorted), func(i int) bool { return at(i, int(b)+1) })
	return sorted[from:to]
}

// continues reports whether one of the sorted pieces has a byte at depth that may
// come next.
func (c *Constraint) continues(st *state, sorted []int32, depth int) bool {
	for len(sorted) > 0 {
		p := c.v.pieces[sorted[0]]
		if len(p) == depth {
			sorted = sorted[1:]
			continue
		}
		if try := *st; c.s.step(&try, p[depth]) {
			return true
		}
		sorted = sorted[len(c.v.narrow(sorted, depth, p[depth])):]
	}
	return false
}

// Best returns the allowed id with the largest logit of a whole row, of equal ones
// the lowest; ok is false if all are -Inf.
func (c *Constraint) Best(row []float32) (id int32, ok bool) {
	if id, ok = c.scan(row); ok {
		return id, true
	}
	best := candidate{logit: float32(math.Inf(-1))}
	c.walk[0] = c.state
	for b := range 256 {
		if try := c.state; c.s.step(&try, byte(b)) {
			c.descend(row, byte(b), &best)
		}
	}
	return best.id, best.ok
}

// scanMisses is the number of ids that are not allowed after which scan gives up.
const scanMisses = 500

// scan is Best in the order of the ids, which is faster than the trie where most
// pieces are allowed: few ids are better than the best before. ok is false if too
// many are not allowed.
func (c *Constraint) scan(row []float32) (id int32, ok bool) {
	best, misses := float32(math.Inf(-1)), 0
	for i, v := range row[:min(len(row), len(c.v.pieces))] {
		if v <= best {
			continue
		}
		if c.Allows(int32(i)) { //nolint:gosec // bounded by the vocabulary
			id, best, ok = int32(i), v, true //nolint:gosec // bounded by the vocabulary
		} else if misses++; misses > scanMisses {
			return 0, false
		}
	}
	return id, ok
}

// candidate is the best id so far.
type candidate struct {
	id    int32
	logit float32
	ok    bool
}

// descend looks for the best id in the trie below a first byte.
func (c *Constraint) descend(row []float32, first byte, best *candidate) {
	// walk holds the states of the first known bytes of the piece before; dead means
	// that its next byte is not allowed.
	walk, known, dead := c.walk, 0, false
	for i := c.v.first[first]; i < c.v.first[int(first)+1]; i++ {
		id, shared := c.v.sorted[i], int(c.v.shared[i])
		if dead && shared > known {
			continue
		}
		known, dead = min(known, shared), false
		if int(id) >= len(row) {
			continue
		}
		if v := row[id]; v < best.logit || v == best.logit && (!best.ok || id > best.id) {
			continue
		}
		piece := c.v.pieces[id]
		for ; known < len(piece); known++ {
			walk[known+1] = walk[known]
			if !c.s.step(&walk[known+1], piece[known]) {
				dead = true
				break
			}
		}
		if !dead && c.inTime(&walk[known]) {
			*best = candidate{id, row[id], true}
		}
	}
}
