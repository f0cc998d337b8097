package tokenizer

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"hash/maphash"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/text/unicode/norm"
)

// maxID bounds token ids, and with them the memory for an untrusted file.
const maxID = 1 << 21

// file holds the relevant parts of tokenizer.json.
type file struct {
	AddedTokens []struct {
		ID         *int32 `json:"id"`
		Content    string `json:"content"`
		SingleWord bool   `json:"single_word"`
		LStrip     bool   `json:"lstrip"`
		RStrip     bool   `json:"rstrip"`
		Normalized bool   `json:"normalized"`
		Special    bool   `json:"special"`
	} `json:"added_tokens"`
	Normalizer   *struct{ Type string } `json:"normalizer"`
	PreTokenizer *preTokenizer          `json:"pre_tokenizer"`
	PostProc     *struct{ Type string } `json:"post_processor"`
	Decoder      *struct{ Type string } `json:"decoder"`
	Model        struct {
		Type                    string           `json:"type"`
		Dropout                 *float64         `json:"dropout"`
		UnkToken                *string          `json:"unk_token"`
		ContinuingSubwordPrefix string           `json:"continuing_subword_prefix"`
		EndOfWordSuffix         string           `json:"end_of_word_suffix"`
		ByteFallback            bool             `json:"byte_fallback"`
		IgnoreMerges            bool             `json:"ignore_merges"`
		Vocab                   map[string]int32 `json:"vocab"`
		Merges                  json.RawMessage  `json:"merges"`
	} `json:"model"`
}

type preTokenizer struct {
	Type          string
	PreTokenizers []struct {
		Type           string
		Pattern        struct{ Regex string }
		Behavior       string
		Invert         bool
		AddPrefixSpace bool  `json:"add_prefix_space"`
		UseRegex       *bool `json:"use_regex"`
	}
}

// merges reads the list of pairs, as ["a", "b"] or, in older files, as "a b".
func (f *file) merges() ([][]string, error) {
	var pairs [][]string
	if len(f.Model.Merges) == 0 {
		return nil, nil
	}
	if err := json.Unmarshal(f.Model.Merges, &pairs); err != nil {
		var joined []string
		if json.Unmarshal(f.Model.Merges, &joined) != nil {
			return nil, fmt.Errorf("model.merges: expected a list of pairs of pieces: %w", err)
		}
		pairs = make([][]string, len(joined))
		for i, s := range joined {
			pairs[i] = strings.Split(s, " ")
		}
	}
	for i, p := range pairs {
		if len(p) != 2 {
			return nil, fmt.Errorf("model.merges[%d]: expected two pieces, got %q", i, p)
		}
	}
	return pairs, nil
}

// Open reads a tokenizer.json. Errors in its content name the file.
func Open(path string) (*Tokenizer, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	t, err := Parse(content)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Base(path), err)
	}
	return t, nil
}

// Parse parses a tokenizer.json. It rejects a file for another algorithm with an
// error that names the field.
func Parse(content []byte) (*Tokenizer, error) {
	var f file
	if err := json.Unmarshal(content, &f); err != nil {
		return nil, fmt.Errorf("parse JSON: %w", err)
	}
	if err := f.check(); err != nil {
		return nil, err
	}
	t := &Tokenizer{
		ids:   make(map[string]int32, len(f.Model.Vocab)+len(f.AddedTokens)),
		nfc:   f.Normalizer != nil,
		whole: f.Model.IgnoreMerges,
		words: &wordCache{seed: maphash.MakeSeed()},
	}
	if err := t.name(&f); err != nil {
		return nil, err
	}
	if err := t.learnMerges(&f); err != nil {
		return nil, err
	}
	return t, nil
}

