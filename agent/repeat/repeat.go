// Package repeat compares comments: does one say what an earlier one said, perhaps in other words? It knows words of English, Spanish,
// Chinese and Japanese, and nothing of rooms and engines.
package repeat

import (
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// Bounds of a repeat. Two comments on different events often differ in one word, so a word in another's place makes a comment different
// unless it is long; words that are only added may be a few.
const (
	addedShare = 0.24 // of the comment's words: added to what was said
	otherShare = 0.12 // of the comment's words: in the place of others
	gramShare  = 0.6  // of the comment's 3-grams: said, if words are in the place of others
	gramWords  = 3

	comparedWords = 150 // of a comment; several sentences
)

// Repeats reports whether a comment says what an earlier one said, perhaps reordered, shortened or with more emphasis.
//
// It compares the words that carry news, without letter case, inflection and words such as "the" and "still"; Chinese and Japanese
// by characters. A name, number, colour, side or event that was not said makes the comment different; so do a negation in one of
// the two, and swapped roles ("Ana to Eva", "Eva to Ana"). Otherwise it is a repeat if all of its words were said, if it adds a
// few to them, or, with another word in the place of one, if its 3-grams were said. 3-grams cannot decide alone: a short comment
// shares none with its own reordering.
func (l *Lexicon) Repeats(said, comment string) bool {
	old, now := l.digest(said), l.digest(comment)
	if len(old.words) == 0 || len(now.words) == 0 || old.not != now.not {
		return false
	}
	added, gone := now.without(old), old.without(now)
	if slices.ContainsFunc(added, func(w word) bool { return w.guard || w.name }) || now.swapped(old) {
		return false
	}
	share := float64(len(added)) / float64(len(now.words))
	if len(gone) == 0 || len(added) == 0 {
		return share <= addedShare
	}
	return share <= otherShare && now.grams(old) >= gramShare
}

// HasNews reports whether a text has words to compare.
func (l *Lexicon) HasNews(text string) bool { return len(l.digest(text).words) > 0 }

// WholeWords returns a text without its last word, which may be incomplete; in a script without spaces, all of it.
func WholeWords(text string) string {
	end := strings.LastIndexFunc(text, func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsDigit(r) || unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana)
	})
	if end < 0 {
		return ""
	}
	_, size := utf8.DecodeRuneInString(text[end:])
	return text[:end+size]
}

// digest is the content of a comment.
type digest struct {
	words []word
	not   bool // has a negation
}

// word is a word with news, or a character of a script without spaces.
type word struct {
	text   string // the first word of its line in the lexicon, else its letters in lower case
	guard  bool   // makes a comment different
	name   bool   // has a capital, and is not in the lexicon
	colour bool
	toward string // the word of direction before it
	place  bool   // follows a preposition of place
}

func (w word) is(o word) bool {
	return w.text == o.text || !w.guard && !o.guard && inflected(w.text, o.text)
}

func (d digest) has(w word) bool { return slices.ContainsFunc(d.words, w.is) }

// without returns the words of d that o does not have.
func (d digest) without(o digest) []word { return slices.DeleteFunc(slices.Clone(d.words), o.has) }

// grams returns the share of the 3-grams of d that o has.
func (d digest) grams(o digest) float64 {
	hits, all := 0, 0
	for i := 0; i+gramWords <= len(d.words); i++ {
		all++
		for k := 0; k+gramWords <= len(o.words); k++ {
			if slices.EqualFunc(d.words[i:i+gramWords], o.words[k:k+gramWords], word.is) {
				hits++
				break
			}
		}
	}
	return float64(hits) / float64(max(all, 1))
}

// swapped reports whether two words have changed roles: after the same word of direction comes another word of both comments; the
// first and the last word are exchanged, and neither is a place; or, with the same words of direction, names and colours come in
// another order.
func (d digest) swapped(o digest) bool {
	if slices.EqualFunc(d.words, o.words, word.is) {
		return false
	}
	for _, w := range d.words {
		for _, v := range o.words {
			if w.toward != "" && w.toward == v.toward && d.has(v) && o.has(w) && !d.aims(v) && !o.aims(w) {
				return true
			}
		}
	}
	if n := len(d.words) - 1; n > 1 && n == len(o.words)-1 && d.words[0].is(o.words[n]) && d.words[n].is(o.words[0]) &&
		slices.EqualFunc(d.words[1:n], o.words[1:n], word.is) {
		ends := []word{d.words[0], d.words[n], o.words[0], o.words[n]}
		return !slices.ContainsFunc(ends, func(w word) bool { return w.place || w.toward != "" })
	}
	actors, directions := d.actors()
	others, theirs := o.actors()
	return len(actors) > 1 && len(actors) == len(others) && slices.Equal(directions, theirs) && !slices.EqualFunc(actors, others, word.is)
}

// aims reports whether d has a word after the same word of direction.
func (d digest) aims(w word) bool {
	return slices.ContainsFunc(d.words, func(o word) bool { return w.is(o) && w.toward == o.toward })
}

func (d digest) actors() (actors []word, directions []string) {
	for _, w := range d.words {
		if w.name || w.colour {
			actors = append(actors, w)
		}
		if w.toward != "" {
			directions = append(directions, w.toward)
		}
	}
	slices.Sort(directions)
	return actors, directions
}

