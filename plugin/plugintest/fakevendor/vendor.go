// Package fakevendor helps to write the HTTP fake of a sandbox vendor, which a
// plugin's conformance tests run against. A fake made with it runs commands for
// real, in a folder of its own per sandbox; records every request; and misbehaves
// on demand.
//
// An executable fake calls [Main]. It prints one line, a [Hello], and serves
// until its standard input ends, so that it never outlives its test.
package fakevendor

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"time"
)

// Hello is what an executable fake prints first.
type Hello struct {
	// Origins are base URLs by the origin's name in the plugin manifest; they may
	// hold {sandbox}.
	Origins map[string]string `json:"origins"`
	// Credentials are what the fake expects, by the manifest's names.
	Credentials map[string]string `json:"credentials"`
	// Settings are values for the manifest's config fields.
	Settings map[string]string `json:"settings,omitempty"`
	// MaxOutput is how many bytes of one command's output the vendor's answers can
	// hold, whatever the bytes are; 0: any number. The conformance kit's volume
	// check writes no more.
	MaxOutput int64 `json:"maxOutput,omitempty"`
	// Unproven names checks of providertest that this fake cannot serve, each
	// with the reason. The conformance kit reports them as not proved.
	Unproven map[string]string `json:"unproven,omitempty"`
	// Control is the base URL of the control interface.
	Control string `json:"control"`
}

// Request is a recorded request.
type Request struct {
	Method string      `json:"method"`
	URL    string      `json:"url"`
	Header http.Header `json:"header"`
	Body   []byte      `json:"body"`
}

// Fault is a way to misbehave. The next Times requests with Method, "" for any, whose
// path contains Path get it; Times 0 means all.
type Fault struct {
	Kind   string `json:"kind"`
	Method string `json:"method,omitempty"`
	Path   string `json:"path"`
	Times  int    `json:"times"`
	// Arg is the kind's parameter: a status, a redirect's target, a text.
	Arg string `json:"arg,omitempty"`
}

// Kinds of faults.
const (
	FaultStatus    = "status"    // answer with status Arg, nothing was done
	FaultLost      = "lost"      // do it, then drop the answer
	FaultReset     = "reset"     // drop the connection, nothing was done
	FaultTruncated = "truncated" // do it, cut the answer in the middle
	FaultOversized = "oversized" // answer with 16 MiB
	FaultRedirect  = "redirect"  // answer 302 to Arg
	FaultGzip      = "gzip"      // answer gzip-encoded
	FaultUTF16     = "utf16"     // answer with that charset
	FaultHang      = "hang"      // do not answer
	FaultSilent    = "silent"    // do it, and do not answer
	FaultEcho      = "echo"      // answer with everything the request held
)

// Vendor is the common part of a fake.
type Vendor struct {
	Mux *http.ServeMux
	// Slow delays "not yet" states so that polling is exercised.
	Slow time.Duration

	mu        sync.Mutex
	requests  []Request
	faults    []*Fault
	sandboxes map[string]*Sandbox
	next      int
	dir       string
}

// Format implements fmt.Formatter: a fixed word, whatever the verb. Printing
// reads none of the fields that change.
func (v *Vendor) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, "fakevendor.Vendor") }

// New returns a Vendor that keeps its sandboxes under dir.
func New(dir string) *Vendor {
	return &Vendor{Mux: http.NewServeMux(), sandboxes: map[string]*Sandbox{}, dir: dir}
}

// Serve starts v on a loopback port. The caller closes the server.
func (v *Vendor) Serve() *httptest.Server {
	v.control()
	srv := httptest.NewServer(v)
	return srv
}

// ServeHTTP records, misbehaves if told to, and serves.
func (v *Vendor) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if strings.HasPrefix(r.URL.Path, "/_fake/") {
		v.Mux.ServeHTTP(w, r)
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, "body: "+err.Error(), http.StatusBadRequest)
		return
	}
	v.mu.Lock()
	v.requests = append(v.requests, Request{Method: r.Method, URL: r.URL.String(), Header: r.Header.Clone(), Body: body})
	f := v.fault(r.Method, r.URL.Path)
	v.mu.Unlock()
	r.Body = io.NopCloser(bytes.NewReader(body))
	if f != nil && v.misbehave(w, r, *f, body) {
		return
	}
	v.Mux.ServeHTTP(w, r)
}

// Inject adds a fault.
func (v *Vendor) Inject(f Fault) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.faults = append(v.faults, &f)
}

// Heal removes all faults.
func (v *Vendor) Heal() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.faults = nil
}

// Requests returns what was received so far.
func (v *Vendor) Requests() []Request {
	v.mu.Lock()
	defer v.mu.Unlock()
	return append([]Request(nil), v.requests...)
}

func (v *Vendor) fault(method, path string) *Fault {
	for i, f := range v.faults {
		if f.Method != "" && f.Method != method || !strings.Contains(path, f.Path) {
			continue
		}
		out := *f
		if f.Times > 0 {
			if f.Times--; f.Times == 0 {
				v.faults = append(v.faults[:i], v.faults[i+1:]...)
			}
		}
		return &out
	}
	return nil
}

