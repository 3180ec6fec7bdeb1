package engine

import (
	"crypto/rand"
	"encoding/binary"
	"math"
	"time"

	"github.com/tetratelabs/wazero/api"

	"github.com/sbxhost/sbxhost/plugin/internal/wasmfile"
)

// WASI preview 1 error numbers, as the specification has them.
const (
	wasiSuccess = 0
	wasiBadf    = 8
	wasiFault   = 21
	wasiInval   = 28
	wasiNosys   = 52
	wasiNotsup  = 58
	wasiSpipe   = 70
)

// clockGrain is how coarse a module's clocks are: fine ones would let it measure
// what it has no business measuring.
const clockGrain = time.Millisecond

// Preview1 is the part of WASI preview 1 that Go's c-shared reactors and small
// programs on wasi-libc import: no files, no arguments, no environment. What
// they write to standard output and error becomes log lines; random numbers come
// from the host's generator, in initialisation too; clocks are coarse; waiting
// ends with the call. What the rest of the interface is asked for answers
// "not supported" or "no such descriptor".
func Preview1() HostModule {
	i32, i64 := wasmfile.I32, wasmfile.I64
	var m HostModule
	m.Name = "wasi_snapshot_preview1"
	add := func(name string, fn HostFunc, params ...wasmfile.ValType) {
		m.Funcs = append(m.Funcs, Func{Name: name, Fn: fn,
			Type: wasmfile.FuncType{Params: params, Results: []wasmfile.ValType{i32}}})
	}
	m.Funcs = append(m.Funcs, Func{Name: "proc_exit", Fn: wasiExit, Type: wasmfile.FuncType{Params: []wasmfile.ValType{i32}}})
	add("args_sizes_get", wasiNothing, i32, i32)
	add("args_get", answer(wasiSuccess), i32, i32)
	add("environ_sizes_get", wasiNothing, i32, i32)
	add("environ_get", answer(wasiSuccess), i32, i32)
	add("clock_time_get", wasiClock, i32, i64, i32)
	add("clock_res_get", wasiClockRes, i32, i32)
	add("random_get", wasiRandom, i32, i32)
	add("poll_oneoff", wasiPoll, i32, i32, i32, i32)
	add("sched_yield", answer(wasiSuccess))
	add("fd_write", wasiWrite, i32, i32, i32, i32)
	add("fd_read", wasiRead, i32, i32, i32, i32)
	add("fd_fdstat_get", wasiFdstat, i32, i32)
	add("fd_fdstat_set_flags", std(wasiSuccess), i32, i32)
	add("fd_close", std(wasiSuccess), i32)
	add("fd_seek", std(wasiSpipe), i32, i64, i32, i32)
	add("fd_tell", std(wasiSpipe), i32, i32)
	add("fd_filestat_get", std(wasiNotsup), i32, i32)
	// Descriptor 3 would be the first directory: there is none.
	add("fd_prestat_get", answer(wasiBadf), i32, i32)
	add("fd_prestat_dir_name", answer(wasiBadf), i32, i32, i32)
	// Programs that link Go's os or libc's stdio import these without
	// needing them.
	add("fd_pread", answer(wasiBadf), i32, i32, i32, i64, i32)
	add("fd_pwrite", answer(wasiBadf), i32, i32, i32, i64, i32)
	add("fd_readdir", answer(wasiBadf), i32, i32, i32, i64, i32)
	add("fd_sync", answer(wasiBadf), i32)
	add("fd_datasync", answer(wasiBadf), i32)
	add("fd_renumber", answer(wasiBadf), i32, i32)
	add("fd_filestat_set_size", answer(wasiBadf), i32, i64)
	add("fd_filestat_set_times", answer(wasiBadf), i32, i64, i64, i32)
	add("path_open", answer(wasiNosys), i32, i32, i32, i32, i32, i64, i64, i32, i32)
	add("path_filestat_get", answer(wasiNosys), i32, i32, i32, i32, i32)
	add("path_filestat_set_times", answer(wasiNosys), i32, i32, i32, i32, i64, i64, i32)
	add("path_readlink", answer(wasiNosys), i32, i32, i32, i32, i32, i32)
	add("path_create_directory", answer(wasiNosys), i32, i32, i32)
	add("path_remove_directory", answer(wasiNosys), i32, i32, i32)
	add("path_unlink_file", answer(wasiNosys), i32, i32, i32)
	add("path_rename", answer(wasiNosys), i32, i32, i32, i32, i32, i32)
	add("path_link", answer(wasiNosys), i32, i32, i32, i32, i32, i32, i32)
	add("path_symlink", answer(wasiNosys), i32, i32, i32, i32, i32)
	return m
}

