package grammar

import (
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

// The languages.
const (
	english = "en"
	spanish = "es"
)

// Languages lists the languages that nano speaks.
func Languages() []string { return []string{english, spanish} }

// numerals are the number words of a language.
type numerals struct {
	ones, tens []string
	joint      string
}

func englishNumerals() numerals {
	return numerals{
		ones: []string{
			"zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve", "thirteen", "fourteen",
			"fifteen", "sixteen", "seventeen", "eighteen", "nineteen",
		},
		tens:  []string{2: "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"},
		joint: "-",
	}
}

func spanishNumerals() numerals {
	return numerals{
		ones: []string{
			"cero", "uno", "dos", "tres", "cuatro", "cinco", "seis", "siete", "ocho", "nueve", "diez", "once", "doce", "trece", "catorce",
			"quince", "dieciséis", "diecisiete", "dieciocho", "diecinueve", "veinte", "veintiuno", "veintidós", "veintitrés", "veinticuatro",
			"veinticinco", "veintiséis", "veintisiete", "veintiocho", "veintinueve",
		},
		tens:  []string{3: "treinta", "cuarenta", "cincuenta", "sesenta", "setenta", "ochenta", "noventa"},
		joint: " y ",
	}
}

// number returns a number from 0 to 99 in words.
func number(n int, language string) string {
	words := englishNumerals()
	if language == spanish {
		words = spanishNumerals()
	}
	switch {
	case n < len(words.ones):
		return words.ones[n]
	case n%10 == 0:
		return words.tens[n/10]
	}
	return words.tens[n/10] + words.joint + words.ones[n%10]
}

// beforeNoun returns a number from 0 to 99 in words, before a masculine noun.
func beforeNoun(n int, language string) string {
	text := number(n, language)
	if language == english || n%10 != 1 || n == 11 {
		return text
	}
	if ten, ok := strings.CutSuffix(text, "veintiuno"); ok {
		return ten + "veintiún"
	}
	return strings.TrimSuffix(text, "o")
}

// noun has its forms for one, for several, and for none.
type noun struct{ one, many, none string }

// counted returns a number of things: "three goals", "one goal", "no goals".
func (n noun) counted(count int, language string) string {
	switch count {
	case 0:
		return n.none
	case 1:
		return beforeNoun(count, language) + " " + n.one
	}
	return beforeNoun(count, language) + " " + n.many
}

// goals returns a number of goals in words.
func goals(n int, language string) string {
	switch {
	case n > 0:
		return number(n, language)
	case language == spanish:
		return "cero"
	}
	return "nil"
}

// result returns a spoken score, the larger number first: "two-one", "one-all", "nil-nil"; "dos a uno".
func result(score [2]int, language string) string {
	a, b := max(score[0], score[1]), min(score[0], score[1])
	switch {
	case language == spanish:
		return goals(a, language) + " a " + goals(b, language)
	case a == b && a > 0:
		return goals(a, language) + "-all"
	}
	return goals(a, language) + "-" + goals(b, language)
}

// values fill the slots of a template.
type values map[string]string

// template is a wording with slots, such as {T}.
type template struct {
	texts []string // before each slot, and after the last one
	slots []string
}

// slot matches a slot of a template.
var slot = regexp.MustCompile(`\{(\w+)\}`)

func newTemplate(text string) template {
	var t template
	from := 0
	for _, m := range slot.FindAllStringSubmatchIndex(text, -1) {
		t.texts, t.slots = append(t.texts, text[from:m[0]]), append(t.slots, text[m[2]:m[3]])
		from = m[1]
	}
	t.texts = append(t.texts, text[from:])
	return t
}

// fill returns the template with its slots filled and its sentences begun with capitals; ok is false if a slot has no value.
func (t template) fill(v values) (text string, ok bool) {
	var b strings.Builder
	for i, name := range t.slots {
		value, ok := v[name]
		if !ok {
			return "", false
		}
		b.WriteString(t.texts[i])
		b.WriteString(value)
	}
	b.WriteString(t.texts[len(t.slots)])
	text = b.String()
	if v["m"] == "1" {
		text = strings.ReplaceAll(strings.ReplaceAll(text, "minutes", "minute"), "minutos", "minuto")
	}
	return capitals(text), true
}

// begins matches the first letter of a sentence, if it is small, and the text before it.
var begins = regexp.MustCompile(`(?:^[¿¡]?|[.!?] [¿¡]?)[a-zñáéíóú]`)

// capitals starts every sentence with a capital letter.
func capitals(text string) string { return begins.ReplaceAllStringFunc(text, strings.ToUpper) }

// capital starts a text with a capital letter, after opening punctuation.
func capital(text string) string {
	body := strings.TrimLeft(text, "¿¡")
	first, size := utf8.DecodeRuneInString(body)
	return text[:len(text)-len(body)] + string(unicode.ToUpper(first)) + body[size:]
}

// small starts a text with a small letter.
func small(text string) string {
	first, size := utf8.DecodeRuneInString(text)
	if size == 0 {
		return text
	}
	return string(unicode.ToLower(first)) + text[size:]
}

var (
	moreFollows = regexp.MustCompile(`[.!?].`)         // after a sentence
	iSound      = regexp.MustCompile(`^h?i(?:[^e]|$)`) // words before which "y" becomes "e"
)

// both joins two wordings to one sentence if the first is a single sentence, else to two.
func both(first, second, language string) string {
	if moreFollows.MatchString(first) || strings.HasPrefix(first, "¡") || strings.HasPrefix(second, "¡") {
		return first + " " + second
	}
	second = small(second)
	joint := " y "
	switch {
	case language == english:
		joint = ", and "
	case iSound.MatchString(second):
		joint = " e "
	}
	_, mark := utf8.DecodeLastRuneInString(first)
	return first[:len(first)-mark] + joint + second
}

// bare returns a text without capitals and without punctuation at its ends.
func bare(text string) string {
	text = strings.ToLower(strings.TrimLeft(strings.TrimRight(text, ".!? "), "¿¡"))
	return strings.TrimSuffix(strings.TrimSuffix(text, ", please"), ", por favor")
}

// isLittle reports whether a word is one that people omit when they type fast.
func isLittle(word string) bool {
	return oneOf(word, "the", "a", "an", "to", "of", "for", "me", "it", "is", "are") ||
		oneOf(word, "el", "la", "los", "las", "un", "una", "de", "lo", "se", "por")
}
