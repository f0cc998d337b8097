package minicpmo

import (
	"fmt"
	"sort"
	"time"

	networks "touchline/inference/internal/device"
	"touchline/inference/internal/kvcache"
	"touchline/inference/internal/ort"
	"touchline/inference/internal/sample"
	"touchline/models"
)

func (d *device) decode(set int, r kvcache.Range, tokens, lengths []int32, hidden bool) error {
	if !d.lastRun.IsZero() {
		took := d.now().Sub(d.lastRun)
		d.stats.count(func(s *Stats) { s.Host.took(took) })
	}
	d.lastRun = time.Time{}
	var err error
	own := d.own(set, r, tokens)
	if own {
		err = d.decoder.OwnTokens(r, tokens, lengths)
	} else {
		err = d.decoder.Tokens(set, r, tokens, lengths)
	}
	if err != nil {
		return err
	}
	d.lastRun = d.now()
	if err = d.fetch(r, hidden); own {
		d.lastRun = d.now() // own kernels run until then
		err = d.decoder.Own.End(err)
	}
	return err
}

// fetch copies the largest logits of a range, and its hidden states, to the host.
func (d *device) fetch(r kvcache.Range, hidden bool) error {
	d.fetched = 0
	if hidden {
		d.fetched = 1
		return d.decoder.FetchTop(r, d.decoder.States)
	}
	return d.decoder.FetchTop(r)
}

func (d *device) top(slot int) ([]float32, []int64) { return d.decoder.Top(slot) }

func (d *device) logits(slot int) ([]float32, error) { return d.decoder.Logits(slot) }

func (d *device) hidden(slot int) []float32 {
	var b []byte
	switch d.fetched {
	case 0:
		return nil
	case 1:
		b = d.decoder.States.Host(slot, 1)
	default:
		b = d.decoder.Several().Host(0, d.fetched)
	}
	if d.float == models.Float32 {
		return ort.Slice[float32](b)
	}
	from := models.Float16FromBits
	if d.float == models.BFloat16 {
		from = models.BFloat16FromBits
	}
	d.wide = d.wide[:0]
	for _, h := range ort.Slice[uint16](b) {
		d.wide = append(d.wide, from(h))
	}
	return d.wide
}

func (d *device) clear(slot int) error {
	d.lastRun = time.Time{}
	return d.decoder.Clear(slot)
}

func (d *device) save(slot int, p kvcache.Piece) error {
	d.lastRun = time.Time{}
	return d.decoder.Save(slot, p)
}

func (d *device) restore(slot, from, to int, p kvcache.Piece) error {
	d.lastRun = time.Time{}
	return d.decoder.Restore(slot, from, to, p)
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
			if forbidden.Has(int32(id)) {
				row[id] = networks.ForbiddenBias
			}
		}
		d.biasRows[forbidden] = row
	}
	if err := d.dev.CopyIn(d.decoder.Bias.At(slot), ort.Bytes(row)); err != nil {
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
	several := 0
	if hidden > 1 {
		several = hidden
	}
	if err := d.decoder.Feed(set, slot, from, n, several, func(rows []byte) error { return d.fill(rows, p, from, to) }); err != nil {
		return err
	}
	if several > 0 {
		d.fetched = hidden
		return d.decoder.Fetch(kvcache.Range{Start: 0, Size: hidden}, d.decoder.Several())
	}
	return d.fetch(kvcache.Range{Start: slot, Size: 1}, hidden == 1)
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

func (d *device) embed(images []*image) error {
	d.lastRun = time.Time{}
	if d.vision == nil {
		return ErrNoVision
	}
	return d.vision.run(images)
}
