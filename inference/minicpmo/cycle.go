package minicpmo

import (
	"sync/atomic"
	"time"

	"touchline/inference/internal/sample"
)

// cycle is one answer on its way through the loop.
type cycle struct {
	// Set by who asks; read-only afterwards.
	prompt   prompt
	pictures []*picture // that the prompt's images belong to
	settings sample.Settings
	seed     uint64
	most     int // tokens
	chunk    int // of the speech path; 0 is none
	hidden   bool
	arrived  time.Time

	cancelled atomic.Bool
	out       outbox

	// The loop's own.
	slot     int
	filled   int
	count    int
	seenAt   time.Time // when the last of its pictures was embedded
	lastStep time.Time
	report   Report
}

// Report says where the time of one answer went.
type Report struct {
	// Wait is from the arrival until a slot was taken, Vision the part of it
	// that its pictures took, Prefill from the slot until the prompt was fed.
	Wait, Vision, Prefill time.Duration
	// FirstToken and Total are from the arrival.
	FirstToken, Total time.Duration
	// Prompt and Tokens count what was fed and what was generated; Cached are
	// the pictures that were embedded before.
	Prompt, Tokens   int
	Pictures, Cached int
}

// fail tells the error of the first picture that cannot be had.
func (c *cycle) fail() error {
	for _, p := range c.pictures {
		if p.state == pictureFailed {
			return p.err
		}
	}
	return nil
}

// letGo of the pictures: they may be dropped.
func (c *cycle) letGo() {
	for _, p := range c.pictures {
		p.wanted.Add(-1)
	}
}

// ready tells that all pictures are embedded.
func (c *cycle) ready() bool {
	for _, p := range c.pictures {
		if p.state != pictureDone {
			return false
		}
	}
	return true
}

// stops reports whether an id ends the answer.
func (c *cycle) stops(id int32) bool {
	for _, s := range c.settings.Stop {
		if s == id {
			return true
		}
	}
	return false
}
