package repeat

import (
	_ "embed" // the words
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// kind is the significance of a word for the difference of two comments.
type kind uint8

const (
	plain     kind = iota // one of many words
	filler                // no news: "the", "still"
	guard                 // news that a repeat cannot have
	colour                // a guard that also names a team or a person
	negation              // "not", "nobody"
	direction             // the next word has a role: "to", "from"
	place                 // the next word is a place
)

// concept is a line of the lexicon.
type concept struct {
	text string // its first word
	kind kind
}

// Lexicon is the word knowledge for comparing comments: lexicon.txt.
type Lexicon struct {
	concepts  map[string]concept
	forms     []string       // the words whose inflected forms are looked up as well
	particles []string       // guards at the end of a clause
	between   []string       // between the numbers of a score
	numbers   map[string]int // in words
}

//go:embed lexicon.txt
var words string

// New returns the program's lexicon, which is read only.
func New() *Lexicon {
	l := &Lexicon{concepts: map[string]concept{}, numbers: map[string]int{}}
	kinds := map[string]kind{
		"filler": filler, "negation": negation, "direction": direction, "place": place, "plain": plain, "guard": guard, "colour": colour,
	}
	part := ""
	for line := range strings.Lines(words) {
		list := strings.Fields(line)
		switch {
		case len(list) == 0 || list[0] == "#":
		case list[0][0] == '[':
			part = strings.Trim(list[0], "[]")
		case part == "particle":
			l.particles = append(l.particles, list...)
		case part == "between":
			l.between = append(l.between, list...)
		case part == "number":
			for _, w := range list[1:] {
				l.numbers[w], _ = strconv.Atoi(list[0])
			}
		default:
			l.add(kinds[part], list)
		}
	}
	return l
}

// add takes the words of a line.
func (l *Lexicon) add(k kind, line []string) {
	for _, w := range line {
		w = strings.ReplaceAll(w, "_", " ")
		l.concepts[w] = concept{line[0], k}
		if len(w) > 3 && (k == plain || k == guard) {
			l.forms = append(l.forms, w)
		}
	}
}

// longestPhrase is the number of tokens in the longest phrase of the lexicon.
const longestPhrase = 4

// join makes one token of each phrase.
func (l *Lexicon) join(list []token) []token {
	var out []token
	for len(list) > 0 {
		t, used := list[0], 1
		space := " "
		if t.ideograph {
			space = ""
		}
		text := t.text
		for n := 1; n < min(longestPhrase, len(list)) && !list[n-1].last; n++ {
			text += space + list[n].text
			if _, ok := l.concepts[text]; ok {
				t.text, t.last, used = text, list[n].last, n+1
			}
		}
		out, list = append(out, t), list[used:]
	}
	return out
}

// concept returns the concept of a word, and whether the lexicon has it.
func (l *Lexicon) concept(t token) (c concept, listed bool) {
	if c, ok := l.concepts[t.text]; ok {
		return c, true
	}
	if t.ideograph {
		kind := plain
		if unicode.Is(unicode.Hiragana, []rune(t.text)[0]) {
			kind = filler
		}
		return concept{t.text, kind}, false
	}
	// Adverbs of manner.
	if strings.HasSuffix(t.text, "mente") || len(t.text) > 5 && strings.HasSuffix(t.text, "ly") {
		return concept{kind: filler}, true
	}
	if i := slices.IndexFunc(l.forms, func(f string) bool { return inflected(f, t.text) }); i >= 0 {
		return l.concepts[l.forms[i]], true
	}
	return concept{text: t.text}, false
}
