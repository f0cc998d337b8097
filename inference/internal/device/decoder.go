package device

import (
	"errors"
	"fmt"
	"maps"
	"strconv"

	"touchline/inference/internal/kvcache"
	"touchline/inference/internal/ort"
	"touchline/models"
)

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
	// Chunk is the maximum number of positions of a prompt in one run, Together the maximum of all prompts in a run of several slots.
	Chunk, Together int
	// Async makes steps return once they are queued. See NetworkOptions.
	Async bool
	// Store is the size of the store for the beginnings of prompts, in bytes; 0 for none.
	Store int64
	// Several is the output with a row for each of last_position; nil if the graph has one position only.
	Several *Port
}

// The numbers of a prompt's run are seqlens_k (int32) and, at lastAt, last_position (int64).
const lastAt = 8

// Decoder runs a language model over slots. Results are complete after Fetch.
type Decoder struct {
	*Arena
	o DecoderOptions

	kv      []*Rows
	inputs  map[string]*Rows // of steps
	outputs map[string]*Rows // without keys and values
	prompts map[string]*Rows // of the fed inputs, a row for each position
	several *Rows            // of a prompt, a row for each position; nil if the graph has one only
	fixed   map[string]*ort.Tensor
	lengths *Rows
	store   *ort.Memory // nil without one
	first   *ort.Tensor // last_position of a step
	total   *ort.Tensor

	chunkTotal             *ort.Tensor
	chunkLength, chunkHost *ort.Memory

	steps []*Network // by set
	// prefills are by set and slot, for the last position and for several.
	prefills [2][][]*Run
	// firsts are by set and kvcache index, for the prompts of several slots.
	firsts [][]*Run
}

