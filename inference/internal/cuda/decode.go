package cuda

import (
	_ "embed"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"sync"
	"unsafe"

	"touchline/inference/internal/ort"
)

//go:embed decode.cu
var decodeSource string

// Shape holds the sizes of a language model in int4.
type Shape struct {
	Layers, Hidden, FFN, Heads, KVHeads, HeadDim, Vocab int
	Head                                                int  // bits of the vocabulary matrix
	Zeros                                               bool // the other matrices have blocks of 128 with zero points, else of 32 without
	Top                                                 int  // best ids
	Epsilon                                             float64
	MaxLen                                              int // positions of a slot
}

// check returns why the kernels do not support a shape.
func (s Shape) check() error {
	switch {
	case s.Head != 4 && s.Head != 8:
		return fmt.Errorf("%w: the vocabulary matrix has %d bits", ErrBundle, s.Head)
	case slices.ContainsFunc(s.inputs(), func(n int) bool { return n < unit || n%(unit/2) != 0 }):
		return fmt.Errorf("%w: sizes must be multiples of %d, and at least %d", ErrBundle, unit/2, unit)
	case s.Vocab < headTiles*tile:
		return fmt.Errorf("%w: the vocabulary has %d tokens", ErrBundle, s.Vocab)
	case s.HeadDim < 32 || s.HeadDim > 256 || s.HeadDim&(s.HeadDim-1) != 0, s.KVHeads == 0 || s.Heads%s.KVHeads != 0 || s.Heads/s.KVHeads > 7:
		return fmt.Errorf("%w: %d and %d heads of %d", ErrBundle, s.Heads, s.KVHeads, s.HeadDim)
	}
	return nil
}

// inputs returns the numbers of inputs of the matrices.
func (s Shape) inputs() []int { return []int{s.Hidden, s.Heads * s.HeadDim, s.FFN} }

// blocks returns the inputs of a scale in the matrices other than that of the vocabulary, and 1 if they have zero points, else 0.
func (s Shape) blocks() (block, zeros int) {
	if s.Zeros {
		return 128, 1
	}
	return 32, 0
}

// qkv returns the width of the stacked projections.
func (s Shape) qkv() int { return (s.Heads + 2*s.KVHeads) * s.HeadDim }

// Constants of decode.cu.
const (
	unit     = 256
	tile     = 16
	slotSize = tile * (128 + 16)
	sumSize  = 20
	listSize = 256
	perList  = 4096
)

// rowCounts returns the numbers of rows for which there are kernels.
func rowCounts() []int { return []int{1, 2, 4, 8} }

// Matrix is a matrix in blocks with a scale each, and zero points with Shape.Zeros.
type Matrix struct{ Quants, Scales, Zeros ort.Pointer }

// Layer holds the weights of a layer, and its cache [slot, KVHeads, MaxLen, HeadDim].
type Layer struct {
	QKV, O, GateUp, Down        Matrix
	Norm, FFNNorm, QNorm, KNorm ort.Pointer
	Keys, Values                ort.Pointer
}

// Weights holds all weights, in device memory.
type Weights struct {
	Layers       []Layer
	Head         Matrix
	LastNorm     ort.Pointer
	Cosine, Sine ort.Pointer // [position, HeadDim/2]
}

// Ports are the inputs and outputs of a step, each with a row for each slot.
type Ports struct {
	Fed, Bias ort.Pointer // float16 [Hidden], float32 [Vocab]

	Logits, Hidden, Values, IDs ort.Pointer // float32 [Vocab], float16 [Hidden], float32 and int64 [Top]
}

// step is struct Step of decode.cu.
type step struct {
	layers                          uintptr
	head                            matrix
	lastNorm, cosine, sine          uintptr
	table, fed                      uintptr
	residual, qkv, attended, gated  uintptr
	parts, counters, logits, hidden uintptr
	maxLen                          int32
	_                               int32
}

// matrix is struct Matrix of decode.cu.
type matrix struct{ quants, scales, zeros uintptr }

// layer is struct Layer of decode.cu.
type layer struct {
	matrices                    [4]matrix
	norm, ffnNorm, qNorm, kNorm uintptr
	keys, values                uintptr
}

// Decoder runs steps of a language model in int4 by own kernels.
type Decoder struct {
	mark
	driver  *Driver
	memory  *ort.Memory
	host    *ort.Memory // of the table
	table   ort.Pointer
	modules []*module
	sizes   []*size
	args    step
	bias    uintptr
	lists   uintptr
	blocks  int // of best
	values  uintptr
	ids     uintptr
}

