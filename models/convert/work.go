package convert

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"touchline/models"
	"touchline/models/graph"
	"touchline/models/quant"
)

// worker runs tasks. Its buffers are scratch memory for one goroutine.
type worker struct {
	clamp    bool
	values   []float32
	scales   []float32
	bytes    []byte
	quants   []byte
	zeros    []byte
	bits     []uint16
	tile     []byte
	rounders map[quant.Format]*quant.Rounder
}

func newWorker(clamp bool) *worker {
	return &worker{clamp: clamp, rounders: map[quant.Format]*quant.Rounder{}}
}

// RangeError is returned for a weight that its float type cannot hold.
type RangeError struct {
	Tensor string // with the position: "…weight[3,17]"
	Value  float32
	Type   models.Type
}

// Error names the element and the remedy.
func (e *RangeError) Error() string {
	if e.Type == models.Float16 && !math.IsNaN(float64(e.Value)) {
		return fmt.Sprintf("%s: float16 holds at most %d, the value is %g: "+
			"convert with --weights bf16 (a voice: --voice-weights fp32), or use --clamp", e.Tensor, quant.MaxFloat16, e.Value)
	}
	return fmt.Sprintf("%s: the value is %g, not finite: the checkpoint is damaged", e.Tensor, e.Value)
}

// do runs a task.
func (w *worker) do(t task) error {
	switch {
	case t.queries != nil:
		return w.queries(t)
	case t.formula != nil:
		values, err := t.formula()
		if err != nil {
			return err
		}
		return w.value(t, values)
	case t.stack == nil:
		return w.value(t, t.weight.Floats)
	case t.rule == graph.RuleTranspose:
		return w.transpose(t)
	case t.rule == graph.RuleCopy:
		return w.copy(t)
	case t.weight.Packed:
		return w.repack(t)
	}
	return w.round(t)
}

// value writes computed values.
func (w *worker) value(t task, values []float32) error {
	o := t.outputs[0]
	if err := w.encode(t, o.typ, values, 0); err != nil {
		return err
	}
	return o.write(w.bytes, 0)
}

// copy writes rows unchanged.
func (w *worker) copy(t task) error {
	if err := w.read(t, t.from, t.to); err != nil {
		return err
	}
	o := t.outputs[0]
	if err := w.encode(t, o.typ, w.values, t.from); err != nil {
		return err
	}
	return o.write(w.bytes, t.from*t.stack.cols*o.typ.Size())
}

// read reads rows to w.values.
func (w *worker) read(t task, from, to int) error {
	w.values = grow(w.values, (to-from)*t.stack.cols)
	if err := t.stack.read(w.values, from, to); err != nil {
		return err
	}
	if scale := float32(t.weight.Scale); scale != 0 {
		for i := range w.values {
			w.values[i] *= scale
		}
	}
	return nil
}

// encode writes values to w.bytes, starting at the beginning of a row.
func (w *worker) encode(t task, typ models.Type, values []float32, row int) error {
	w.bytes = grow(w.bytes, len(values)*typ.Size())
	n, err := put(w.bytes, typ, values, w.clamp)
	t.clamped.Add(int64(n))
	return t.name(err, row)
}

// put writes values in a float type; see quant.PutFloat16.
func put(dst []byte, typ models.Type, values []float32, clamp bool) (clamped int, err error) {
	switch typ {
	case models.Float32:
		return 0, quant.PutFloat32(dst, values)
	case models.BFloat16:
		return 0, quant.PutBFloat16(dst, values)
	default:
		return quant.PutFloat16(dst, values, clamp)
	}
}

// name replaces the index in a quant.ValueError, counted from row, by the
// tensor's name and position.
func (t task) name(err error, row int) error {
	value, ok := errors.AsType[*quant.ValueError](err)
	if !ok {
		return err
	}
	tensor := t.weight.Name
	if t.stack != nil {
		tensor = t.stack.name(row+value.Index/t.stack.cols, value.Index%t.stack.cols)
	}
	return &RangeError{Tensor: tensor, Value: value.Value, Type: value.Type}
}

