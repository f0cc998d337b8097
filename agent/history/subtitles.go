package history

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"touchline/agent/look"
	"touchline/media"
)

// The layout of subtitles: two lines of 42 characters, shown long enough to be read (Netflix timed text style guide:
// 17 characters a second).
const (
	lineLength = 42
	readSpeed  = 17 // characters a second
	shortest   = time.Second
)

// cue is one subtitle.
type cue struct {
	from, to time.Duration
	lines    []string
}

// WriteSRT writes comments, or utterances of people with their names, as SubRip. Times count from zero, or from the
// start of the first comment if zero is the zero time. The format has no escapes: a word joiner (U+2060) breaks text
// that looks like a tag.
func WriteSRT(w io.Writer, entries iter.Seq2[Entry, error], zero time.Time) error {
	return writeCues(w, entries, zero, strings.NewReplacer("<", "<\u2060", "{", "{\u2060"), func(n int, c cue) string {
		return fmt.Sprintf("%d\n%s --> %s", n, stamp(c.from, ','), stamp(c.to, ','))
	})
}

// WriteVTT writes comments as WebVTT, timed like WriteSRT.
func WriteVTT(w io.Writer, entries iter.Seq2[Entry, error], zero time.Time) error {
	if _, err := io.WriteString(w, "WEBVTT\n\n"); err != nil {
		return err
	}
	escape := strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;")
	return writeCues(w, entries, zero, escape, func(_ int, c cue) string {
		return fmt.Sprintf("%s --> %s", stamp(c.from, '.'), stamp(c.to, '.'))
	})
}

// writeCues writes each cue, counted from 1: its head, its lines and an empty line.
func writeCues(
	w io.Writer, entries iter.Seq2[Entry, error], zero time.Time, escape *strings.Replacer, head func(n int, c cue) string,
) error {
	out := bufio.NewWriter(w)
	n := 0
	err := eachCue(entries, zero, func(c cue) {
		n++
		fmt.Fprintf(out, "%s\n%s\n\n", head(n, c), escape.Replace(strings.Join(c.lines, "\n")))
	})
	return errors.Join(err, out.Flush())
}

// stamp writes hours:minutes:seconds and milliseconds.
func stamp(d time.Duration, point byte) string {
	ms := d.Milliseconds()
	return fmt.Sprintf("%02d:%02d:%02d%c%03d", ms/3_600_000, ms/60_000%60, ms/1000%60, point, ms%1000)
}

// eachCue turns comments into subtitles. A comment is shown from its first word to the end of its speech, but not beyond
// the start of the next comment. Comments that end before zero are left out; a comment that spans zero begins there.
func eachCue(entries iter.Seq2[Entry, error], zero time.Time, put func(cue)) error {
	var last []cue   // of the previous comment, until the start of the next is known
	var speech []cue // speech of people, which may overlap
	flush := func(before time.Duration) {
		for _, c := range last {
			c.to = min(c.to, before)
			c.from = max(c.from, 0)
			if c.to > c.from {
				put(c)
			}
		}
		last = nil
	}
	for e, err := range entries {
		if err != nil {
			return err
		}
		if h := e.Heard; h != nil {
			e.Record.Outcome, e.Record.Text, e.Record.StartedAt, e.Record.EndedAt = look.OutcomeShown, withName(h), h.Began, h.Ended
		}
		if !e.IsComment() || e.Record.StartedAt.IsZero() {
			continue
		}
		if zero.IsZero() {
			zero = e.Record.StartedAt
		}
		cues := cuesOf(e, zero)
		if len(cues) == 0 {
			continue
		}
		if e.Heard != nil {
			speech = append(speech, cues...)
			continue
		}
		flush(cues[0].from)
		last = cues
	}
	flush(1<<63 - 1)
	slices.SortStableFunc(speech, func(a, b cue) int { return cmp.Compare(a.from, b.from) })
	last = speech
	flush(1<<63 - 1)
	return nil
}