func answer(errno uint64) HostFunc {
	return func(_ *Call, stack []uint64) error {
		if len(stack) > 0 {
			stack[0] = errno
		}
		return nil
	}
}

// std answers for the three standard descriptors, and "no such descriptor" for
// others.
func std(errno uint64) HostFunc {
	return func(_ *Call, stack []uint64) error {
		if api.DecodeU32(stack[0]) > 2 {
			stack[0] = wasiBadf
		} else {
			stack[0] = errno
		}
		return nil
	}
}

func wasiExit(_ *Call, stack []uint64) error {
	return &GuestExit{Code: api.DecodeU32(stack[0])}
}

// put writes little-endian numbers at ptr and answers success or fault.
func put(c *Call, stack []uint64, ptr uint32, b []byte) error {
	stack[0] = wasiSuccess
	if !c.Memory().Write(ptr, b) {
		stack[0] = wasiFault
	}
	return nil
}

func wasiNothing(c *Call, stack []uint64) error {
	zero := make([]byte, 4)
	a, b := api.DecodeU32(stack[0]), api.DecodeU32(stack[1])
	if !c.Memory().Write(a, zero) || !c.Memory().Write(b, zero) {
		stack[0] = wasiFault
		return nil
	}
	stack[0] = wasiSuccess
	return nil
}

// started is the zero of the monotonic clock.
var started = time.Now()

func wasiClock(c *Call, stack []uint64) error {
	var t time.Duration
	switch api.DecodeU32(stack[0]) {
	case 0:
		t = time.Duration(time.Now().UnixNano())
	case 1, 2, 3:
		t = time.Since(started) + time.Second
	default:
		stack[0] = wasiInval
		return nil
	}
	return put(c, stack, api.DecodeU32(stack[2]), binary.LittleEndian.AppendUint64(nil, uint64(t.Truncate(clockGrain))))
}

func wasiClockRes(c *Call, stack []uint64) error {
	if api.DecodeU32(stack[0]) > 3 {
		stack[0] = wasiInval
		return nil
	}
	return put(c, stack, api.DecodeU32(stack[1]), binary.LittleEndian.AppendUint64(nil, uint64(clockGrain)))
}

func wasiRandom(c *Call, stack []uint64) error {
	n := api.DecodeU32(stack[1])
	b, ok := c.Memory().View(api.DecodeU32(stack[0]), n)
	if !ok {
		stack[0] = wasiFault
		return nil
	}
	if err := c.Charge(int64(n)); err != nil {
		return err
	}
	if _, err := rand.Read(b); err != nil {
		return err
	}
	stack[0] = wasiSuccess
	return nil
}

// vectors walks an iovec array and answers false if it does not lie in memory.
func vectors(c *Call, ptr, n uint32, visit func(b []byte) bool) bool {
	mem := c.Memory()
	for i := uint32(0); i < n; i++ {
		at := uint64(ptr) + uint64(i)*8
		if at > math.MaxUint32 {
			return false
		}
		v, ok := mem.View(uint32(at), 8)
		if !ok {
			return false
		}
		b, ok := mem.View(binary.LittleEndian.Uint32(v), binary.LittleEndian.Uint32(v[4:]))
		if !ok {
			return false
		}
		if !visit(b) {
			break
		}
	}
	return true
}