// transpose writes rows as columns.
func (w *worker) transpose(t task) error {
	o, k, n := t.outputs[0], t.stack.cols, t.stack.rows
	size, rows := o.typ.Size(), t.to-t.from
	// Lines are padded: with a power of two as their distance they would evict
	// each other from the cache.
	pitch := (rows+tileUnit)*size + 64
	w.tile = grow(w.tile, k*pitch)
	for from := t.from; from < t.to; from += tileUnit {
		to := min(from+tileUnit, t.to)
		if err := w.read(t, from, to); err != nil {
			return err
		}
		at := (from - t.from) * size
		if size == 4 {
			if err := w.encode(t, o.typ, w.values, from); err != nil {
				return err
			}
			turn32(w.tile[at:], w.bytes, k, to-from, pitch)
			continue
		}
		if err := w.turn16(t, w.tile[at:], from, to-from, pitch); err != nil {
			return err
		}
	}
	line := rows * size
	if rows == n { // the whole matrix in one write
		for i := range k {
			copy(w.tile[i*line:(i+1)*line], w.tile[i*pitch:])
		}
		return o.write(w.tile[:k*line], 0)
	}
	for i := range k {
		if err := o.write(w.tile[i*pitch:][:line], (i*n+t.from)*size); err != nil {
			return err
		}
	}
	return nil
}

// turn32 writes rows of k elements of 4 bytes as columns, lines pitch apart.
func turn32(dst, src []byte, k, rows, pitch int) {
	for r := range rows {
		row := src[r*k*4:][:k*4]
		for i := range k {
			copy(dst[i*pitch+r*4:][:4], row[i*4:])
		}
	}
}

// turn16 writes rows of w.values as columns of float16 or bfloat16, in groups of four rows.
// The excess of the last group is overwritten or dropped later.
func (w *worker) turn16(t task, dst []byte, row, rows, pitch int) error {
	k, wide := t.stack.cols, t.outputs[0].typ == models.BFloat16
	ones, carry := uint64(0x7c007c007c007c00), uint64(0x0400040004000400) // the exponents, and 1 added to each
	if wide {
		ones, carry = 0x7f807f807f807f80, 0x0080008000800080
	}
	const top = 0x8000800080008000
	for r := 0; r < rows; r += 4 {
		// Repeat the last row beyond the end.
		line := func(i int) []float32 { return w.values[min(r+i, rows-1)*k:][:k] }
		a, b, c, d := line(0), line(1), line(2), line(3)
		out := dst[2*r:]
		for i := range a {
			var v uint64
			if wide {
				v = uint64(models.BFloat16Bits(a[i])) | uint64(models.BFloat16Bits(b[i]))<<16 |
					uint64(models.BFloat16Bits(c[i]))<<32 | uint64(models.BFloat16Bits(d[i]))<<48
			} else {
				v = uint64(models.Float16Bits(a[i])) | uint64(models.Float16Bits(b[i]))<<16 |
					uint64(models.Float16Bits(c[i]))<<32 | uint64(models.Float16Bits(d[i]))<<48
			}
			if (v&ones+carry)&top != 0 { // one of the four is not finite
				var err error
				if v, err = w.bounded(t, [4]float32{a[i], b[i], c[i], d[i]}, row+r, min(4, rows-r), i); err != nil {
					return err
				}
			}
			binary.LittleEndian.PutUint64(out[i*pitch:], v)
		}
	}
	return nil
}