// cuesOf splits one comment into subtitles.
func cuesOf(e Entry, zero time.Time) []cue {
	begin := e.Record.StartedAt.Sub(zero)
	end := max(e.Record.EndedAt.Sub(zero), begin)
	words := timedWords(e, end-begin)
	var cues []cue
	for len(words) > 0 {
		n := cueWords(words)
		text := make([]string, n)
		for i, w := range words[:n] {
			text[i] = w.text
		}
		cues = append(cues, cue{from: begin + words[0].at, lines: wrap(text)})
		words = words[n:]
	}
	for i := range cues {
		if i+1 < len(cues) {
			cues[i].to = cues[i+1].from
			continue
		}
		readable := max(shortest, media.TicksToDuration(int64(length(cues[i].lines)), readSpeed))
		cues[i].to = max(end, cues[i].from+readable)
	}
	return cues
}

func length(lines []string) (n int) {
	for _, l := range lines {
		n += utf8.RuneCountInString(l)
	}
	return n
}

// timedWord is a word without spaces, no longer than a line.
type timedWord struct {
	text string
	at   time.Duration // after the comment's start
}

// timedWords splits a comment at its spaces. Words without times divide its duration by their lengths.
func timedWords(e Entry, duration time.Duration) []timedWord {
	pieces := e.Words
	if len(pieces) == 0 {
		pieces = []Word{{Text: e.Record.Text}}
	}
	var out []timedWord
	inWord := false
	for i, p := range pieces {
		at := time.Duration(p.At * float64(time.Second))
		until := duration
		if i+1 < len(pieces) {
			until = time.Duration(pieces[i+1].At * float64(time.Second))
		}
		text := strings.TrimLeftFunc(p.Text, unicode.IsSpace) // the piece's time is the time of its first letter
		inWord = inWord && len(text) == len(p.Text)
		letters, all := 0, utf8.RuneCountInString(text)
		for _, r := range text {
			space := unicode.IsSpace(r) || unicode.IsControl(r)
			if !space && (!inWord || utf8.RuneCountInString(out[len(out)-1].text) >= lineLength) {
				share := time.Duration(float64(max(until-at, 0)) * float64(letters) / float64(all))
				out = append(out, timedWord{at: (at + share).Round(time.Millisecond)})
			}
			if !space {
				out[len(out)-1].text += string(r)
			}
			inWord = !space
			letters++
		}
	}
	return out
}

// cueWords returns the number of words of the next subtitle: as many as fit into two lines, but no more than a sentence
// that fills a line.
func cueWords(words []timedWord) int {
	for n := 1; n < len(words); n++ {
		text := make([]string, n+1)
		for i, w := range words[:n+1] {
			text[i] = w.text
		}
		now := strings.Join(text[:n], " ")
		sentence := strings.ContainsAny(now[len(now)-1:], ".!?") || strings.HasSuffix(now, "。")
		if sentence && utf8.RuneCountInString(now) >= lineLength || !fits(text) {
			return n
		}
	}
	return len(words)
}

// fits reports whether words fit into two lines.
func fits(words []string) bool {
	lines := wrap(words)
	return len(lines) <= 2 && !slices.ContainsFunc(lines, func(l string) bool { return utf8.RuneCountInString(l) > lineLength })
}

// wrap joins words to one line, or to two lines of similar length. No word is longer than a line.
func wrap(words []string) []string {
	whole := strings.Join(words, " ")
	if utf8.RuneCountInString(whole) <= lineLength {
		return []string{whole}
	}
	best, least := []string{whole}, utf8.RuneCountInString(whole)
	for i := 1; i < len(words); i++ {
		first, second := strings.Join(words[:i], " "), strings.Join(words[i:], " ")
		if longer := max(utf8.RuneCountInString(first), utf8.RuneCountInString(second)); longer < least {
			best, least = []string{first, second}, longer
		}
	}
	return best
}
