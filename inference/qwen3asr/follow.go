package qwen3asr

import (
	"strings"
	"unicode/utf8"

	"touchline/inference/tokenizer"
)

// follower is the official streaming algorithm: each step recognizes all of the sound again, and the answer begins with the previous one
// without its newest tokens.
type follower struct {
	tokens *tokenizer.Tokenizer
	// freeChunks is the number of first chunks whose answers have no given beginning, freeTokens the number of tokens of the previous
	// answer that are not given.
	freeChunks, freeTokens int

	chunks int
	raw    string // the last answer
}

// prefix returns the beginning of the next answer. last says that no sound follows.
func (f *follower) prefix(last bool) string {
	if f.chunks < f.freeChunks || f.raw == "" {
		return ""
	}
	ids := f.tokens.Encode(f.raw)
	if last {
		return f.tokens.Decode(ids[:min(len(ids), max(1, len(ids)-f.freeTokens))])
	}
	for n := len(ids) - f.freeTokens; n > 0; n-- {
		if text := f.tokens.Decode(ids[:n]); !strings.ContainsRune(text, utf8.RuneError) {
			return text
		}
	}
	return ""
}

// step recognizes all sound so far, with n new chunks. generate returns the text that follows a prefix.
func (f *follower) step(n int, last bool, generate func(prefix string) (string, error)) error {
	prefix := f.prefix(last)
	text, err := generate(prefix)
	if err != nil {
		return err
	}
	f.raw = prefix + text
	f.chunks += n
	return nil
}
