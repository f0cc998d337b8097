package main

import (
	"time"

	"touchline/agent"
	"touchline/internal/e2e/stage"
)

// comment is one comment as the bot recorded it and the viewer perceived it.
type comment struct {
	agent.Record
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
func matchComments(records []agent.Record, seen stage.Seen, counterOf func(text string) (uint32, bool)) []comment {
	var out []comment
	for _, r := range records {
		counter, ok := counterOf(r.Text)
		if !ok || r.Outcome != agent.OutcomeSpoken {
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