// size holds the kernels for a number of rows.
type size struct {
	rows, threads     int
	decode, best, top *kernel
}

// headTiles is the tiles of a group of the vocabulary matrix.
const headTiles = 4

// plan is how the kernels for a number of rows use a card.
type plan struct {
	rows, warps, depth, pass, batch int
	qkvTiles, outTiles, gateTiles   int // of a group
	splits                          int
	shared, static                  int // bytes of a block
}

// planFor returns the first plan that fits the shared memory of a block: rather with 16 warps than with 8, then with a deep ring, with all
// inputs of a matrix at a time, and with the sums of several groups.
func planFor(s Shape, rows, blocks, shared int) (plan, error) {
	passes := []int{slices.Max(s.inputs()), max(s.Hidden, s.Heads*s.HeadDim)}
	if slices.ContainsFunc(s.inputs(), func(n int) bool { return n%unit != 0 }) {
		passes = passes[:1]
	}
	for _, try := range [][2]int{{16, 4}, {16, 3}, {8, 5}, {8, 4}, {8, 3}, {8, 2}} {
		p := plan{
			rows: rows, warps: try[0], depth: try[1], splits: s.splits(try[0]),
			qkvTiles: tiles(s.qkv(), blocks, 1, 2, 4), outTiles: tiles(s.Hidden, blocks, 1, 2), gateTiles: 2 * tiles(s.FFN, blocks, 1, 2),
			static: (s.Layers*int(unsafe.Sizeof(layer{}))/128 + 1) * 128,
		}
		for _, p.pass = range passes {
			for p.batch = 3; p.batch > 0; p.batch-- {
				if p.use(s); p.shared+p.static <= shared {
					return p, nil
				}
			}
		}
	}
	return plan{}, fmt.Errorf("%w: %d rows need more than %d bytes of shared memory", ErrCard, rows, shared)
}

// use computes the dynamic shared memory of a block.
func (p *plan) use(s Shape) {
	group := s.Heads / s.KVHeads
	_, zeros := s.blocks()
	inputs := p.rows*(p.pass*2+64) + p.pass/8*p.rows*(1+zeros) + p.batch*p.warps*p.rows*sumSize*4
	attend := (group+2)*s.HeadDim*2 + 8*p.warps*group*4 + p.warps*group*s.HeadDim*4 + 1024
	p.shared = p.warps*p.depth*slotSize + max(inputs, attend)
}

// splits returns the maximum number of parts of a row's positions.
func (s Shape) splits(warps int) int { return s.MaxLen/(8*warps) + 1 }

// plansFor returns the plans for all numbers of rows that fit, at least one.
func plansFor(s Shape, blocks, shared int) (plans []plan, err error) {
	for _, rows := range rowCounts() {
		p, err := planFor(s, rows, blocks, shared)
		if err != nil && len(plans) == 0 {
			return nil, err
		} else if err == nil {
			plans = append(plans, p)
		}
	}
	return plans, nil
}

// tiles returns the number of tiles of a group that leaves a block the fewest outputs, the largest of several.
func tiles(outputs, blocks int, of ...int) int {
	best, fewest := 0, 0
	for _, n := range of {
		width := n * tile
		groups := (outputs + width - 1) / width
		if each := (groups + blocks - 1) / blocks * width; best == 0 || each <= fewest && width <= outputs {
			best, fewest = n, each
		}
	}
	return best
}

func (s Shape) macros(p plan) map[string]string {
	block, zeros := s.blocks()
	out := map[string]string{
		"EPSILON": strconv.FormatFloat(s.Epsilon, 'e', -1, 64) + "f",
		"SCALE":   strconv.FormatFloat(1/math.Sqrt(float64(s.HeadDim)), 'e', -1, 32) + "f",
	}
	for name, v := range map[string]int{
		"LAYERS": s.Layers, "HIDDEN": s.Hidden, "FFN": s.FFN, "HEADS": s.Heads, "KV_HEADS": s.KVHeads, "HEAD_DIM": s.HeadDim,
		"VOCAB": s.Vocab, "HEAD_BITS": s.Head, "TOP": s.Top, "ROWS": p.rows, "WARPS": p.warps, "DEPTH": p.depth,
		"BLOCK": block, "ZEROS": zeros, "PASS": p.pass, "BATCH": p.batch, "SHARED": p.shared, "SPLITS": p.splits,
		"QKV_TILES": p.qkvTiles, "O_TILES": p.outTiles, "GATE_TILES": p.gateTiles, "HEAD_TILES": headTiles,
	} {
		out[name] = strconv.Itoa(v)
	}
	return out
}

