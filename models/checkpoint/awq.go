package checkpoint

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"strings"

	"touchline/models"
	"touchline/models/safetensors"
)

// awqLinear is a linear layer of n outputs and k inputs in AWQ's "gemm"
// layout: weights [k, n/8] and zero points [k/group, n/8] hold eight outputs
// in an int32, scales [k/group, n] are float16. A weight is
// (q - zero) * scale.
type awqLinear struct {
	name           string // of the plain weight
	n, k, group    int
	weights, zeros safetensors.Tensor
	scales         safetensors.Tensor
}

// The parts of a packed layer, behind the layer's name.
const (
	partWeights = ".qweight"
	partZeros   = ".qzeros"
	partScales  = ".scales"
)

func isPacked(name string) bool {
	return strings.HasSuffix(name, partWeights) || strings.HasSuffix(name, partZeros) || strings.HasSuffix(name, partScales)
}

// shiftOf returns the bit offset of the j-th output in a word: AWQ stores them in
// the order 0, 2, 4, 6, 1, 3, 5, 7.
func shiftOf(j int) uint {
	return [8]uint{0, 16, 4, 20, 8, 24, 12, 28}[j&7]
}

// joinPacked assembles layers from their parts. A layer is quantised if its
// tensors are; the published list of exceptions is null.
func (c *Checkpoint) joinPacked(parts map[string]safetensors.Tensor) error {
	q := c.config.Quantization
	for _, name := range slices.Sorted(maps.Keys(parts)) {
		if q == nil {
			return fmt.Errorf("%s: quantization_config: missing, but %q is quantised", c.path("config.json"), name)
		}
		base, isWeight := strings.CutSuffix(name, partWeights)
		if !isWeight {
			base = strings.TrimSuffix(strings.TrimSuffix(base, partZeros), partScales)
			if _, ok := parts[base+partWeights]; !ok {
				return fmt.Errorf("%s: tensor %q has no %s beside it", c.dir, name, base+partWeights)
			}
			continue
		}
		l := &awqLinear{name: base + ".weight", weights: parts[name]}
		var ok bool
		if l.zeros, ok = parts[base+partZeros]; !ok {
			return fmt.Errorf("%s: tensor %q has no %s beside it", c.dir, name, base+partZeros)
		}
		if l.scales, ok = parts[base+partScales]; !ok {
			return fmt.Errorf("%s: tensor %q has no %s beside it", c.dir, name, base+partScales)
		}
		if _, ok := c.plain[l.name]; ok {
			return fmt.Errorf("%s: tensor %q exists twice, plain and quantised", c.dir, l.name)
		}
		if err := l.check(q.GroupSize); err != nil {
			return fmt.Errorf("%s: %w", c.dir, err)
		}
		c.packed[l.name] = l
	}
	return nil
}

// check reads the sizes from the weights and compares zero points and scales with them.
func (l *awqLinear) check(group int) error {
	w := l.weights.Shape
	if l.weights.Type != models.Int32 || len(w) != 2 || w[0] == 0 || w[1] == 0 {
		return fmt.Errorf("tensor %q: expected I32 [inputs, outputs/8], got %s %d", l.weights.Name, l.weights.DType, w)
	}
	l.k, l.n, l.group = w[0], w[1]*8, group
	if group == -1 { // one scale for all inputs
		l.group = l.k
	}
	if l.k%l.group != 0 {
		return fmt.Errorf("tensor %q: %d inputs are not a multiple of quantization_config.group_size %d", l.weights.Name, l.k, l.group)
	}
	if want := []int{l.k / l.group, w[1]}; l.zeros.Type != models.Int32 || !slices.Equal(l.zeros.Shape, want) {
		return fmt.Errorf("tensor %q: expected I32 %d, got %s %d", l.zeros.Name, want, l.zeros.DType, l.zeros.Shape)
	}
	if want := []int{l.k / l.group, l.n}; l.scales.Type != models.Float16 || !slices.Equal(l.scales.Shape, want) {
		return fmt.Errorf("tensor %q: expected F16 %d, got %s %d", l.scales.Name, want, l.scales.DType, l.scales.Shape)
	}
	return nil
}

// The size of a tile, the unit of unpacking: a row of words in a tile is one
// cache line.
const (
	tileInputs  = 32
	tileOutputs = 128
)

// block holds the words of a tile.
type block [tileInputs][tileOutputs / 8]uint32