func wasiWrite(c *Call, stack []uint64) error {
	fd := api.DecodeU32(stack[0])
	if fd != 1 && fd != 2 {
		stack[0] = wasiBadf
		return nil
	}
	vecs, result := api.DecodeU32(stack[2]), api.DecodeU32(stack[3])
	const most = 1024 // what POSIX guarantees a program can pass
	if vecs > most {
		stack[0] = wasiInval
		return nil
	}
	total := uint32(0)
	ok := vectors(c, api.DecodeU32(stack[1]), vecs, func(b []byte) bool {
		b = b[:min(len(b), 64<<10)] // more than a call may log at all
		c.write(Stream(fd), b)
		total += uint32(len(b))
		return len(b) < 64<<10
	})
	if err := c.Charge(int64(total)); err != nil {
		return err
	}
	if !ok {
		stack[0] = wasiFault
		return nil
	}
	return put(c, stack, result, binary.LittleEndian.AppendUint32(nil, total))
}

// wasiRead: standard input is empty.
func wasiRead(c *Call, stack []uint64) error {
	if api.DecodeU32(stack[0]) != 0 {
		stack[0] = wasiBadf
		return nil
	}
	return put(c, stack, api.DecodeU32(stack[3]), make([]byte, 4))
}

func wasiFdstat(c *Call, stack []uint64) error {
	fd := api.DecodeU32(stack[0])
	if fd > 2 {
		stack[0] = wasiBadf
		return nil
	}
	b := make([]byte, 24)
	b[0] = 2 // a character device
	right := uint64(1 << 6)
	if fd == 0 {
		right = 1 << 1
	}
	binary.LittleEndian.PutUint64(b[8:], right)
	return put(c, stack, api.DecodeU32(stack[1]), b)
}

// wasiPoll waits for the nearest clock, or not at all if a descriptor is asked
// about: those that exist are always ready.
func wasiPoll(c *Call, stack []uint64) error {
	in, out := api.DecodeU32(stack[0]), api.DecodeU32(stack[1])
	n, result := api.DecodeU32(stack[2]), api.DecodeU32(stack[3])
	const most = 128
	if n == 0 || n > most {
		stack[0] = wasiInval
		return nil
	}
	mem := c.Memory()
	subs, ok := mem.Read(in, n*48)
	if !ok {
		stack[0] = wasiFault
		return nil
	}
	var events []byte
	event := func(sub []byte, errno uint16, kind byte) {
		e := make([]byte, 32)
		copy(e, sub[:8])
		binary.LittleEndian.PutUint16(e[8:], errno)
		e[10] = kind
		events = append(events, e...)
	}
	wait := time.Duration(math.MaxInt64)
	for s := subs; len(s) > 0; s = s[48:] {
		switch kind := s[8]; kind {
		case 0:
			wait = min(wait, clockWait(s))
		case 1, 2:
			errno := uint16(wasiSuccess)
			if binary.LittleEndian.Uint32(s[16:]) > 2 {
				errno = wasiBadf
			}
			event(s, errno, kind)
		default:
			stack[0] = wasiInval
			return nil
		}
	}
	if events == nil {
		if err := c.Sleep(wait); err != nil {
			return err
		}
		for s := subs; len(s) > 0; s = s[48:] {
			if clockWait(s) <= wait {
				event(s, wasiSuccess, 0)
			}
		}
	}
	count := uint32(len(events) / 32)
	if !mem.Write(out, events) {
		stack[0] = wasiFault
		return nil
	}
	return put(c, stack, result, binary.LittleEndian.AppendUint32(nil, count))
}

// clockWait is how long a clock subscription wants to wait from now.
func clockWait(s []byte) time.Duration {
	at := binary.LittleEndian.Uint64(s[24:])
	t := time.Duration(min(at, math.MaxInt64))
	if binary.LittleEndian.Uint16(s[40:])&1 != 0 { // an absolute time
		now := time.Since(started) + time.Second
		if binary.LittleEndian.Uint32(s[16:]) == 0 {
			now = time.Duration(time.Now().UnixNano())
		}
		t -= now
	}
	return max(t, 0)
}

// Sleep waits on behalf of the module. The error says that the call is over;
// host functions return it.
func (c *Call) Sleep(d time.Duration) error {
	if d > 0 {
		t := time.NewTimer(d)
		defer t.Stop()
		select {
		case <-t.C:
		case <-c.Context().Done():
		}
	}
	return c.ended()
}
