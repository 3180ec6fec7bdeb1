package plugin

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"strings"
	"time"

	"github.com/tetratelabs/wazero/api"

	"github.com/sbxhost/sbxhost/abi"
	"github.com/sbxhost/sbxhost/plugin/internal/egress"
	"github.com/sbxhost/sbxhost/plugin/internal/engine"
	"github.com/sbxhost/sbxhost/plugin/internal/wasmfile"
)

// call is the state of one operation, which every import works on. It belongs to
// the goroutine that runs the guest.
type call struct {
	p          *Plugin
	op         abi.Op
	in         []byte
	out, doc   []byte
	net        *egress.Call
	checkpoint func(kind int32, ref []byte) error
	emit       func(stream int32, data []byte) error
	logged     int
	scan       func(text string) (string, bool)
	goesOn     func() // told when the plugin is about to wait for something
}

func (c *call) waits() {
	if c.goesOn != nil {
		c.goesOn()
	}
}

// importFunc is an import after its arguments were taken off the stack. A
// negative result is an errno.
type importFunc func(ec *engine.Call, c *call, a []uint64) (int64, error)

// hostModule offers the imports of abi.Module.
func hostModule() engine.HostModule {
	fns := map[string]importFunc{
		"in_len": inLen, "in_read": inRead, "out_write": outWrite, "err_write": errWrite, "checkpoint": checkpoint,
		"http_open": httpOpen, "http_status": httpStatus, "http_header": httpHeader, "http_read": httpRead, "http_next": httpNext, "http_close": httpClose,
		"emit": emit, "log": logLine, "sleep_ms": sleepMs, "now_ms": nowMs, "random": random, "canceled": canceled,
	}
	// What a module may do while it is being initialised: there is no session
	// and no request yet.
	duringInit := map[string]bool{"log": true, "random": true, "now_ms": true}
	m := engine.HostModule{Name: abi.Module}
	for _, im := range abi.Imports() {
		fn, name := fns[im.Name], im.Name
		long := len(im.Results) == 1 && im.Results[0] == "i64"
		m.Funcs = append(m.Funcs, engine.Func{
			Name: name, Type: wasmfile.FuncType{Params: types(im.Params), Results: types(im.Results)},
			Fn: func(ec *engine.Call, stack []uint64) error {
				c, ok := ec.State.(*call)
				var n int64
				var err error
				switch {
				case ok || duringInit[name]:
					if err = ec.Charge(hostCallCost); err == nil {
						n, err = hooked(ec, c, name, fn, stack)
					}
				default:
					n = int64(abi.ErrnoUnsupported)
					if r, ok := ec.State.(*rehearsal); ok {
						if err = ec.Charge(hostCallCost); err == nil {
							n, err = r.do(ec, name, stack)
						}
					}
				}
				if err != nil {
					return err
				}
				if long {
					stack[0] = uint64(n) //nolint:gosec // two's complement, as the ABI says
				} else {
					stack[0] = api.EncodeI32(int32(n)) //nolint:gosec // results fit: lengths are bounded, errnos small
				}
				return nil
			},
		})
	}
	return m
}

// hooked carries an import out, unless a conformance test replaces its result.
func hooked(ec *engine.Call, c *call, name string, fn importFunc, stack []uint64) (int64, error) {
	if c != nil && c.p.hooks.Import != nil {
		if n, override := c.p.hooks.Import(c.op, name); override {
			return n, nil
		}
	}
	return fn(ec, c, stack)
}

// hostCallCost is the fuel of any import; byteCost that of each byte it moves,
// so that a guest cannot buy host time cheaply.
const (
	hostCallCost = 200
	byteCost     = 1
)

func types(names []string) []wasmfile.ValType {
	out := make([]wasmfile.ValType, len(names))
	for i, n := range names {
		out[i] = wasmfile.I32
		if n == "i64" {
			out[i] = wasmfile.I64
		}
	}
	return out
}

// saw reports bytes that crossed into the guest's sight to a conformance test.
func (c *call) saw(what string, data []byte) {
	if c != nil && c.p.cfg.Trace != nil {
		c.p.cfg.Trace(what, data)
	}
}

// take copies bytes out of the guest. ok is false, with an errno, when they do
// not lie in its memory or are too many.
func take(ec *engine.Call, ptr, n uint64, limit int) ([]byte, int64, error) {
	ln := api.DecodeU32(n)
	if uint64(ln) > uint64(limit) { //nolint:gosec // limits are positive
		return nil, int64(abi.ErrnoTooLarge), nil
	}
	if err := ec.Charge(int64(ln) * byteCost); err != nil {
		return nil, 0, err
	}
	b, ok := ec.Memory().Read(api.DecodeU32(ptr), ln)
	if !ok {
		return nil, 0, &engine.ABIViolation{What: "a pointer lies outside of memory"}
	}
	if c, ok := ec.State.(*call); ok {
		c.saw("argument", b)
	}
	return b, 0, nil
}

