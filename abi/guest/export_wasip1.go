//go:build wasip1

package guest

import "github.com/sbxhost/sbxhost/abi"

//go:wasmexport sbx_v1_call
func sbxCall(op int32) int32 { return run(abi.Op(op)) }
