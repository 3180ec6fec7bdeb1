//go:build wasip1

// Command guest is a plugin for the engine's tests and benchmarks: it decodes
// JSON, encodes it again, and misbehaves on request.
package main

import (
	"crypto/rand"
	"encoding/json"
	"os"
	"time"
	"unsafe"
)

//go:wasmimport sbx_v1 in_len
func inLen() int32

//go:wasmimport sbx_v1 in_read
func inRead(dst unsafe.Pointer, off, n int32) int32

//go:wasmimport sbx_v1 out_write
func outWrite(src unsafe.Pointer, n int32) int32

type item struct {
	ID        string            `json:"id"`
	Name      string            `json:"name"`
	Image     string            `json:"image"`
	State     string            `json:"state"`
	CreatedAt string            `json:"createdAt"`
	CPUs      int               `json:"cpus"`
	MemoryMiB int               `json:"memoryMiB"`
	Labels    map[string]string `json:"labels"`
	Note      string            `json:"note"`
}

var remembered string

//go:wasmexport sbx_v1_call
func call(op int32) int32 {
	switch op {
	case 0: // JSON echo
		buf := input()
		var v []item
		if err := json.Unmarshal(buf, &v); err != nil {
			return 1
		}
		out, err := json.Marshal(v)
		if err != nil {
			return 1
		}
		output(out)
	case 1: // what did an earlier call leave behind?
		output([]byte(remembered))
		remembered = string(input())
	case 2:
		panic("a guest's panic")
	case 3:
		os.Exit(int(len(input())))
	case 4:
		time.Sleep(time.Hour)
	case 5:
		b := make([]byte, 16)
		_, _ = rand.Read(b)
		output(b)
	case 6:
		os.Stdout.WriteString("first line\nsecond ")
		os.Stdout.WriteString("line\nthird, unfinished")
		println("to standard error")
	case 7: // raw echo
		output(input())
	case 8:
		var keep [][]byte
		for {
			keep = append(keep, make([]byte, 1<<20))
		}
	}
	return 0
}

func input() []byte {
	buf := make([]byte, inLen())
	if len(buf) > 0 {
		inRead(unsafe.Pointer(&buf[0]), 0, int32(len(buf)))
	}
	return buf
}

func output(b []byte) {
	if len(b) > 0 {
		outWrite(unsafe.Pointer(&b[0]), int32(len(b)))
	}
}

func main() {}
