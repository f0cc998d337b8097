package device

import (
	"errors"
	"fmt"
	"slices"
	"strconv"

	"touchline/inference/internal/kvcache"
	"touchline/inference/internal/ort"
	"touchline/models"
)

// Port is an input or output of a decoder's graph with a row for each slot: its
// shape is the number of slots of a run, then Shape.
type Port struct {
	Name  string
	Type  models.Type
	Shape []int64
	// Host gives the rows memory on the host. Such inputs are copied to the device
	// before each step.
	Host bool
}

// Rows is the memory of a port, a row for each slot.
type Rows struct {
	port         Port
	width        int64 // bytes of a row
	memory, host *ort.Memory
}

// Host returns n rows on the host. Of an output they are those of the last Fetch.
func (r *Rows) Host(from, n int) []byte {
	return r.host.Bytes()[int64(from)*r.width : int64(from+n)*r.width]
}

// At returns the place of a slot's row on the device.
func (r *Rows) At(slot int) ort.Pointer { return r.memory.At(int64(slot) * r.width) }

// DecoderOptions describe a decoder: a language model with a cache of keys and
// values. Its graph has the inputs seqlens_k, total_sequence_length and
// last_position and the caches of models/graph.Decoder.
type DecoderOptions struct {
	// Sessions of the same graph in several weight sets, which the caller closes
	// after the decoder; Captured are the largest ranges that each runs as a CUDA graph.
	Sessions []*ort.Session
	Captured []int
	Layout   kvcache.Layout
	Float    models.Type // of keys and values
	// Fed are the inputs with a row for each position, whose shape is the number of
	// slots, the positions, then Shape: one position in a step. Inputs and Outputs
	// are the others.
	Fed             []Port
	Inputs, Outputs []Port
	// Fixed are the values of inputs that never change, float32 vectors.
	Fixed map[string][]float32
	// Chunk is the maximum number of positions of a prompt in one run.
	Chunk int
}

// chunkNumbers is the size of the numbers of a prompt's run: seqlens_k (int32)
// and, at lastAt, last_position (int64).
const (
	chunkNumbers = 16
	lastAt       = 8
)

// Decoder runs a language model over slots. The inputs and outputs of a step have
// fixed addresses, because a captured graph reads and writes the addresses of its
// capture. A range of slots is a view of them. Results are complete after Fetch.
type Decoder struct {
	*Arena
	o DecoderOptions

	kv                         []*ort.Memory
	fed, inputs, outputs       []*Rows
	prompts                    []*Rows // of the fed inputs, a row for each position
	fixed                      map[string]*ort.Tensor
	lengths, hostLengths       *ort.Memory
	first                      *ort.Memory // last_position of a step
	total, chunkTotal          *ort.Tensor
	chunkLength, hostChunkSize *ort.Memory

	views    []*view  // by kvcache index, made when needed
	steps    [][]*Run // by set and index
	prefills [][]*Run // by set and slot
}

// view holds the tensors of a range of slots.
type view struct {
	kv                   []*ort.Tensor
	lengths              *ort.Tensor
	fed, inputs, outputs []*ort.Tensor
}