// bounded encodes up to four values of a column, starting at row, some of which the type cannot
// hold.
func (w *worker) bounded(t task, x [4]float32, row, rows, col int) (v uint64, err error) {
	for i := range rows {
		var b [2]byte
		typ := t.outputs[0].typ
		n, err := put(b[:], typ, x[i:i+1], w.clamp)
		if err != nil {
			return 0, t.name(&quant.ValueError{Index: i*t.stack.cols + col, Value: x[i], Type: typ}, row)
		}
		t.clamped.Add(int64(n))
		v |= uint64(binary.LittleEndian.Uint16(b[:])) << (16 * i)
	}
	return v, nil
}

// round writes the views of a rounding.
func (w *worker) round(t task) error {
	if err := w.read(t, t.from, t.to); err != nil {
		return err
	}
	rounder, ok := w.rounders[t.format]
	if !ok {
		var err error
		if rounder, err = quant.NewRounder(t.format); err != nil {
			return err
		}
		w.rounders[t.format] = rounder
	}
	rows, k := t.to-t.from, t.stack.cols
	blocks, rowBytes := t.format.Blocks(k), t.format.RowBytes(k)
	quants := grow(w.quants, rows*rowBytes)
	w.quants = quants
	w.scales = grow(w.scales, rows*blocks)
	if err := rounder.Round(quants, w.scales, w.values, k); err != nil {
		return t.name(err, t.from)
	}
	return w.views(t, quants, nil)
}

// repack writes the views of layers that are already int4.
func (w *worker) repack(t task) error {
	rows, k := t.to-t.from, t.stack.cols
	blocks, rowBytes := t.format.Blocks(k), t.format.RowBytes(k)
	zeroBytes := (blocks + 1) / 2
	quants := grow(w.quants, rows*rowBytes)
	w.quants = quants
	w.bits, w.zeros = grow(w.bits, rows*blocks), grow(w.zeros, rows*zeroBytes)
	first, done := 0, 0
	for _, p := range t.stack.parts {
		from, to := max(t.from-first, 0), min(t.to-first, p.rows)
		first += p.rows
		if from >= to {
			continue
		}
		packed, ok := t.stack.src.Packed(p.name)
		if !ok {
			return fmt.Errorf("tensor %s: not int4 in the checkpoint", p.name)
		}
		end := done + to - from
		err := packed.Rows(quants[done*rowBytes:end*rowBytes], w.bits[done*blocks:end*blocks], w.zeros[done*zeroBytes:end*zeroBytes], from, to)
		if err != nil {
			return err
		}
		done = end
	}
	w.scales = grow(w.scales, rows*blocks)
	for i, b := range w.bits {
		w.scales[i] = models.Float16FromBits(b)
	}
	return w.views(t, quants, w.zeros)
}

// views writes quants, w.scales and zero points to the outputs of a task.
func (w *worker) views(t task, quants, zeros []byte) error {
	blocks := t.format.Blocks(t.stack.cols)
	for _, o := range t.outputs {
		bytes, row := quants, t.format.RowBytes(t.stack.cols)
		switch o.rule {
		case graph.RuleScales:
			row = blocks * o.typ.Size()
			w.bytes = grow(w.bytes, len(w.scales)*o.typ.Size())
			bytes = w.bytes
			_, err := put(bytes, o.typ, w.scales, false)
			if value, ok := errors.AsType[*quant.ValueError](err); ok { // only packed layers
				return &RangeError{Tensor: "scale of " + t.stack.name(t.from+value.Index/blocks, 0), Value: value.Value, Type: models.Float32}
			}
		case graph.RuleZeros:
			bytes, row = zeros, (blocks*t.weight.Bits+7)/8
		default:
		}
		if err := o.write(bytes, t.from*row); err != nil {
			return err
		}
	}
	return nil
}

// write writes b at offset at of the region.
func (r region) write(b []byte, at int) error {
	if int64(at+len(b)) > r.length {
		return fmt.Errorf("%s: %d bytes at offset %d exceed a weight of %d", r.file.name, len(b), at, r.length)
	}
	_, err := r.file.f.WriteAt(b, r.offset+int64(at))
	return err
}
