package voice

import (
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"touchline/inference"
	"touchline/internal/ticks"
)

// span is a word's time in the audio; known is false for a word without sound.
type span struct {
	start, end time.Duration
	known      bool
}

// wordTimes returns the time of each word of the text. A word without sound starts and ends with the previous one's end.
func wordTimes(tokens []token, spans []span) []inference.WordTime {
	words := make([]inference.WordTime, len(tokens))
	var at time.Duration
	for i, t := range tokens {
		start, end := at, at
		if spans[i].known {
			start = max(at, spans[i].start)
			end = max(start, spans[i].end)
		}
		words[i] = inference.WordTime{Text: t.text, Start: start, End: end}
		at = end
	}
	return words
}

// placeWords finds the words in the phones of the sentence. groups holds the
// phones of each word spoken alone, which may differ ("a" is "ey" alone and "ax"
// in a sentence), so both sequences are aligned by edit distance.
func placeWords(phones []phone, groups [][]string, tokens []token) ([]span, bool) {
	var owner []int // the token of each name
	k := 0
	for i, t := range tokens {
		if t.spoken == "" {
			continue
		}
		if k < len(groups) {
			owner = append(owner, slices.Repeat([]int{i}, len(groups[k]))...)
		}
		k++
	}
	names := slices.Concat(groups...)
	if len(phones) == 0 || len(groups) != k || len(names)*len(phones) > maxCells {
		return nil, false
	}
	spans := make([]span, len(tokens))
	for _, m := range match(phones, names) {
		s := &spans[owner[m.name]]
		p := phones[m.phone]
		if !s.known {
			*s = span{start: p.start, end: p.end, known: true}
		}
		s.end = max(s.end, p.end)
	}
	// A word that was not found lies between its neighbours.
	var at time.Duration
	for i := range spans {
		if tokens[i].spoken != "" && !spans[i].known {
			spans[i] = span{start: at, end: at, known: true}
		}
		at = max(at, spans[i].end)
	}
	return spans, true
}

// maxCells bounds the alignment's table.
const maxCells = 4 << 20

type pair struct{ phone, name int }

// match aligns two sequences of phones by the cheapest edits and returns the
// matched pairs.
func match(phones []phone, names []string) []pair {
	rows, cols := len(phones)+1, len(names)+1
	cost := make([]int32, rows*cols)
	for j := range cols {
		cost[j] = int32(2 * j)
	}
	for i := 1; i < rows; i++ {
		cost[i*cols] = int32(2 * i)
		for j := 1; j < cols; j++ {
			cost[i*cols+j] = min(
				cost[(i-1)*cols+j-1]+unlike(phones[i-1].name, names[j-1]),
				cost[(i-1)*cols+j]+2,
				cost[i*cols+j-1]+2)
		}
	}
	var pairs []pair
	for i, j := rows-1, cols-1; i > 0 && j > 0; {
		switch c := cost[i*cols+j]; c {
		case cost[(i-1)*cols+j-1] + unlike(phones[i-1].name, names[j-1]):
			i, j = i-1, j-1
			pairs = append(pairs, pair{phone: i, name: j})
		case cost[(i-1)*cols+j] + 2:
			i--
		default:
			j--
		}
	}
	slices.Reverse(pairs)
	return pairs
}

// unlike returns the cost of replacing a phone, which is lower within vowels and
// within consonants.
func unlike(a, b string) int32 {
	switch {
	case a == b:
		return 0
	case vowel(a) == vowel(b):
		return 2
	}
	return 3
}

func vowel(name string) bool {
	r, _ := utf8.DecodeRuneInString(name)
	return strings.ContainsRune("aeiouAEIOUV@03y", r)
}

