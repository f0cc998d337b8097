package minicpmo

import (
	"errors"
	"fmt"
	"slices"
	"strconv"

	"touchline/inference/internal/kvcache"
	"touchline/inference/internal/ort"
	"touchline/models"
)

// allocate allocates all memory of the device.
func (d *device) allocate() error {
	l, c := d.sel.layout, d.sel.dims.Decoder
	slots, hidden, vocab := int64(l.Slots), int64(c.Hidden), int64(c.Vocab)
	var failed error
	take := func(what string, bytes int64, host bool) *ort.Memory {
		if failed != nil {
			return nil
		}
		get := d.dev.Malloc
		if host {
			get = d.dev.HostAlloc
		}
		m, err := get(bytes)
		if err != nil {
			failed = fmt.Errorf("allocate memory for %s: %w", what, err)
			return nil
		}
		d.keep(m)
		return m
	}
	for range l.Buffers() {
		d.kv = append(d.kv, take("keys and values", l.BufferBytes(), false))
	}
	width := hidden * int64(d.elem)
	d.embeds, d.hostEmbeds = take("embeddings", slots*width, false), take("embeddings", slots*width, true)
	d.lengths, d.hostLengths = take("lengths", slots*4, false), take("lengths", slots*4, true)
	d.bias = take("the mask", slots*vocab*4, false)
	d.logitsAt, d.hostLogits = take("logits", slots*vocab*4, false), take("logits", vocab*4, true)
	k := int64(d.top256)
	d.values, d.hostValues = take("logits", slots*k*4, false), take("logits", slots*k*4, true)
	d.ids, d.hostIDs = take("ids", slots*k*8, false), take("ids", slots*k*8, true)
	d.hiddens, d.hostHidden = take("hidden states", slots*width, false), take("hidden states", slots*width, true)
	d.chunkEmbeds, d.hostChunk = take("a prompt", int64(d.sel.chunk)*width, false), take("a prompt", int64(d.sel.chunk)*width, true)
	d.chunkLength, d.hostChunkLength = take("a length", chunkNumbers, false), take("a length", chunkNumbers, true)
	d.first = take("a position", 8, false)
	if failed != nil {
		return failed
	}
	for _, m := range append(slices.Clone(d.kv), d.bias, d.first) {
		if err := d.dev.Memset(m.At(0), 0, m.Size()); err != nil {
			return err
		}
	}
	clear(d.hostEmbeds.Bytes())
	clear(d.hostLengths.Bytes())
	var err error
	if d.total, err = d.scalar(l.MaxLen); err != nil {
		return err
	}
	if d.chunkTotal, err = d.scalar(1); err != nil {
		return err
	}
	d.rangeViews = make([]*rangeView, len(l.Ranges(l.Slots)))
	d.prefills = make([]*runner, l.Slots)
	for range d.decoders {
		d.decodes = append(d.decodes, make([]*runner, len(d.rangeViews)))
	}
	if d.plain, err = d.options(ort.NoGraph); err != nil {
		return err
	}
	return d.dev.Synchronize()
}

// tensorAt is ort.Device.TensorAt for a tensor that lives as long as the device.
func (d *device) tensorAt(p ort.Pointer, t models.Type, shape ...int64) (*ort.Tensor, error) {
	v, err := d.dev.TensorAt(p, t, shape...)
	if err == nil {
		d.keep(v)
	}
	return v, err
}

// scalar returns a host tensor of one number.
func (d *device) scalar(v int) (*ort.Tensor, error) {
	t, err := d.dev.NewHostTensor(models.Int32)
	if err != nil {
		return nil, err
	}
	d.keep(t)
	at, err := ort.Data[int32](t)
	if err != nil {
		return nil, err
	}
	at[0] = int32(v) //nolint:gosec // bounded by the layout
	return t, nil
}

// options returns run options with a CUDA graph.
func (d *device) options(graph int) (*ort.RunOptions, error) {
	o, err := d.runtime.NewRunOptions()
	if err != nil {
		return nil, err
	}
	d.keep(o)
	if d.sel.device == models.DeviceCUDA {
		err = o.SetGraph(graph)
	}
	return o, err
}

// view returns the tensors of a range.
func (d *device) view(r kvcache.Range) (*rangeView, error) {
	i := d.sel.layout.Index(r)
	if d.rangeViews[i] != nil {
		return d.rangeViews[i], nil
	}
	l, c := d.sel.layout, d.sel.dims.Decoder
	var failed error
	at := func(m *ort.Memory, t models.Type, shape ...int64) *ort.Tensor {
		row := int64(t.Size())
		for _, n := range shape[1:] {
			row *= n
		}
		v, err := d.tensorAt(m.At(int64(r.Start)*row), t, shape...)
		failed = errors.Join(failed, err)
		return v
	}
	n, k := int64(r.Size), int64(d.top256)
	v := &rangeView{
		embeds:  at(d.embeds, d.float, n, 1, int64(c.Hidden)),
		lengths: at(d.lengths, models.Int32, n),
		bias:    at(d.bias, models.Float32, n, int64(c.Vocab)),
		logits:  at(d.logitsAt, models.Float32, n, 1, int64(c.Vocab)),
		values:  at(d.values, models.Float32, n, 1, k),
		ids:     at(d.ids, models.Int64, n, 1, k),
		state:   at(d.hiddens, d.float, n, 1, int64(c.Hidden)),
	}
	for _, m := range d.kv {
		v.kv = append(v.kv, at(m, d.float, l.Shape(r)...))
	}
	if failed != nil {
		return nil, fmt.Errorf("view slots %d to %d: %w", r.Start, r.Start+r.Size-1, failed)
	}
	d.rangeViews[i] = v
	return v, nil
}

// bind returns a binding of all inputs and outputs but the fed tokens.
func (d *device) bind(s *ort.Session, v *rangeView, options *ort.RunOptions) (*runner, error) {
	b, err := s.NewBinding()
	if err != nil {
		return nil, err
	}
	d.keep(b)
	err = errors.Join(b.BindInput("logits_bias", v.bias), b.BindOutput("logits", v.logits),
		b.BindOutput("top_values", v.values), b.BindOutput("top_ids", v.ids), b.BindOutput("hidden_states", v.state))
	for i, t := range v.kv {
		name := strconv.Itoa(i/2) + [...]string{".key", ".value"}[i%2]
		err = errors.Join(err, b.BindInput("past_key_values."+name, t), b.BindOutput("present."+name, t))
	}
	return &runner{session: s, binding: b, options: options}, err
}

// decoder returns the binding of a decode step, with its own graph on CUDA.
func (d *device) decoder(set int, r kvcache.Range) (*runner, error) {
	i := d.sel.layout.Index(r)
	if run := d.decodes[set][i]; run != nil {
		return run, nil
	}
	v, err := d.view(r)
	if err != nil {
		return nil, err
	}
	graph := ort.NoGraph
	if r.Size <= d.sel.captured[set] {
		graph = i + 1
	}
	options, err := d.options(graph)
	if err != nil {
		return nil, err
	}
	first, err := d.tensorAt(d.first.At(0), models.Int64, 1)
	if err != nil {
		return nil, err
	}
	run, err := d.bind(d.decoders[set], v, options)
	if err != nil {
		return nil, err
	}
	err = errors.Join(run.binding.BindInput("inputs_embeds", v.embeds), run.binding.BindInput("seqlens_k", v.lengths),
		run.binding.BindInput("total_sequence_length", d.total), run.binding.BindInput("last_position", first))
	if err != nil {
		return nil, err
	}
	d.decodes[set][i] = run
	return run, nil
}
