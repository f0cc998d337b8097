package models

import "math"

// Float16Bits returns the bits of x as IEEE 754 binary16, rounded to nearest even.
// Larger values become infinities.
func Float16Bits(x float32) uint16 {
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

// Float16FromBits returns the exact value of binary16 bits.
func Float16FromBits(h uint16) float32 {
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

// BFloat16Bits returns the bits of x as bfloat16, rounded to nearest even. Larger values become infinities.
func BFloat16Bits(x float32) uint16 {
	b := math.Float32bits(x)
	if b&0x7fffffff > 0x7f800000 {
		return uint16(b>>16) | 0x40
	}
	return uint16((b + 0x7fff + b>>16&1) >> 16)
}

// BFloat16FromBits returns the exact value of bfloat16 bits.
func BFloat16FromBits(h uint16) float32 { return math.Float32frombits(uint32(h) << 16) }
