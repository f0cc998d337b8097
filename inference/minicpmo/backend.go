package minicpmo

import (
	"context"
	"time"

	"touchline/inference/internal/kvcache"
	"touchline/inference/internal/sample"
	"touchline/inference/tokenizer"
)

// backend is the device as the step loop sees it: one call at a time, all from
// the loop's thread. What a call returns is valid until the next one.
type backend interface {
	// warm runs everything once, captures what can be captured, and measures.
	// progress takes 0 to 100.
	warm(ctx context.Context, progress func(percent int)) (warmth, error)
	// clear zeroes the keys and values of a slot.
	clear(slot int) error
	// mask presses down the ids that a slot's answer may not use.
	mask(slot int, forbidden *sample.Set) error
	// prefill feeds positions [from, to) of a prompt to a slot that holds
	// those before from. Afterwards top, logits and hidden are of to-1.
	prefill(set, slot int, p *prompt, from, to int, hidden bool) error
	// decode feeds tokens[slot] at position lengths[slot] to each slot of a
	// range. A slot that does not decode has token -1; whatever is written at
	// its position is of no account.
	decode(set int, r kvcache.Range, tokens, lengths []int32, hidden bool) error
	// top is the largest masked logits of a slot that the last run covered,
	// descending, with their ids.
	top(slot int) (values []float32, ids []int64)
	// logits is the slot's whole row, not masked.
	logits(slot int) ([]float32, error)
	// hidden is the slot's state after the final norm, if the run was asked for it.
	hidden(slot int) []float32
	// see embeds images of one grid, at most batchLimit.
	see(images []*image) error
	// close frees everything. Called once, also after a failure.
	close() error
}

// batchLimit is how many images one run of the vision tower takes.
const batchLimit = 4

// warmth is what warming up measured.
type warmth struct {
	steps           stepCosts // empty with a single weight set
	prefill, vision cost      // by positions, by images
}

// stepCosts is what a decode step takes, by weight set and by the size of the
// range as a power of two.
type stepCosts [][]time.Duration

// span is where the embeddings of an image go.
type span = tokenizer.Span

// prompt is what one answer is fed: ids, and embeddings in place of the ids
// inside spans.
type prompt struct {
	ids   []int32
	spans []span
	// images go with the spans, in their order.
	images []*image
}

// shape is what the loop must know of a model.
type shape struct {
	vocab  int
	layout kvcache.Layout
	sets   []string // names of the weight sets
	// prefillSet is the set that prompts are fed with.
	prefillSet int
	chunk      int // most positions of one prefill run
}
