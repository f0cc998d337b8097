package step

import (
	"context"
	"sync/atomic"
	"time"

	"touchline/inference/internal/kvcache"
	"touchline/inference/internal/sample"
)

// Answer is the loop's part of an answer, which an engine embeds in its own type.
type Answer struct {
	// Rank is the order of waiting answers: lower ones first, then in order of arrival.
	Rank     int
	Settings sample.Settings
	Seed     uint64
	// Most is the maximum number of ids. Chunk is the number of tokens in a chunk of the speech path, whose first chunk has one more; 0
	// for none.
	Most, Chunk int
	// Forced are the ids of an answer that is not drawn.
	Forced []int32

	// Since is the arrival in the loop.
	Since time.Time
	// Slot is the slot of the cache, -1 without one; Filled is the number of prompt positions in it.
	Slot, Filled int
	// Count is the number of ids so far.
	Count int

	cancelled atomic.Bool
}

// Base returns the answer itself.
func (a *Answer) Base() *Answer { return a }

// Cancelled reports whether the answer was cancelled.
func (a *Answer) Cancelled() bool { return a.cancelled.Load() }

// answer is a pointer to a type that embeds Answer.
type answer interface {
	comparable
	Base() *Answer
}

// Engine is the part of the loop that differs between engines. Its methods are called by the goroutine of Loop.Run.
type Engine[A answer] interface {
	// Intake takes in what came from outside since the last turn. It returns only the loss of the device.
	Intake() error
	// Failed returns why a waiting answer must end; nil if it may go on.
	Failed(a A) error
	// Due is when the next step must begin at the latest. last is the end of the step before, zero for none.
	Due(last time.Time) time.Time
	// Pause is how long the answers that decode may pause for pieces.
	Pause() time.Duration
	// Piece does one piece of the work other than decode steps, and reports whether there was one. The first of a turn is done in any case, a
	// further one if it fits into the time left. The error is the loss of the device.
	Piece(left time.Duration, further bool) (bool, error)
	// Idle is how long the loop waits for a signal when there is no work; 0 has no limit.
	Idle() time.Duration

	// Step feeds tokens[slot] at position lengths[slot] to each slot of a range. A slot that does not decode has token -1.
	Step(r kvcache.Range, tokens, lengths []int32) error
	// Stepped is called after each step of all answers.
	Stepped(ctx context.Context) error
	// Top returns the largest logits of a slot of the last run, descending, with their ids.
	Top(slot int) (values []float32, ids []int64)
	// Logits returns the slot's whole row.
	Logits(slot int) ([]float32, error)

	// Push sends an id to the answer's reader. stop is set for one that ends the answer.
	Push(a A, id int32, stop bool)
	// Ended releases an answer's resources and notifies its reader.
	Ended(a A, err error)
}

// Options of a loop.
type Options struct {
	Layout kvcache.Layout
	Vocab  int
	Now    func() time.Time
	// Client of the GPU's owner.
	Client *Client
	// Waiting is the maximum number of waiting answers. Those of rank 0 are never refused.
	Waiting int
	// FailedRun is called for each run that failed, and WholeRow for each row of logits that was read; both may be nil.
	FailedRun, WholeRow func()
}
