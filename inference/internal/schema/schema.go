// Package schema constrains answers to a JSON schema: which tokens may come next, so that every answer parses, is valid and
// ends within its tokens. It also validates answers that were not constrained.
//
// [Parse] has the keywords. Constrained answers have one form: no whitespace, properties in the schema's order, integers without
// leading zeros, and in strings the escapes \" \\ and \n only; other control characters do not occur.
//
// A Schema is an automaton over bytes, a Vocabulary the tokenizer's pieces, a Constraint the state of one answer. Host time of
// a step: go test -run '^$' -bench Step ./inference/internal/schema.
package schema

import (
	"math/bits"
	"strings"
	"unicode/utf8"
)

// Schema is a compiled schema. Read-only, safe for concurrent use.
type Schema struct {
	root node
	ops  []op
}

// Shortest returns the length of the shortest answer in bytes.
func (s *Schema) Shortest() int { return s.ops[0].rest }

type kind uint8

const (
	opChoice  kind = iota
	opText         // behind its first quotation mark
	opItems        // of an array, behind its bracket
	opItemEnd      // behind each item
	opEnd          // of the answer
)

// op is one part of an answer; the parts follow each other.
type op struct {
	kind  kind
	rest  int      // length of the shortest way from the start of the op to the end of the answer
	texts []string // of a choice, shorter ones first; fixed bytes are a choice of one
	most  int      // characters of a text, items of an array
	jump  int      // of opItems, the op behind the array; of opItemEnd, the first op of an item
}

// state is a position in an answer.
type state struct {
	op    int
	text  int     // of a choice: the shortest of its texts that fits so far
	at    int     // bytes of a choice, characters of a text
	items int     // of the array
	part  [4]byte // of a text: an incomplete character or escape
	parts int
}

func (st *state) to(op int) { *st = state{op: op, items: st.items} }

// step takes one byte, and reports whether it may come next. If not, the state is undefined.
func (s *Schema) step(st *state, c byte) bool {
	for {
		o := &s.ops[st.op]
		switch o.kind {
		case opChoice:
			if o.choose(st, c) {
				return true
			}
			if !o.chosen(st) {
				return false
			}
			st.to(st.op + 1) // the byte belongs to the next op
		case opText:
			return o.character(st, c)
		case opItems:
			if c == ']' {
				st.to(o.jump)
				return true
			}
			st.items = 1
			st.to(st.op + 1)
		case opItemEnd:
			if c == ']' {
				st.to(st.op + 1)
				return true
			}
			if c != ',' || st.items >= o.most {
				return false
			}
			st.items++
			st.to(o.jump)
			return true
		case opEnd:
			return false
		}
	}
}

// choose accepts a byte of a choice.
func (o *op) choose(st *state, c byte) bool {
	prefix := o.texts[st.text][:st.at]
	for i := st.text; i < len(o.texts); i++ {
		if t := o.texts[i]; len(t) > st.at && t[st.at] == c && strings.HasPrefix(t, prefix) {
			st.text, st.at = i, st.at+1
			return true
		}
	}
	return false
}

// chosen reports whether a choice may end here.
func (o *op) chosen(st *state) bool { return st.at == len(o.texts[st.text]) }

// character accepts a byte of a text.
func (o *op) character(st *state, c byte) bool {
	switch {
	case st.parts > 0 && st.part[0] == '\\':
		st.parts = 0
		st.at++
		return c == '"' || c == '\\' || c == 'n'
	case st.parts > 0:
	case c == '"':
		st.to(st.op + 1)
		return true
	case st.at >= o.most || c < 0x20:
		return false
	}
	st.part[st.parts] = c
	st.parts++
	part := st.part[:st.parts]
	if part[0] == '\\' || !utf8.FullRune(part) {
		return true
	}
	r, n := utf8.DecodeRune(part)
	st.parts = 0
	st.at++
	return r != utf8.RuneError || n > 1
}

// ends reports whether the answer may end here.
func (s *Schema) ends(st state) bool {
	for s.ops[st.op].kind == opChoice && s.ops[st.op].chosen(&st) {
		st.to(st.op + 1)
	}
	return s.ops[st.op].kind == opEnd
}

// closing returns the length of the shortest way to the end of the answer.
func (s *Schema) closing(st *state) (n int) {
	switch o := &s.ops[st.op]; o.kind {
	case opChoice:
		n = len(o.texts[st.text]) - st.at
	case opText:
		n = 1 + textMissing(st)
	case opItems:
		return 1 + s.ops[o.jump].rest
	case opItemEnd:
		n = 1
	case opEnd:
		return 0
	}
	return n + s.ops[st.op+1].rest
}

// textMissing returns the number of bytes that end the character of a text.
func textMissing(st *state) int {
	switch {
	case st.parts == 0:
		return 0
	case st.part[0] == '\\':
		return 1
	}
	return bits.LeadingZeros8(^st.part[0]) - st.parts // UTF-8 has as many leading ones as bytes
}

// following returns a byte that may come next, and the number of such bytes.
func (s *Schema) following(st state) (c byte, n int) {
	if o := &s.ops[st.op]; len(o.texts) == 1 && !o.chosen(&st) {
		return o.texts[0][st.at], 1
	}
	for b := range 256 {
		if try := st; s.step(&try, byte(b)) {
			c = byte(b)
			n++
		}
	}
	return c, n
}
