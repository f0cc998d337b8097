package tts

import (
	"strings"
	"time"
	"unicode"

	"touchline/inference"
)

// Timeline places the words of a spoken text in its sound. The text comes in
// chunks, each with codes of its own: the first letter of a chunk sounds with its
// first code, the others are spread evenly over its codes. A word that would be
// known too late, because the codes of its chunk are drawn slowly, has an estimated time.
type Timeline struct {
	text  string // the words that are not taken yet
	marks []mark // from letters to time, ascending
	// letters of the chunks so far, and of the words taken.
	letters, taken int
	complete       bool // no more text comes
}

// mark is the time of a letter.
type mark struct {
	letters int
	at      time.Duration
}

// Begin adds a chunk of text that is spoken from the n-th code of the turn on. It
// ends the chunk before. With last, no chunk follows.
func (t *Timeline) Begin(text string, n int, last bool) {
	t.mark(n)
	t.complete = last
	t.text += text
	t.letters += letters(text)
}

// End sets the end of the last chunk: before the n-th code of the turn. With
// last, no chunk follows.
func (t *Timeline) End(n int, last bool) {
	t.mark(n)
	t.complete = t.complete || last
}

func (t *Timeline) mark(n int) { t.marks = append(t.marks, mark{t.letters, Start(n)}) }

// rate returns the time of a letter, from the chunks so far.
func (t *Timeline) rate() time.Duration {
	if n := t.marks[len(t.marks)-1].letters; n > 0 {
		return (t.marks[len(t.marks)-1].at - t.marks[0].at) / time.Duration(n)
	}
	return usual
}

// estimate sets the time of a letter of the last chunk that is not known yet, if it is before a moment.
func (t *Timeline) estimate(letter int, before time.Duration) (time.Duration, bool) {
	if len(t.marks) == 0 {
		return 0, false
	}
	last := t.marks[len(t.marks)-1]
	at := last.at + time.Duration(letter-last.letters)*t.rate()
	if at >= before {
		return 0, false
	}
	t.marks = append(t.marks, mark{letter, at})
	return at, true
}

// at returns the time of a letter. ok is false if it is not known yet.
func (t *Timeline) at(letter int) (time.Duration, bool) {
	for i, m := range t.marks {
		switch {
		case m.letters < letter:
			continue
		case m.letters == letter:
			// Of a chunk without letters, the end counts: its codes are a pause.
			for i+1 < len(t.marks) && t.marks[i+1].letters == letter {
				i++
			}
			return t.marks[i].at, true
		}
		before := t.marks[i-1]
		return before.at + (m.at-before.at)*time.Duration(letter-before.letters)/time.Duration(m.letters-before.letters), true
	}
	return 0, false
}

// Words returns the words whose time has become known since the last call, in
// order, with their times from the first sample of the turn. Words before due have estimated times if they are not
// known. The end of a word may be estimated.
func (t *Timeline) Words(due time.Duration) []inference.WordTime {
	var words []inference.WordTime
	for {
		start := strings.IndexFunc(t.text, func(r rune) bool { return !unicode.IsSpace(r) })
		if start < 0 {
			return words
		}
		length := strings.IndexFunc(t.text[start:], unicode.IsSpace)
		if length < 0 {
			if !t.complete {
				return words
			}
			length = len(t.text) - start
		}
		word := t.text[start : start+length]
		from, known := t.at(t.taken)
		if !known {
			from, known = t.estimate(t.taken, due)
		}
		if !known {
			return words
		}
		n := letters(word)
		to, known := t.at(t.taken + n)
		if !known {
			to = from + time.Duration(n)*usual
		}
		words = append(words, inference.WordTime{Text: word, Start: from, End: max(from, to)})
		t.taken += n
		t.text = t.text[start+length:]
	}
}

// usual is the time of a letter in usual speech.
const usual = time.Second / 14

// letters returns the number of letters and digits of a text.
func letters(text string) int {
	n := 0
	for _, r := range text {
		if unicode.IsLetter(r) || unicode.IsDigit(r) {
			n++
		}
	}
	return n
}