// NewDecoder compiles the kernels for a model and allocates their memory, once.
func NewDecoder(d *Driver, c *Compiler, s Shape, w Weights, ports Ports) (*Decoder, error) {
	if err := s.check(); err != nil {
		return nil, err
	}
	k := &Decoder{driver: d, blocks: (s.Vocab + perList - 1) / perList}
	if err := errors.Join(k.allocate(s, w, ports), k.compile(c, s)); err != nil {
		return nil, errors.Join(err, k.Close())
	}
	return k, nil
}

// compile compiles the kernels for all numbers of rows that fit, at the same time, and loads them.
func (k *Decoder) compile(c *Compiler, s Shape) error {
	plans, err := plansFor(s, k.driver.Blocks, k.driver.Shared)
	if err != nil {
		return err
	}
	cubins, failed := make([][]byte, len(plans)), make([]error, len(plans))
	var compiling sync.WaitGroup
	for i, p := range plans {
		compiling.Go(func() { cubins[i], failed[i] = c.Compile(decodeSource, k.driver.Arch, s.macros(p)) })
	}
	compiling.Wait()
	if err := errors.Join(failed...); err != nil {
		return fmt.Errorf("%w: %w", ErrNVRTC, err)
	}
	k.mark = newMark(c.cache, k.driver.dev.Name(), cubins)
	if err := k.refuse(); err != nil {
		return err
	}
	for i, p := range plans {
		m, err := k.driver.load(cubins[i])
		if err != nil {
			return err
		}
		k.modules = append(k.modules, m)
		z := &size{rows: p.rows, threads: p.warps * 32}
		for _, f := range []struct {
			to     **kernel
			name   string
			shared int
		}{{&z.decode, "decode", p.shared}, {&z.best, "best", 0}, {&z.top, "top", 0}} {
			if *f.to, err = m.kernel(f.name, f.shared); err != nil {
				return err
			}
		}
		k.sizes = append(k.sizes, z)
	}
	return nil
}

// Check returns why a Decoder would not be made for a shape, as far as that can be told without compiling kernels: the shape, the card, or
// the mark of kernels that are in the cache. Of kernels whose last check differed from ONNX Runtime it returns that.
func Check(d *Driver, c *Compiler, s Shape) error {
	if err := s.check(); err != nil {
		return err
	}
	plans, err := plansFor(s, d.Blocks, d.Shared)
	if err != nil {
		return err
	}
	cubins := make([][]byte, len(plans))
	for i, p := range plans {
		_, file := c.options(decodeSource, d.Arch, s.macros(p))
		if cubins[i] = read(file); cubins[i] == nil {
			return nil // they did not run yet
		}
	}
	m := newMark(c.cache, d.dev.Name(), cubins)
	if err := m.refuse(); err != nil {
		return err
	}
	return m.differed()
}

// Bytes returns the memory of a Decoder, 0 for a shape that it does not support.
func (s Shape) Bytes() int64 {
	if s.check() != nil {
		return 0
	}
	_, total := s.parts()
	return total
}

// The parts of the decoder's memory.
const (
	partLayers = iota
	partTable
	partResidual
	partQKV
	partAttended
	partGated
	partSplits
	partCounters
	partLists
	parts
)

// parts returns the places of the decoder's memory and its size.
func (s Shape) parts() (offsets [parts]int64, total int64) {
	most := slices.Max(rowCounts())
	const fewestWarps = 8
	for i, bytes := range [parts]int{
		partLayers: s.Layers * int(unsafe.Sizeof(layer{})), partTable: most * 8,
		partResidual: most * s.Hidden * 2, partQKV: most * s.qkv() * 2, partAttended: most * s.Heads * s.HeadDim * 2,
		partGated: most * s.FFN * 2, partSplits: most * s.Heads * s.splits(fewestWarps) * (s.HeadDim + 2) * 4,
		partCounters: (2 + most*s.KVHeads) * 4, partLists: most * ((s.Vocab + perList - 1) / perList) * listSize * 8,
	} {
		offsets[i] = total
		total += (int64(bytes) + 255) / 256 * 256
	}
	return offsets, total
}

