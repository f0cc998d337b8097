package minicpmo

import (
	"context"
	"time"

	"touchline/inference/internal/kvcache"
	"touchline/inference/internal/sample"
	"touchline/inference/tokenizer"
)

// backend is the step loop's interface to the device: one call at a time, from
// the loop's thread. Results are valid until the next call.
type backend interface {
	// warm runs everything once, captures the graphs, and measures. progress
	// receives 0 to 100.
	warm(ctx context.Context, progress func(percent int)) (warmth, error)
	// clear zeroes the keys and values of a slot.
	clear(slot int) error
	// save copies positions of a slot to the store, restore copies those in [from, to) of a piece to a slot.
	save(slot int, p kvcache.Piece) error
	restore(slot, from, to int, p kvcache.Piece) error
	// mask lowers the logits of ids that a slot's answer must not use.
	mask(slot int, forbidden *sample.Set) error
	// prefill feeds positions [from, to) of a prompt to a slot that holds the positions before from. Then top and logits return the results
	// of position to-1, and the method hidden the states of the last hidden positions. hidden > 1 needs shape.several, and leaves top and
	// logits undefined.
	prefill(set, slot int, p *prompt, from, to, hidden int) error
	// decode feeds tokens[slot] at position lengths[slot] to each slot of a
	// range. A slot that does not decode has token -1; its position receives
	// data that no step reads.
	decode(set int, r kvcache.Range, tokens, lengths []int32, hidden bool) error
	// top returns the largest masked logits of a slot of the last run,
	// descending, with their ids.
	top(slot int) (values []float32, ids []int64)
	// logits returns the slot's whole row, not masked.
	logits(slot int) ([]float32, error)
	// hidden returns the slot's states after the final norm, as many as the run requested.
	hidden(slot int) []float32
	// embed embeds images of one grid, at most batchLimit.
	embed(images []*image) error
	// close frees everything. It is called once, even after a failure.
	close() error
}

// batchLimit is the maximum number of images in one run of the vision tower.
const batchLimit = 4

// warmth holds the measurements of warming up.
type warmth struct {
	steps           stepCosts // empty with a single weight set
	ownRows         int       // the most rows of a step by own kernels
	noOwn           error     // why there are none
	ownCheck        time.Duration
	storeDiffers    string // how a prompt with a copied beginning differs; empty if it does not
	prefill, vision cost   // by positions, by images
}

// stepCosts is the duration of a decode step, by weight set and by the size of
// the range as a power of two.
type stepCosts [][]time.Duration

// span is the place of an image's embeddings in a prompt.
type span = tokenizer.Span

// prompt is the input of one answer: ids, and embeddings instead of the ids
// inside spans.
type prompt struct {
	ids    []int32
	spans  []span
	images []*image // of the spans, in order
}

// words returns what the states of the first n positions depend on: the ids of tokens, and for each position of an image its
// content, which is negative.
func (p *prompt) words(n int) []int64 {
	words := make([]int64, n)
	for i, id := range p.ids[:n] {
		words[i] = int64(id)
	}
	for i, s := range p.spans {
		for at := s.Start; at < min(s.End, n); at++ {
			words[at] = p.images[i].content
		}
	}
	return words
}

// shape holds the model parameters that the loop uses.
type shape struct {
	vocab      int
	layout     kvcache.Layout
	sets       []string // names of the weight sets
	prefillSet int      // the weight set of prompts
	chunk      int      // maximum positions of one prefill run
	images     int      // maximum images of one run of the vision tower
	several    bool     // prompts can return the states of several positions
	prefixes   int64    // bytes of the store for the beginnings of prompts
}
