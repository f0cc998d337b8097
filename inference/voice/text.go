package voice

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// token is one word of the text, as written and as read to the program.
type token struct {
	text   string // what stands between spaces
	spoken string // "" when nothing of it is to be spoken
}

// tokenize cuts a text at its spaces and cleans each word: marks of Markdown,
// emoji and control characters go, an address is read as "link".
func tokenize(text string) []token {
	fields := strings.Fields(text)
	tokens := make([]token, len(fields))
	for i, f := range fields {
		tokens[i] = token{text: f, spoken: speakable(f)}
	}
	return tokens
}

// speakable is the word as it is read out, with the punctuation that shapes its melody.
func speakable(word string) string {
	// [text](address) and ![text](address): the text stays.
	if i := strings.Index(word, "]("); i >= 0 {
		rest := word[i+2:]
		if j := strings.IndexByte(rest, ')'); j >= 0 {
			rest = rest[j+1:]
		} else {
			rest = ""
		}
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
			// A hyphen within a word stays, a dash or a bullet goes; a minus is read.
			if next, _ := utf8.DecodeRuneInString(word[i+1:]); unicode.IsDigit(next) && i == 0 {
				b.WriteString("minus ")
			} else if i > 0 && unicode.IsLetter(next) {
				b.WriteByte(' ')
			}
		case r == '’', r == '‘':
			b.WriteByte('\'')
		case r == '…':
			b.WriteByte('.')
		case r == '&', r == '%', r == '+', r == '$', r == '€', r == '£', r == '°', r == '@':
			b.WriteRune(r)
		case unicode.IsLetter(r), unicode.IsMark(r) && r != '\ufe0f' && r != '\u20e3', unicode.IsNumber(r):
			b.WriteRune(r)
		case unicode.IsPunct(r):
			b.WriteRune(r)
		}
	}
	word = strings.Join(strings.Fields(b.String()), " ")
	if !strings.ContainsFunc(word, sayable) {
		return ""
	}
	return word
}

// sayable reports that a character makes a sound of its own.
func sayable(r rune) bool {
	return unicode.IsLetter(r) || unicode.IsNumber(r) || strings.ContainsRune("&%+$€£°@", r)
}

// script joins the spoken words for the program.
func script(tokens []token) string {
	var words []string
	for _, t := range tokens {
		if t.spoken != "" {
			words = append(words, t.spoken)
		}
	}
	return strings.Join(words, " ")
}

// list is the spoken words, each on its own: "one, two, three,".
func list(tokens []token, separator string) string {
	var b strings.Builder
	for _, t := range tokens {
		if t.spoken != "" {
			b.WriteString(bare(t.spoken))
			b.WriteString(separator)
		}
	}
	return b.String()
}

// bare is the word without the punctuation around it. An abbreviation's dot
// goes as well: it would end the sentence.
func bare(word string) string {
	trimmed := strings.TrimFunc(word, func(r rune) bool { return !sayable(r) })
	// Within a word a comma would look like the separator.
	return strings.ReplaceAll(trimmed, ", ", " ")
}
