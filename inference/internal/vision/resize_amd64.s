#include "textflag.h"

// Byte order that puts four RGB pixels as r0r1 r2r3 g0g1 g2g3 b0b1 b2b3.
DATA order<>+0(SB)/8, $0x0a07040109060300
DATA order<>+8(SB)/8, $0x808080800b080502
GLOBL order<>(SB), RODATA|NOPTR, $16

// Byte order that puts four RGB pixels as r0r1r2r3 g0g1g2g3 b0b1b2b3, twice.
DATA planes<>+0(SB)/8, $0x0a07040109060300
DATA planes<>+8(SB)/8, $0x808080800b080502
DATA planes<>+16(SB)/8, $0x0a07040109060300
DATA planes<>+24(SB)/8, $0x808080800b080502
GLOBL planes<>(SB), RODATA|NOPTR, $32

// Half of the last place of the result, eight times.
DATA half<>+0(SB)/8, $0x0020000000200000
DATA half<>+8(SB)/8, $0x0020000000200000
DATA half<>+16(SB)/8, $0x0020000000200000
DATA half<>+24(SB)/8, $0x0020000000200000
GLOBL half<>(SB), RODATA|NOPTR, $32

// func acrossAVX2(dst1, dst2, src1, src2 *byte, offset *int32, split *int16, groups, n int)
TEXT ·acrossAVX2(SB), NOSPLIT, $0-64
	MOVQ    dst1+0(FP), DI
	MOVQ    dst2+8(FP), BX
	MOVQ    src1+16(FP), SI
	MOVQ    src2+24(FP), R11
	MOVQ    offset+32(FP), R8
	MOVQ    split+40(FP), R9
	MOVQ    groups+48(FP), R10
	MOVQ    n+56(FP), CX
	VMOVDQU order<>(SB), X15
	VMOVDQU half<>(SB), Y14

pixel:
	MOVLQSX (R8), AX
	ADDQ    $4, R8
	LEAQ    (R11)(AX*1), R12
	ADDQ    SI, AX
	VPXOR   Y0, Y0, Y0
	VPXOR   Y1, Y1, Y1
	VPXOR   Y2, Y2, Y2
	VPXOR   Y3, Y3, Y3
	MOVQ    R10, DX

taps:
	VMOVDQU      (AX), X4
	VMOVDQU      (R12), X5
	VPBROADCASTQ (R9), Y6
	VPBROADCASTQ 8(R9), Y7
	VPSHUFB      X15, X4, X4
	VPSHUFB      X15, X5, X5
	VPMOVZXBW    X4, Y4
	VPMOVZXBW    X5, Y5
	VPMADDWD     Y6, Y4, Y8
	VPMADDWD     Y7, Y4, Y9
	VPMADDWD     Y6, Y5, Y10
	VPMADDWD     Y7, Y5, Y11
	VPADDD       Y8, Y0, Y0
	VPADDD       Y9, Y1, Y1
	VPADDD       Y10, Y2, Y2
	VPADDD       Y11, Y3, Y3
	ADDQ         $12, AX
	ADDQ         $12, R12
	ADDQ         $16, R9
	DECQ         DX
	JNZ          taps

	VPSLLD       $12, Y1, Y1
	VPSLLD       $12, Y3, Y3
	VPADDD       Y1, Y0, Y0
	VPADDD       Y3, Y2, Y2
	VPHADDD      Y2, Y0, Y0
	VPADDD       Y14, Y0, Y0
	VPSRAD       $22, Y0, Y0
	VPACKSSDW    Y0, Y0, Y0
	VPACKUSWB    Y0, Y0, Y0
	VEXTRACTI128 $1, Y0, X1
	VPUNPCKLWD   X1, X0, X0
	VMOVD        X0, (DI)
	VPEXTRD      $1, X0, (BX)
	ADDQ         $3, DI
	ADDQ         $3, BX
	DECQ         CX
	JNZ          pixel
	VZEROUPPER
	RET

