package inference

import (
	"strings"
	"unicode"
)

// Silence is the answer for "nothing new". It is never spoken or shown.
const Silence = "..."

// Verdict is whether an answer is a comment, silence or undecided so far.
type Verdict uint8

// The verdicts.
const (
	Undecided Verdict = iota // it may still become silence
	HasWords                 // there are words
	Silent                   // complete, without words
)

// speakAfter is the length, in bytes, above which an unfinished answer with a
// letter counts as words rather than Silence, which a voice must not get.
// Two Chinese characters are longer.
const speakAfter = 5

// ClassifyAnswer reports whether an answer, as far as it is known, is words or Silence. An
// answer without a letter or a number is silent.
func ClassifyAnswer(text string, complete bool) Verdict {
	trimmed := strings.TrimSpace(text)
	words := strings.ContainsFunc(trimmed, func(r rune) bool { return unicode.IsLetter(r) || unicode.IsNumber(r) })
	switch {
	case words && (complete || len(trimmed) > speakAfter):
		return HasWords
	case complete:
		return Silent
	}
	return Undecided
}