// check rejects features that the package does not implement.
func (f *file) check() error {
	var errs []error
	expect := func(ok bool, field, want string, got any) {
		if !ok {
			errs = append(errs, fmt.Errorf("%s: expected %s, got %v", field, want, got))
		}
	}
	m := &f.Model
	expect(m.Type == "BPE", "model.type", "BPE", fmt.Sprintf("%q", m.Type))
	expect(m.Dropout == nil || *m.Dropout == 0, "model.dropout", "none", "set")
	expect(m.ContinuingSubwordPrefix == "", "model.continuing_subword_prefix", "none", fmt.Sprintf("%q", m.ContinuingSubwordPrefix))
	expect(m.EndOfWordSuffix == "", "model.end_of_word_suffix", "none", fmt.Sprintf("%q", m.EndOfWordSuffix))
	expect(!m.ByteFallback, "model.byte_fallback", "false", m.ByteFallback)
	expect(len(m.Vocab) > 0, "model.vocab", "pieces", "empty")
	if f.Normalizer != nil {
		expect(f.Normalizer.Type == "NFC", "normalizer.type", "NFC or no normalizer", fmt.Sprintf("%q", f.Normalizer.Type))
	}
	if f.PostProc != nil {
		expect(f.PostProc.Type == "ByteLevel", "post_processor.type", "ByteLevel or none", fmt.Sprintf("%q", f.PostProc.Type))
	}
	if f.Decoder == nil || f.Decoder.Type != "ByteLevel" {
		errs = append(errs, errors.New("decoder.type: expected ByteLevel"))
	}
	p := f.PreTokenizer
	if p == nil || p.Type != "Sequence" || len(p.PreTokenizers) != 2 {
		return errors.Join(append(errs, errors.New("pre_tokenizer: expected a Sequence of Split and ByteLevel"))...)
	}
	cut, bytes := p.PreTokenizers[0], p.PreTokenizers[1]
	expect(cut.Type == "Split" && cut.Behavior == "Isolated" && !cut.Invert, "pre_tokenizer.pretokenizers[0]",
		"an isolating Split", fmt.Sprintf("%s %s", cut.Type, cut.Behavior))
	expect(cut.Pattern.Regex == qwenPattern, "pre_tokenizer.pretokenizers[0].pattern", "the Qwen2 expression",
		fmt.Sprintf("%q", cut.Pattern.Regex))
	expect(bytes.Type == "ByteLevel" && !bytes.AddPrefixSpace && bytes.UseRegex != nil && !*bytes.UseRegex,
		"pre_tokenizer.pretokenizers[1]", "ByteLevel without prefix space and regex", bytes.Type)
	return errors.Join(errs...)
}

// name sets the token of each id.
func (t *Tokenizer) name(f *file) error {
	top := int32(-1)
	for piece, id := range f.Model.Vocab {
		if id < 0 || id >= maxID {
			return fmt.Errorf("model.vocab: expected ids from 0 to %d, %q has %d", maxID-1, piece, id)
		}
		top = max(top, id)
	}
	for i, a := range f.AddedTokens {
		switch {
		case a.ID == nil || *a.ID < 0 || *a.ID >= maxID:
			return fmt.Errorf("added_tokens[%d].id: expected a number from 0 to %d for %q", i, maxID-1, a.Content)
		case a.Content == "":
			return fmt.Errorf("added_tokens[%d].content: expected text, is empty", i)
		case a.SingleWord || a.LStrip || a.RStrip:
			return fmt.Errorf("added_tokens[%d]: expected single_word, lstrip and rstrip to be false for %q", i, a.Content)
		}
		top = max(top, *a.ID)
	}
	t.names, t.pieces, t.special = make([]string, top+1), make([][]byte, top+1), make([]bool, top+1)
	alphabet := newAlphabet()
	if t.whole {
		t.vocab = make(map[string]int32, len(f.Model.Vocab))
	}
	give := func(name string, id int32) error {
		if other := t.names[id]; other != "" && other != name {
			return fmt.Errorf("expected one token for id %d, got %q and %q", id, min(name, other), max(name, other))
		}
		t.ids[name], t.names[id], t.pieces[id] = id, name, alphabet.bytes(name)
		return nil
	}
	for piece, id := range f.Model.Vocab {
		if piece == "" {
			return errors.New("model.vocab: expected pieces of at least one character, one is empty")
		}
		if err := give(piece, id); err != nil {
			return fmt.Errorf("model.vocab: %w", err)
		}
		if t.whole {
			t.vocab[string(t.pieces[id])] = id
		}
	}
	if err := t.add(f, give); err != nil {
		return err
	}
	for b := range 256 {
		id, ok := t.ids[string(alphabet.char[b])]
		if !ok {
			return fmt.Errorf("model.vocab: expected a piece for each byte, 0x%02x (%q) has none", b, alphabet.char[b])
		}
		t.byteIDs[b] = id
	}
	return nil
}

