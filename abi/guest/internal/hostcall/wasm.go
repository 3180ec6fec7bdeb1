//go:build wasip1

package hostcall

import (
	"runtime"
	"unsafe"
)

//go:wasmimport sbx_v1 in_len
func inLen() int32

//go:wasmimport sbx_v1 in_read
func inRead(dst unsafe.Pointer, off, n int32) int32

//go:wasmimport sbx_v1 out_write
func outWrite(src unsafe.Pointer, n int32) int32

//go:wasmimport sbx_v1 err_write
func errWrite(src unsafe.Pointer, n int32) int32

//go:wasmimport sbx_v1 checkpoint
func checkpoint(kind int32, src unsafe.Pointer, n int32) int32

//go:wasmimport sbx_v1 http_open
func httpOpen(meta unsafe.Pointer, mlen int32, body unsafe.Pointer, blen int32) int64

//go:wasmimport sbx_v1 http_status
func httpStatus(h int64) int32

//go:wasmimport sbx_v1 http_header
func httpHeader(h int64, name unsafe.Pointer, nlen int32, dst unsafe.Pointer, n int32) int32

//go:wasmimport sbx_v1 http_read
func httpRead(h int64, dst unsafe.Pointer, n int32) int32

//go:wasmimport sbx_v1 http_next
func httpNext(h int64, dst unsafe.Pointer, n int32) int32

//go:wasmimport sbx_v1 http_close
func httpClose(h int64) int32

//go:wasmimport sbx_v1 emit
func emit(stream int32, src unsafe.Pointer, n int32) int32

//go:wasmimport sbx_v1 log
func log(level int32, src unsafe.Pointer, n int32) int32

//go:wasmimport sbx_v1 sleep_ms
func sleepMs(ms int32) int32

//go:wasmimport sbx_v1 now_ms
func nowMs() int64

//go:wasmimport sbx_v1 random
func random(dst unsafe.Pointer, n int32) int32

//go:wasmimport sbx_v1 canceled
func canceled() int32

// Current is the host this module was instantiated by.
var Current API = imports{}

type imports struct{}

// ptr returns the address of b in linear memory. Each import copies within its
// own call, so keeping b alive until it returns is enough.
func ptr(b []byte) unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(b)) }

func size(b []byte) int32 { return int32(len(b)) } //nolint:gosec // linear memory is below 4 GiB, documents far below 2

func (imports) InLen() int32 { return inLen() }

func (imports) InRead(dst []byte, off int32) int32 {
	n := inRead(ptr(dst), off, size(dst))
	runtime.KeepAlive(dst)
	return n
}

func (imports) OutWrite(src []byte) int32 {
	n := outWrite(ptr(src), size(src))
	runtime.KeepAlive(src)
	return n
}

func (imports) ErrWrite(src []byte) int32 {
	n := errWrite(ptr(src), size(src))
	runtime.KeepAlive(src)
	return n
}

func (imports) Checkpoint(kind int32, src []byte) int32 {
	n := checkpoint(kind, ptr(src), size(src))
	runtime.KeepAlive(src)
	return n
}

func (imports) HTTPOpen(meta, body []byte) int64 {
	n := httpOpen(ptr(meta), size(meta), ptr(body), size(body))
	runtime.KeepAlive(meta)
	runtime.KeepAlive(body)
	return n
}

func (imports) HTTPStatus(h int64) int32 { return httpStatus(h) }

func (imports) HTTPHeader(h int64, name string, dst []byte) int32 {
	nb := []byte(name)
	n := httpHeader(h, ptr(nb), size(nb), ptr(dst), size(dst))
	runtime.KeepAlive(nb)
	runtime.KeepAlive(dst)
	return n
}

func (imports) HTTPRead(h int64, dst []byte) int32 {
	n := httpRead(h, ptr(dst), size(dst))
	runtime.KeepAlive(dst)
	return n
}

func (imports) HTTPNext(h int64, dst []byte) int32 {
	n := httpNext(h, ptr(dst), size(dst))
	runtime.KeepAlive(dst)
	return n
}

func (imports) HTTPClose(h int64) int32 { return httpClose(h) }

func (imports) Emit(stream int32, src []byte) int32 {
	n := emit(stream, ptr(src), size(src))
	runtime.KeepAlive(src)
	return n
}

func (imports) Log(level int32, src []byte) int32 {
	n := log(level, ptr(src), size(src))
	runtime.KeepAlive(src)
	return n
}

func (imports) SleepMs(ms int32) int32 { return sleepMs(ms) }
func (imports) NowMs() int64           { return nowMs() }

func (imports) Random(dst []byte) int32 {
	n := random(ptr(dst), size(dst))
	runtime.KeepAlive(dst)
	return n
}

func (imports) Canceled() int32 { return canceled() }
