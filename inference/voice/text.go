package voice

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// token is one word of the text, as written and as spoken.
type token struct {
	text   string // between spaces
	spoken string // "" for a word without sound
}

func (t token) sounds() bool { return t.spoken != "" }

// tokenize splits a text at spaces and removes Markdown, emoji and control
// characters from each word. An address is spoken as "link".
func tokenize(text string) []token {
	fields := strings.Fields(text)
	tokens := make([]token, len(fields))
	for i, f := range fields {
		tokens[i] = token{text: f, spoken: speakable(f)}
	}
	return tokens
}

// pronounce replaces the spoken form of words by their pronunciation. words is keyed by the word in lower case. The text and its number
// of words do not change. A possessive keeps its s.
func pronounce(tokens []token, words map[string]string) {
	if len(words) == 0 {
		return
	}
	for i, t := range tokens {
		word := strings.TrimFunc(t.spoken, func(r rune) bool { return !sayable(r) })
		begin, end, _ := strings.Cut(t.spoken, word)
		said, ok := words[strings.ToLower(word)]
		if stem, possessive := strings.CutSuffix(word, "'s"); !ok && possessive {
			if said, ok = words[strings.ToLower(stem)]; ok {
				end = "'s" + end
			}
		}
		if said = script(tokenize(said)); ok && word != "" && said != "" {
			tokens[i].spoken = begin + said + end
		}
	}
}

// speakable returns the spoken form of a word, with the punctuation that affects intonation.
func speakable(word string) string {
	// [text](address) and ![text](address) become the text.
	if i := strings.Index(word, "]("); i >= 0 {
		_, rest, _ := strings.Cut(word[i+2:], ")")
		word = word[:i] + rest
	}
	lead := strings.TrimLeft(word, `<("'[`)
	for _, p := range []string{"http://", "https://", "www."} {
		if len(lead) > len(p) && strings.EqualFold(lead[:len(p)], p) {
			tail := strings.TrimRight(word, `>)"']`)
			return "link" + tail[len(strings.TrimRight(tail, ".,;:!?")):]
		}
	}
	var b strings.Builder
	for i, r := range word {
		switch {
		case strings.ContainsRune("*`~#|<>[]{}\\^=\"“”„«»", r):
		case r == '_', r == '—', r == '–', r == '/':
			b.WriteByte(' ')
		case r == '-':
			// A minus is spoken, a hyphen becomes a space, a dash or bullet is removed.
			if next, _ := utf8.DecodeRuneInString(word[i+1:]); unicode.IsDigit(next) && i == 0 {
				b.WriteString("minus ")
			} else if i > 0 && unicode.IsLetter(next) {
				b.WriteByte(' ')
			}
		case r == '’', r == '‘':
			b.WriteByte('\'')
		case r == '…':
			b.WriteByte('.')
		case sayable(r), unicode.IsMark(r) && r != '\ufe0f' && r != '\u20e3', unicode.IsPunct(r):
			b.WriteRune(r)
		}
	}
	word = strings.Join(strings.Fields(b.String()), " ")
	if !strings.ContainsFunc(word, sayable) {
		return ""
	}
	return word
}

// sayable reports whether a character is spoken.
func sayable(r rune) bool {
	return unicode.IsLetter(r) || unicode.IsNumber(r) || strings.ContainsRune("&%+$€£°@", r)
}

// script joins the spoken words.
func script(tokens []token) string {
	var words []string
	for _, t := range tokens {
		if t.sounds() {
			words = append(words, t.spoken)
		}
	}
	return strings.Join(words, " ")
}

// list returns the spoken words, each with the separator: "one, two, three,".
func list(tokens []token, separator string) string {
	var b strings.Builder
	for _, t := range tokens {
		if t.sounds() {
			b.WriteString(bare(t.spoken) + separator)
		}
	}
	return b.String()
}

// bare returns the word without the punctuation around it, including an
// abbreviation's dot, which would end the sentence.
func bare(word string) string {
	trimmed := strings.TrimFunc(word, func(r rune) bool { return !sayable(r) })
	// A comma within the word would be read as the separator.
	return strings.ReplaceAll(trimmed, ", ", " ")
}
