package minicpmo

import (
	"errors"
	"fmt"
	"slices"
	"sort"
	"strconv"
	"time"

	"touchline/inference/internal/kvcache"
	"touchline/inference/internal/ort"
	"touchline/inference/internal/sample"
	"touchline/inference/internal/vision"
	"touchline/models"
	"touchline/models/quant"
)

// forbiddenBias is added to the logits of ids that may not be chosen.
const forbiddenBias = -1e30

// device is the backend over ONNX Runtime. Inputs and outputs of the decode
// step lie at fixed addresses, a row per slot, because a captured graph reads
// and writes where it was captured; a range of slots is a view of them.
type device struct {
	sel    *selection
	bundle *models.Bundle
	now    func() time.Time
	stats  *counters

	runtime *ort.Runtime
	dev     *ort.Device
	table   *table
	elem    int // bytes of F, the graphs' float
	pad     int // what the length of a prompt's chunk is rounded up to
	float   ort.Type

	decoders []*ort.Session
	vision   *visionRunner
	owned    []interface{ Close() error } // everything but sessions, in order of making

	kv                                                       []*ort.Memory
	embeds, lengths, bias, logitsAt, values, ids, hiddens    *ort.Memory
	chunkEmbeds, chunkLength, first                          *ort.Memory
	hostEmbeds, hostLengths, hostValues, hostIDs, hostHidden *ort.Memory
	hostChunk, hostChunkLength, hostLogits                   *ort.Memory
	total, chunkTotal                                        *ort.Tensor
	rangeViews                                               []*rangeView // by kvcache index, made when needed
	decodes                                                  [][]*runner  // by set and index
	prefills                                                 []*runner    // by slot
	plain                                                    *ort.RunOptions

	top256    int
	masks     []*sample.Set // by slot, what is in bias
	biasRows  map[*sample.Set][]float32
	row       []float32 // a hidden state
	lastRun   time.Time // when the decode step before returned, if nothing ran since
	hasHidden bool
}

// rangeView are the tensors of a range of slots.
type rangeView struct {
	kv                                                []*ort.Tensor
	embeds, lengths, bias, logits, values, ids, state *ort.Tensor
}

// runner is a binding with the options it runs with.
type runner struct {
	session *ort.Session
	binding *ort.Binding
	options *ort.RunOptions
}

func (r *runner) run() error { return r.session.Run(r.binding, r.options) }

// openDevice loads the graphs and takes the memory. progress is told the bytes
// of weights loaded so far.
func openDevice(b *models.Bundle, sel *selection, rt *ort.Runtime, dev *ort.Device, o deviceOptions) (_ *device, err error) {
	d := &device{
		sel: sel, bundle: b, runtime: rt, dev: dev, now: o.now, stats: o.stats, elem: int(sel.elem()),
		float: ort.Float32, biasRows: map[*sample.Set][]float32{}, top256: min(topK, sel.dims.Decoder.Vocab),
		masks: make([]*sample.Set, sel.layout.Slots), row: make([]float32, sel.dims.Decoder.Hidden),
	}
	d.pad = max(o.pad, 1)
	if sel.device == models.DeviceCUDA {
		d.float, d.pad = ort.Float16, padTo
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, d.close())
		}
	}()
	var loaded int64
	report := func(stage string) { o.progress(stage, loaded) }
	report("embedding table")
	if d.table, err = openTable(b, sel.embed, d.elem); err != nil {
		return nil, err
	}
	// Prompts are of all lengths: a memory plan for each of them would only make the arenas grow.
	options := ort.SessionOptions{CUDAGraph: true, Threads: o.threads, NoMemoryPattern: true}
	for _, g := range sel.decoders {
		report(string(g.Weights) + " decoder")
		s, err := rt.NewSession(b.Path(g.File), dev, options)
		if err != nil {
			return nil, fmt.Errorf("load the %s decoder: %w", g.Weights, err)
		}
		d.decoders = append(d.decoders, s)
		loaded += g.WeightBytes
	}
	if sel.vision != nil {
		report("vision tower")
		if d.vision, err = d.openVision(*sel.vision, options, o.vision); err != nil {
			return nil, fmt.Errorf("load the vision tower: %w", err)
		}
		loaded += sel.vision.WeightBytes
	}
	report("cache and buffers")
	if err := d.allocate(); err != nil {
		return nil, err
	}
	return d, nil
}

