package quant

import (
	"encoding/binary"
	"math"

	"touchline/models"
)

// MaxFloat16 is the largest finite float16.
const MaxFloat16 = 65504

// PutFloat16 writes src as little-endian float16 to dst, 2 bytes an element. It
// returns a ValueError for the first value beyond float16. With clamp, such
// finite values become the largest float16 and clamped counts them.
func PutFloat16(dst []byte, src []float32, clamp bool) (clamped int, err error) {
	dst = dst[:2*len(src)]
	for i, x := range src {
		b := math.Float32bits(x)
		if u := b &^ (1 << 31); u-0x38800000 < 0x477ff000-0x38800000 { // a normal float16
			h := b>>16&0x8000 | (u-0x38000000+0xfff+u>>13&1)>>13
			binary.LittleEndian.PutUint16(dst[2*i:], uint16(h))
			continue
		}
		h := models.Float16Bits(x)
		if h&0x7c00 == 0x7c00 {
			if h, err = saturate(x, h, i, clamp); err != nil {
				return clamped, err
			}
			clamped++
		}
		binary.LittleEndian.PutUint16(dst[2*i:], h)
	}
	return clamped, nil
}

// saturate limits a value whose float16 bits h are not finite.
func saturate(x float32, h uint16, i int, clamp bool) (uint16, error) {
	if !clamp || math.IsInf(float64(x), 0) || x != x {
		return 0, &ValueError{Index: i, Value: x, Type: models.Float16}
	}
	return h&0x8000 | 0x7bff, nil
}

// PutBFloat16 writes src as little-endian bfloat16 to dst, 2 bytes an element. It
// returns a ValueError for a value that is not finite, before or after rounding.
func PutBFloat16(dst []byte, src []float32) error {
	dst = dst[:2*len(src)]
	for i, x := range src {
		h := models.BFloat16Bits(x)
		if h&0x7f80 == 0x7f80 {
			return &ValueError{Index: i, Value: x, Type: models.BFloat16}
		}
		binary.LittleEndian.PutUint16(dst[2*i:], h)
	}
	return nil
}

// PutFloat32 writes src as little-endian float32 to dst, 4 bytes an element. It
// returns a ValueError for a value that is not finite.
func PutFloat32(dst []byte, src []float32) error {
	dst = dst[:4*len(src)]
	for i, x := range src {
		b := math.Float32bits(x)
		if b&0x7f800000 == 0x7f800000 {
			return &ValueError{Index: i, Value: x, Type: models.Float32}
		}
		binary.LittleEndian.PutUint32(dst[4*i:], b)
	}
	return nil
}