// give copies bytes into the guest.
func give(ec *engine.Call, c *call, what string, ptr uint64, b []byte) error {
	if err := ec.Charge(int64(len(b)) * byteCost); err != nil {
		return err
	}
	if !ec.Memory().Write(api.DecodeU32(ptr), b) {
		return &engine.ABIViolation{What: "a pointer lies outside of memory"}
	}
	c.saw(what, b)
	return nil
}

// room checks that a destination lies in memory before anything is done for it.
func room(ec *engine.Call, ptr, n uint64) error {
	if _, ok := ec.Memory().View(api.DecodeU32(ptr), api.DecodeU32(n)); !ok {
		return &engine.ABIViolation{What: "a pointer lies outside of memory"}
	}
	return nil
}

func inLen(_ *engine.Call, c *call, _ []uint64) (int64, error) { return int64(len(c.in)), nil }

func inRead(ec *engine.Call, c *call, a []uint64) (int64, error) {
	off, n := uint64(api.DecodeU32(a[1])), uint64(api.DecodeU32(a[2]))
	if off > uint64(len(c.in)) {
		return int64(abi.ErrnoInvalid), nil
	}
	b := c.in[off:min(off+n, uint64(len(c.in)))]
	return int64(len(b)), give(ec, c, "request", a[0], b)
}

func outWrite(ec *engine.Call, c *call, a []uint64) (int64, error) {
	b, errno, err := take(ec, a[0], a[1], abi.MaxOutput-len(c.out))
	if err != nil || errno != 0 {
		return errno, err
	}
	c.out = append(c.out, b...)
	return 0, nil
}

func errWrite(ec *engine.Call, c *call, a []uint64) (int64, error) {
	b, errno, err := take(ec, a[0], a[1], abi.MaxErrorDocument-len(c.doc))
	if err != nil || errno != 0 {
		return errno, err
	}
	c.doc = append(c.doc, b...)
	return 0, nil
}

func checkpoint(ec *engine.Call, c *call, a []uint64) (int64, error) {
	b, errno, err := take(ec, a[1], a[2], abi.MaxRef)
	if err != nil || errno != 0 {
		return errno, err
	}
	kind := api.DecodeI32(a[0])
	if kind != 0 && kind != 1 || c.checkpoint == nil {
		return int64(abi.ErrnoInvalid), nil
	}
	if _, perr := abi.Parse(b); perr != nil {
		return int64(abi.ErrnoInvalid), nil
	}
	return errnoOf(c.checkpoint(kind, b))
}

// errnoOf turns an error of the broker or of a sink into an errno; anything that
// ends the call stays an error.
func errnoOf(err error) (int64, error) {
	if err == nil {
		return 0, nil
	}
	var f *egress.Failure
	var d *egress.Denied
	switch {
	case errors.As(err, &f):
		return int64(f.Errno), nil
	case errors.As(err, &d):
		return int64(abi.ErrnoDenied), nil
	}
	return int64(abi.ErrnoIo), nil
}

func httpOpen(ec *engine.Call, c *call, a []uint64) (int64, error) {
	if c.net == nil {
		return int64(abi.ErrnoUnsupported), nil
	}
	meta, errno, err := take(ec, a[0], a[1], abi.MaxMeta)
	if err != nil || errno != 0 {
		return errno, err
	}
	body, errno, err := take(ec, a[2], a[3], abi.MaxHTTPRequest)
	if err != nil || errno != 0 {
		return errno, err
	}
	if c.p.hooks.Meta != nil {
		meta = c.p.hooks.Meta(c.op, meta)
	}
	c.waits()
	h, err := c.net.Open(ec.Context(), meta, body)
	if err != nil {
		c.p.log.Debug("plugin request failed", "op", c.op.String(), "error", err.Error())
		return errnoOf(err)
	}
	if c.op == abi.OpExec {
		// A polled command may take hours of polls.
		ec.Earn(frameFuel)
	}
	return h, nil
}

func httpStatus(_ *engine.Call, c *call, a []uint64) (int64, error) {
	if c.net == nil {
		return int64(abi.ErrnoBadf), nil
	}
	n, err := c.net.Status(int64(a[0])) //nolint:gosec // an i64 handle
	if err != nil {
		return errnoOf(err)
	}
	return int64(n), nil
}

func httpHeader(ec *engine.Call, c *call, a []uint64) (int64, error) {
	if c.net == nil {
		return int64(abi.ErrnoBadf), nil
	}
	name, errno, err := take(ec, a[1], a[2], 256)
	if err != nil || errno != 0 {
		return errno, err
	}
	if err := room(ec, a[3], a[4]); err != nil {
		return 0, err
	}
	v, err := c.net.Header(int64(a[0]), string(name)) //nolint:gosec // an i64 handle
	if err != nil {
		return errnoOf(err)
	}
	b := []byte(v)
	return int64(len(b)), give(ec, c, "header", a[3], b[:min(len(b), int(api.DecodeU32(a[4])))])
}

