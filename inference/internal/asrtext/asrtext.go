// Package asrtext reads the answers of Qwen3-ASR: the language, the text, and repetitions that are faults of the model. It knows no
// tokens and no sound.
package asrtext

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Mark separates the language from the text in an answer.
const Mark = "<asr_text>"

// Parse splits an answer into the name of its language and its text. forced is the language of the
// prompt, whose answer is text only.
func Parse(raw, forced string) (language, text string) {
	raw = trim(raw)
	if raw == "" {
		return "", ""
	}
	raw = FixRepetitions(raw)
	if forced != "" {
		return forced, raw
	}
	meta, text, tagged := strings.Cut(raw, Mark)
	if !tagged {
		return "", trim(raw)
	}
	text = trim(text)
	if strings.Contains(strings.ToLower(meta), "language none") {
		return "", text
	}
	for line := range strings.Lines(meta) {
		line = trim(line)
		const head = "language "
		if len(line) < len(head) || !strings.EqualFold(line[:len(head)], head) {
			continue
		}
		return LanguageName(line[len(head):]), text
	}
	return "", text
}

// LanguageName writes a name with a capital and small letters.
func LanguageName(name string) string {
	name = trim(name)
	r, n := utf8.DecodeRuneInString(name)
	if n == 0 {
		return ""
	}
	return string(unicode.ToUpper(r)) + strings.ToLower(name[n:])
}

const (
	manyTimes  = 20 // repetitions that are a fault of the model
	longestRun = 20 // characters of a repeated pattern
)

// FixRepetitions reduces runs of one character and of one pattern to one of it, where they are so
// long that the model has lost its way.
func FixRepetitions(text string) string {
	s := collapseRunes([]rune(text))
	out := make([]rune, 0, len(s))
	for len(s) >= 2*manyTimes {
		k, end := repeated(s)
		if k == 0 {
			out = append(out, s[0])
			s = s[1:]
			continue
		}
		out = append(out, s[:k]...)
		s = s[end:]
	}
	return string(append(out, s...))
}

// collapseRunes reduces long runs of one character.
func collapseRunes(s []rune) []rune {
	out := make([]rune, 0, len(s))
	for len(s) > 0 {
		n := 1
		for n < len(s) && s[n] == s[0] {
			n++
		}
		if n > manyTimes {
			out = append(out, s[0])
		} else {
			out = append(out, s[:n]...)
		}
		s = s[n:]
	}
	return out
}

// repeated returns the length of the shortest pattern at the start of s that comes often enough, and
// the end of its run; 0 if there is none.
func repeated(s []rune) (k, end int) {
	for k = 1; k <= longestRun && k*manyTimes <= len(s); k++ {
		end = k
		for end+k <= len(s) && slices.Equal(s[end:end+k], s[:k]) {
			end += k
		}
		if end >= k*manyTimes {
			return k, end
		}
	}
	return 0, 0
}

// trim removes leading and trailing white space as the original does: U+001C to U+001F are white space too.
func trim(s string) string { return strings.TrimFunc(s, Space) }

// Space reports whether a character is white space for the original.
func Space(r rune) bool { return unicode.IsSpace(r) || r >= 0x1c && r <= 0x1f }