// func downAVX2(dst, src *byte, stride int, weights *int16, pairs, n int)
TEXT ·downAVX2(SB), NOSPLIT, $0-48
	MOVQ    dst+0(FP), DI
	MOVQ    src+8(FP), SI
	MOVQ    stride+16(FP), R8
	MOVQ    weights+24(FP), R9
	MOVQ    pairs+32(FP), R10
	MOVQ    n+40(FP), CX
	VMOVDQU half<>(SB), Y14

block:
	VMOVDQA Y14, Y0
	VMOVDQA Y14, Y1
	VPXOR   Y2, Y2, Y2
	VPXOR   Y3, Y3, Y3
	MOVQ    SI, AX
	MOVQ    R9, R11
	MOVQ    R10, DX

taps:
	VPMOVZXBW    (AX), Y4
	VPMOVZXBW    (AX)(R8*1), Y5
	VPBROADCASTD (R11), Y6
	VPBROADCASTD 4(R11), Y7
	VPUNPCKLWD   Y5, Y4, Y8
	VPUNPCKHWD   Y5, Y4, Y9
	VPMADDWD     Y6, Y8, Y10
	VPMADDWD     Y6, Y9, Y11
	VPMADDWD     Y7, Y8, Y12
	VPMADDWD     Y7, Y9, Y13
	VPADDD       Y10, Y0, Y0
	VPADDD       Y11, Y1, Y1
	VPADDD       Y12, Y2, Y2
	VPADDD       Y13, Y3, Y3
	LEAQ         (AX)(R8*2), AX
	ADDQ         $8, R11
	DECQ         DX
	JNZ          taps

	VPSLLD    $12, Y2, Y2
	VPSLLD    $12, Y3, Y3
	VPADDD    Y2, Y0, Y0
	VPADDD    Y3, Y1, Y1
	VPSRAD    $22, Y0, Y0
	VPSRAD    $22, Y1, Y1
	VPACKSSDW Y1, Y0, Y0
	VPACKUSWB Y0, Y0, Y0
	VPERMQ    $0x08, Y0, Y0
	VMOVDQU   X0, (DI)
	ADDQ      $16, DI
	ADDQ      $16, SI
	DECQ      CX
	JNZ       block
	VZEROUPPER
	RET

// func acrossVNNI(dst1, dst2, src1, src2 *byte, offset *int32, digits *int8, groups, n int)
TEXT ·acrossVNNI(SB), NOSPLIT, $0-64
	MOVQ    dst1+0(FP), DI
	MOVQ    dst2+8(FP), BX
	MOVQ    src1+16(FP), SI
	MOVQ    src2+24(FP), R11
	MOVQ    offset+32(FP), R8
	MOVQ    digits+40(FP), R9
	MOVQ    groups+48(FP), R10
	MOVQ    n+56(FP), CX
	VMOVDQU planes<>(SB), Y15
	VMOVDQU half<>(SB), Y14
	SUBQ    SI, R11

pixel:
	MOVLQSX (R8), AX
	ADDQ    $4, R8
	ADDQ    SI, AX
	VMOVDQA Y14, Y0
	VPXOR   Y1, Y1, Y1
	VPXOR   Y2, Y2, Y2
	MOVQ    R10, DX

taps:
	VMOVDQU       (AX), X4
	VINSERTI128   $1, (AX)(R11*1), Y4, Y4
	VPSHUFB       Y15, Y4, Y4
	VPDPBUSD.BCST (R9), Y4, Y0
	VPDPBUSD.BCST 4(R9), Y4, Y1
	VPDPBUSD.BCST 8(R9), Y4, Y2
	ADDQ          $12, AX
	ADDQ          $12, R9
	DECQ          DX
	JNZ           taps

	VPSLLD       $8, Y1, Y1
	VPSLLD       $16, Y2, Y2
	VPADDD       Y1, Y0, Y0
	VPADDD       Y2, Y0, Y0
	VPSRAD       $22, Y0, Y0
	VPACKSSDW    Y0, Y0, Y0
	VPACKUSWB    Y0, Y0, Y0
	VEXTRACTI128 $1, Y0, X1
	VMOVD        X0, (DI)
	VMOVD        X1, (BX)
	ADDQ         $3, DI
	ADDQ         $3, BX
	DECQ         CX
	JNZ          pixel
	VZEROUPPER
	RET