// tiles calls do for each tile of outputs [from, to): outputs [n, n+outputs) by
// inputs [k, k+inputs), all of one group. The outputs of a tile start at word
// n%tileOutputs/8 of its block.
func (l *awqLinear) tiles(weights []byte, from, to int, do func(b *block, n, outputs, k, inputs int)) {
	var b block
	for n := from; n < to; {
		outputs := min(tileOutputs-n%tileOutputs, to-n)
		first := n / tileOutputs * (tileOutputs / 8)
		words := min(tileOutputs/8, l.n/8-first)
		for k := 0; k < l.k; {
			inputs := min(tileInputs, l.group-k%l.group)
			for i := range inputs {
				row := weights[((k+i)*(l.n/8)+first)*4:]
				for j := range words {
					b[i][j] = binary.LittleEndian.Uint32(row[4*j:])
				}
			}
			do(&b, n, outputs, k, inputs)
			k += inputs
		}
		n += outputs
	}
}

// floats dequantises outputs [from, to) to dst [to-from, k]. The product of a
// small integer and an 11-bit scale is exact.
func (l *awqLinear) floats(dst []float32, from, to int) error {
	if err := l.checkRange(from, to); err != nil {
		return err
	}
	if len(dst) != (to-from)*l.k {
		return fmt.Errorf("tensor %q: needs a buffer of %d values, has %d", l.name, (to-from)*l.k, len(dst))
	}
	return l.view(func(weights, zeros, scales []byte) {
		l.tiles(weights, from, to, func(b *block, n, outputs, k, inputs int) {
			g := k / l.group
			for i := range outputs {
				zero := float32(l.nibble(zeros, g, n+i))
				scale := models.Float16FromBits(binary.LittleEndian.Uint16(scales[2*(g*l.n+n+i):]))
				word, shift := (n+i)%tileOutputs/8, shiftOf(n+i)
				out := dst[(n+i-from)*l.k+k:][:inputs]
				for j := range out {
					out[j] = (float32(b[j&(tileInputs-1)][word]>>shift&15) - zero) * scale
				}
			}
		})
	})
}

// nibble returns output n of row r in packed [rows, n/8].
func (l *awqLinear) nibble(packed []byte, r, n int) byte {
	word := binary.LittleEndian.Uint32(packed[r*l.n/2+n/8*4:])
	return byte(word >> shiftOf(n) & 15)
}

// Dims returns outputs, inputs and the block.
func (l *awqLinear) Dims() (n, k, block int) { return l.n, l.k, l.group }

// Rows repacks outputs [from, to); see models.PackedLinear.
func (l *awqLinear) Rows(quants []byte, scales []uint16, zeros []byte, from, to int) error {
	if err := l.checkRange(from, to); err != nil {
		return err
	}
	rows, blocks := to-from, l.k/l.group
	zeroBytes := (blocks + 1) / 2
	if len(quants) != rows*l.k/2 || len(scales) != rows*blocks || len(zeros) != rows*zeroBytes {
		return fmt.Errorf("tensor %q: needs buffers of %d bytes, %d scales and %d bytes of zero points, has %d, %d and %d",
			l.name, rows*l.k/2, rows*blocks, rows*zeroBytes, len(quants), len(scales), len(zeros))
	}
	return l.view(func(weights, zeroWords, scaleBytes []byte) {
		clear(zeros)
		for g := range blocks {
			for i := range rows {
				n := from + i
				zeros[i*zeroBytes+g/2] |= l.nibble(zeroWords, g, n) << (4 * (g & 1))
				scales[i*blocks+g] = binary.LittleEndian.Uint16(scaleBytes[2*(g*l.n+n):])
			}
		}
		l.tiles(weights, from, to, func(b *block, n, outputs, k, inputs int) {
			for i := range outputs {
				word, shift := (n+i)%tileOutputs/8, shiftOf(n+i)
				out := quants[((n+i-from)*l.k+k)/2:][:inputs/2]
				for j := range out {
					low := b[2*j&(tileInputs-1)][word] >> shift & 15
					high := b[(2*j+1)&(tileInputs-1)][word] >> shift & 15
					out[j] = byte(low | high<<4) //nolint:gosec // two numbers of 4 bits
				}
			}
		})
	})
}

func (l *awqLinear) checkRange(from, to int) error {
	if from < 0 || to < from || to > l.n {
		return fmt.Errorf("tensor %q: rows must be within 0 to %d, are %d to %d", l.name, l.n, from, to)
	}
	return nil
}

// view calls read with the bytes of the three parts.
func (l *awqLinear) view(read func(weights, zeros, scales []byte)) error {
	return l.weights.View(func(weights []byte) error {
		return l.zeros.View(func(zeros []byte) error {
			return l.scales.View(func(scales []byte) error {
				read(weights, zeros, scales)
				return nil
			})
		})
	})
}
