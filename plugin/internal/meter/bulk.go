package meter

import "github.com/sbxhost/sbxhost/plugin/internal/wasmfile"

// bulkChunk is how much of a bulk operation on memory is done between two looks
// at the counter. Native code cannot be interrupted, and copying all of a memory
// takes milliseconds.
const bulkChunk = 128 << 10

// bulkBody is a function (d, s, n) that does what memory.copy or memory.fill
// does, in chunks. What is out of bounds is left to the instruction itself, which
// then traps without having written anything.
func (w *writer) bulkBody(op wasmfile.Op) []byte {
	const (
		d, s, n = 0, 1, 2
		i64, k  = 3, 4 // locals: the counter, the chunk's size
	)
	const (
		opI32LeU = 0x4d
		opI32Add = 0x6a
		opI32Sub = 0x6b
		opI64GtU = 0x56
	)
	isCopy := op == wasmfile.OpMemoryCopy
	r := rewriter{w: w, i64: i64}
	var b []byte
	emit := func(ops ...byte) { b = append(b, ops...) }
	get := func(l byte) { emit(byte(wasmfile.OpLocalGet), l) }
	set := func(l byte) { emit(byte(wasmfile.OpLocalSet), l) }
	chunk := func() { b = wasmfile.AppendInt(append(b, byte(wasmfile.OpI32Const)), bulkChunk) }
	bulk := func() {
		if isCopy {
			emit(0xfc, byte(op&0xff), 0, 0)
		} else {
			emit(0xfc, byte(op&0xff), 0)
		}
	}
	outside := func(l byte) { // l + n > size of memory?
		get(l)
		emit(opI64ExtendU32)
		get(n)
		emit(opI64ExtendU32, opI64Add, byte(wasmfile.OpMemorySize), 0, opI64ExtendU32)
		emit(byte(wasmfile.OpI64Const), 16, opI64Shl, opI64GtU, byte(wasmfile.OpIf), 0x40)
		get(d)
		get(s)
		get(n)
		bulk()
		emit(byte(wasmfile.OpReturn), byte(wasmfile.OpEnd))
	}

	emit(2, 1, byte(wasmfile.I64), 1, byte(wasmfile.I32))
	outside(d)
	if isCopy {
		outside(s)
	}
	emit(byte(wasmfile.OpLoop), 0x40)
	// k = min(n, chunk)
	get(n)
	chunk()
	get(n)
	chunk()
	emit(opI32LeU, byte(wasmfile.OpSelect))
	set(k)
	// counter -= (k >> bulkShift + bulkBase) << depthBits
	b = r.counterGet(b)
	get(k)
	emit(opI64ExtendU32, byte(wasmfile.OpI64Const), bulkShift, opI64ShrU, byte(wasmfile.OpI64Const), bulkBase, opI64Add)
	emit(byte(wasmfile.OpI64Const), depthBits, opI64Shl, opI64Sub)
	b = r.test(b)
	if isCopy {
		// Towards lower addresses from the front, else from the back, so
		// that overlapping ranges come out right.
		get(d)
		get(s)
		emit(opI32LeU, byte(wasmfile.OpIf), 0x40)
		get(d)
		get(s)
		get(k)
		bulk()
		for _, l := range []byte{d, s} {
			get(l)
			get(k)
			emit(opI32Add)
			set(l)
		}
		emit(byte(wasmfile.OpElse))
		for _, l := range []byte{d, s} {
			get(l)
			get(n)
			emit(opI32Add)
			get(k)
			emit(opI32Sub)
		}
		get(k)
		bulk()
		emit(byte(wasmfile.OpEnd))
	} else {
		get(d)
		get(s)
		get(k)
		bulk()
		get(d)
		get(k)
		emit(opI32Add)
		set(d)
	}
	get(n)
	get(k)
	emit(opI32Sub, byte(wasmfile.OpLocalTee), n, byte(wasmfile.OpBrIf), 0)
	emit(byte(wasmfile.OpEnd), byte(wasmfile.OpEnd))
	return append(uvar(nil, uint64(len(b))), b...)
}