// estimate places words by their length, along the parts of the audio with
// sound. If there are as many such parts as clauses, each clause gets its part.
func estimate(tokens []token, rate int, pcm []int16) []span {
	regions := sounding(rate, pcm, 100*time.Millisecond)
	spans := make([]span, len(tokens))
	if len(regions) == 0 {
		return spans
	}
	var clauses [][]int
	var clause []int
	for i, t := range tokens {
		if t.spoken == "" {
			continue
		}
		clause = append(clause, i)
		if last, _ := utf8.DecodeLastRuneInString(t.spoken); strings.ContainsRune(".,;:!?。，！？、", last) {
			clauses = append(clauses, clause)
			clause = nil
		}
	}
	if len(clause) > 0 {
		clauses = append(clauses, clause)
	}
	if len(clauses) != len(regions) {
		clauses = [][]int{slices.Concat(clauses...)}
		regions = []span{{start: regions[0].start, end: regions[len(regions)-1].end}}
	}
	for c, words := range clauses {
		total := 0.0
		for _, i := range words {
			total += weight(tokens[i].spoken)
		}
		at, r := 0.0, regions[c]
		for _, i := range words {
			from := at
			at += weight(tokens[i].spoken) / total
			long := float64(r.end - r.start)
			spans[i] = span{
				start: r.start + time.Duration(from*long),
				end:   r.start + time.Duration(at*long),
				known: true,
			}
		}
	}
	return spans
}

// weight returns the approximate length of a spoken word, in letters.
func weight(word string) float64 {
	w := 1.0
	for _, r := range word {
		switch {
		case unicode.IsDigit(r):
			w += 4
		case unicode.Is(unicode.Han, r), unicode.Is(unicode.Hiragana, r), unicode.Is(unicode.Katakana, r):
			w += 3
		case unicode.IsLetter(r):
			w++
		case strings.ContainsRune("&%+$€£°@", r):
			w += 5
		}
	}
	return w
}

// level is -50 dBFS.
const level = 104

// sounding finds the parts of the audio above -50 dBFS that are separated by
// at least gap.
func sounding(rate int, pcm []int16, gap time.Duration) []span {
	step := max(rate/200, 1)
	var regions []span
	for from := 0; from < len(pcm); from += step {
		to := min(from+step, len(pcm))
		if !slices.ContainsFunc(pcm[from:to], loud) {
			continue
		}
		start, end := duration(from, rate), duration(to, rate)
		if n := len(regions); n > 0 && start-regions[n-1].end < gap {
			regions[n-1].end = end
			continue
		}
		regions = append(regions, span{start: start, end: end, known: true})
	}
	return regions
}

func duration(samples, rate int) time.Duration {
	return ticks.Duration(int64(samples), int64(rate))
}

const (
	// leadKept and the pauses are the silence before and after a piece.
	leadKept      = 20 * time.Millisecond
	sentencePause = 160 * time.Millisecond
	clausePause   = 60 * time.Millisecond
)

// pauseAfter returns the silence after a piece.
func pauseAfter(piece string) time.Duration {
	if n := len(piece); n > 0 && closing(piece, n-1) == n {
		return sentencePause
	}
	return clausePause
}

// tighten shortens the silence around a piece.
func tighten(sp Speech, piece string) inference.Chunk {
	c := inference.Chunk{Audio: sp.Audio, AudioRate: sp.Rate, Words: sp.Words}
	regions := sounding(sp.Rate, sp.Audio, time.Hour)
	if len(regions) == 0 {
		return c
	}
	after := pauseAfter(piece)
	total := duration(len(sp.Audio), sp.Rate)
	from := max(0, regions[0].start-leadKept)
	to := min(total, regions[len(regions)-1].end+after)
	at := func(d time.Duration) int { return int(ticks.Count(d, int64(sp.Rate))) }
	c.Audio = sp.Audio[at(from):at(to)]
	length := duration(len(c.Audio), sp.Rate)
	for i := range c.Words {
		w := &c.Words[i]
		w.Start = min(max(0, w.Start-from), length)
		w.End = min(max(w.Start, w.End-from), length)
	}
	return c
}
