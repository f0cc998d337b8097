package minicpmo

import (
	"errors"
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

// chunkNumbers is the size of the numbers of a prompt chunk: seqlens_k (int32)
// and, at lastAt, last_position (int64).
const (
	chunkNumbers = 16
	lastAt       = 8
)

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
	run, err := d.decoder(set, r)
	if err != nil {
		return err
	}
	width := d.table.row
	rows, at := d.hostEmbeds.Bytes(), ort.Slice[int32](d.hostLengths.Bytes())
	for slot := r.Start; slot < r.Start+r.Size; slot++ {
		if tokens[slot] >= 0 {
			d.table.copy(rows[slot*width:], tokens[slot])
		}
		at[slot] = lengths[slot]
	}
	from, n := int64(r.Start), int64(r.Size)
	err = d.dev.CopyIn(d.embeds.At(from*int64(width)), rows[from*int64(width):(from+n)*int64(width)])
	if err == nil {
		err = d.dev.CopyIn(d.lengths.At(from*4), d.hostLengths.Bytes()[from*4:(from+n)*4])
	}
	if err != nil {
		return err
	}
	if !d.lastRun.IsZero() {
		d.stats.host.took(d.now().Sub(d.lastRun))
	}
	d.lastRun = time.Time{}
	if err := run.run(); err != nil {
		return err
	}
	d.lastRun = d.now()
	return d.fetch(from, n, hidden)
}

// fetch copies the largest logits of a range, and its hidden states, to the host.
func (d *device) fetch(from, n int64, hidden bool) error {
	k := int64(d.top256)
	err := d.dev.CopyOut(d.hostValues.Bytes()[from*k*4:(from+n)*k*4], d.values.At(from*k*4))
	if err == nil {
		err = d.dev.CopyOut(d.hostIDs.Bytes()[from*k*8:(from+n)*k*8], d.ids.At(from*k*8))
	}
	if err == nil && hidden {
		width := int64(d.table.row)
		err = d.dev.CopyOut(d.hostHidden.Bytes()[from*width:(from+n)*width], d.hiddens.At(from*width))
	}
	if err != nil {
		return err
	}
	d.hasHidden = hidden
	return d.dev.Synchronize()
}

func (d *device) top(slot int) ([]float32, []int64) {
	k := d.top256
	return ort.Slice[float32](d.hostValues.Bytes()[slot*k*4 : (slot+1)*k*4]), ort.Slice[int64](d.hostIDs.Bytes()[slot*k*8 : (slot+1)*k*8])
}

func (d *device) logits(slot int) ([]float32, error) {
	n := int64(d.sel.dims.Decoder.Vocab) * 4
	if err := d.dev.CopyOut(d.hostLogits.Bytes(), d.logitsAt.At(int64(slot)*n)); err != nil {
		return nil, err
	}
	if err := d.dev.Synchronize(); err != nil {
		return nil, err
	}
	return ort.Slice[float32](d.hostLogits.Bytes()), nil
}

func (d *device) hidden(slot int) []float32 {
	if !d.hasHidden {
		return nil
	}
	b := d.hostHidden.Bytes()[slot*d.table.row : (slot+1)*d.table.row]
	if d.elem == 4 {
		return ort.Slice[float32](b)
	}
	for i, h := range ort.Slice[uint16](b) {
		d.row[i] = models.Float16FromBits(h)
	}
	return d.row
}

func (d *device) clear(slot int) error {
	d.lastRun = time.Time{}
	l := d.sel.layout
	at := l.Offset(kvcache.Range{Start: slot, Size: 1})
	for _, m := range d.kv {
		if err := d.dev.Memset(m.At(at), 0, l.SlotBytes()); err != nil {
			return err
		}
	}
	return nil
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
	if err := d.dev.CopyIn(d.bias.At(int64(slot)*int64(vocab)*4), ort.Bytes(row)); err != nil {
		return err
	}
	d.masks[slot] = forbidden
	return nil
}

func (d *device) prefill(set, slot int, p *prompt, from, to int, hidden bool) error {
	d.lastRun = time.Time{}
	n := to - from
	if n < 1 || n > d.sel.chunk {
		return fmt.Errorf("feed a prompt: expected 1 to %d positions, has %d", d.sel.chunk, n)
	}
	run := d.prefills[slot]
	if run == nil {
		v, err := d.view(kvcache.Range{Start: slot, Size: 1})
		if err != nil {
			return err
		}
		if run, err = d.bind(d.decoders[set], v, d.plain); err != nil {
			return err
		}
		length, err := d.tensorAt(d.chunkLength.At(0), models.Int32, 1)
		if err != nil {
			return err
		}
		last, err := d.tensorAt(d.chunkLength.At(lastAt), models.Int64, 1)
		if err != nil {
			return err
		}
		if err := errors.Join(run.binding.BindInput("seqlens_k", length), run.binding.BindInput("last_position", last)); err != nil {
			return err
		}
		d.prefills[slot] = run
	}
	length := d.padded(from, n)
	rows := d.hostChunk.Bytes()[:length*d.table.row]
	if err := d.fill(rows, p, from, to); err != nil {
		return err
	}
	// Padding leaves data in the cache after the prompt. Every step overwrites its
	// position before it reads it, and reads no further.
	clear(rows[n*d.table.row:])
	numbers := d.hostChunkLength.Bytes()
	ort.Slice[int32](numbers)[0] = int32(from + length - 1) //nolint:gosec // bounded by the layout
	ort.Slice[int64](numbers[lastAt:])[0] = int64(n - 1)
	total, err := ort.Data[int32](d.chunkTotal)
	if err != nil {
		return err
	}
	total[0] = int32(from + length) //nolint:gosec // bounded by the layout
	input, err := d.dev.TensorAt(d.chunkEmbeds.At(0), d.float, 1, int64(length), int64(d.sel.dims.Decoder.Hidden))
	if err != nil {
		return err
	}
	defer func() { _ = input.Close() }()
	err = errors.Join(
		d.dev.CopyIn(d.chunkEmbeds.At(0), rows), d.dev.CopyIn(d.chunkLength.At(0), numbers),
		run.binding.BindInput("inputs_embeds", input), run.binding.BindInput("total_sequence_length", d.chunkTotal))
	if err != nil {
		return err
	}
	if err := run.run(); err != nil {
		return err
	}
	return d.fetch(int64(slot), 1, hidden)
}

// fill writes the embeddings of positions [from, to): of images inside their
// spans, of the table elsewhere.
func (d *device) fill(dst []byte, p *prompt, from, to int) error {
	width := d.table.row
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
		d.table.copy(dst[(i-from)*width:], p.ids[i])
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
