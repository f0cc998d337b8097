package audioapi

import (
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"touchline/inference"
)

// The rules of captions, as broadcasters have them.
const (
	captionLines = 2
	captionLine  = 42 // characters; a wide character counts as two
	captionMost  = 7 * time.Second
	captionLeast = 833 * time.Millisecond
	captionGap   = 83 * time.Millisecond
	captionPause = 500 * time.Millisecond
)

// caption is a text with its time.
type caption struct {
	start, end time.Duration
	lines      []string
}

// captions lays out the parts of a transcript.
func captions(parts []inference.Transcript) []caption {
	var out []caption
	var words []inference.Word
	flush := func() {
		if len(words) > 0 {
			texts := make([]string, len(words))
			for i, w := range words {
				texts[i] = w.Text
			}
			out = append(out, caption{words[0].Start, words[len(words)-1].End, wrapped(texts)})
			words = nil
		}
	}
	for _, p := range parts {
		for _, w := range timed(p) {
			if n := len(words); n > 0 {
				texts := make([]string, 0, n+1)
				for _, v := range words {
					texts = append(texts, v.Text)
				}
				if w.Start-words[n-1].End > captionPause || w.End-words[0].Start > captionMost ||
					strings.ContainsAny(lastLetter(words[n-1].Text), ".?!;。？！；") || len(wrapped(append(texts, w.Text))) > captionLines {
					flush()
				}
			}
			words = append(words, w)
		}
		flush()
	}
	for i := range out {
		limit := time.Duration(1<<62 - 1)
		if i+1 < len(out) {
			limit = max(out[i].start, out[i+1].start-captionGap)
		}
		out[i].end = min(max(out[i].end, out[i].start+captionLeast), max(limit, out[i].start+time.Millisecond))
	}
	return out
}

func lastLetter(s string) string {
	s = strings.TrimRight(s, `"'”’»)」』`)
	_, n := utf8.DecodeLastRuneInString(s)
	return s[len(s)-n:]
}

// timed returns the words of a part. Without word times, it divides the time of the part by the lengths of its words.
func timed(p inference.Transcript) []inference.Word {
	if len(p.Words) > 0 {
		return p.Words
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
		total += width(s)
	}
	at := func(n int) time.Duration {
		return p.Start + (p.End-p.Start)*time.Duration(n)/time.Duration(max(1, total))
	}
	words := make([]inference.Word, len(pieces))
	for i, s := range pieces {
		words[i] = inference.Word{Text: s, Start: at(done), End: at(done + width(s))}
		done += width(s)
	}
	return words
}

// wide reports whether a character has the width of two.
func wide(r rune) bool {
	return unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Hangul) ||
		r >= 0x3000 && r <= 0x303f || r >= 0xff00 && r <= 0xff60
}

func width(s string) (n int) {
	for _, r := range s {
		n++
		if wide(r) {
			n++
		}
	}
	return n
}

// wrapped breaks words into lines.
func wrapped(words []string) []string {
	var lines []string
	for _, w := range words {
		if n := len(lines); n > 0 {
			if line := inference.JoinTranscripts(lines[n-1], w); width(line) <= captionLine {
				lines[n-1] = line
				continue
			}
		}
		lines = append(lines, strings.TrimSpace(w))
	}
	return lines
}

// clock formats a time for captions, with a mark before the milliseconds.
func clock(d time.Duration, mark string) string {
	ms := max(d, 0).Round(time.Millisecond).Milliseconds()
	return fmt.Sprintf("%02d:%02d:%02d%s%03d", ms/3600000, ms/60000%60, ms/1000%60, mark, ms%1000)
}

// srt returns captions in SubRip form.
func srt(parts []inference.Transcript) string {
	var b strings.Builder
	for i, c := range captions(parts) {
		fmt.Fprintf(&b, "%d\n%s --> %s\n%s\n\n", i+1, clock(c.start, ","), clock(c.end, ","), strings.Join(c.lines, "\n"))
	}
	return b.String()
}

func vtt(parts []inference.Transcript) string {
	var b strings.Builder
	b.WriteString("WEBVTT\n\n")
	escape := strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;")
	for _, c := range captions(parts) {
		fmt.Fprintf(&b, "%s --> %s\n%s\n\n", clock(c.start, "."), clock(c.end, "."), escape.Replace(strings.Join(c.lines, "\n")))
	}
	return b.String()
}
