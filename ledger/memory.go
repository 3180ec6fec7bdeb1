package ledger

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"

	"github.com/sbxhost/sbxhost/provider"
)

// Memory returns a ledger that ends with the process. Its records are as durable
// as the process.
func Memory() Ledger {
	return &memory{records: map[string]Record{}, sessions: map[string][]string{}}
}

type memory struct {
	mu       sync.Mutex
	closed   bool
	records  map[string]Record   // by attempt
	sessions map[string][]string // attempts by session
}

// Format implements fmt.Formatter: a fixed word, whatever the verb. Printing
// reads none of the fields that change.
func (m *memory) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, "ledger.Memory") }

// lock takes the lock for one call, unless its context or the ledger has ended.
func (m *memory) lock(ctx context.Context) (unlock func(), err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	m.mu.Lock()
	if m.closed {
		m.mu.Unlock()
		return nil, &provider.Error{Code: provider.FailedPrecondition, Op: "ledger", Message: "the ledger is closed", Applied: provider.AppliedNo}
	}
	return m.mu.Unlock, nil
}

func (m *memory) Put(ctx context.Context, r Record) error {
	unlock, err := m.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	var stored *Record
	if old, known := m.records[r.Attempt]; known {
		stored = &old
	}
	if err := CheckPut(stored, r); err != nil {
		return err
	}
	if stored == nil {
		m.sessions[r.Session] = append(m.sessions[r.Session], r.Attempt)
	}
	m.records[r.Attempt] = clone(r)
	return nil
}

func (m *memory) Get(ctx context.Context, attempt string) (Record, error) {
	unlock, err := m.lock(ctx)
	if err != nil {
		return Record{}, err
	}
	defer unlock()
	r, ok := m.records[attempt]
	if !ok {
		return Record{}, &provider.Error{Code: provider.NotFound, Op: "ledger.get", Message: "there is no record of this attempt", Applied: provider.AppliedNo}
	}
	return clone(r), nil
}

func (m *memory) Session(ctx context.Context, session string) ([]Record, error) {
	unlock, err := m.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	out := []Record{}
	for _, a := range m.sessions[session] {
		out = append(out, clone(m.records[a]))
	}
	return oldestFirst(out), nil
}

func (m *memory) List(ctx context.Context, owner string) ([]Record, error) {
	unlock, err := m.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	out := []Record{}
	for _, r := range m.records {
		if r.Owner == owner {
			out = append(out, clone(r))
		}
	}
	return oldestFirst(out), nil
}

func (m *memory) Delete(ctx context.Context, attempt string) error {
	unlock, err := m.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	r, ok := m.records[attempt]
	if !ok {
		return nil
	}
	delete(m.records, attempt)
	left := slices.DeleteFunc(m.sessions[r.Session], func(a string) bool { return a == attempt })
	if m.sessions[r.Session] = left; len(left) == 0 {
		delete(m.sessions, r.Session)
	}
	return nil
}

func (m *memory) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = true
	return nil
}

func clone(r Record) Record {
	r.ProtectedNames = slices.Clone(r.ProtectedNames)
	r.Manifest = slices.Clone(r.Manifest)
	r.Ref.Data = slices.Clone(r.Ref.Data)
	return r
}

func oldestFirst(records []Record) []Record {
	slices.SortFunc(records, func(a, b Record) int {
		if c := a.CreatedAt.Compare(b.CreatedAt); c != 0 {
			return c
		}
		return strings.Compare(a.Attempt, b.Attempt)
	})
	return records
}