func (v *Vendor) misbehave(w http.ResponseWriter, r *http.Request, f Fault, body []byte) bool {
	switch f.Kind {
	case FaultStatus:
		n := 500
		_, _ = fmt.Sscan(f.Arg, &n) // a malformed one stays 500
		w.WriteHeader(n)
		_, _ = io.WriteString(w, `{"error":"injected"}`)
	case FaultReset:
		hangUp(w)
	case FaultLost:
		rec := httptest.NewRecorder()
		v.Mux.ServeHTTP(rec, r)
		hangUp(w)
	case FaultTruncated:
		rec := httptest.NewRecorder()
		v.Mux.ServeHTTP(rec, r)
		out := rec.Body.Bytes()
		for k, vs := range rec.Header() {
			w.Header()[k] = vs
		}
		w.Header().Set("Content-Length", fmt.Sprint(len(out)+100))
		w.WriteHeader(rec.Code)
		_, _ = w.Write(out[:len(out)/2])
		_ = http.NewResponseController(w).Flush()
		hangUp(w)
	case FaultOversized:
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"x":"`)
		for range 16 << 4 {
			_, _ = w.Write(bytes.Repeat([]byte("a"), 64<<10))
		}
		_, _ = io.WriteString(w, `"}`)
	case FaultRedirect:
		w.Header().Set("Location", f.Arg)
		w.WriteHeader(http.StatusFound)
	case FaultGzip:
		w.Header().Set("Content-Encoding", "gzip")
		_, _ = w.Write([]byte{0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff})
	case FaultUTF16:
		w.Header().Set("Content-Type", "application/json; charset=utf-16le")
		_, _ = w.Write([]byte{'{', 0, '}', 0})
	case FaultHang:
		<-r.Context().Done()
	case FaultSilent:
		v.Mux.ServeHTTP(httptest.NewRecorder(), r)
		<-r.Context().Done()
	case FaultEcho:
		w.Header().Set("Content-Type", "application/json")
		doc := map[string]any{"body": string(body), "headers": r.Header, "url": r.URL.String(), "error": "echo"}
		if n := 0; f.Arg != "" {
			_, _ = fmt.Sscan(f.Arg, &n)
			w.WriteHeader(n)
		}
		_ = json.NewEncoder(w).Encode(doc) // the client may be gone
	default:
		return false
	}
	return true
}

func hangUp(w http.ResponseWriter) {
	if c, _, err := http.NewResponseController(w).Hijack(); err == nil {
		if t, ok := c.(*net.TCPConn); ok {
			_ = t.SetLinger(0)
		}
		_ = c.Close()
		return
	}
	panic(http.ErrAbortHandler)
}

// control adds the interface with which a test in another process steers v.
func (v *Vendor) control() {
	v.Mux.HandleFunc("POST /_fake/fault", func(w http.ResponseWriter, r *http.Request) {
		var f Fault
		if err := json.NewDecoder(r.Body).Decode(&f); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		v.Inject(f)
	})
	v.Mux.HandleFunc("POST /_fake/heal", func(http.ResponseWriter, *http.Request) { v.Heal() })
	v.Mux.HandleFunc("GET /_fake/requests", func(w http.ResponseWriter, _ *http.Request) { WriteJSON(w, http.StatusOK, v.Requests()) })
	v.Mux.HandleFunc("GET /_fake/sandboxes", func(w http.ResponseWriter, _ *http.Request) {
		ids := []string{}
		for _, s := range v.All() {
			ids = append(ids, s.ID)
		}
		WriteJSON(w, http.StatusOK, ids)
	})
}

// WriteJSON answers with a document.
func WriteJSON(w http.ResponseWriter, status int, doc any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(doc) // the client may be gone
}

// ReadJSON reads a request's document and answers 400 when it is malformed.
func ReadJSON(w http.ResponseWriter, r *http.Request, into any) bool {
	dec := json.NewDecoder(r.Body)
	dec.DisallowUnknownFields()
	if err := dec.Decode(into); err != nil {
		WriteJSON(w, http.StatusBadRequest, map[string]string{"error": err.Error()})
		return false
	}
	return true
}

// Main runs an executable fake: register adds the vendor's routes and says where
// they are, given the server's base URL.
func Main(register func(v *Vendor, base string) Hello) {
	dir, err := os.MkdirTemp("", "fakevendor-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	v := New(dir)
	srv := v.Serve()
	hello := register(v, srv.URL)
	hello.Control = srv.URL + "/_fake"
	_ = json.NewEncoder(os.Stdout).Encode(hello) // a reader that is gone ends us through stdin
	_, _ = io.Copy(io.Discard, os.Stdin)
	v.CloseAll()
	srv.CloseClientConnections()
	srv.Close()
	_ = os.RemoveAll(dir)
}
