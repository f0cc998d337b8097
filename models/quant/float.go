package quant

import (
	"encoding/binary"
	"math"

	"touchline/models"
)

// MaxFloat16 is the largest finite float16.
const MaxFloat16 = 65504

// Float16 returns the bits of x as IEEE 754 binary16, rounded to nearest even.
// Larger values become infinities.
func Float16(x float32) uint16 {
	b := math.Float32bits(x)
	sign := uint16(b >> 16 & 0x8000)
	b &^= 1 << 31
	switch {
	case b >= 0x477ff000: // 65520 and more, infinities, NaN
		if b > 0x7f800000 {
			return sign | 0x7e00
		}
		return sign | 0x7c00
	case b < 0x38800000: // below 2^-14: the addition rounds
		return sign | uint16(math.Float32bits(math.Float32frombits(b)+0.5)-0x3f000000)
	}
	return sign | uint16((b-0x38000000+0xfff+b>>13&1)>>13)
}

// FromFloat16 returns the value of binary16 bits.
func FromFloat16(h uint16) float32 {
	sign := uint32(h&0x8000) << 16
	b := uint32(h&0x7fff) << 13
	switch {
	case b >= 0x7c00<<13:
		return math.Float32frombits(sign | b | 0x7f800000)
	case b < 0x0400<<13: // subnormal
		return math.Float32frombits(sign | math.Float32bits(math.Float32frombits(b+0x38800000)-math.Float32frombits(0x38800000)))
	}
	return math.Float32frombits(sign | (b + 0x38000000))
}

// BFloat16 returns the bits of x as bfloat16, rounded to nearest even.
func BFloat16(x float32) uint16 {
	b := math.Float32bits(x)
	if b&0x7fffffff > 0x7f800000 {
		return uint16(b>>16) | 0x40
	}
	return uint16((b + 0x7fff + b>>16&1) >> 16)
}

// FromBFloat16 returns the value of bfloat16 bits.
func FromBFloat16(h uint16) float32 { return math.Float32frombits(uint32(h) << 16) }

// PutFloat16 writes src as little-endian float16 to dst, 2 bytes an element. It
// returns a ValueError for the first value beyond float16. With clamp, such
// finite values become the largest float16 and clamped counts them.
func PutFloat16(dst []byte, src []float32, clamp bool) (clamped int, err error) {
	dst = dst[:2*len(src)]
	for i, x := range src {
		b := math.Float32bits(x)
		if u := b &^ (1 << 31); u-0x38800000 < 0x477ff000-0x38800000 { // a normal float16
			h := b>>16&0x8000 | (u-0x38000000+0xfff+u>>13&1)>>13
			binary.LittleEndian.PutUint16(dst[2*i:], uint16(h)) //nolint:gosec // 16 bits
			continue
		}
		h := Float16(x)
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