// NewDecoder allocates the decoder's memory: keys and values, and rows for all slots.
func NewDecoder(rt *ort.Runtime, dev *ort.Device, o DecoderOptions) (*Decoder, error) {
	d := &Decoder{Arena: NewArena(rt, dev), o: o}
	if err := d.allocate(); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

func (d *Decoder) allocate() error {
	l, slots := d.o.Layout, int64(d.o.Layout.Slots)
	for range l.Buffers() {
		d.kv = append(d.kv, d.Memory("keys and values", l.BufferBytes()))
	}
	all := func(ports []Port, n int64) (out []*Rows) {
		for _, p := range ports {
			out = append(out, d.rows(p, n))
		}
		return out
	}
	d.fed, d.inputs, d.outputs = all(d.o.Fed, slots), all(d.o.Inputs, slots), all(d.o.Outputs, slots)
	d.prompts = all(d.o.Fed, int64(d.o.Chunk))
	d.lengths, d.hostLengths = d.Memory("lengths", slots*4), d.Host("lengths", slots*4)
	d.chunkLength, d.hostChunkSize = d.Memory("a length", chunkNumbers), d.Host("a length", chunkNumbers)
	d.first = d.Memory("a position", 8)
	if err := d.Err(); err != nil {
		return err
	}
	zeroed := append(slices.Clone(d.kv), d.first)
	for _, r := range slices.Concat(d.fed, d.inputs) {
		zeroed = append(zeroed, r.memory)
		if r.host != nil {
			clear(r.host.Bytes())
		}
	}
	for _, m := range zeroed {
		if err := d.dev.Memset(m.At(0), 0, m.Size()); err != nil {
			return err
		}
	}
	clear(d.hostLengths.Bytes())
	if err := d.fix(); err != nil {
		return err
	}
	var err error
	if d.total, err = d.Scalar(l.MaxLen); err != nil {
		return err
	}
	if d.chunkTotal, err = d.Scalar(1); err != nil {
		return err
	}
	d.views = make([]*view, len(l.Ranges(l.Slots)))
	for range d.o.Sessions {
		d.steps = append(d.steps, make([]*Run, len(d.views)))
		d.prefills = append(d.prefills, make([]*Run, l.Slots))
	}
	return d.dev.Synchronize()
}

// fix allocates the inputs that never change.
func (d *Decoder) fix() error {
	d.fixed = map[string]*ort.Tensor{}
	for name, values := range d.o.Fixed {
		m, t, err := d.Tensor(name, models.Float32, int64(len(values)))
		if err != nil {
			return err
		}
		if err := d.dev.CopyIn(m.At(0), ort.Bytes(values)); err != nil {
			return err
		}
		d.fixed[name] = t
	}
	return nil
}

// rows allocates n rows of a port.
func (d *Decoder) rows(p Port, n int64) *Rows {
	r := &Rows{port: p, width: int64(p.Type.Size())}
	for _, size := range p.Shape {
		r.width *= size
	}
	r.memory = d.Memory(p.Name, n*r.width)
	if p.Host {
		r.host = d.Host(p.Name, n*r.width)
	}
	return r
}

// Rows returns the rows of an input or output.
func (d *Decoder) Rows(name string) *Rows { return find(name, d.fed, d.inputs, d.outputs) }

// Prompt returns the rows of a fed input for the next Prefill, one for each
// position. Without memory on the host they are written on the device.
func (d *Decoder) Prompt(name string) *Rows { return find(name, d.prompts) }

func find(name string, lists ...[]*Rows) *Rows {
	for _, r := range slices.Concat(lists...) {
		if r.port.Name == name {
			return r
		}
	}
	return nil
}

// Step runs a range of slots with the inputs on the host. The fed position of a slot
// is lengths[slot].
func (d *Decoder) Step(set int, r kvcache.Range, lengths []int32) error {
	run, err := d.step(set, r)
	if err != nil {
		return err
	}
	copy(ort.Slice[int32](d.hostLengths.Bytes())[r.Start:], lengths[r.Start:r.Start+r.Size])
	for _, in := range slices.Concat(d.fed, d.inputs) {
		if err := in.copyIn(d.dev, r.Start, r.Size); err != nil {
			return err
		}
	}
	from, to := int64(r.Start)*4, int64(r.Start+r.Size)*4
	if err := d.dev.CopyIn(d.lengths.At(from), d.hostLengths.Bytes()[from:to]); err != nil {
		return err
	}
	return run.Do()
}

// copyIn queues the copy of n rows to the device.
func (r *Rows) copyIn(dev *ort.Device, from, n int) error {
	if r.host == nil {
		return nil
	}
	begin, end := int64(from)*r.width, int64(from+n)*r.width
	return dev.CopyIn(r.memory.At(begin), r.host.Bytes()[begin:end])
}

// Fetch copies outputs of a range of slots to the host, and waits for them.
func (d *Decoder) Fetch(r kvcache.Range, outputs ...*Rows) error {
	for _, rows := range outputs {
		from, to := int64(r.Start)*rows.width, int64(r.Start+r.Size)*rows.width
		if err := d.dev.CopyOut(rows.host.Bytes()[from:to], rows.memory.At(from)); err != nil {
			return err
		}
	}
	return d.dev.Synchronize()
}

// Prefill feeds the first length rows of each Prompt to a slot that holds from
// positions. The outputs are those of the count-th of them; the next run must
// overwrite or ignore the keys and values of later ones.
func (d *Decoder) Prefill(set, slot, from, length, count int) error {
	if length < 1 || length > d.o.Chunk || count < 1 || count > length {
		return fmt.Errorf("feed a prompt: expected 1 to %d positions, has %d of %d", d.o.Chunk, count, length)
	}
	run, err := d.prefill(set, slot)
	if err != nil {
		return err
	}
	numbers := d.hostChunkSize.Bytes()
	ort.Slice[int32](numbers)[0] = int32(from + length - 1) //nolint:gosec // bounded by the layout
	ort.Slice[int64](numbers[lastAt:])[0] = int64(count - 1)
	if err := SetScalar(d.chunkTotal, from+length); err != nil {
		return err
	}
	err = errors.Join(d.dev.CopyIn(d.chunkLength.At(0), numbers), run.BindInput("total_sequence_length", d.chunkTotal))
	for _, p := range d.prompts {
		input, failed := d.dev.TensorAt(p.At(0), p.port.Type, append([]int64{1, int64(length)}, p.port.Shape...)...)
		if failed != nil {
			return failed
		}
		defer func() { _ = input.Close() }()
		err = errors.Join(err, p.copyIn(d.dev, 0, length), run.BindInput(p.port.Name, input))
	}
	for _, in := range d.inputs {
		err = errors.Join(err, in.copyIn(d.dev, slot, 1))
	}
	if err != nil {
		return err
	}
	return run.Do()
}

// Clear zeroes the keys and values of a slot.
func (d *Decoder) Clear(slot int) error {
	at, bytes := d.o.Layout.Offset(kvcache.Range{Start: slot, Size: 1}), d.o.Layout.SlotBytes()
	for _, m := range d.kv {
		if err := d.dev.Memset(m.At(at), 0, bytes); err != nil {
			return err
		}
	}
	return nil
}

// view returns the tensors of a range.
func (d *Decoder) view(r kvcache.Range) (*view, error) {
	i := d.o.Layout.Index(r)
	if d.views[i] != nil {
		return d.views[i], nil
	}
	var failed error
	at := func(p ort.Pointer, t models.Type, shape ...int64) *ort.Tensor {
		v, err := d.TensorAt(p, t, shape...)
		failed = errors.Join(failed, err)
		return v
	}
	n := int64(r.Size)
	rows := func(x *Rows, shape ...int64) *ort.Tensor {
		return at(x.At(r.Start), x.port.Type, append(shape, x.port.Shape...)...)
	}
	v := &view{lengths: at(d.lengths.At(int64(r.Start)*4), models.Int32, n)}
	for _, x := range d.fed {
		v.fed = append(v.fed, rows(x, n, 1))
	}
	for _, x := range d.inputs {
		v.inputs = append(v.inputs, rows(x, n))
	}
	for _, x := range d.outputs {
		v.outputs = append(v.outputs, rows(x, n))
	}
	for _, m := range d.kv {
		v.kv = append(v.kv, at(m.At(d.o.Layout.Offset(r)), d.o.Float, d.o.Layout.Shape(r)...))
	}
	if failed != nil {
		return nil, fmt.Errorf("view slots %d to %d: %w", r.Start, r.Start+r.Size-1, failed)
	}
	d.views[i] = v
	return v, nil
}

// bind returns a run with all inputs and outputs of a range but those that differ
// between steps and prompts.
func (d *Decoder) bind(set, graph int, v *view) (*Run, error) {
	run, err := d.NewRun(d.o.Sessions[set], graph)
	if err != nil {
		return nil, err
	}
	for i, r := range d.inputs {
		err = errors.Join(err, run.BindInput(r.port.Name, v.inputs[i]))
	}
	for i, r := range d.outputs {
		err = errors.Join(err, run.BindOutput(r.port.Name, v.outputs[i]))
	}
	for name, t := range d.fixed {
		err = errors.Join(err, run.BindInput(name, t))
	}
	for i, t := range v.kv {
		name := strconv.Itoa(i/2) + [...]string{".key", ".value"}[i%2]
		err = errors.Join(err, run.BindInput("past_key_values."+name, t), run.BindOutput("present."+name, t))
	}
	return run, err
}

// step returns the run of a decode step, with its own graph on CUDA.
func (d *Decoder) step(set int, r kvcache.Range) (*Run, error) {
	i := d.o.Layout.Index(r)
	if run := d.steps[set][i]; run != nil {
		return run, nil
	}
	v, err := d.view(r)
	if err != nil {
		return nil, err
	}
	graph := ort.NoGraph
	if r.Size <= d.o.Captured[set] {
		graph = i + 1
	}
	run, err := d.bind(set, graph, v)
	if err != nil {
		return nil, err
	}
	first, err := d.TensorAt(d.first.At(0), models.Int64, 1)
	if err != nil {
		return nil, err
	}
	err = errors.Join(run.BindInput("seqlens_k", v.lengths), run.BindInput("total_sequence_length", d.total),
		run.BindInput("last_position", first))
	for i, r := range d.fed {
		err = errors.Join(err, run.BindInput(r.port.Name, v.fed[i]))
	}
	if err != nil {
		return nil, err
	}
	d.steps[set][i] = run
	return run, nil
}

// prefill returns the run of a slot's prompts, without a graph.
func (d *Decoder) prefill(set, slot int) (*Run, error) {
	if run := d.prefills[set][slot]; run != nil {
		return run, nil
	}
	v, err := d.view(kvcache.Range{Start: slot, Size: 1})
	if err != nil {
		return nil, err
	}
	run, err := d.bind(set, ort.NoGraph, v)
	if err != nil {
		return nil, err
	}
	length, err := d.TensorAt(d.chunkLength.At(0), models.Int32, 1)
	if err != nil {
		return nil, err
	}
	last, err := d.TensorAt(d.chunkLength.At(lastAt), models.Int64, 1)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(run.BindInput("seqlens_k", length), run.BindInput("last_position", last)); err != nil {
		return nil, err
	}
	d.prefills[set][slot] = run
	return run, nil
}
