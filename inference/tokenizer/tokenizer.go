// Package tokenizer converts text to token ids and back: the byte-level BPE of a
// Hugging Face tokenizer.json with Qwen2's splitting rules, and the prompts of
// MiniCPM-o's chat and streaming modes.
//
// It depends on token names, not on ids, runs no model and starts no goroutines.
// A Tokenizer is safe for concurrent use; a Stream and a Conversation belong to
// one goroutine.
package tokenizer

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// Tokenizer holds the pieces and merges of one checkpoint. Read-only after
// Parse, apart from its cache.
type Tokenizer struct {
	ids     map[string]int32 // by name in tokenizer.json
	names   []string         // "" for an id without a token
	pieces  [][]byte         // the bytes of each token
	special []bool
	merges  mergeTable
	byteIDs [256]int32
	whole   bool // a word that is a piece needs no merging (ignore_merges)
	nfc     bool
	raw     matcher // added tokens found before normalisation
	normed  matcher // added tokens found after it
	words   *wordCache
	vocab   map[string]int32 // pieces by their bytes, if whole is set
}

// Size returns the largest id plus one.
func (t *Tokenizer) Size() int { return len(t.names) }

// ID returns the id of a token by its name in tokenizer.json, such as "<|im_end|>"; ok is false for an unknown name.
func (t *Tokenizer) ID(name string) (id int32, ok bool) {
	id, ok = t.ids[name]
	return id, ok
}

// IDs returns the ids of several tokens; the error names all missing ones.
func (t *Tokenizer) IDs(names ...string) ([]int32, error) {
	out := make([]int32, len(names))
	var missing []string
	for i, name := range names {
		id, ok := t.ids[name]
		if !ok {
			missing = append(missing, name)
		}
		out[i] = id
	}
	if len(missing) > 0 {
		return nil, fmt.Errorf("expected tokens %q in tokenizer.json, which lacks them: is it this model's tokenizer?", missing)
	}
	return out, nil
}

// Name returns the token's name in tokenizer.json, "" for an id without a token.
func (t *Tokenizer) Name(id int32) string {
	if id < 0 || int(id) >= len(t.names) {
		return ""
	}
	return t.names[id]
}

// Piece returns the bytes of a token, which may end inside a character; nil for
// an id without a token. Read-only.
func (t *Tokenizer) Piece(id int32) []byte {
	if id < 0 || int(id) >= len(t.pieces) {
		return nil
	}
	return t.pieces[id]
}

// Special reports whether a token is markup, which is not shown.
func (t *Tokenizer) Special(id int32) bool {
	return id >= 0 && int(id) < len(t.special) && t.special[id]
}

// Encode returns the ids of a text, without additions before or after it. It
// recognises added tokens such as "<|im_end|>" anywhere in the text. Bytes that
// are not UTF-8 count as U+FFFD.
func (t *Tokenizer) Encode(text string) []int32 { return t.AppendEncode(nil, text) }

// EncodeLiteral is Encode for user text: special tokens in it are plain text.
func (t *Tokenizer) EncodeLiteral(text string) []int32 {
	text = valid(text)
	return t.appendLiteral(nil, text, []Span{{End: len(text)}})
}

// AppendEncode is Encode that appends to dst.
func (t *Tokenizer) AppendEncode(dst []int32, text string) []int32 {
	return t.raw.encode(dst, valid(text), t.encodeNormed)
}

// encode appends the ids of the added tokens in a text, and encodes the text
// between them.
func (m *matcher) encode(dst []int32, text string, between func([]int32, string) []int32) []int32 {
	for text != "" {
		at, n, id := m.next(text)
		dst = between(dst, text[:at])
		if n == 0 {
			break
		}
		dst = append(dst, id)
		text = text[at+n:]
	}
	return dst
}

// valid replaces bytes that are not UTF-8.
func valid(text string) string {
	if utf8.ValidString(text) {
		return text
	}
	return lossy([]byte(text))
}

// normalize returns the text as AppendEncode processes it.
func (t *Tokenizer) normalize(text string) string { return t.compose(valid(text)) }

// compose applies NFC if the tokenizer does.
func (t *Tokenizer) compose(text string) string {
	if t.nfc && !norm.NFC.IsNormalString(text) {
		return norm.NFC.String(text)
	}
	return text
}

// appendLiteral is AppendEncode of a normalised text that ignores added tokens
// touching one of the literal ranges of bytes, which are in order. There,
// "<|im_end|>" becomes five or six ordinary tokens.
func (t *Tokenizer) appendLiteral(dst []int32, text string, literal []Span) []int32 {
	from := 0 // of the text to encode
	for pos := 0; pos < len(text); {
		at, n, id := t.raw.next(text[pos:])
		if bt, bn, bid := t.normed.next(text[pos:]); bn > 0 && (n == 0 || bt < at) {
			at, n, id = bt, bn, bid
		}
		if n == 0 {
			break
		}
		at += pos
		if touches(literal, at, at+n) {
			pos = at + 1
			continue
		}
		dst = append(t.encodeWords(dst, text[from:at]), id)
		from = at + n
		pos = from
	}
	return t.encodeWords(dst, text[from:])
}

