// Package tokenizer turns text into token ids and back: the byte-level BPE of
// a Hugging Face tokenizer.json with Qwen2's splitting rules, and the prompts
// of MiniCPM-o's chat and streaming ways.
//
// It knows token names, never their ids, runs no model and starts no
// goroutines. A Tokenizer is safe for concurrent use; a Stream and a
// Conversation belong to one goroutine.
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
	ids     map[string]int32 // by name, as tokenizer.json spells it
	names   []string         // "" where no token has the id
	pieces  [][]byte         // what a token stands for
	special []bool
	merges  mergeTable
	byteIDs [256]int32
	whole   bool // a word that is a piece needs no merging (ignore_merges)
	nfc     bool
	raw     matcher // added tokens found before normalisation
	normed  matcher // and those found after it
	words   *wordCache
	vocab   map[string]int32 // pieces by their bytes; only when whole
}

// Size is one more than the largest id.
func (t *Tokenizer) Size() int { return len(t.names) }

// ID looks a token up by its name in tokenizer.json, such as "<|im_end|>".
func (t *Tokenizer) ID(name string) (id int32, ok bool) {
	id, ok = t.ids[name]
	return id, ok
}

// IDs looks up several tokens; the error names every missing one.
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

// Name is the token's name in tokenizer.json, "" for an id without a token.
func (t *Tokenizer) Name(id int32) string {
	if id < 0 || int(id) >= len(t.names) {
		return ""
	}
	return t.names[id]
}

// Piece is the bytes a token stands for, which need not be whole characters;
// nil for an id without a token. Read-only.
func (t *Tokenizer) Piece(id int32) []byte {
	if id < 0 || int(id) >= len(t.pieces) {
		return nil
	}
	return t.pieces[id]
}

// Special reports whether a token is markup that people should not see.
func (t *Tokenizer) Special(id int32) bool {
	return id >= 0 && int(id) < len(t.special) && t.special[id]
}

// Encode returns the ids of a text. Nothing is added in front or behind.
// Added tokens such as "<|im_end|>" are found anywhere in the text. Bytes that
// are not UTF-8 count as U+FFFD.
func (t *Tokenizer) Encode(text string) []int32 { return t.AppendEncode(nil, text) }

// AppendEncode is Encode that appends to dst.
func (t *Tokenizer) AppendEncode(dst []int32, text string) []int32 {
	if !utf8.ValidString(text) {
		text = lossy([]byte(text))
	}
	for text != "" {
		at, n, id := t.raw.next(text)
		dst = t.encodeNormed(dst, text[:at])
		if n == 0 {
			break
		}
		dst = append(dst, id)
		text = text[at+n:]
	}
	return dst
}

// normalize returns text as AppendEncode would see it.
func (t *Tokenizer) normalize(text string) string {
	if !utf8.ValidString(text) {
		text = lossy([]byte(text))
	}
	if t.nfc && !norm.NFC.IsNormalString(text) {
		text = norm.NFC.String(text)
	}
	return text
}

// appendLiteral is AppendEncode of a normalised text in which no added token
// is found that touches one of the literal ranges of bytes, which are in
// order. There, "<|im_end|>" is what anybody may write: five or six tokens.
func (t *Tokenizer) appendLiteral(dst []int32, text string, literal []Span) []int32 {
	from := 0 // of what is not encoded yet
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
	if t.nfc && !norm.NFC.IsNormalString(text) {
		text = norm.NFC.String(text)
	}
	for text != "" {
		at, n, id := t.normed.next(text)
		dst = t.encodeWords(dst, text[:at])
		if n == 0 {
			break
		}
		dst = append(dst, id)
		text = text[at+n:]
	}
	return dst
}

func (t *Tokenizer) encodeWords(dst []int32, words string) []int32 {
	for words != "" {
		end := split(words)
		dst = t.encodeWord(dst, words[:end])
		words = words[end:]
	}
	return dst
}

// Decode returns the text of ids. What is not UTF-8 becomes U+FFFD, one for
// each broken character; ids without a token are left out.
func (t *Tokenizer) Decode(ids []int32) string { return t.decode(ids, false) }

// DecodePlain is Decode without the special tokens.
func (t *Tokenizer) DecodePlain(ids []int32) string { return t.decode(ids, true) }

func (t *Tokenizer) decode(ids []int32, plain bool) string {
	var raw []byte
	for _, id := range ids {
		if !plain || !t.Special(id) {
			raw = append(raw, t.Piece(id)...)
		}
	}
	return lossy(raw)
}

// Stream decodes an answer as it comes and holds back characters whose bytes
// are not complete yet. The texts it gives, put together, are those of Decode.
type Stream struct {
	t       *Tokenizer
	plain   bool
	pending []byte
}

// NewStream starts an answer; plain leaves the special tokens out.
func (t *Tokenizer) NewStream(plain bool) *Stream { return &Stream{t: t, plain: plain} }

// Next takes the next tokens and returns the text they complete. Text that
// ends in U+FFFD might still become something else and is held back.
func (s *Stream) Next(ids ...int32) string {
	for _, id := range ids {
		if !s.plain || !s.t.Special(id) {
			s.pending = append(s.pending, s.t.Piece(id)...)
		}
	}
	n := settled(s.pending)
	out := lossy(s.pending[:n])
	s.pending = append(s.pending[:0], s.pending[n:]...)
	return out
}

// End returns what was held back; the stream can be used for a next answer.
func (s *Stream) End() string {
	out := lossy(s.pending)
	s.pending = s.pending[:0]
	return out
}

// settled is the length of b without the U+FFFD it would end in when decoded.
func settled(b []byte) int {
	n := 0
	for i := 0; i < len(b); {
		r, size := utf8.DecodeRune(b[i:])
		if r == utf8.RuneError && size == 1 {
			size = broken(b[i:])
		}
		i += size
		if r != utf8.RuneError {
			n = i
		}
	}
	return n
}

// lossy is src as UTF-8, with one U+FFFD for each broken character.
func lossy(src []byte) string {
	if utf8.Valid(src) {
		return string(src)
	}
	dst := make([]byte, 0, len(src)+8)
	for len(src) > 0 {
		r, size := utf8.DecodeRune(src)
		if r == utf8.RuneError && size == 1 {
			size = broken(src)
		}
		dst = utf8.AppendRune(dst, r)
		src = src[size:]
	}
	return string(dst)
}

// broken is the length of the broken character b starts with: as many bytes as
// could begin a valid one, at least one (Unicode 16, section 3.9, U+FFFD
// substitution of maximal subparts).
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

// matcher finds added tokens in a text, the leftmost first and of several at
// one place the longest.
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

// next returns where the first token is, its length and its id; length 0 and
// the end of the text if there is none.
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
