package sphinx

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode"
)

// ErrPronunciation is wrapped by the error of a word without a known pronunciation.
var ErrPronunciation = errors.New("no pronunciation is known")

// Fold returns a sentence in the form of the grammar: lower-case letters and apostrophes, single spaces.
func Fold(sentence string) string {
	return strings.Join(strings.FieldsFunc(strings.ToLower(strings.ReplaceAll(sentence, "’", "'")), func(r rune) bool {
		return !unicode.IsLetter(r) && r != '\''
	}), " ")
}

// aside is the probability of an optional word.
const aside = 0.02

// politeWords returns optional words around an order.
func politeWords() (before, after []string) {
	return []string{"please"}, []string{"please", "now", "thanks"}
}

// maybe returns the expansion of optional words, each with the probability aside. In an optional expansion of JSGF they would be as
// likely as no word, and noise would be recognized as "please".
func maybe(words ...string) string {
	list := []string{fmt.Sprintf("/%.2f/ <NULL>", 1-aside*float64(len(words)))}
	for _, w := range words {
		list = append(list, fmt.Sprintf("/%.2f/ %s", aside, w))
	}
	return "( " + strings.Join(list, " | ") + " )"
}

// words returns all words of the sentences and the polite words, sorted.
func words(sentences ...[]string) []string {
	before, after := politeWords()
	out := slices.Concat(before, after)
	for _, list := range sentences {
		for _, s := range list {
			out = append(out, strings.Fields(s)...)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// grammar returns the JSGF grammar of orders, with polite words if polite. Unless addressed, it begins with a wake word, which may stand
// alone.
func grammar(wake, orders []string, addressed, polite bool) string {
	said := "<order>"
	if polite {
		before, after := politeWords()
		said = fmt.Sprintf("%s <order> %s", maybe(before...), maybe(after...))
	}
	switch {
	case !addressed:
		said = "<wake> ( <NULL> | " + said + " )"
	case polite:
		said = maybe("<wake>") + " " + said
	}
	return fmt.Sprintf("#JSGF V1.0;\ngrammar orders;\npublic <said> = %s;\n<wake> = %s;\n<order> = %s;\n",
		said, strings.Join(wake, " | "), strings.Join(orders, " | "))
}

// dictionary maps words to their pronunciations.
type dictionary map[string][]string

// minPart is the length of the shortest part of a compound.
const minPart = 3

// parts calls f with both parts of each way to cut a word in two.
func parts(word string, f func(first, second string)) {
	for i := minPart; i <= len(word)-minPart; i++ {
		f(word[:i], word[i:])
	}
}

// readDictionary reads the pronunciations of words from a dictionary file. A missing word is composed of two that the file has
// ("touch", "line"). The error wraps ErrPronunciation and names the words without a pronunciation.
func readDictionary(r io.Reader, wanted []string) (dictionary, error) {
	look := map[string][]string{}
	for _, w := range wanted {
		look[w] = nil
		parts(w, func(a, b string) { look[a], look[b] = nil, nil })
	}
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		entry, sounds, _ := strings.Cut(lines.Text(), " ")
		name, _, _ := strings.Cut(entry, "(")
		if list, ok := look[name]; ok {
			look[name] = append(list, sounds)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read the dictionary: %w", err)
	}
	out := dictionary{}
	var missing []string
	for _, w := range wanted {
		if out[w] = look[w]; len(out[w]) > 0 {
			continue
		}
		best := 0 // the cut whose shorter part is longest
		parts(w, func(a, b string) {
			if n := min(len(a), len(b)); n > best && len(look[a]) > 0 && len(look[b]) > 0 {
				best, out[w] = n, []string{look[a][0] + " " + look[b][0]}
			}
		})
		if best == 0 {
			missing = append(missing, w)
		}
	}
	if len(missing) > 0 {
		return nil, fmt.Errorf("%w of %q; choose English words", ErrPronunciation, missing)
	}
	for w, list := range out {
		for _, sounds := range list {
			if v := british(sounds); !slices.Contains(out[w], v) {
				out[w] = append(out[w], v)
			}
		}
	}
	return out, nil
}

// british returns the British form of an American pronunciation: an open vowel in "back", a short one before the r of "turn", and no
// r at the end of "louder".
func british(sounds string) string {
	list := strings.Fields(sounds)
	for i, s := range list {
		switch {
		case s == "AE":
			list[i] = "AA"
		case s == "ER" && i == len(list)-1:
			list[i] = "AH"
		case s == "ER":
			list[i] = "AH R"
		}
	}
	return strings.Join(list, " ")
}

// file returns the dictionary as pocketsphinx reads it.
func (d dictionary) file(words []string) string {
	var b strings.Builder
	for _, w := range words {
		for i, sounds := range d[w] {
			if i == 0 {
				fmt.Fprintf(&b, "%s %s\n", w, sounds)
			} else {
				fmt.Fprintf(&b, "%s(%d) %s\n", w, i+1, sounds)
			}
		}
	}
	return b.String()
}
