package main

import (
	"time"

	"touchline/agent"
	"touchline/internal/e2e/stage"
)

// comment is one comment as the bot and the viewer saw it.
type comment struct {
	agent.Record
	// Seen is when the viewer got the first picture whose counter is at least the anchor's.
	Seen time.Time
	// Heard is when its speech began for the viewer.
	Heard time.Time
	// Error is Heard minus Seen.
	Error time.Duration
}

// heardWithin is how far the viewer's onset may lie from the bot's to be the same one.
const heardWithin = 800 * time.Millisecond

// matchComments puts the bot's records and what a viewer perceived together. Comments
// that the viewer did not get whole, because it came or left in the middle, are left out.
func matchComments(records []agent.Record, seen stage.Seen, engine *stage.Engine) []comment {
	var out []comment
	for _, r := range records {
		counter, ok := engine.CounterOf(r.Text)
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
