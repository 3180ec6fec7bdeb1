//go:build wasip1

// Command extism is the echo as an extism plugin, with extism's own kit.
package main

import (
	pdk "github.com/extism/go-pdk"

	"github.com/sbxhost/sbxhost/bench/guests/items"
)

//go:wasmexport json_echo
func jsonEcho() int32 {
	out, err := items.Echo(pdk.Input())
	if err != nil {
		pdk.SetError(err)
		return 1
	}
	pdk.Output(out)
	return 0
}

//go:wasmexport list_echo
func listEcho() int32 {
	var l items.List
	if err := pdk.InputJSON(&l); err != nil {
		pdk.SetError(err)
		return 1
	}
	if err := pdk.OutputJSON(l); err != nil {
		pdk.SetError(err)
		return 1
	}
	return 0
}

//go:wasmexport raw_echo
func rawEcho() int32 {
	pdk.Output(pdk.Input())
	return 0
}

func main() {}
