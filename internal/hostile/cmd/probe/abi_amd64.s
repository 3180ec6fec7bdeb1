//go:build linux

#include "textflag.h"

// func int80(nr, a, b, c, d, e uintptr) uintptr
TEXT ·int80(SB), NOSPLIT, $0-56
	MOVQ nr+0(FP), AX
	MOVQ a+8(FP), BX
	MOVQ b+16(FP), CX
	MOVQ c+24(FP), DX
	MOVQ d+32(FP), SI
	MOVQ e+40(FP), DI
	INT  $0x80
	MOVQ AX, ret+48(FP)
	RET