// touches reports whether [start, end) shares a byte with one of the ranges.
func touches(ranges []Span, start, end int) bool {
	return slices.ContainsFunc(ranges, func(r Span) bool { return start < r.End && r.Start < end })
}

func (t *Tokenizer) encodeNormed(dst []int32, text string) []int32 {
	return t.normed.encode(dst, t.compose(text), t.encodeWords)
}

func (t *Tokenizer) encodeWords(dst []int32, words string) []int32 {
	for words != "" {
		end := split(words)
		dst = t.encodeWord(dst, words[:end])
		words = words[end:]
	}
	return dst
}

// Decode returns the text of ids. Each broken character becomes U+FFFD; ids
// without a token are skipped.
func (t *Tokenizer) Decode(ids []int32) string { return lossy(t.appendPieces(nil, ids, false)) }

// DecodePlain is Decode without the special tokens.
func (t *Tokenizer) DecodePlain(ids []int32) string { return lossy(t.appendPieces(nil, ids, true)) }

// appendPieces appends the bytes of ids, without special tokens if plain is set.
func (t *Tokenizer) appendPieces(dst []byte, ids []int32, plain bool) []byte {
	for _, id := range ids {
		if !plain || !t.Special(id) {
			dst = append(dst, t.Piece(id)...)
		}
	}
	return dst
}

// Stream decodes an answer in steps and holds incomplete characters. The concatenated texts equal
// Decode's.
type Stream struct {
	t       *Tokenizer
	plain   bool
	pending []byte
}

// NewStream starts an answer; plain skips the special tokens.
func (t *Tokenizer) NewStream(plain bool) *Stream { return &Stream{t: t, plain: plain} }

// Next adds tokens and returns the text that they complete. It holds text that ends in U+FFFD,
// which the next token may change.
func (s *Stream) Next(ids ...int32) string {
	s.pending = s.t.appendPieces(s.pending, ids, s.plain)
	n := settled(s.pending)
	out := lossy(s.pending[:n])
	s.pending = slices.Delete(s.pending, 0, n)
	return out
}

// End returns the held text; the stream can be used for another answer.
func (s *Stream) End() string {
	out := lossy(s.pending)
	s.pending = s.pending[:0]
	return out
}

// settled returns the length of b without the U+FFFD at its decoded end.
func settled(b []byte) int {
	n := 0
	for i := 0; i < len(b); {
		r, size := decodeRune(b[i:])
		i += size
		if r != utf8.RuneError {
			n = i
		}
	}
	return n
}

// lossy returns src as UTF-8, with one U+FFFD for each broken character.
func lossy(src []byte) string {
	if utf8.Valid(src) {
		return string(src)
	}
	dst := make([]byte, 0, len(src)+8)
	for len(src) > 0 {
		r, size := decodeRune(src)
		dst = utf8.AppendRune(dst, r)
		src = src[size:]
	}
	return string(dst)
}

// decodeRune is utf8.DecodeRune with the size of a whole broken character.
func decodeRune(b []byte) (r rune, size int) {
	if r, size = utf8.DecodeRune(b); r == utf8.RuneError && size == 1 {
		size = broken(b)
	}
	return r, size
}

// broken returns the length of the broken character at the start of b: the
// longest prefix of a valid one, at least one byte (Unicode 16, section 3.9,
// U+FFFD substitution of maximal subparts).
func broken(b []byte) int {
	want := 0
	switch c := b[0]; {
	case c >= 0xc2 && c <= 0xdf:
		want = 1
	case c >= 0xe0 && c <= 0xef:
		want = 2
	case c >= 0xf0 && c <= 0xf4:
		want = 3
	}
	lo, hi := byte(0x80), byte(0xbf) // of the second byte
	switch b[0] {
	case 0xe0:
		lo = 0xa0
	case 0xed:
		hi = 0x9f
	case 0xf0:
		lo = 0x90
	case 0xf4:
		hi = 0x8f
	}
	n := 1
	for n <= want && n < len(b) && b[n] >= lo && b[n] <= hi {
		lo, hi = 0x80, 0xbf
		n++
	}
	return n
}

// matcher finds the leftmost added token in a text, the longest if several begin there.
type matcher struct {
	starts [256]bool
	firsts string              // the bytes in starts
	byTwo  map[[2]byte][]added // by the first two bytes, longest first
	single map[byte]int32      // tokens of one byte
}

type added struct {
	text string
	id   int32
}

// next returns the position, length and id of the first token, or the end of the text and length 0
// if there is none.
func (m *matcher) next(text string) (at, n int, id int32) {
	for i := 0; i < len(text); i++ {
		switch {
		case m.firsts == "":
			return len(text), 0, 0
		case len(m.firsts) == 1:
			skip := strings.IndexByte(text[i:], m.firsts[0])
			if skip < 0 {
				return len(text), 0, 0
			}
			i += skip
		case !m.starts[text[i]]:
			continue
		}
		if i+1 < len(text) {
			for _, a := range m.byTwo[[2]byte{text[i], text[i+1]}] {
				if strings.HasPrefix(text[i:], a.text) {
					return i, len(a.text), a.id
				}
			}
		}
		if id, ok := m.single[text[i]]; ok {
			return i, 1, id
		}
	}
	return len(text), 0, 0
}
