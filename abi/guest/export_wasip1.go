//go:build wasip1

package guest

import (
	"runtime"

	"github.com/sbxhost/sbxhost/abi"
)

// room is what a call can allocate without the memory growing, in bytes.
const room = 1 << 20

// An instance whose memory has grown cannot be put back to the snapshot: a new one
// has to be made. What is taken and collected here stays with the heap, untouched
// and so without a cost, for the calls to use.
func init() {
	spare := make([]byte, room)
	runtime.KeepAlive(&spare)
	spare = nil
	runtime.GC()
}

//go:wasmexport sbx_v1_call
func sbxCall(op int32) int32 { return run(abi.Op(op)) }
