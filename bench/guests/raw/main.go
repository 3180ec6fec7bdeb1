//go:build wasip1

// Command raw is the echo on the plugin ABI: operation 0 passes JSON through
// structs by reflection, operation 1 gives back the bytes, operation 2 passes a
// list reply through the kit's generated codec.
package main

import (
	"unsafe"

	"github.com/sbxhost/sbxhost/abi"
	"github.com/sbxhost/sbxhost/bench/guests/items"
)

//go:wasmimport sbx_v1 in_len
func inLen() int32

//go:wasmimport sbx_v1 in_read
func inRead(dst unsafe.Pointer, off, n int32) int32

//go:wasmimport sbx_v1 out_write
func outWrite(src unsafe.Pointer, n int32) int32

//go:wasmexport sbx_v1_call
func call(op int32) int32 {
	buf := make([]byte, inLen())
	inRead(unsafe.Pointer(unsafe.SliceData(buf)), 0, int32(len(buf)))
	switch op {
	case 0:
		var err error
		if buf, err = items.Echo(buf); err != nil {
			return 1
		}
	case 2:
		var l abi.ListReply
		if err := l.DecodeJSON(buf, true); err != nil {
			return 1
		}
		buf = l.AppendJSON(make([]byte, 0, len(buf)))
	}
	return outWrite(unsafe.Pointer(unsafe.SliceData(buf)), int32(len(buf)))
}

func main() {}
