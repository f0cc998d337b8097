package history

import (
	"errors"
	"io"
	"iter"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"touchline/agent/look"
	"touchline/internal/subtitle"
	"touchline/internal/ticks"
)

// The layout of subtitles: two lines of 42 characters, shown long enough to be read (Netflix timed text style guide:
// 17 characters a second).
const (
	readSpeed = 17 // characters a second
	shortest  = time.Second
)

// WriteSRT writes comments, or utterances of people with their names, as SubRip. Times count from zero, or from the
// start of the first comment if zero is the zero time.
func WriteSRT(w io.Writer, entries iter.Seq2[Entry, error], zero time.Time) error {
	cues, err := allCues(entries, zero)
	return errors.Join(err, subtitle.WriteSRT(w, cues))
}

// WriteVTT writes comments as WebVTT, timed like WriteSRT.
func WriteVTT(w io.Writer, entries iter.Seq2[Entry, error], zero time.Time) error {
	cues, err := allCues(entries, zero)
	return errors.Join(err, subtitle.WriteVTT(w, cues))
}

// allCues turns comments into subtitles. A comment is shown from its first word to the end of its speech, but not beyond
// the start of the next comment. Comments that end before zero are left out; a comment that spans zero begins there. Speech of people may
// overlap.
func allCues(entries iter.Seq2[Entry, error], zero time.Time) (out []subtitle.Cue, err error) {
	var last []subtitle.Cue // of the previous comment, until the start of the next is known
	flush := func(before time.Duration) {
		for _, c := range last {
			if c.End = min(c.End, before); c.End > 0 || c.Start >= 0 {
				out = append(out, c)
			}
		}
		last = nil
	}
	for e, err := range entries {
		if err != nil {
			return out, err
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
		switch {
		case len(cues) == 0:
		case e.Heard != nil:
			comment := last
			last = cues
			flush(1<<63 - 1)
			last = comment
		default:
			flush(cues[0].Start)
			last = cues
		}
	}
	flush(1<<63 - 1)
	return out, nil
}

// cuesOf splits one comment into subtitles.
func cuesOf(e Entry, zero time.Time) []subtitle.Cue {
	begin := e.Record.StartedAt.Sub(zero)
	end := max(e.Record.EndedAt.Sub(zero), begin)
	words := timedWords(e, end-begin)
	var cues []subtitle.Cue
	for len(words) > 0 {
		n := cueWords(words)
		text := make([]string, n)
		for i, w := range words[:n] {
			text[i] = w.text
		}
		cues = append(cues, subtitle.Cue{Start: begin + words[0].at, Lines: wrap(text)})
		words = words[n:]
	}
	for i := range cues {
		if i+1 < len(cues) {
			cues[i].End = cues[i+1].Start
			continue
		}
		readable := max(shortest, ticks.Duration(int64(length(cues[i].Lines)), readSpeed)).Truncate(time.Millisecond)
		cues[i].End = max(end, cues[i].Start+readable)
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
			if !space && (!inWord || subtitle.Width(out[len(out)-1].text+string(r)) > subtitle.Line) {
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
		if sentence && subtitle.Width(now) >= subtitle.Line || !fits(text) {
			return n
		}
	}
	return len(words)
}

// fits reports whether words fit into two lines.
func fits(words []string) bool {
	lines := wrap(words)
	return len(lines) <= 2 && !slices.ContainsFunc(lines, func(l string) bool { return subtitle.Width(l) > subtitle.Line })
}

// wrap joins words to one line, or to two lines of similar length. No word is longer than a line.
func wrap(words []string) []string {
	whole := strings.Join(words, " ")
	if subtitle.Width(whole) <= subtitle.Line {
		return []string{whole}
	}
	best, least := []string{whole}, subtitle.Width(whole)
	for i := 1; i < len(words); i++ {
		first, second := strings.Join(words[:i], " "), strings.Join(words[i:], " ")
		if longer := max(subtitle.Width(first), subtitle.Width(second)); longer < least {
			best, least = []string{first, second}, longer
		}
	}
	return best
}
