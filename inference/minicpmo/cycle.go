package minicpmo

import (
	"slices"
	"time"

	networks "touchline/inference/internal/device"
	"touchline/inference/step"
)

// cycle is the state of one answer.
type cycle struct {
	step.Answer

	// Set by the request; read-only afterwards.
	prompt   prompt
	pictures []*picture // of the prompt's images
	given    int        // tokens of the answer at the end of the prompt, whose states its run returns
	whole    bool       // they are the whole answer
	hidden   bool
	urgent   bool
	arrived  time.Time

	out     networks.Outbox[token]
	hiddens []float32 // the memory of the tokens' hidden states

	// Owned by the loop.
	seenAt   time.Time // of the last picture's embedding
	lastStep time.Time
	report   Report
	failed   bool
	words    []int64 // of the prompt, with a store
	copied   int     // positions that came from the store
}

// token is a chosen id, and the state that it was chosen from if requested.
type token struct {
	id     int32
	hidden []float32
}

// spoken reports whether the model's own voice reads the answer.
func (c *cycle) spoken() bool { return c.hidden && c.Chunk > 0 }

// firstState returns the first position of the prompt whose state is wanted.
func (c *cycle) firstState() int { return len(c.prompt.ids) - 1 - c.given }

// pushGiven sends an answer that was given, whose states are complete.
func (c *cycle) pushGiven(width int) {
	state := func(i int) []float32 { return c.hiddens[i*width : (i+1)*width : (i+1)*width] }
	for i, id := range c.prompt.ids[c.firstState()+1:] {
		c.out.Push(token{id, state(i)})
	}
	if c.whole {
		c.out.Push(token{c.Settings.Stop[0], state(c.given)})
	}
	c.Count = c.given
}

// push sends a step to the reader.
func (c *cycle) push(id int32, hidden []float32) {
	s := token{id: id}
	if n := len(c.hiddens); len(hidden) > 0 {
		c.hiddens = append(c.hiddens, hidden...)
		s.hidden = c.hiddens[n:len(c.hiddens):len(c.hiddens)]
	}
	c.out.Push(s)
}

// Report holds the timing of one answer.
type Report struct {
	// Wait is from the arrival to the slot, Vision its part for the pictures,
	// Prefill from the slot to the end of the prompt.
	Wait, Vision, Prefill time.Duration
	// FirstToken and Total are from the arrival.
	FirstToken, Total time.Duration
	// Prompt and Tokens count tokens fed and generated, Cached pictures that were
	// embedded before.
	Prompt, Tokens   int
	Pictures, Cached int
}

// pictureErr returns the error of the first failed picture.
func (c *cycle) pictureErr() error {
	for _, p := range c.pictures {
		if p.state == pictureFailed {
			return p.err
		}
	}
	return nil
}

// release ends the answer's use of its pictures.
func (c *cycle) release() {
	for _, p := range c.pictures {
		p.wanted.Add(-1)
	}
}

// ready reports whether all pictures are embedded.
func (c *cycle) ready() bool {
	return !slices.ContainsFunc(c.pictures, func(p *picture) bool { return p.state != pictureDone })
}

// stops reports whether an id ends the answer.
func (c *cycle) stops(id int32) bool { return slices.Contains(c.Settings.Stop, id) }