func (m Matrix) addresses() matrix {
	out := matrix{quants: m.Quants.Address(), scales: m.Scales.Address()}
	if m.Zeros != (ort.Pointer{}) {
		out.zeros = m.Zeros.Address()
	}
	return out
}

func (k *Decoder) allocate(s Shape, w Weights, ports Ports) (err error) {
	dev := k.driver.dev
	offsets, total := s.parts()
	if k.memory, err = dev.Malloc(total); err != nil {
		return err
	}
	if k.host, err = dev.HostAlloc(int64(slices.Max(rowCounts()) * 8)); err != nil {
		return err
	}
	place := func(part int) uintptr { return k.memory.At(offsets[part]).Address() }
	layers := make([]layer, len(w.Layers))
	for i, l := range w.Layers {
		layers[i] = layer{
			norm: l.Norm.Address(), ffnNorm: l.FFNNorm.Address(), qNorm: l.QNorm.Address(), kNorm: l.KNorm.Address(),
			keys: l.Keys.Address(), values: l.Values.Address(),
		}
		for j, m := range []Matrix{l.QKV, l.O, l.GateUp, l.Down} {
			layers[i].matrices[j] = m.addresses()
		}
	}
	k.table = k.memory.At(offsets[partTable])
	k.args = step{
		layers: place(partLayers), head: w.Head.addresses(),
		lastNorm: w.LastNorm.Address(), cosine: w.Cosine.Address(), sine: w.Sine.Address(),
		table: place(partTable), fed: ports.Fed.Address(), residual: place(partResidual), qkv: place(partQKV),
		attended: place(partAttended), gated: place(partGated), parts: place(partSplits), counters: place(partCounters),
		logits: ports.Logits.Address(), hidden: ports.Hidden.Address(), maxLen: int32(s.MaxLen),
	}
	k.bias, k.values, k.ids, k.lists = ports.Bias.Address(), ports.Values.Address(), ports.IDs.Address(), place(partLists)
	bytes := unsafe.Slice((*byte)(unsafe.Pointer(&layers[0])), len(layers)*int(unsafe.Sizeof(layer{}))) //nolint:gosec // for the kernels
	return errors.Join(dev.Memset(k.memory.At(0), 0, total), dev.CopyIn(k.memory.At(offsets[partLayers]), bytes), dev.Synchronize())
}

// Rows returns the maximum number of rows of a step, 0 without a decoder.
func (k *Decoder) Rows() int {
	if k == nil {
		return 0
	}
	return k.sizes[len(k.sizes)-1].rows
}

// Step queues a step: each of up to Rows slots gets the row that is fed to it at its length. The former step must be complete.
func (k *Decoder) Step(slots, lengths []int32) error {
	var z *size
	for _, z = range k.sizes {
		if z.rows >= len(slots) {
			break
		}
	}
	if len(slots) == 0 || len(slots) > z.rows {
		return fmt.Errorf("decode: expected 1 to %d rows, got %d", k.Rows(), len(slots))
	}
	table := ort.Slice[int32](k.host.Bytes())[:2*z.rows]
	for i := range z.rows {
		table[i], table[z.rows+i] = -1, 0
		if i < len(slots) {
			table[i], table[z.rows+i] = slots[i], lengths[i]
		}
	}
	if err := k.driver.dev.CopyIn(k.table, ort.Bytes(table)); err != nil {
		return err
	}
	//nolint:gosec // the arguments of kernels, read during the call
	args, bias, lists, values, ids := unsafe.Pointer(&k.args), unsafe.Pointer(&k.bias), unsafe.Pointer(&k.lists), unsafe.Pointer(&k.values),
		unsafe.Pointer(&k.ids)
	if err := z.decode.launch(k.driver.Blocks, 1, z.threads, true, args); err != nil {
		return k.End(fmt.Errorf("decode: %w", err))
	}
	if err := z.best.launch(k.blocks, z.rows, 512, false, args, bias, lists); err != nil {
		return k.End(fmt.Errorf("find the best ids: %w", err))
	}
	if err := z.top.launch(z.rows, 1, 512, false, args, lists, values, ids); err != nil {
		return k.End(fmt.Errorf("find the best ids: %w", err))
	}
	return nil
}

// Close frees the memory and the kernels.
func (k *Decoder) Close() error {
	var err error
	for _, m := range k.modules {
		err = errors.Join(err, m.close())
	}
	for _, m := range []*ort.Memory{k.memory, k.host} {
		if m != nil {
			err = errors.Join(err, m.Close())
		}
	}
	return err
}