// NewDecoder allocates the decoder's memory: keys and values, and rows for all slots.
func NewDecoder(rt *ort.Runtime, dev *ort.Device, o DecoderOptions) (*Decoder, error) {
	d := &Decoder{
		Arena: NewArena(rt, dev), o: o, inputs: map[string]*Rows{}, outputs: map[string]*Rows{}, prompts: map[string]*Rows{},
		fixed: map[string]*ort.Tensor{},
	}
	if err := d.allocate(); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

func (d *Decoder) allocate() error {
	l := d.o.Layout
	// One piece of memory, so that one copy has a slot's positions in all layers.
	all := d.NewRows(Port{Name: "keys and values", Type: d.o.Float, Shape: l.Shape(kvcache.Range{})[1:]}, l.Buffers()*l.Slots)
	for i := range l.Buffers() {
		rows := *all
		rows.base += int64(i*l.Slots) * rows.width
		d.kv = append(d.kv, &rows)
	}
	for _, p := range d.o.Fed {
		d.prompts[p.Name] = d.NewRows(p, max(d.o.Chunk, d.o.Together))
		p.Shape = append([]int64{1}, p.Shape...) // one position
		d.inputs[p.Name] = d.NewRows(p, l.Slots)
	}
	for _, p := range d.o.Inputs {
		d.inputs[p.Name] = d.NewRows(p, l.Slots)
	}
	for _, p := range d.o.Outputs {
		d.outputs[p.Name] = d.NewRows(p, l.Slots)
	}
	d.lengths = d.NewRows(Port{Name: "lengths", Type: models.Int32, Host: true}, l.Slots)
	positions := 1
	if d.o.Several != nil {
		positions = d.o.Chunk
		d.several = d.NewRows(*d.o.Several, positions)
	}
	numbers := int64(lastAt + 8*positions)
	d.chunkLength, d.chunkHost = d.Memory("a length", numbers), d.Host("a length", numbers)
	if d.o.Store > 0 {
		d.store = d.Memory("the beginnings of prompts", d.o.Store)
	}
	if err := d.Err(); err != nil {
		return err
	}
	if err := d.constants(); err != nil {
		return err
	}
	for set := range d.o.Sessions {
		d.connect(set)
	}
	return d.dev.Synchronize()
}

// Add adds a session of the same graph in one more weight set.
func (d *Decoder) Add(s *ort.Session, captured int) {
	d.o.Sessions, d.o.Captured = append(d.o.Sessions, s), append(d.o.Captured, captured)
	d.connect(len(d.o.Sessions) - 1)
}

// connect makes the runs of a weight set.
func (d *Decoder) connect(set int) {
	l, shared := d.o.Layout, maps.Clone(d.fixed)
	shared["total_sequence_length"], shared["last_position"] = d.total, d.first
	inputs, outputs := maps.Clone(d.inputs), maps.Clone(d.outputs)
	inputs["seqlens_k"] = d.lengths
	for k, rows := range d.kv {
		inputs["past_key_values."+side(k)], outputs["present."+side(k)] = rows, rows
	}
	d.steps = append(d.steps, d.NewNetwork(NetworkOptions{
		Session: d.o.Sessions[set], Layout: l, Captured: d.o.Captured[set], Inputs: inputs, Outputs: outputs, Shared: shared,
		Async: d.o.Async,
	}))
	for i := range d.prefills {
		d.prefills[i] = append(d.prefills[i], make([]*Run, l.Slots))
	}
	d.firsts = append(d.firsts, make([]*Run, len(l.Ranges(l.Slots))))
}

// side returns the end of the name of a cache.
func side(buffer int) string {
	return strconv.Itoa(buffer/2) + [...]string{".key", ".value"}[buffer%2]
}

// constants allocates the inputs that never change.
func (d *Decoder) constants() (err error) {
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
	m, t, err := d.Tensor("a position", models.Int64, 1)
	if err != nil {
		return err
	}
	d.first = t
	if err := d.dev.Memset(m.At(0), 0, m.Size()); err != nil {
		return err
	}
	if d.total, err = d.Scalar(d.o.Layout.MaxLen); err != nil {
		return err
	}
	d.chunkTotal, err = d.Scalar(1)
	return err
}

// Input returns the rows of an input of steps.
func (d *Decoder) Input(name string) *Rows { return d.inputs[name] }

// Output returns the rows of an output.
func (d *Decoder) Output(name string) *Rows { return d.outputs[name] }

// Prompt returns the rows of a fed input for the next Prefill, one for each
// position. Without memory on the host they are written on the device.
func (d *Decoder) Prompt(name string) *Rows { return d.prompts[name] }

// Several returns the output rows of several positions, the rows of the last PrefillSeveral first; nil without one.
func (d *Decoder) Several() *Rows { return d.several }

// Step runs a range of slots with the inputs on the host. The fed position of a slot
// is lengths[slot].
func (d *Decoder) Step(set int, r kvcache.Range, lengths []int32) error {
	copy(ort.Slice[int32](d.lengths.Host(r.Start, r.Size)), lengths[r.Start:])
	return d.steps[set].Run(r)
}

// Prefill feeds the first length rows of each Prompt to a slot that holds from positions. The outputs belong to the count-th row; the next
// run must overwrite or ignore the keys and values of later rows.
func (d *Decoder) Prefill(set, slot, from, length, count int) error {
	run, err := d.prefill(set, slot, false)
	if err != nil {
		return err
	}
	return d.feed(run, slot, from, length, count, 1)
}

// PrefillSeveral is Prefill with the rows of Several for the n positions up to the count-th. Other outputs are undefined,
// except keys and values.
func (d *Decoder) PrefillSeveral(set, slot, from, length, count, n int) error {
	if d.several == nil || n < 1 || n > count {
		return fmt.Errorf("feed a prompt: expected rows for 1 to %d positions, got %d", count, n)
	}
	run, err := d.prefill(set, slot, true)
	if err != nil {
		return err
	}
	last, err := d.dev.TensorAt(d.chunkLength.At(lastAt), models.Int64, int64(n))
	if err != nil {
		return err
	}
	defer func() { _ = last.Close() }()
	shape := append([]int64{1, int64(n)}, d.several.port.Shape...)
	rows, err := d.dev.TensorAt(d.several.At(0), d.several.port.Type, shape...)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	if err := errors.Join(run.BindInput("last_position", last), run.BindOutput(d.several.port.Name, rows)); err != nil {
		return err
	}
	return d.feed(run, slot, from, length, count, n)
}

// feed runs a prompt that has the outputs of the n positions up to the count-th.
func (d *Decoder) feed(run *Run, slot, from, length, count, n int) error {
	if length < 1 || length > d.o.Chunk || count < 1 || count > length {
		return fmt.Errorf("feed a prompt: expected 1 to %d positions, got %d of %d", d.o.Chunk, count, length)
	}
	numbers := d.chunkHost.Bytes()[:lastAt+8*n]
	ort.Slice[int32](numbers)[0] = int32(from + length - 1)
	positions := ort.Slice[int64](numbers[lastAt:])
	for i := range positions {
		positions[i] = int64(count - n + i)
	}
	if err := SetScalar(d.chunkTotal, from+length); err != nil {
		return err
	}
	if err := d.dev.CopyIn(d.chunkLength.At(0), numbers); err != nil {
		return err
	}
	return d.runPrompts(run, kvcache.Range{Start: slot, Size: 1}, length)
}

// runPrompts runs the prompts of a range of slots, all of one length.
func (d *Decoder) runPrompts(run *Run, r kvcache.Range, length int) error {
	err := run.BindInput("total_sequence_length", d.chunkTotal)
	for name, p := range d.prompts {
		input, failed := d.dev.TensorAt(p.At(0), p.port.Type, append([]int64{int64(r.Size), int64(length)}, p.port.Shape...)...)
		if failed != nil {
			return failed
		}
		defer func() { _ = input.Close() }()
		err = errors.Join(err, p.copyIn(d.dev, 0, r.Size*length), run.BindInput(name, input))
	}
	for _, p := range d.o.Inputs {
		err = errors.Join(err, d.inputs[p.Name].copyIn(d.dev, r.Start, r.Size))
	}
	if err != nil {
		return err
	}
	return run.Do()
}

// PrefillFirst feeds length rows of each Prompt to every slot of a range, the first slot's rows first. The slots must be
// empty, and so the next run must overwrite or ignore the keys and values of padding. Other outputs are undefined.
func (d *Decoder) PrefillFirst(set int, r kvcache.Range, length int) error {
	if length < 1 || length > d.o.Chunk || r.Size*length > d.o.Together {
		return fmt.Errorf("feed %d prompts: expected 1 to %d positions and %d in all, got %d", r.Size, d.o.Chunk, d.o.Together, length)
	}
	run := d.firsts[set][d.o.Layout.Index(r)]
	if run == nil {
		var err error
		if run, err = d.NewRun(d.o.Sessions[set], ort.NoGraph); err != nil {
			return err
		}
		if err := d.steps[set].bind(run, r); err != nil {
			return err
		}
		d.firsts[set][d.o.Layout.Index(r)] = run
	}
	lengths := ort.Slice[int32](d.lengths.Host(r.Start, r.Size))
	for i := range lengths {
		lengths[i] = int32(length - 1)
	}
	if err := errors.Join(SetScalar(d.chunkTotal, length), d.lengths.copyIn(d.dev, r.Start, r.Size)); err != nil {
		return err
	}
	return d.runPrompts(run, r, length)
}

// Clear zeroes the keys and values of a slot.
func (d *Decoder) Clear(slot int) error {
	for _, rows := range d.kv {
		if err := d.dev.Memset(rows.At(slot), 0, rows.width); err != nil {
			return err
		}
	}
	return nil
}

// Save copies the keys and values of a piece's positions from a slot to the store.
func (d *Decoder) Save(slot int, p kvcache.Piece) error {
	return d.copyPiece(slot, p.From, p.To, p, true)
}

// Restore copies the keys and values of positions [from, to) of a piece from the store to a slot.
func (d *Decoder) Restore(slot, from, to int, p kvcache.Piece) error {
	return d.copyPiece(slot, from, to, p, false)
}

func (d *Decoder) copyPiece(slot, from, to int, p kvcache.Piece, save bool) error {
	if d.store == nil || from < p.From || to > p.To || from >= to {
		return fmt.Errorf("copy positions %d to %d of a prompt: the store has %d to %d", from, to, p.From, p.To)
	}
	l := d.o.Layout
	position := int64(l.HeadDim) * int64(l.ElemSize)
	heads := int64(l.KVHeads)
	dst := ort.Box{At: d.kv[0].Within(slot, int64(from)*position), Row: int64(l.MaxLen) * position, Rows: int64(l.Slots) * heads}
	src := ort.Box{At: d.store.At(p.Offset + int64(from-p.From)*position), Row: int64(p.To-p.From) * position, Rows: heads}
	if save {
		dst, src = src, dst
	}
	return d.dev.CopyBox(dst, src, int64(to-from)*position, l.KVHeads, l.Buffers())
}

// ChangeKeys hands the keys of a slot to change and writes them back, layer after layer: [KVHeads, MaxLen, HeadDim] of each, in memory of
// the host that has room for it.
func (d *Decoder) ChangeKeys(slot int, host *ort.Memory, change func(keys []byte)) error {
	for i := 0; i < len(d.kv); i += 2 { // keys come before values
		rows := d.kv[i]
		keys := host.Bytes()[:rows.width]
		if err := errors.Join(d.dev.CopyOut(keys, rows.At(slot)), d.dev.Synchronize()); err != nil {
			return err
		}
		change(keys)
		if err := errors.Join(d.dev.CopyIn(rows.At(slot), keys), d.dev.Synchronize()); err != nil {
			return err
		}
	}
	return nil
}

// prefill returns the run of a slot's prompts, without a graph.
func (d *Decoder) prefill(set, slot int, several bool) (*Run, error) {
	runs := d.prefills[0]
	if several {
		runs = d.prefills[1]
	}
	if run := runs[set][slot]; run != nil {
		return run, nil
	}
	run, err := d.NewRun(d.o.Sessions[set], ort.NoGraph)
	if err != nil {
		return nil, err
	}
	if err := d.steps[set].bind(run, kvcache.Range{Start: slot, Size: 1}); err != nil {
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
	runs[set][slot] = run
	return run, nil
}
