package schema

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"slices"
)

// Vocabulary holds the pieces of a tokenizer. Read-only, safe for concurrent use.
type Vocabulary struct {
	pieces  [][]byte     // by id
	singles []int32      // ids of the pieces of one byte
	starts  [256][]int32 // by first byte, the ids of the pieces
}

// NewVocabulary returns the vocabulary of pieces by their ids. An empty piece never occurs in an answer. Each single byte must
// be a piece, so that every answer can be written.
func NewVocabulary(pieces [][]byte) (*Vocabulary, error) {
	v := &Vocabulary{pieces: pieces}
	var single [256]bool
	for id, p := range pieces {
		if len(p) > 0 {
			v.starts[p[0]] = append(v.starts[p[0]], int32(id))
		}
		if len(p) == 1 {
			v.singles = append(v.singles, int32(id))
			single[p[0]] = true
		}
	}
	if slices.Contains(single[:], false) {
		return nil, errors.New("schema: the tokenizer has no piece for some byte; use a byte-level tokenizer")
	}
	return v, nil
}

// Constraint is the state of one answer. Not safe for concurrent use.
type Constraint struct {
	s      *Schema
	v      *Vocabulary
	state  state
	left   int
	forced []byte // reused by Only
}

// Constrain begins an answer of at most that many tokens, without its end token. The answer always closes in time: strings and
// arrays end early as far as needed, as if their maxLength and maxItems were lower. A piece counts as its single bytes, each of
// which may need a token. The error names the number of tokens that the shortest answer needs.
func (v *Vocabulary) Constrain(s *Schema, tokens int) (*Constraint, error) {
	if n := s.Shortest(); n > tokens {
		return nil, fmt.Errorf("schema: the shortest answer may need %d tokens, and the limit is %d; raise max_tokens or shorten the schema",
			n, tokens)
	}
	return &Constraint{s: s, v: v, left: tokens}, nil
}

// Ends reports whether the answer may end here.
func (c *Constraint) Ends() bool { return c.s.ends(c.state) }

// Complete reports whether the answer ends here and cannot continue.
func (c *Constraint) Complete() bool {
	_, n := c.s.following(c.state)
	return n == 0
}

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
	return c.s.closing(&st) < c.left
}

// Accept adds an id, which must be allowed.
func (c *Constraint) Accept(id int32) {
	for _, b := range c.v.pieces[id] {
		c.s.step(&c.state, b)
	}
	c.left--
}

// Only returns the next id where the schema leaves no choice: the longest piece of the bytes that must follow. ok is false where
// a longer piece would contain a choice, such as the [ of an array that may be empty: the model chooses [] or [{.
func (c *Constraint) Only() (id int32, ok bool) {
	st, forced := c.state, c.forced[:0]
	for {
		b, n := c.s.following(st)
		if n != 1 || c.s.ends(st) {
			break
		}
		c.s.step(&st, b)
		forced = append(forced, b)
	}
	c.forced = forced
	if len(forced) == 0 {
		return 0, false
	}
	longest := 0
	for _, at := range c.v.starts[forced[0]] {
		p := c.v.pieces[at]
		if len(p) > longest && bytes.HasPrefix(forced, p) {
			id, longest = at, len(p)
		}
		if len(p) > len(forced) && bytes.HasPrefix(p, forced) {
			if try := st; c.s.step(&try, p[len(forced)]) {
				return 0, false
			}
		}
	}
	return id, true
}

// Best returns the allowed id with the largest logit of a whole row, of equal ones the lowest; ok is false if all are -Inf.
func (c *Constraint) Best(row []float32) (id int32, ok bool) {
	best := float32(math.Inf(-1))
	consider := func(at int32) {
		if int(at) >= len(row) {
			return
		}
		if v := row[at]; (v > best || v == best && ok && at < id) && c.Allows(at) {
			id, best, ok = at, v, true
		}
	}
	for _, at := range c.v.singles {
		consider(at) // first: where few pieces are allowed, most of the long ones then have a lower logit
	}
	for b, ids := range c.v.starts {
		if try := c.state; !c.s.step(&try, byte(b)) {
			continue
		}
		for _, at := range ids {
			consider(at)
		}
	}
	return id, ok
}