// digest returns the words of a text that carry news.
func (l *Lexicon) digest(text string) digest {
	var d digest
	toward, isPlace := "", false
	add := func(w word) {
		w.toward, w.place, toward, isPlace = toward, isPlace, "", false
		if !slices.ContainsFunc(d.words, func(o word) bool { return o.text == w.text }) {
			d.words = append(d.words, w)
		}
	}
	list := tokens(text)
	list = l.join(list[:min(len(list), comparedWords)])
	for i := 0; i < len(list); i++ {
		t := list[i]
		if n, used := l.number(list[i:]); used > 0 {
			if n != "" {
				add(word{text: n, guard: true})
			}
			i += used - 1
			continue
		}
		c, listed := l.concept(t)
		switch {
		case t.text == "no" && l.begins(list[i+1:]): // "No. 9"
		case c.kind == negation:
			d.not = true
		case t.last && slices.Contains(l.particles, t.text):
			add(word{text: t.text, guard: true}) // "drives in", "is on"
		case c.kind == direction && (t.text != "a" || i+1 < len(list) && list[i+1].capital):
			toward = t.text
		case c.kind == place:
			isPlace = true
		case c.kind == filler && t.capital && !t.first:
			add(word{text: t.text, name: true}) // "passes to Will"
		case c.kind == filler || c.kind == direction:
		default:
			add(word{text: c.text, guard: c.kind == guard || c.kind == colour, colour: c.kind == colour, name: t.capital && !listed})
		}
	}
	return d
}

// number reads a number, or a score of two, at the start of list, and returns it with the tokens used: "two to one" is "2-1". "One" alone
// is an article, "".
func (l *Lexicon) number(list []token) (n string, used int) {
	if len(list) == 0 {
		return "", 0
	}
	value := func(k int) (int, bool) {
		if k >= len(list) {
			return 0, false
		}
		if v, err := strconv.Atoi(list[k].text); err == nil {
			return v, true
		}
		v, ok := l.numbers[list[k].text]
		return v, ok
	}
	first, ok := value(0)
	if !ok {
		return "", 0
	}
	digits := unicode.IsDigit(rune(list[0].text[0]))
	k := 1
	if len(list) > 1 && slices.Contains(l.between, list[1].text) {
		k = 2
	}
	second, ok := value(k)
	switch {
	case !ok:
	case k == 1:
		mark := list[1].mark
		if mark != 0 && !strings.ContainsRune("-:–—", mark) || mark == 0 && digits {
			break
		}
		if !digits && first >= 20 && second < 10 { // "eighty-five"
			return strconv.Itoa(first + second), 2
		}
		return strconv.Itoa(first) + "-" + strconv.Itoa(second), 2
	default:
		return strconv.Itoa(first) + "-" + strconv.Itoa(second), 3
	}
	if first == 1 && !digits {
		return "", 1
	}
	return strconv.Itoa(first), 1
}

// begins reports whether a list begins with a number.
func (l *Lexicon) begins(list []token) bool {
	_, used := l.number(list)
	return used > 0
}

// token is a word as written, or a character of a script without spaces.
type token struct {
	text      string // in lower case
	capital   bool
	ideograph bool
	mark      rune // the punctuation before it; 0 for none
	first     bool // of its clause
	last      bool
}

// tokens splits a text.
func tokens(text string) []token {
	var out []token
	var b strings.Builder
	var mark rune
	digits := false
	flush := func() {
		raw := strings.TrimSuffix(strings.Trim(b.String(), "'"), "'s")
		b.Reset()
		if raw == "" {
			return
		}
		first := []rune(raw)[0]
		begins := len(out) == 0 || out[len(out)-1].last || mark != 0
		out = append(out, token{text: strings.ToLower(raw), capital: unicode.IsUpper(first), first: begins, mark: mark})
		mark = 0
	}
	for _, r := range strings.ReplaceAll(norm.NFKC.String(text), "’", "'") {
		switch {
		case unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana) || r == 'ー':
			flush()
			out = append(out, token{text: string(r), ideograph: true, mark: mark})
			mark = 0
		case unicode.IsLetter(r) || unicode.IsMark(r) || unicode.IsDigit(r) || r == '\'':
			if b.Len() > 0 && digits != unicode.IsDigit(r) && r != '\'' {
				flush()
			}
			digits = unicode.IsDigit(r)
			b.WriteRune(r)
		default:
			flush()
			if unicode.IsSpace(r) {
				continue
			}
			mark = r
			if n := len(out); n > 0 && strings.ContainsRune(".!?,;:。、", r) {
				out[n-1].last = true
			}
		}
	}
	flush()
	if n := len(out); n > 0 {
		out[n-1].last = true
	}
	return out
}

// inflected reports whether two words are forms of one, by their endings in English and Spanish.
func inflected(a, b string) bool {
	n := 0
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	for ; n >= 3; n-- {
		if x, y := a[n:], b[n:]; endings(x, y, a[n-1], n > 3) || endings(y, x, a[n-1], n > 3) {
			return true
		}
	}
	return false
}

// endings reports whether a stem that ends in last can have both endings; the Spanish ones only if it is long.
func endings(x, y string, last byte, long bool) bool {
	english := func(e string) bool {
		switch strings.TrimPrefix(e, string(last)) { // stop, stopped
		case "", "s", "es", "d", "ed", "ing":
			return true
		}
		return false
	}
	spanish := func(e string) bool {
		switch e {
		case "a", "as", "an", "e", "es", "en", "o", "os", "ar", "er", "ir", "ado", "ada", "ido", "ida", "ando", "iendo", "yendo", "ó", "ió":
			return true
		}
		return false
	}
	switch x {
	case "":
		return english(y) || y == "do" || y == "ndo"
	case "e", "y":
		if y == "ing" || y == "ed" || y == "ies" || y == "ied" {
			return true
		}
	}
	return english(x) && english(y) || long && spanish(x) && spanish(y)
}
