package command

import (
	"strings"
	"unicode"

	"touchline/agent/settings"
)

// Addressed returns the order in a text that is meant for the commentator: what follows a wake word at the beginning of the text or of a
// sentence in it. ok is false without a wake word. Recognizers write a name as they hear it, so a letter in five may differ.
func Addressed(text string, wakeWords []string) (order string, ok bool) {
	words, ends := wordsOf(text)
	for from := range words {
		if from > 2 && !ends[from-1].sentence {
			continue // not the beginning, which may be "um" or "okay"
		}
		for _, wake := range wakeWords {
			if n := startsWith(words[from:], wake); n > 0 {
				return strings.TrimFunc(text[ends[from+n-1].at:], between), true
			}
		}
	}
	return "", false
}

// startsWith returns the number of words that are a wake word; 0 if the words begin otherwise.
func startsWith(words []string, wake string) int {
	want := []rune(strings.ReplaceAll(settings.Fold(wake), " ", ""))
	var heard []rune
	for i, w := range words {
		if heard = append(heard, []rune(w)...); len(heard) > len(want)+len(want)/5 {
			return 0
		}
		if distance(heard, want) <= len(want)/5 {
			return i + 1
		}
	}
	return 0
}

// between reports whether a rune separates words. A question mark does not: a question is no order.
func between(r rune) bool { return unicode.IsSpace(r) || unicode.IsPunct(r) && r != '?' }

// wordEnd is where a word ends in its text, and whether its sentence, or a part of it, ends there.
type wordEnd struct {
	at       int
	sentence bool
}

// wordsOf returns the folded words of a text, and their ends.
func wordsOf(text string) (words []string, ends []wordEnd) {
	for from := 0; from < len(text); {
		to := len(text)
		if i := strings.IndexFunc(text[from:], unicode.IsSpace); i >= 0 {
			to = from + i
		}
		if w := strings.ReplaceAll(settings.Fold(text[from:to]), " ", ""); w != "" {
			words = append(words, w)
			ends = append(ends, wordEnd{to, strings.ContainsAny(text[to-1:to], ".!?,;:")})
		}
		from = to + 1
	}
	return words, ends
}

// distance is the number of letters to change, add or remove from one word to another (Levenshtein).
func distance(a, b []rune) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range a {
		before := row[0]
		row[0] = i + 1
		for j := range b {
			cost := before
			if a[i] != b[j] {
				cost = 1 + min(before, row[j], row[j+1])
			}
			before, row[j+1] = row[j+1], cost
		}
	}
	return row[len(b)]
}

// Repeated reports whether a text is a part of another one. One word in three may differ, because recognizers make errors.
func Repeated(text, of string) bool { return len(Repetitions(text, of)) > 0 }

// Repetition is a place of a text in another one: the number of the other's words before and after it.
type Repetition struct{ Before, After int }

// Repetitions returns the places of a text in another one, as Repeated finds them. They do not overlap.
func Repetitions(text, of string) (out []Repetition) {
	words, of2 := strings.Fields(settings.Fold(text)), strings.Fields(settings.Fold(of))
	if len(words) == 0 || len(words) > 2*len(of2) {
		return nil
	}
	// The longest common subsequence of words, in a stretch that is not much longer than the text.
	end, most := 0, 0
	for from := range of2 {
		part := of2[from:min(len(of2), from+len(words)+2)]
		n := common(words, part)
		if 3*n < 2*len(words) || common(words, part[1:]) == n || from < end && n <= most {
			continue // too unlike, or it begins later, or a better one is there
		}
		if from < end {
			out = out[:len(out)-1]
		}
		for common(words, part[:len(part)-1]) == n {
			part = part[:len(part)-1]
		}
		end, most = from+len(part), n
		out = append(out, Repetition{Before: from, After: len(of2) - end})
	}
	return out
}

// common returns the length of the longest common subsequence.
func common(a, b []string) int {
	row := make([]int, len(b)+1)
	for i := range a {
		before := 0
		for j := range b {
			next := max(row[j+1], row[j])
			if a[i] == b[j] {
				next = before + 1
			}
			before, row[j+1] = row[j+1], next
		}
	}
	return row[len(b)]
}
