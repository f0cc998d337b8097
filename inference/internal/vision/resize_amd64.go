package vision

import "golang.org/x/sys/cpu"

// bestLevel returns the fastest level of this machine.
func bestLevel() level {
	switch {
	case cpu.X86.HasAVX2 && cpu.X86.HasAVX512VL && cpu.X86.HasAVX512VNNI:
		return levelVNNI
	case cpu.X86.HasAVX2:
		return levelAVX2
	}
	return levelPlain
}

// rowsFast is row for one or two rows, distance bytes apart and readable up to
// reach.
func (f *filter) rowsFast(l level, dst []byte, stride int, src []byte, distance, n int) {
	// A single row goes through both lanes.
	dst2, src2 := 0, 0
	if n == 2 {
		dst2, src2 = stride, distance
	}
	_, _ = dst[dst2+3*f.out], src[src2+f.reach-1]
	if l == levelVNNI {
		acrossVNNI(&dst[0], &dst[dst2], &src[0], &src[src2], &f.offset[0], &f.digits[0], f.taps/group, f.out)
		return
	}
	acrossAVX2(&dst[0], &dst[dst2], &src[0], &src[src2], &f.offset[0], &f.split[0], f.taps/group, f.out)
}

// columnFast is column for the n bytes of a row. It writes a multiple of 16 bytes.
func (f *filter) columnFast(dst, src []byte, stride, y, n int) {
	n = (n + 15) / 16
	pairs := (int(f.used[y]) + 1) / 2
	_, _ = dst[16*n-1], src[(2*pairs-1)*stride+16*n-1]
	downAVX2(&dst[0], &src[0], stride, &f.pairs[2*y*f.taps], pairs, n)
}

// acrossAVX2 computes n output pixels of two rows, each from groups*4 source pixels
// at its offset. It writes one byte beyond each row.
//
//go:noescape
func acrossAVX2(dst1, dst2, src1, src2 *byte, offset *int32, split *int16, groups, n int)

// acrossVNNI is acrossAVX2 with the weights as digits.
//
//go:noescape
func acrossVNNI(dst1, dst2, src1, src2 *byte, offset *int32, digits *int8, groups, n int)

// downAVX2 computes n*16 bytes of an output row from 2*pairs source rows, stride
// bytes apart.
//
//go:noescape
func downAVX2(dst, src *byte, stride int, weights *int16, pairs, n int)
