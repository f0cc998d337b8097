// Package subtitle writes subtitles in the forms of SubRip and WebVTT so that every player takes them: in order, long enough to be seen,
// and without text that a player would interpret. It does not divide a text into subtitles.
package subtitle

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
	"unicode"
)

const (
	// Line is the longest line, in widths.
	Line = 42
	// least is the shortest time that a player shows, and mostLines bounds the lines of texts of the same moment.
	least     = 200 * time.Millisecond
	mostLines = 2
)

// Cue is one subtitle.
type Cue struct {
	Start, End time.Duration
	Lines      []string
}

// Width returns the width of a text: a wide character counts as two, a combining one as none.
func Width(s string) (n int) {
	for _, r := range s {
		switch {
		case unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf):
		case unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Hangul),
			r >= 0x3000 && r <= 0x30ff, r >= 0xff00 && r <= 0xff60, r >= 0x1f300 && r <= 0x1faff:
			n += 2
		default:
			n++
		}
	}
	return n
}

// Clean removes control characters from a text. Those that separate words become a space.
func Clean(text string) string {
	text = strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r):
			return ' '
		case unicode.IsControl(r), r == '\uFEFF':
			return -1
		}
		return r
	}, strings.ToValidUTF8(text, "\uFFFD"))
	return strings.TrimSpace(text)
}

// tidy returns the cues in order, without empty ones. Each is shown for the least time: texts of the same moment are shown together, or
// one after the other if they are many.
func tidy(cues []Cue) []Cue {
	var out []Cue
	cues = slices.Clone(cues)
	slices.SortStableFunc(cues, func(a, b Cue) int { return cmp.Compare(a.Start, b.Start) })
	for i, c := range cues {
		c.Lines = slices.DeleteFunc(slices.Clone(c.Lines), func(line string) bool { return Clean(line) == "" })
		if len(c.Lines) == 0 {
			continue
		}
		c.Start = max(c.Start, 0)
		if c.End >= c.Start+least {
			out = append(out, c)
			continue
		}
		c.End = c.Start + least
		if i+1 == len(cues) || cues[i+1].Start >= c.End {
			out = append(out, c)
			continue
		}
		next := &cues[i+1]
		if len(c.Lines)+len(next.Lines) <= mostLines {
			next.Start, next.Lines = c.Start, append(c.Lines, next.Lines...)
			continue
		}
		out, next.Start = append(out, c), c.End
	}
	return out
}

// WriteSRT writes cues as SubRip. The format has no escapes: a word joiner (U+2060) breaks text that looks like a tag or a line of times.
func WriteSRT(w io.Writer, cues []Cue) error {
	return write(w, cues, ",", strings.NewReplacer("<", "<\u2060", "{", "{\u2060", "-->", "--\u2060>"), true)
}

// WriteVTT writes cues as WebVTT.
func WriteVTT(w io.Writer, cues []Cue) error {
	if _, err := io.WriteString(w, "WEBVTT\n\n"); err != nil {
		return err
	}
	return write(w, cues, ".", strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;"), false)
}

// write writes each cue: its number, its times, its lines and an empty line.
func write(w io.Writer, cues []Cue, point string, escape *strings.Replacer, numbered bool) error {
	out := bufio.NewWriter(w)
	for i, c := range tidy(cues) {
		if numbered {
			fmt.Fprintf(out, "%d\n", i+1)
		}
		fmt.Fprintf(out, "%s --> %s\n", clock(c.Start, point), clock(c.End, point))
		for _, line := range c.Lines {
			fmt.Fprintf(out, "%s\n", escape.Replace(Clean(line)))
		}
		fmt.Fprintln(out)
	}
	return out.Flush()
}

// clock writes hours:minutes:seconds and milliseconds.
func clock(d time.Duration, point string) string {
	ms := d.Round(time.Millisecond).Milliseconds()
	return fmt.Sprintf("%02d:%02d:%02d%s%03d", ms/3_600_000, ms/60_000%60, ms/1000%60, point, ms%1000)
}