func httpRead(ec *engine.Call, c *call, a []uint64) (int64, error) {
	if c.net == nil {
		return int64(abi.ErrnoBadf), nil
	}
	if err := room(ec, a[1], a[2]); err != nil {
		return 0, err
	}
	buf := make([]byte, min(int(api.DecodeU32(a[2])), 256<<10))
	n, err := c.net.Read(int64(a[0]), buf) //nolint:gosec // an i64 handle
	if err != nil {
		return errnoOf(err)
	}
	return int64(n), give(ec, c, "body", a[1], buf[:n])
}

func httpNext(ec *engine.Call, c *call, a []uint64) (int64, error) {
	if c.net == nil {
		return int64(abi.ErrnoBadf), nil
	}
	if err := room(ec, a[1], a[2]); err != nil {
		return 0, err
	}
	c.waits()
	f, err := c.net.Next(int64(a[0]), int(api.DecodeU32(a[2]))) //nolint:gosec // an i64 handle
	if err != nil {
		return errnoOf(err)
	}
	// A stream that delivers pays for the calls it takes to follow it.
	ec.Earn(frameFuel + int64(len(f))*8)
	return int64(len(f)), give(ec, c, "frame", a[1], f)
}

// frameFuel is what following one frame may cost a guest.
const frameFuel = 2_000_000

func httpClose(_ *engine.Call, c *call, a []uint64) (int64, error) {
	if c.net == nil {
		return int64(abi.ErrnoBadf), nil
	}
	return errnoOf(c.net.CloseResponse(int64(a[0]))) //nolint:gosec // an i64 handle
}

func emit(ec *engine.Call, c *call, a []uint64) (int64, error) {
	if c.emit == nil {
		return int64(abi.ErrnoDenied), nil
	}
	b, errno, err := take(ec, a[1], a[2], abi.MaxHTTPRequest)
	if err != nil || errno != 0 {
		return errno, err
	}
	ec.Earn(frameFuel + int64(len(b))*8)
	c.waits()
	return errnoOf(c.emit(api.DecodeI32(a[0]), b))
}

func logLine(ec *engine.Call, c *call, a []uint64) (int64, error) {
	if c == nil {
		return 0, nil // nothing said during initialisation belongs to anyone
	}
	b, errno, err := take(ec, a[1], a[2], abi.MaxLogPerCall)
	if err != nil || errno != 0 {
		return errno, err
	}
	if c.logged += len(b); c.logged > abi.MaxLogPerCall {
		return int64(abi.ErrnoLimit), nil
	}
	levels := []slog.Level{slog.LevelDebug, slog.LevelInfo, slog.LevelWarn, slog.LevelError}
	l := api.DecodeI32(a[0])
	if l < 0 || int(l) >= len(levels) {
		return int64(abi.ErrnoInvalid), nil
	}
	c.p.logText(levels[l], c, string(b))
	return 0, nil
}

// logText writes a plugin's line, without anything it must not know and without
// control characters.
func (p *Plugin) logText(level slog.Level, c *call, text string) {
	if c != nil && c.scan != nil {
		if name, hit := c.scan(text); hit {
			text = "[redacted:" + name + "]"
		}
	}
	text = strings.Map(func(r rune) rune {
		if r < 0x20 || r == 0x7f {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(text, "\ufffd"))
	p.log.Log(context.Background(), level, "plugin", "plugin", p.m.Name, "line", text) // no request context: nothing of a request belongs to a plugin's line
}

// stdio receives what a plugin writes to its standard streams.
func (p *Plugin) stdio(l engine.Line) {
	c, _ := l.State.(*call)
	p.logText(slog.LevelInfo, c, l.Text)
}

func sleepMs(ec *engine.Call, c *call, a []uint64) (int64, error) {
	ms := api.DecodeI32(a[0])
	if ms < 0 {
		return int64(abi.ErrnoInvalid), nil
	}
	c.waits()
	return 0, ec.Sleep(c.p.hooks.Wait(time.Duration(ms) * time.Millisecond))
}

func nowMs(*engine.Call, *call, []uint64) (int64, error) {
	return time.Now().UnixMilli() / 10 * 10, nil
}

func random(ec *engine.Call, c *call, a []uint64) (int64, error) {
	n := api.DecodeU32(a[1])
	if n > 64<<10 {
		return int64(abi.ErrnoTooLarge), nil
	}
	b := make([]byte, n)
	if _, err := rand.Read(b); err != nil {
		return int64(abi.ErrnoIo), nil
	}
	return 0, give(ec, c, "random", a[0], b)
}

func canceled(ec *engine.Call, _ *call, _ []uint64) (int64, error) {
	if ec.Context().Err() != nil {
		return 1, nil
	}
	return 0, nil
}
