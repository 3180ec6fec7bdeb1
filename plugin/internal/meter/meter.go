// Package meter rewrites a WebAssembly module so that the host stays in charge
// while it runs: the module counts its own work and its own call depth and calls
// the host when either runs out.
//
// One injected global holds both counters: fuel in the high 44 bits (signed),
// call depth left in the low 20. Function entries and loop headers subtract and
// test; long straight code subtracts in between without testing. When the fuel
// is below zero, or the depth has borrowed from it, the module calls the
// imported function sbx_meter.refill with the counter's value; what that returns
// becomes the counter. Refilling, cancelling and refusing is all up to the host.
//
// Why not the engine's own termination switch: it tests only loop headers, so a
// call tree without loops runs for as long as it likes, it makes loops 15 to 24
// times slower, and native code that is not interrupted blocks the host's
// garbage collector and timers.
//
// What is charged is an upper bound of the instructions executed since the last
// charge, along any path, at most one segment (about 64) more. Bulk operations
// and growth charge by bytes. Recursion is charged by an estimate of the frame's
// size in every function that lies on a cycle of the call graph, indirect calls
// included, and of all functions that call if the acyclic rest is deep.
//
// The rewriter adds only code that leaves the operand stack as it found it,
// behind indices that were checked to be out of the guest's reach, so a module
// type-checks after rewriting exactly if it did before.
//
// It also prepares the module for being instantiated from a snapshot: active data
// segments and the start function are taken out, for the host to apply once, and
// mutable globals are exported under reserved names.
package meter

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/sbxhost/sbxhost/plugin/internal/wasmfile"
)

// Version changes whenever the same input gives other output. Caches of
// compiled code include it.
const Version = "3"

// Names that the rewriter reserves. A module that imports from or exports
// something of that prefix is refused.
const (
	ImportModule  = "sbx_meter"
	RefillName    = "refill" // (i64 counter) -> i64 counter
	CounterExport = "sbx_meter.counter"
	DirtyExport   = "sbx_meter.dirty"
	StartExport   = "sbx_meter.start"
	globalPrefix  = "sbx_meter.g"
)

const (
	depthBits = 20
	depthMask = 1<<depthBits - 1
	guardBit  = 1 << (depthBits - 1)

	// DepthUnit is what one unit of call depth stands for, in bytes of native
	// stack.
	DepthUnit = 64
	// MaxDepth is the most call depth a counter holds, in units: 16 MiB.
	MaxDepth = 1 << (depthBits - 2)
	// MaxFuel is the most fuel a counter holds.
	MaxFuel = 1 << 40

	maxFrame = 1 << (depthBits - 3)
)

// Counter packs fuel and call depth into the value of the injected global.
// Both are cut to what fits.
func Counter(fuel int64, depth uint32) uint64 {
	return uint64(min(fuel, MaxFuel))<<depthBits | uint64(min(depth, MaxDepth))
}

// Fuel is the fuel left in a counter; below zero if overdrawn.
func Fuel(counter uint64) int64 { return int64(counter) >> depthBits }

// Depth is the call depth left in a counter that is not TooDeep.
func Depth(counter uint64) uint32 { return uint32(counter & depthMask) }

// TooDeep reports whether the counter says that calls are nested too deeply.
func TooDeep(counter uint64) bool { return counter&guardBit != 0 }

// GlobalExport is the name under which the i-th mutable global is exported.
func GlobalExport(i int) string { return globalPrefix + strconv.Itoa(i) }

// Costs beyond one unit per instruction.
const (
	segment       = 64 // units of straight code between two charges
	callCost      = 4
	divCost       = 8
	bulkShift     = 3       // bulk operations: one unit per 8 bytes, for each page may be a fault
	tableShift    = 1       // table operations: two units per element
	growShift     = 12      // growth: 4,096 units per page of 64 KiB
	bulkBase      = 16      // any of those
	leafUnchecked = segment // leaves up to this cost do not test the counter
)

// Options are the limits that become part of the rewritten module.
type Options struct {
	// MaxMemoryPages caps the memory's maximum, in pages of 64 KiB.
	// Default 512 (32 MiB); at most 65,535.
	MaxMemoryPages uint32
	// MaxTableElements caps every table's maximum. Default 65,536.
	MaxTableElements uint32
}

// Output is a rewritten module and what the host has to do for it.
type Output struct {
	Bytes []byte
	// Data are the active data segments, in order. The host writes them into
	// the memory of a fresh instance before anything runs in it.
	Data []wasmfile.Data
	// HasStart says that StartExport must be called after that.
	HasStart bool
	// Globals is the number of mutable globals, exported as GlobalExport(i).
	Globals int
	// Dirty says that DirtyExport exists: the module can do something to an
	// instance that restoring memory and globals does not undo, and sets that
	// i32 global to 1 when it does.
	Dirty bool
	// Tracked is the number of functions that count call depth.
	Tracked int
}

// ReservedError says that a module uses a name that belongs to the rewriter.
type ReservedError struct{ Name string }

func (e *ReservedError) Error() string {
	return fmt.Sprintf("wasm module uses the reserved name %q; rename it", e.Name)
}

// Rewrite returns the metered form of a parsed module. The same input always
// gives the same output. Errors are *ReservedError or *wasmfile.LimitError.
func Rewrite(m *wasmfile.Module, opts Options) (*Output, error) {
	if opts.MaxMemoryPages == 0 {
		opts.MaxMemoryPages = 512
	}
	opts.MaxMemoryPages = min(opts.MaxMemoryPages, 1<<16-1)
	if opts.MaxTableElements == 0 {
		opts.MaxTableElements = 1 << 16
	}
	for _, im := range m.Imports {
		if im.Module == ImportModule {
			return nil, &ReservedError{ImportModule}
		}
	}
	for _, ex := range m.Exports {
		if strings.HasPrefix(ex.Name, ImportModule) {
			return nil, &ReservedError{ex.Name}
		}
	}
	if m.Memory != nil && m.Memory.Min > opts.MaxMemoryPages {
		return nil, &wasmfile.LimitError{Which: "memory pages", Limit: uint64(opts.MaxMemoryPages), Got: uint64(m.Memory.Min)}
	}
	for _, t := range m.Tables {
		if t.Min > opts.MaxTableElements {
			return nil, &wasmfile.LimitError{Which: "table elements", Limit: uint64(opts.MaxTableElements), Got: uint64(t.Min)}
		}
	}
	w := newWriter(m, opts)
	w.module()
	return w.out, nil
}
