// Package guesttest is a host for native unit tests of a plugin's logic. It
// needs neither WebAssembly nor a network: HTTP answers are given by a function.
package guesttest

import (
	"crypto/rand"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sbxhost/sbxhost/abi"
	"github.com/sbxhost/sbxhost/abi/guest"
	"github.com/sbxhost/sbxhost/abi/guest/internal/hostcall"
)

// Answer is a vendor's answer. With Frames set the body is framed.
type Answer struct {
	Status int
	Header map[string]string
	Body   string
	Frames []string
	// Broken ends the frames with E_TRUNCATED instead of E_END.
	Broken bool
}

// Host records what a plugin does. HTTP is called for each request; a nil one,
// or an answer with Status 0, is E_NETWORK.
type Host struct {
	HTTP func(meta abi.HTTPMeta, body []byte) Answer

	mu          sync.Mutex
	in          []byte
	out, errDoc []byte
	responses   map[int64]*response
	next        int64
	Requests    []abi.HTTPMeta
	Checkpoints []string
	ExecRefs    []string
	Logs        []string
	Slept       time.Duration
	Emitted     map[int32]string
	Cancel      bool
}

// Format implements fmt.Formatter: a fixed word, whatever the verb. Printing
// reads none of the fields that change.
func (h *Host) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, "guesttest.Host") }

type response struct {
	answer Answer
	read   int
	frame  int
}

var running sync.Mutex

// Call runs one operation and returns the reply document, or the error
// document. Calls of all hosts run one after the other.
func (h *Host) Call(t testing.TB, op abi.Op, request interface{ AppendJSON([]byte) []byte }) (reply []byte, failure *abi.ErrorDocument) {
	t.Helper()
	running.Lock()
	defer running.Unlock()
	h.mu.Lock()
	h.in, h.out, h.errDoc = request.AppendJSON(nil), nil, nil
	if h.responses == nil {
		h.responses = map[int64]*response{}
	}
	h.mu.Unlock()
	hostcall.Current = h
	defer func() { hostcall.Current = nil }()
	code := guest.Invoke(op)
	if n := len(h.responses); n > 0 {
		t.Errorf("%d response(s) were left open", n)
	}
	if code == 0 {
		return h.out, nil
	}
	var doc abi.ErrorDocument
	if err := doc.DecodeJSON(h.errDoc, true); err != nil {
		t.Fatalf("malformed error document: %v", err)
	}
	return nil, &doc
}

// InLen implements the import.
func (h *Host) InLen() int32 { return int32(len(h.in)) }

// InRead implements the import.
func (h *Host) InRead(dst []byte, off int32) int32 { return int32(copy(dst, h.in[off:])) }

// OutWrite implements the import.
func (h *Host) OutWrite(src []byte) int32 { h.out = append(h.out, src...); return 0 }

// ErrWrite implements the import.
func (h *Host) ErrWrite(src []byte) int32 { h.errDoc = append(h.errDoc, src...); return 0 }

// Checkpoint implements the import.
func (h *Host) Checkpoint(kind int32, src []byte) int32 {
	switch {
	case len(src) > abi.MaxRef:
		return int32(abi.ErrnoTooLarge)
	case kind == 0:
		h.Checkpoints = append(h.Checkpoints, string(src))
	case kind == 1:
		h.ExecRefs = append(h.ExecRefs, string(src))
	default:
		return int32(abi.ErrnoInvalid)
	}
	return 0
}

// HTTPOpen implements the import.
func (h *Host) HTTPOpen(meta, body []byte) int64 {
	var m abi.HTTPMeta
	if err := m.DecodeJSON(meta, true); err != nil {
		return int64(abi.ErrnoInvalid)
	}
	h.Requests = append(h.Requests, m)
	if h.HTTP == nil {
		return int64(abi.ErrnoNetwork)
	}
	a := h.HTTP(m, body)
	if a.Status == 0 {
		return int64(abi.ErrnoNetwork)
	}
	h.next++
	h.responses[h.next] = &response{answer: a}
	return h.next
}

// HTTPStatus implements the import.
func (h *Host) HTTPStatus(handle int64) int32 {
	if r := h.responses[handle]; r != nil {
		return int32(r.answer.Status)
	}
	return int32(abi.ErrnoBadf)
}

// HTTPHeader implements the import.
func (h *Host) HTTPHeader(handle int64, name string, dst []byte) int32 {
	r := h.responses[handle]
	if r == nil {
		return int32(abi.ErrnoBadf)
	}
	for k, v := range r.answer.Header {
		if strings.EqualFold(k, name) {
			copy(dst, v)
			return int32(len(v))
		}
	}
	return int32(abi.ErrnoNotFound)
}

// HTTPRead implements the import.
func (h *Host) HTTPRead(handle int64, dst []byte) int32 {
	r := h.responses[handle]
	if r == nil {
		return int32(abi.ErrnoBadf)
	}
	n := copy(dst, r.answer.Body[r.read:])
	r.read += n
	return int32(n)
}

// HTTPNext implements the import.
func (h *Host) HTTPNext(handle int64, dst []byte) int32 {
	r := h.responses[handle]
	switch {
	case r == nil:
		return int32(abi.ErrnoBadf)
	case r.frame == len(r.answer.Frames) && r.answer.Broken:
		return int32(abi.ErrnoTruncated)
	case r.frame == len(r.answer.Frames):
		return int32(abi.ErrnoEnd)
	case len(r.answer.Frames[r.frame]) > len(dst):
		return int32(abi.ErrnoTooLarge)
	}
	n := copy(dst, r.answer.Frames[r.frame])
	r.frame++
	return int32(n)
}

// HTTPClose implements the import.
func (h *Host) HTTPClose(handle int64) int32 {
	if h.responses[handle] == nil {
		return int32(abi.ErrnoBadf)
	}
	delete(h.responses, handle)
	return 0
}

// Emit implements the import.
func (h *Host) Emit(stream int32, src []byte) int32 {
	if h.Emitted == nil {
		h.Emitted = map[int32]string{}
	}
	h.Emitted[stream] += string(src)
	return 0
}

// Log implements the import.
func (h *Host) Log(_ int32, src []byte) int32 { h.Logs = append(h.Logs, string(src)); return 0 }

// SleepMs implements the import without sleeping.
func (h *Host) SleepMs(ms int32) int32 {
	if h.Cancel {
		return int32(abi.ErrnoCanceled)
	}
	h.Slept += time.Duration(ms) * time.Millisecond
	return 0
}

// NowMs implements the import.
func (h *Host) NowMs() int64 { return time.Now().UnixMilli() }

// Random implements the import.
func (h *Host) Random(dst []byte) int32 { _, _ = rand.Read(dst); return 0 }

// Canceled implements the import.
func (h *Host) Canceled() int32 {
	if h.Cancel {
		return 1
	}
	return 0
}
