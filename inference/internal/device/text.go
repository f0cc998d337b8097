package device

import (
	"touchline/inference/internal/cuda"
	"touchline/inference/internal/kvcache"
	"touchline/inference/internal/ort"
	"touchline/models"
)

// ForbiddenBias is added to the logits of forbidden ids.
const ForbiddenBias = -1e30

// On CUDA the length of a prompt chunk is rounded up to a multiple of PadTo, less
// PadLess. cuDNN plans its attention for each new length, which takes a quarter
// of a second on an H200 (the run itself 12 ms), so warm-up plans the remaining
// lengths. At the multiples themselves cuBLAS chooses slower kernels: 384 and 416
// tokens take 13.0 and 12.7 ms, 382 to 415 between 11.4 and 12.0 (fp16).
const (
	PadTo   = 32
	PadLess = 2
)

// TextOptions describe a decoder of tokens.
type TextOptions struct {
	// Decoder has all but the ports, which have the names of models/graph.Decoder, and Several.
	Decoder            DecoderOptions
	Hidden, Vocab, Top int
	// States on the host; Several holds the states of several positions of a prompt.
	States, Several bool
	// Pad rounds the length of prompts up: PadTo, or 1 for not at all.
	Pad int
}

// Text is a decoder of tokens: it is fed the rows of a table, and returns the largest logits of each slot.
type Text struct {
	*Decoder
	// Bias is added to the logits of a slot. States are taken after the final norm.
	Bias, States *Rows
	// Own runs steps of one weight set; nil without own kernels.
	Own *cuda.Decoder

	table               *Table
	pad                 int
	fed, prompt         *Rows
	logits, values, ids *Rows
	host                *ort.Memory // logits of one slot

	slots, lengthsOf []int32 // of the last step of own kernels
}

// NewText allocates the decoder's memory. The caller closes the table after it.
func NewText(rt *ort.Runtime, dev *ort.Device, table *Table, o TextOptions) (*Text, error) {
	d, hidden, vocab, top := o.Decoder, int64(o.Hidden), int64(o.Vocab), int64(o.Top)
	if o.Several {
		d.Several = &Port{Name: "hidden_states", Type: d.Float, Shape: []int64{hidden}, Host: true}
	}
	d.Fed = []Port{{Name: "inputs_embeds", Type: d.Float, Shape: []int64{hidden}, Host: true}}
	d.Inputs = []Port{{Name: "logits_bias", Type: models.Float32, Shape: []int64{vocab}}}
	d.Outputs = []Port{
		{Name: "logits", Type: models.Float32, Shape: []int64{1, vocab}},
		{Name: "top_values", Type: models.Float32, Shape: []int64{1, top}, Host: true},
		{Name: "top_ids", Type: models.Int64, Shape: []int64{1, top}, Host: true},
		{Name: "hidden_states", Type: d.Float, Shape: []int64{1, hidden}, Host: o.States},
	}
	decoder, err := NewDecoder(rt, dev, d)
	if err != nil {
		return nil, err
	}
	out := decoder.Output
	return &Text{
		Decoder: decoder, Bias: decoder.Input("logits_bias"), States: out("hidden_states"),
		table: table, pad: o.Pad, fed: decoder.Input("inputs_embeds"), prompt: decoder.Prompt("inputs_embeds"),
		logits: out("logits"), values: out("top_values"), ids: out("top_ids"), host: decoder.Host("logits", vocab*4),
	}, decoder.Err()
}

// Padded returns the padded length of a chunk of n positions after from.
func (t *Text) Padded(from, n int) int {
	less := min(PadLess, t.pad-1)
	return max(n, min((n+less+t.pad-1)/t.pad*t.pad-less, t.o.Chunk, t.o.Layout.MaxLen-from))
}

// Feed feeds n positions of a prompt to a slot that holds from positions. fill writes their rows. With several, the results are the
// states of that many positions, else the states of the last position.
func (t *Text) Feed(set, slot, from, n, several int, fill func(rows []byte) error) error {
	length := t.Padded(from, n)
	rows := t.prompt.Host(0, length)
	if err := fill(rows); err != nil {
		return err
	}
	// Padding leaves data in the cache after the prompt. Every step overwrites its
	// position before it reads it, and reads no further.
	clear(rows[n*t.table.Row():])
	if several > 0 {
		return t.PrefillSeveral(set, slot, from, length, n, several)
	}
	return t.Prefill(set, slot, from, length, n)
}

// Rows returns the rows of the i-th of several prompts of a length, on the host.
func (t *Text) Rows(i, length int) []byte { return t.prompt.Host(i*length, length) }

// Tokens feeds tokens[slot] at position lengths[slot] to each slot of a range. A slot that does not decode has token -1.
func (t *Text) Tokens(set int, r kvcache.Range, tokens, lengths []int32) error {
	for slot := r.Start; slot < r.Start+r.Size; slot++ {
		if tokens[slot] >= 0 {
			t.table.Copy(t.fed.Host(slot, 1), tokens[slot])
		}
	}
	return t.Step(set, r, lengths)
}

// FetchTop copies the largest logits of a range to the host, and the rows of other outputs.
func (t *Text) FetchTop(r kvcache.Range, others ...*Rows) error {
	return t.Fetch(r, append([]*Rows{t.values, t.ids}, others...)...)
}

// Top returns the largest logits of a slot, descending, with their ids.
func (t *Text) Top(slot int) ([]float32, []int64) {
	return ort.Slice[float32](t.values.Host(slot, 1)), ort.Slice[int64](t.ids.Host(slot, 1))
}

// Logits returns the slot's whole row.
func (t *Text) Logits(slot int) ([]float32, error) {
	if err := t.dev.CopyOut(t.host.Bytes(), t.logits.At(slot)); err != nil {
		return nil, err
	}
	if err := t.dev.Synchronize(); err != nil {
		return nil, err
	}
	return ort.Slice[float32](t.host.Bytes()), nil
}
