package main

import (
	"errors"
	"strings"
	"time"

	"touchline/agent/look"
	"touchline/cmd/internal/bench"
	"touchline/configs"
	"touchline/internal/e2e/stage"
	"touchline/internal/quantile"
	"touchline/media/sound"
)

// alignment lets a bot comment on a match before a viewer, and compares picture, voice and captions there.
type alignment struct {
	least, most time.Duration // the model's latency
	// pauseOff is the permitted difference between the silence and the configured pause.
	pauseOff time.Duration
	// say returns the text of comment n; nil for sentences of about three seconds.
	say func(n int) string
}

func (a alignment) measure(r *run) {
	engine := stage.NewEngine(7, a.least, a.most)
	engine.Text = a.say
	align(r, 20*time.Second+a.most, engine.CounterOf, a.pauseOff, stage.Options{Model: engine, Seed: 3, Crowd: r.flags.Sound})
}

// ownVoice is an alignment in the model's own voice.
func ownVoice(r *run) {
	model, cfg := r.ownVoice()
	align(r, longestComment, model.CounterOf, 500*time.Millisecond, stage.Options{Model: model, Config: cfg, Seed: 3, Crowd: r.flags.Sound})
}

// align measures an alignment, with perComment as the longest time of a comment.
func align(
	r *run, perComment time.Duration, counterOf func(text string) (uint32, bool), pauseOff time.Duration, o stage.Options,
) {
	comments := r.flags.Comments
	s, v := r.watched(o)
	_, err := stage.Until(r.Context(), time.Duration(comments+unsettled)*perComment, "the comments", func() bool {
		return len(s.Reader.Records()) >= comments+unsettled
	})
	r.Fail(err)
	r.Wait(300 * time.Millisecond)
	seen, records := v.Seen(), s.Reader.Records()
	records = records[min(unsettled, len(records)):]
	matched := matchComments(records, seen, counterOf)
	if len(matched) == 0 {
		r.Fail(errors.New("no comment was seen and heard: see the log for the cycles"))
	}
	alignmentFigures(r, matched, records)
	var gaps []time.Duration
	for i := unsettled; i < len(seen.Talks); i++ {
		gaps = append(gaps, seen.Talks[i].From.Sub(seen.Talks[i-1].To))
	}
	least, most := bench.MS(configs.Default().Pacing.PauseAfter-pauseOff), bench.MS(configs.Default().Pacing.PauseAfter+pauseOff)
	r.Note("silence between comments p50", "%.0f ms", bench.MS(quantile.Of(gaps, 0.5)))
	r.Between("silence between comments p05", bench.MS(quantile.Of(gaps, 0.05)), least, most, "ms")
	r.Between("silence between comments p95", bench.MS(quantile.Of(gaps, 0.95)), least, most, "ms")
	captionFigures(r, matched, seen, s.WordTimes)
	if got := s.Bot.Sound(); got != (sound.Stats{}) {
		r.Note("camera's sound later than its picture (the bot's figure)", "%.1f ms, followed D %d times in silence, %d by a jump",
			bench.MS(got.Offset), got.Moves, got.Jumps)
	}
}

// alignmentFigures adds the figures of picture and voice.
func alignmentFigures(r *run, comments []comment, records []look.Record) {
	var ready, errs, differ []time.Duration
	dropped, late := 0, 0
	for _, rec := range records {
		switch rec.Outcome {
		case look.OutcomeDropped:
			dropped++
		case look.OutcomeSpoken:
			ready = append(ready, seconds(rec.ReadySec))
		}
		if rec.Late {
			late++
		}
	}
	var settled float64
	for _, c := range comments {
		errs = append(errs, c.Error.Abs())
		differ = append(differ, (c.Error - seconds(c.AlignmentError)).Abs())
		settled = c.Delay
	}
	r.Note("comments measured", "%d of %d", len(comments), len(records))
	r.Note("alignment error p50", "%.1f ms", bench.MS(quantile.Of(errs, 0.5)))
	r.AtMost("alignment error p95", bench.MS(quantile.Of(errs, 0.95)), 100, "ms")
	r.Note("alignment error max", "%.1f ms", bench.MS(quantile.Of(errs, 1)))
	r.AtMost("bot's own figure differs by at most", bench.MS(quantile.Of(differ, 1)), 40, "ms")
	r.AtMost("settled D", settled, quantile.Of(ready, 0.95).Seconds()+0.5, "s")
	r.AtMost("dropped", 100*float64(dropped)/float64(max(len(records), 1)), 1, "%")
	r.Note("late (over 100 ms)", "%d", late)
}

// comment is one comment as the bot recorded it and the viewer perceived it.
type comment struct {
	look.Record
	// Seen is the arrival of the first picture whose counter is at least the anchor's.
	Seen time.Time
	// Heard is the onset of its speech at the viewer.
	Heard time.Time
	// Error is Heard minus Seen.
	Error time.Duration
}

// heardWithin is the largest distance between the viewer's and the bot's onset of one comment.
const heardWithin = 800 * time.Millisecond

// matchComments joins the bot's records with a viewer's perception, without the comments that the viewer did not
// receive whole. counterOf returns the frame counter of the newest picture in the prompt of an answer.
func matchComments(records []look.Record, seen stage.Seen, counterOf func(text string) (uint32, bool)) []comment {
	var out []comment
	for _, r := range records {
		counter, ok := counterOf(r.Text)
		if !ok || r.Outcome != look.OutcomeSpoken {
			continue
		}
		c := comment{Record: r}
		for _, p := range seen.Pictures {
			if p.Read && p.Counter >= counter {
				if p.Counter < counter+10 {
					c.Seen = p.At
				}
				break
			}
		}
		for _, t := range seen.Talks {
			if t.From.Sub(r.StartedAt).Abs() < heardWithin {
				c.Heard = t.From
				break
			}
		}
		if c.Seen.IsZero() || c.Heard.IsZero() {
			continue
		}
		c.Error = c.Heard.Sub(c.Seen)
		out = append(out, c)
	}
	return out
}

// captionFigures compares a viewer's captions with the speech it heard: the delay of each word after its sound, and the delay
// of the closing flag after the end of the speech.
func captionFigures(r *run, comments []comment, seen stage.Seen, wordTimes func(text string) []time.Duration) {
	var words, final []time.Duration
	failed := 0 // could not be compared, or ended without the flag
	for _, c := range comments {
		var closed *stage.Closed
		for i := range seen.Closed {
			if strings.TrimSpace(seen.Closed[i].Text) == c.Text {
				closed = &seen.Closed[i]
			}
		}
		if closed == nil {
			failed++
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
			failed++
			continue
		}
		for i, w := range came {
			words = append(words, w.At.Sub(c.Heard.Add(sound[i])))
		}
		if closed.Attributes["lk.transcription_final"] != "true" {
			failed++
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
	r.AtMost("caption words against their sound p95", bench.MS(quantile.Of(absolute(words), 0.95)), 250, "ms")
	r.AtMost("caption words, latest after the sound", bench.MS(quantile.Of(words, 1)), 250, "ms")
	r.AtMost("caption words, earliest before the sound", -bench.MS(quantile.Of(words, 0)), 250, "ms")
	r.AtMost("final flag against the end of the speech, worst", bench.MS(quantile.Of(absolute(final), 1)), 100, "ms")
	r.AtMost("captions not matched or without the flag", float64(failed), 0, "")
}
