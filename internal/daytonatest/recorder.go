package daytonatest

import (
	"bytes"
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"crypto/sha256"
)

// recorder keeps the log of requests and what the service stored.
type recorder struct {
	keepBodies bool
	key        string

	mu       sync.Mutex
	requests []*Request
	runs     []Execution
	records  []Record
	seen     map[[sha256.Size]byte]bool // records are kept once
}

// keptBody is how much of each body is kept.
const keptBody = 64 << 10

func (r *recorder) begin(now time.Time, c *call) *Request {
	h := c.r.Header.Clone()
	authorized := h.Get("Authorization") == "Bearer "+r.key
	for _, vs := range h {
		for i := range vs {
			vs[i] = strings.ReplaceAll(vs[i], r.key, "KEY")
		}
	}
	q := &Request{Time: now, Op: c.op, Sandbox: c.params["sandbox"], Method: c.r.Method, Path: c.r.URL.Path, Query: c.r.URL.RawQuery,
		Header: h, Chunked: c.r.ContentLength < 0, Authorized: authorized}
	if r.keepBodies {
		c.w.keep = keptBody
	}
	r.mu.Lock()
	r.requests = append(r.requests, q)
	r.mu.Unlock()
	var b bytes.Buffer
	b.WriteString(q.Method + " " + c.r.URL.RequestURI() + "\n")
	_ = h.Write(&b)
	r.add(Record{Kind: RecordHeader, Sandbox: q.Sandbox, Name: string(c.op), Data: b.Bytes()})
	return q
}

// note changes what is logged of a request that is under way, and may be read.
func (r *recorder) note(change func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change()
}

func (r *recorder) end(c *call) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.keepBodies {
		c.log.Body = bytes.Clone(c.body[:min(len(c.body), keptBody)])
		c.log.Reply = bytes.Clone(c.w.kept.Bytes())
	}
	c.log.Status = c.w.status
}

func (r *recorder) add(rec Record) {
	sum := sha256.Sum256(append([]byte(string(rec.Kind)+"\x00"+rec.Sandbox+"\x00"+rec.Name+"\x00"), rec.Data...))
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.seen == nil {
		r.seen = map[[sha256.Size]byte]bool{}
	}
	if !r.seen[sum] {
		r.seen[sum] = true
		r.records = append(r.records, rec)
	}
}

func (r *recorder) addJSON(kind RecordKind, sandbox, name string, v any) {
	if data, err := json.Marshal(v); err == nil {
		r.add(Record{Kind: kind, Sandbox: sandbox, Name: name, Data: data})
	}
}

func (r *recorder) ran(e Execution) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.runs = append(r.runs, e)
}

// files keeps what the daemon has written in the sandbox: its log and the files
// of sessions. The life of the sandbox is held, or it does not matter.
func (r *recorder) files(sb *sandbox) {
	root := filepath.Join(sb.dir, "root")
	keep := func(path string) {
		if data, err := os.ReadFile(path); err == nil {
			r.add(Record{Kind: RecordFile, Sandbox: sb.id, Name: strings.TrimPrefix(path, root), Data: data})
		}
	}
	keep(root + daemonLog)
	_ = filepath.WalkDir(root+homeDir+"/.daytona", func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			keep(path)
		}
		return nil
	})
}

// Requests returns a copy of the log so far. A request that is under way has no
// status yet.
func (s *Server) Requests() []Request {
	s.rec.mu.Lock()
	defer s.rec.mu.Unlock()
	out := make([]Request, 0, len(s.rec.requests))
	for _, q := range s.rec.requests {
		out = append(out, *q)
	}
	return out
}

// Count counts the requests of these operations; without any, all.
func (s *Server) Count(ops ...Op) int {
	s.rec.mu.Lock()
	defer s.rec.mu.Unlock()
	n := 0
	for _, q := range s.rec.requests {
		if len(ops) == 0 || slices.Contains(ops, q.Op) {
			n++
		}
	}
	return n
}

// Forget empties the log of requests. Records and executions stay.
func (s *Server) Forget() {
	s.rec.mu.Lock()
	defer s.rec.mu.Unlock()
	s.rec.requests = nil
}

// Executions lists the commands that a sandbox (id or name; "" means all) really
// started, in order.
func (s *Server) Executions(sandbox string) []Execution {
	if info, ok := s.Sandbox(sandbox); ok {
		sandbox = info.ID
	}
	s.rec.mu.Lock()
	defer s.rec.mu.Unlock()
	var out []Execution
	for _, e := range s.rec.runs {
		if sandbox == "" || e.Sandbox == sandbox {
			out = append(out, e)
		}
	}
	return out
}

// Records returns everything that was stored or published so far, of deleted
// sandboxes too.
func (s *Server) Records() []Record {
	s.mu.Lock()
	all := slices.Clone(s.sandboxes)
	for _, sb := range all {
		s.rec.addJSON(RecordSandbox, sb.id, sb.given, sb.object(false))
		s.rec.addJSON(RecordListItem, sb.id, sb.given, sb.object(true))
		for token := range sb.signed {
			s.rec.add(Record{Kind: RecordPreview, Sandbox: sb.id, Name: "signed", Data: []byte(token)})
		}
		if len(sb.buildLog) > 0 {
			s.rec.add(Record{Kind: RecordBuildLog, Sandbox: sb.id, Name: "build", Data: []byte(strings.Join(sb.buildLog, "\n"))})
		}
	}
	for _, snap := range s.snapshots {
		s.rec.addJSON(RecordSnapshot, "", snap.name, map[string]any{"snapshot": snap.object(s), "env": snap.env})
	}
	s.mu.Unlock()
	for _, sb := range all {
		s.rec.files(sb)
		if d := sb.running(); d != nil {
			d.record()
		}
	}
	s.rec.mu.Lock()
	defer s.rec.mu.Unlock()
	return slices.Clone(s.rec.records)
}

// Find returns where needle is in Records, as "kind sandbox name", each place
// once, sorted. It looks for the bytes as they are; records that are JSON are
// searched decoded as well, so that escaping hides nothing.
func (s *Server) Find(needle []byte) []string {
	var out []string
	for _, r := range s.Records() {
		if bytes.Contains(r.Data, needle) || inJSON(r.Data, needle) {
			out = append(out, strings.Join([]string{string(r.Kind), r.Sandbox, r.Name}, " "))
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func inJSON(data, needle []byte) bool {
	if len(data) == 0 || data[0] != '{' && data[0] != '[' {
		return false
	}
	var v any
	if json.Unmarshal(data, &v) != nil {
		return false
	}
	var has func(v any) bool
	has = func(v any) bool {
		switch v := v.(type) {
		case string:
			return strings.Contains(v, string(needle))
		case []any:
			return slices.ContainsFunc(v, has)
		case map[string]any:
			for k, x := range v {
				if strings.Contains(k, string(needle)) || has(x) {
					return true
				}
			}
		}
		return false
	}
	return has(v)
}
