package audioapi

import (
	"cmp"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"touchline/inference"
	"touchline/internal/subtitle"
)

// The rules of captions, as broadcasters have them.
const (
	captionLines = 2
	captionMost  = 7 * time.Second
	captionLeast = 833 * time.Millisecond
	captionGap   = 83 * time.Millisecond
	captionPause = 500 * time.Millisecond
)

// captions lays out the parts of a transcript.
func captions(parts []inference.Transcript) []subtitle.Cue {
	var out []subtitle.Cue
	parts = slices.Clone(parts)
	slices.SortStableFunc(parts, func(a, b inference.Transcript) int { return cmp.Compare(a.Start, b.Start) })
	var words []inference.Word
	var texts []string // of words
	flush := func() {
		if len(words) > 0 {
			out = append(out, subtitle.Cue{Start: words[0].Start, End: words[len(words)-1].End, Lines: wrapped(texts)})
			words, texts = nil, nil
		}
	}
	for _, p := range parts {
		for _, w := range timed(p) {
			if n := len(words); n > 0 {
				if w.Start-words[n-1].End > captionPause || w.End-words[0].Start > captionMost ||
					strings.ContainsAny(lastLetter(words[n-1].Text), ".?!;。？！；") || len(wrapped(append(texts, w.Text))) > captionLines {
					flush()
				}
			}
			words, texts = append(words, w), append(texts, w.Text)
		}
		flush()
	}
	for i := range out {
		limit := time.Duration(1<<62 - 1)
		if i+1 < len(out) {
			limit = out[i+1].Start - captionGap
		}
		out[i].End = min(max(out[i].End, out[i].Start+captionLeast), limit)
	}
	return out
}

func lastLetter(s string) string {
	s = strings.TrimRight(s, `"'”’»)」』`)
	_, n := utf8.DecodeLastRuneInString(s)
	return s[len(s)-n:]
}

// timed returns the words of a part, in order and inside it. If their times are missing, or are all the same moment, it divides the time
// of the part by the lengths of its words.
func timed(p inference.Transcript) []inference.Word {
	if n := len(p.Words); n > 0 && (n == 1 || p.Words[n-1].End-p.Words[0].Start > (p.End-p.Start)/100) {
		words := slices.Clone(p.Words)
		at := p.Start
		for i := range words {
			w := &words[i]
			if p.End > p.Start {
				w.Start, w.End = min(w.Start, p.End), min(w.End, p.End)
			}
			w.Start = max(w.Start, at)
			w.End = max(w.End, w.Start)
			at = w.Start
		}
		return words
	}
	var pieces []string
	for _, field := range strings.Fields(strings.ToValidUTF8(p.Text, "\uFFFD")) {
		piece := ""
		for _, r := range field { // scripts without spaces: a word for each character, with the punctuation after it
			if unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana) && piece != "" {
				pieces, piece = append(pieces, piece), ""
			}
			piece += string(r)
		}
		pieces = append(pieces, piece)
	}
	total, done := 0, 0
	for _, s := range pieces {
		total += subtitle.Width(s)
	}
	at := func(n int) time.Duration {
		return p.Start + (p.End-p.Start)*time.Duration(n)/time.Duration(max(1, total))
	}
	words := make([]inference.Word, len(pieces))
	for i, s := range pieces {
		words[i] = inference.Word{Text: s, Start: at(done), End: at(done + subtitle.Width(s))}
		done += subtitle.Width(s)
	}
	return words
}

// wrapped breaks words into lines.
func wrapped(words []string) []string {
	var lines []string
	for _, w := range words {
		if n := len(lines); n > 0 {
			if line := inference.JoinTranscripts(lines[n-1], w); subtitle.Width(line) <= subtitle.Line {
				lines[n-1] = line
				continue
			}
		}
		lines = append(lines, strings.TrimSpace(w))
	}
	return lines
}

// srt returns captions in SubRip form.
func srt(parts []inference.Transcript) string {
	var b strings.Builder
	_ = subtitle.WriteSRT(&b, captions(parts)) // a builder takes all
	return b.String()
}

func vtt(parts []inference.Transcript) string {
	var b strings.Builder
	_ = subtitle.WriteVTT(&b, captions(parts)) // as above
	return b.String()
}
