package models_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"touchline/models"
)

// half returns the value of binary16 bits by definition.
func half(h uint16) float64 {
	sign := 1 - 2*float64(h>>15)
	exp, frac := int(h>>10&31), float64(h&1023)
	switch exp {
	case 0:
		return sign * math.Ldexp(frac, -24)
	case 31:
		if frac == 0 {
			return sign * math.Inf(1)
		}
		return math.NaN()
	}
	return sign * math.Ldexp(1024+frac, exp-25)
}

// TestFloat16 compares all 65,536 half-precision numbers with their definition.
func TestFloat16(t *testing.T) {
	for i := range 1 << 16 {
		h := uint16(i)
		x := models.Float16FromBits(h)
		if h&0x7c00 == 0x7c00 && h&0x3ff != 0 {
			require.True(t, math.IsNaN(float64(x)))
			require.True(t, math.IsNaN(float64(models.Float16FromBits(models.Float16Bits(x)))))
			continue
		}
		if math.Float32bits(float32(half(h))) != math.Float32bits(x) || models.Float16Bits(x) != h {
			require.Fail(t, "wrong conversion", "%#x is %g, got %g and back %#x", h, half(h), x, models.Float16Bits(x))
		}
		if h&0x7fff < 0x7bff { // between this one and the next: ties go to the even one
			next := models.Float16FromBits(h + 1)
			middle := float32((float64(x) + float64(next)) / 2)
			below, above := math.Nextafter32(middle, x), math.Nextafter32(middle, next)
			if models.Float16Bits(middle) != h+h&1 || models.Float16Bits(below) != h || models.Float16Bits(above) != h+1 {
				require.Fail(t, "wrong rounding", "between %#x and the next", h)
			}
		}
	}
	for x, want := range map[float32]uint16{
		65519: 0x7bff, 65520: 0x7c00, 1e9: 0x7c00,
		0x1p-25: 0, 0x1.000002p-25: 1, 0x1p-26: 0, // around half the smallest subnormal
		0x1.ff8p-15: 0x03ff, 0x1.ffep-15: 0x0400, // the largest subnormal, a carry into the normals
	} {
		require.Equal(t, want, models.Float16Bits(x), "%g", x)
	}
}

// TestBFloat16 compares all bfloat16 numbers with their definition.
func TestBFloat16(t *testing.T) {
	for i := range 1 << 16 {
		h := uint16(i)
		x := models.BFloat16FromBits(h)
		if x != x {
			require.True(t, math.IsNaN(float64(models.BFloat16FromBits(models.BFloat16Bits(x)))))
			continue
		}
		require.Equal(t, h, models.BFloat16Bits(x))
		if h&0x7f80 != 0x7f80 {
			require.Equal(t, h+h&1, models.BFloat16Bits(math.Float32frombits(uint32(h)<<16|0x8000)))
			require.Equal(t, h+1, models.BFloat16Bits(math.Float32frombits(uint32(h)<<16|0x8001)))
		}
	}
}
