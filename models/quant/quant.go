// Package quant rounds the weights of linear layers to 4 or 8 bits in blocks
// with one scale each, in the layout that the MatMulNBits operator reads, and
// encodes floats.
//
// It reads no files and starts no goroutines; callers pass rows.
package quant

import (
	"errors"
	"fmt"

	"touchline/models"
)

// Format is the format of a rounded matrix. The zero point is implied: 8 for 4
// bits, 128 for 8 bits.
type Format struct {
	Bits  int         // 4 or 8
	Block int         // inputs per scale: 16, 32, 64, 128 or 256
	Scale models.Type // of the scales as stored: Float16, BFloat16 or Float32
}

// Validate returns an error for an invalid format.
func (f Format) Validate() error {
	if f.Bits != 4 && f.Bits != 8 {
		return fmt.Errorf("bits: must be 4 or 8, is %d", f.Bits)
	}
	if f.Block < 16 || f.Block > maxBlock || f.Block&(f.Block-1) != 0 {
		return fmt.Errorf("block: must be a power of two from 16 to %d, is %d", maxBlock, f.Block)
	}
	if f.Scale != models.Float16 && f.Scale != models.BFloat16 && f.Scale != models.Float32 {
		return fmt.Errorf("scale: must be float16, bfloat16 or float32, is %s", f.Scale)
	}
	return nil
}

const maxBlock = 256

// Blocks returns the number of blocks of a row of k inputs. The last block is
// zero-padded.
func (f Format) Blocks(k int) int { return (k + f.Block - 1) / f.Block }

// RowBytes returns the size of the quants of a row of k inputs.
func (f Format) RowBytes(k int) int { return f.Blocks(k) * f.Block * f.Bits / 8 }

// ValueError is returned for a weight that the target type cannot hold.
type ValueError struct {
	Index int // in the passed slice
	Value float32
	Type  models.Type // the target type
}

// Error names the element and its value.
func (e *ValueError) Error() string {
	return fmt.Sprintf("element %d: %s cannot hold %g", e.Index, e.Type, e.Value)
}

// Rounder rounds to one format. It is not safe for concurrent use.
type Rounder struct {
	Format
	search *search
}

// NewRounder returns a Rounder for a valid format.
func NewRounder(f Format) (*Rounder, error) {
	if err := f.Validate(); err != nil {
		return nil, err
	}
	return &Rounder{Format: f, search: newSearch()}, nil
}

// Round rounds rows of k inputs each. quants must have RowBytes(k) bytes a
// row (4 bits: low nibble first), scales Blocks(k) elements a row. The scales are
// already rounded to Scale.
//
// A weight is then (quant - zero point) * scale. Round searches the scale of each
// block, which may be negative, for the least squared error.
func (r *Rounder) Round(quants []byte, scales, rows []float32, k int) error {
	n, err := r.rows(len(quants), len(scales), len(rows), k)
	if err != nil {
		return err
	}
	blocks, bytes := r.Blocks(k), r.Block*r.Bits/8
	for row := range n {
		for b := range blocks {
			at := row*k + b*r.Block
			w := rows[at:min(at+r.Block, (row+1)*k)]
			i := row*blocks + b
			scale, bad := r.search.scale(w, r.Bits)
			if bad >= 0 {
				return &ValueError{Index: at + bad, Value: w[bad], Type: models.Float32}
			}
			if scale, err = r.stored(scale); err != nil {
				return &ValueError{Index: at, Value: scale, Type: models.Float16}
			}
			scales[i] = scale
			var inv float32
			if scale != 0 {
				inv = 1 / scale
			}
			q := quants[i*bytes : (i+1)*bytes]
			if r.Bits == 4 {
				pack4(q, w, inv)
			} else {
				pack8(q, w, inv)
			}
		}
	}
	return nil
}

// errRange is returned for a scale that overflows.
var errRange = errors.New("out of range")

// stored rounds a scale to the format's type.
func (f Format) stored(scale float32) (float32, error) {
	switch f.Scale {
	case models.Float32:
		return scale, nil
	case models.BFloat16: // its range is that of the weights
		return models.BFloat16FromBits(models.BFloat16Bits(scale)), nil
	default:
	}
	h := models.Float16Bits(scale)
	if h&0x7c00 == 0x7c00 {
		return scale, errRange
	}
	return models.Float16FromBits(h), nil
}

// rows returns the number of rows, or an error if the lengths do not agree.
func (f Format) rows(quants, scales, values, k int) (int, error) {
	if k < 1 || values%k != 0 {
		return 0, fmt.Errorf("expected whole rows of %d values, got %d values", k, values)
	}
	n := values / k
	if quants != n*f.RowBytes(k) || scales != n*f.Blocks(k) {
		return 0, fmt.Errorf("expected %d bytes and %d scales for %d rows of %d, got %d and %d",
			n*f.RowBytes(k), n*f.Blocks(k), n, k, quants, scales)
	}
	return n, nil
}