type deviceOptions struct {
	pad      int // on the CPU, for tests
	threads  int
	vision   vision.Config
	now      func() time.Time
	stats    *counters
	progress func(stage string, bytes int64)
}

// chunkNumbers is the size of what goes with a chunk of a prompt: seqlens_k
// (int32) and, from lastAt on, last_position (int64).
const (
	chunkNumbers = 16
	lastAt       = 8
)

// padTo is what lengths of prompt chunks are rounded up to on CUDA, less
// padLess: cuDNN plans its attention anew for each length, which takes a
// quarter of a second (H200; 12 ms for the run itself), so the lengths that
// remain are planned at warm-up. At multiples of 32 themselves cuBLAS picks
// slower kernels: 384 and 416 tokens take 13.0 and 12.7 ms there, 382 to 415
// between 11.4 and 12.0 (fp16).
const (
	padTo   = 32
	padLess = 2
)

// padded is the length that a chunk of n positions after from is run with.
func (d *device) padded(from, n int) int {
	less := min(padLess, d.pad-1)
	return max(n, min((n+less+d.pad-1)/d.pad*d.pad-less, d.sel.chunk, d.sel.layout.MaxLen-from))
}

func (d *device) keep(c interface{ Close() error }) { d.owned = append(d.owned, c) }

// allocate takes all memory there will be.
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
			failed = fmt.Errorf("take memory for %s: %w", what, err)
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

// scalar makes a tensor of one number on the host.
func (d *device) scalar(v int) (*ort.Tensor, error) {
	t, err := d.dev.NewHostTensor(ort.Int32)
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

// view makes the tensors of a range.
func (d *device) view(r kvcache.Range) (*rangeView, error) {
	i := d.sel.layout.Index(r)
	if d.rangeViews[i] != nil {
		return d.rangeViews[i], nil
	}
	l, c := d.sel.layout, d.sel.dims.Decoder
	var failed error
	at := func(m *ort.Memory, t ort.Type, shape ...int64) *ort.Tensor {
		row := int64(t.Size())
		for _, n := range shape[1:] {
			row *= n
		}
		v, err := d.dev.TensorAt(m.At(int64(r.Start)*row), t, shape...)
		if err != nil {
			failed = errors.Join(failed, err)
			return nil
		}
		d.keep(v)
		return v
	}
	n, k := int64(r.Size), int64(d.top256)
	v := &rangeView{
		embeds:  at(d.embeds, d.float, n, 1, int64(c.Hidden)),
		lengths: at(d.lengths, ort.Int32, n),
		bias:    at(d.bias, ort.Float32, n, int64(c.Vocab)),
		logits:  at(d.logitsAt, ort.Float32, n, 1, int64(c.Vocab)),
		values:  at(d.values, ort.Float32, n, 1, k),
		ids:     at(d.ids, ort.Int64, n, 1, k),
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

// bind makes a binding with everything but the fed tokens in place.
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

// decoder is the binding of a decode step, with its own graph on CUDA.
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
	first, err := d.dev.TensorAt(d.first.At(0), ort.Int64, 1)
	if err != nil {
		return nil, err
	}
	d.keep(first)
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

// fetch reads back the largest logits of a range, and the hidden states.
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
		d.row[i] = quant.FromFloat16(h)
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
		length, err := d.dev.TensorAt(d.chunkLength.At(0), ort.Int32, 1)
		if err != nil {
			return err
		}
		d.keep(length)
		last, err := d.dev.TensorAt(d.chunkLength.At(lastAt), ort.Int64, 1)
		if err != nil {
			return err
		}
		d.keep(last)
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
	// What padding leaves in the cache lies behind the prompt: every step
	// writes its position before it looks at it, and looks no further.
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

// fill writes the embeddings of positions [from, to): those of images inside
// their spans, rows of the table elsewhere.
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

// close frees what was taken, last things first, then the sessions.
func (d *device) close() error {
	var errs []error
	if d.vision != nil {
		errs = append(errs, d.vision.close())
	}
	for _, c := range slices.Backward(d.owned) {
		errs = append(errs, c.Close())
	}
	d.owned = nil
	for _, s := range slices.Backward(d.decoders) {
		errs = append(errs, s.Close())
	}
	d.decoders = nil
	return errors.Join(append(errs, d.table.close())...)
}
