package main

import (
	"strings"
	"time"

	"touchline/internal/e2e/stage"
	"touchline/internal/quantile"
)

// captionErrors compares a viewer's captions with the speech it heard. words are the delays of each word after its
// sound, final those of the closing flag after the end of the speech. unmatched counts comments whose words could
// not be compared, unflagged the streams that ended without the flag.
func captionErrors(
	comments []comment, seen stage.Seen, wordTimes func(text string) []time.Duration,
) (words, final []time.Duration, unmatched, unflagged int) {
	for _, c := range comments {
		var closed *stage.Closed
		for i := range seen.Closed {
			if strings.TrimSpace(seen.Closed[i].Text) == c.Text {
				closed = &seen.Closed[i]
			}
		}
		if closed == nil {
			unmatched++
			continue
		}
		var came []stage.Word
		for _, w := range seen.Words {
			if w.Segment == closed.Segment {
				came = append(came, w)
			}
		}
		sound := wordTimes(c.Text)
		if len(sound) != len(came) || len(came) == 0 {
			unmatched++
			continue
		}
		for i, w := range came {
			words = append(words, w.At.Sub(c.Heard.Add(sound[i])))
		}
		if closed.Attributes["lk.transcription_final"] != "true" {
			unflagged++
			continue
		}
		for _, t := range seen.Talks {
			if t.From.Equal(c.Heard) {
				end := t.To
				if end.Sub(c.EndedAt) > heardWithin {
					end = c.EndedAt // two comments were heard as one
				}
				final = append(final, closed.At.Sub(end))
			}
		}
	}
	return words, final, unmatched, unflagged
}

// captionRows returns the rows about captions.
func (r alignmentResult) captionRows() []row {
	return []row{
		atMost("caption words against their sound p95", ms(quantile.Of(absolute(r.Words), 0.95)), 250, "ms"),
		atMost("caption words, latest after the sound", ms(quantile.Of(r.Words, 1)), 250, "ms"),
		atMost("caption words, earliest before the sound", -ms(quantile.Of(r.Words, 0)), 250, "ms"),
		atMost("final flag against the end of the speech, worst", ms(quantile.Of(absolute(r.Final), 1)), 100, "ms"),
		atMost("captions not matched or without the flag", float64(r.Unmatched+r.Unflagged), 0, ""),
	}
}

// absolute returns the absolute values of durations.
func absolute(in []time.Duration) []time.Duration {
	out := make([]time.Duration, len(in))
	for i, d := range in {
		out[i] = d.Abs()
	}
	return out
}