// add sets the added tokens with give and prepares the search for them.
func (t *Tokenizer) add(f *file, give func(name string, id int32) error) error {
	for i, a := range f.AddedTokens {
		if id, ok := t.ids[a.Content]; ok && id != *a.ID {
			return fmt.Errorf("added_tokens[%d]: expected one id for %q, got %d and %d", i, a.Content, id, *a.ID)
		}
		if err := give(a.Content, *a.ID); err != nil {
			return fmt.Errorf("added_tokens[%d]: %w", i, err)
		}
		t.special[*a.ID] = a.Special
		m, content := &t.raw, a.Content
		if a.Normalized {
			m = &t.normed
			if t.nfc {
				content = norm.NFC.String(content)
			}
		}
		m.add(content, *a.ID)
	}
	t.raw.finish()
	t.normed.finish()
	return nil
}

func (t *Tokenizer) learnMerges(f *file) error {
	merges, err := f.merges()
	if err != nil {
		return err
	}
	t.merges = newMergeTable(len(merges) + 1)
	vocab := f.Model.Vocab
	for rank, m := range merges {
		left, okLeft := vocab[m[0]]
		right, okRight := vocab[m[1]]
		id, okBoth := vocab[m[0]+m[1]]
		if !okLeft || !okRight || !okBoth {
			return fmt.Errorf("model.merges[%d]: expected %q, %q and both together in model.vocab", rank, m[0], m[1])
		}
		*t.merges.slot(left, right) = merge{left: left, right: right, rank: int32(rank), id: id}
	}
	return nil
}

func (m *matcher) add(text string, id int32) {
	first := text[0]
	if !m.starts[first] {
		m.starts[first] = true
		m.firsts += text[:1]
	}
	if len(text) == 1 {
		if m.single == nil {
			m.single = make(map[byte]int32)
		}
		m.single[first] = id
		return
	}
	if m.byTwo == nil {
		m.byTwo = make(map[[2]byte][]added)
	}
	two := [2]byte{first, text[1]}
	m.byTwo[two] = append(m.byTwo[two], added{text, id})
}

func (m *matcher) finish() {
	for _, bucket := range m.byTwo {
		slices.SortStableFunc(bucket, func(a, b added) int { return cmp.Compare(len(b.text), len(a.text)) })
	}
}

// alphabet writes each byte as one visible character: printable Latin-1 as
// itself, the others from U+0100 on.
type alphabet struct {
	char [256]rune
	back map[rune]byte
}

func newAlphabet() *alphabet {
	a := &alphabet{back: make(map[rune]byte, 256)}
	next := rune(0x100)
	for b := range 256 {
		r := rune(b)
		if r < '!' || r > '~' && r < 0xa1 || r == 0xad {
			r = next
			next++
		}
		a.char[b], a.back[r] = r, byte(b)
	}
	return a
}

// bytes returns the bytes of a piece. A name with characters outside the
// alphabet, as of some added tokens, stands for itself.
func (a *alphabet) bytes(piece string) []byte {
	out := make([]byte, 0, len(piece))
	for _, r := range piece {
		b, ok := a.back[r]
		if !ok {
			return []byte(piece)
		}
		out = append(out, b)
	}
	return out
}
