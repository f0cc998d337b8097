package qwen3asr

import (
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"touchline/inference"
	"touchline/inference/internal/asrtext"
)

// word is a word as the aligner reads it, and its place in the text: the bytes from the first to
// the last of its characters.
type word struct {
	text       string
	start, end int
}

// alignWords returns the words of a text as the aligner reads them: letters, numbers and apostrophes
// between spaces, and each ideograph by itself. Japanese is cut where the script changes, which is
// coarser than the official tagger; Korean also behind the words of a list.
func alignWords(text, language string) []word {
	var words []word
	var w word
	var last script
	flush := func() {
		if w.text != "" {
			words = append(words, w)
		}
		w, last = word{}, 0
	}
	piece, cut := true, -1 // a new piece begins; the end of a word in it
	for i, r := range text {
		if asrtext.Space(r) || i == cut {
			flush()
		}
		if piece = piece || asrtext.Space(r); asrtext.Space(r) {
			continue
		}
		if piece && language == "Korean" {
			cut = i + koreanWord(text[i:])
		}
		piece = false
		if !unicode.IsLetter(r) && !unicode.IsNumber(r) && r != '\'' {
			continue
		}
		now := scriptOf(r)
		switch {
		case language == "Japanese":
			if now != last && last != 0 {
				flush()
			}
			last = now
		case now == ideograph && language != "Korean":
			flush()
		}
		if w.text == "" {
			w.start = i
		}
		w.text += string(r)
		w.end = i + utf8.RuneLen(r)
		if now == ideograph && language != "Japanese" && language != "Korean" {
			flush()
		}
	}
	flush()
	return words
}

// script is a kind of letters, as far as words end with it.
type script uint8

const (
	otherScript script = iota + 1
	ideograph
	hiragana
	katakana
)

func scriptOf(r rune) script {
	switch {
	case r >= 0x4e00 && r <= 0x9fff, r >= 0x3400 && r <= 0x4dbf, r >= 0x20000 && r <= 0x2a6df, r >= 0x2a700 && r <= 0x2ceaf,
		r >= 0xf900 && r <= 0xfaff, r >= 0x2f800 && r <= 0x2fa1f:
		return ideograph
	case unicode.Is(unicode.Hiragana, r):
		return hiragana
	case unicode.Is(unicode.Katakana, r), r == 'ー':
		return katakana
	}
	return otherScript
}

// alignPrompt returns the text of the aligner's prompt after the sound.
func alignPrompt(words []word) string {
	const slots = "<timestamp><timestamp>"
	var b strings.Builder
	for _, w := range words {
		b.WriteString(w.text)
		b.WriteString(slots)
	}
	return b.String()
}

// repair makes times non-decreasing, in place: of the longest run of such times it keeps all, and
// the others follow their neighbours.
func repair(ms []float64) {
	good := longestRising(ms)
	for i := 0; i < len(ms); {
		if good[i] {
			i++
			continue
		}
		j := i
		for j < len(ms) && !good[j] {
			j++
		}
		between(ms, i, j)
		i = j
	}
}

// between fills the times of [i, j) from the neighbours: interpolated in a gap of more than two, else the nearer one.
func between(ms []float64, i, j int) {
	if i == 0 || j == len(ms) { // at an edge: by the only neighbour
		by := i - 1
		if i == 0 {
			by = j
		}
		for k := i; k < j; k++ {
			ms[k] = ms[by]
		}
		return
	}
	left, right := ms[i-1], ms[j]
	step := (right - left) / float64(j-i+1)
	for k := i; k < j; k++ {
		switch {
		case j-i > 2:
			ms[k] = left + step*float64(k-i+1)
		case k-(i-1) <= j-k:
			ms[k] = left
		default:
			ms[k] = right
		}
	}
}

// longestRising marks the first longest subsequence that does not fall. There must be a time.
func longestRising(ms []float64) []bool {
	length, before := make([]int, len(ms)), make([]int, len(ms))
	best := 0
	for i, v := range ms {
		length[i], before[i] = 1, -1
		for j, u := range ms[:i] {
			if u <= v && length[j]+1 > length[i] {
				length[i], before[i] = length[j]+1, j
			}
		}
		if length[i] > length[best] {
			best = i
		}
	}
	good := make([]bool, len(ms))
	for i := best; i >= 0; i = before[i] {
		good[i] = true
	}
	return good
}

// timed returns the words with the times of their slots, each with the spaces and punctuation
// around it, so that together they are the text.
func timed(text string, words []word, classes []int32, segment time.Duration) []inference.Word {
	if len(words) == 0 {
		return nil
	}
	ms := make([]float64, len(classes))
	for i, c := range classes {
		ms[i] = float64((time.Duration(c) * segment).Milliseconds())
	}
	repair(ms)
	at := func(i int) time.Duration { return time.Duration(ms[i]) * time.Millisecond } // whole milliseconds
	out := make([]inference.Word, len(words))
	from := 0
	for i := range words {
		to := len(text)
		if i+1 < len(words) {
			to = words[i].end + border(text[words[i].end:words[i+1].start])
		}
		out[i] = inference.Word{Text: strings.TrimSpace(text[from:to]), Start: at(2 * i), End: at(2*i + 1)}
		from = to
	}
	return out
}

// border returns the end of the first word within the text between two words: at the last space, or before an opening mark.
func border(gap string) int {
	if i := strings.LastIndexFunc(gap, unicode.IsSpace); i >= 0 {
		return i
	}
	opens := func(r rune) bool { return unicode.In(r, unicode.Ps, unicode.Pi) }
	if i := strings.IndexFunc(gap, opens); i >= 0 {
		return i
	}
	return len(gap)
}
