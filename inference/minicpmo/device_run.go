package minicpmo

import (
	"fmt"
	"sort"
	"time"

	"touchline/inference/internal/kvcache"
	"touchline/inference/internal/ort"
	"touchline/inference/internal/sample"
	"touchline/models"
)

// forbiddenBias is added to the logits of forbidden ids.
const forbiddenBias = -1e30

// On CUDA the length of a prompt chunk is rounded up to a multiple of padTo, less
// padLess. cuDNN plans its attention for each new length, which takes a quarter
// of a second on an H200 (the run itself 12 ms), so warm-up plans the remaining
// lengths. At the multiples themselves cuBLAS chooses slower kernels: 384 and 416
// tokens take 13.0 and 12.7 ms, 382 to 415 between 11.4 and 12.0 (fp16).
const (
	padTo   = 32
	padLess = 2
)

// padded returns the padded length of a chunk of n positions after from.
func (d *device) padded(from, n int) int {
	less := min(padLess, d.pad-1)
	return max(n, min((n+less+d.pad-1)/d.pad*d.pad-less, d.sel.chunk, d.sel.layout.MaxLen-from))
}

func (d *device) decode(set int, r kvcache.Range, tokens, lengths []int32, hidden bool) error {
	for slot := r.Start; slot < r.Start+r.Size; slot++ {
		if tokens[slot] >= 0 {
			d.table.Copy(d.fed.Host(slot, 1), tokens[slot])
		}
	}
	if !d.lastRun.IsZero() {
		d.stats.host.took(d.now().Sub(d.lastRun))
	}
	d.lastRun = time.Time{}
	if err := d.decoder.Step(set, r, lengths); err != nil {
		return err
	}
	d.lastRun = d.now()
	return d.fetch(r, hidden)
}

// fetch copies the largest logits of a range, and its hidden states, to the host.
func (d *device) fetch(r kvcache.Range, hidden bool) error {
	d.fetched = 0
	if hidden {
		d.fetched = 1
		return d.decoder.Fetch(r, d.values, d.ids, d.states)
	}
	return d.decoder.Fetch(r, d.values, d.ids)
}

func (d *device) top(slot int) ([]float32, []int64) {
	return ort.Slice[float32](d.values.Host(slot, 1)), ort.Slice[int64](d.ids.Host(slot, 1))
}

func (d *device) logits(slot int) ([]float32, error) {
	if err := d.dev.CopyOut(d.hostLogits.Bytes(), d.logitsRows.At(slot)); err != nil {
		return nil, err
	}
	if err := d.dev.Synchronize(); err != nil {
		return nil, err
	}
	return ort.Slice[float32](d.hostLogits.Bytes()), nil
}

func (d *device) hidden(slot int) []float32 {
	var b []byte
	switch d.fetched {
	case 0:
		return nil
	case 1:
		b = d.states.Host(slot, 1)
	default:
		b = d.decoder.Several().Host(0, d.fetched)
	}
	if d.elem == 4 {
		return ort.Slice[float32](b)
	}
	d.wide = d.wide[:0]
	for _, h := range ort.Slice[uint16](b) {
		d.wide = append(d.wide, models.Float16FromBits(h))
	}
	return d.wide
}

func (d *device) clear(slot int) error {
	d.lastRun = time.Time{}
	return d.decoder.Clear(slot)
}

func (d *device) mask(slot int, forbidden *sample.Set) error {
	if forbidden.Len() == 0 {
		forbidden = nil
	}
	if d.masks[slot] == forbidden {
		return nil
	}
	d.lastRun = time.Time{}
	vocab := d.sel.dims.Decoder.Vocab
	row, ok := d.biasRows[forbidden]
	if !ok {
		row = make([]float32, vocab)
		for id := range row {
			if forbidden.Has(int32(id)) { //nolint:gosec // bounded by the vocabulary
				row[id] = forbiddenBias
			}
		}
		d.biasRows[forbidden] = row
	}
	if err := d.dev.CopyIn(d.bias.At(slot), ort.Bytes(row)); err != nil {
		return err
	}
	d.masks[slot] = forbidden
	return nil
}

func (d *device) prefill(set, slot int, p *prompt, from, to, hidden int) error {
	d.lastRun = time.Time{}
	n := to - from
	if n < 1 || n > d.sel.chunk {
		return fmt.Errorf("feed a prompt: expected 1 to %d positions, has %d", d.sel.chunk, n)
	}
	length := d.padded(from, n)
	rows := d.prompt.Host(0, length)
	if err := d.fill(rows, p, from, to); err != nil {
		return err
	}
	// Padding leaves data in the cache after the prompt. Every step overwrites its
	// position before it reads it, and reads no further.
	clear(rows[n*d.table.Row():])
	if hidden <= 1 {
		if err := d.decoder.Prefill(set, slot, from, length, n); err != nil {
			return err
		}
		return d.fetch(kvcache.Range{Start: slot, Size: 1}, hidden == 1)
	}
	if err := d.decoder.PrefillSeveral(set, slot, from, length, n, hidden); err != nil {
		return err
	}
	d.fetched = hidden
	return d.decoder.Fetch(kvcache.Range{Start: 0, Size: hidden}, d.decoder.Several())
}

// fill writes the embeddings of positions [from, to): of images inside their
// spans, of the table elsewhere.
func (d *device) fill(dst []byte, p *prompt, from, to int) error {
	width := d.table.Row()
	for i := from; i < to; {
		s := sort.Search(len(p.spans), func(s int) bool { return p.spans[s].End > i })
		if s < len(p.spans) && i >= p.spans[s].Start {
			end, begin := min(to, p.spans[s].End), i-p.spans[s].Start
			rows := p.images[s].embeds
			if len(rows) < (end-p.spans[s].Start)*width {
				return fmt.Errorf("feed a prompt: expected %d embeddings for image %d, has %d", end-p.spans[s].Start, s, len(rows)/width)
			}
			copy(dst[(i-from)*width:], rows[begin*width:(end-p.spans[s].Start)*width])
			i = end
			continue
		}
		d.table.Copy(dst[(i-from)*width:], p.ids[i])
		i++
	}
	return nil
}

func (d *device) see(images []*image) error {
	d.lastRun = time.Time{}
	if d.vision == nil {
		return ErrNoVision
	}
	return d.vision.run(images)
}
