package ledger

import (
	"context"
	"slices"
	"strings"
	"sync"

	"github.com/sbxhost/sbxhost/provider"
)

// Memory returns a ledger that ends with the process.
func Memory() Ledger {
	return &memory{records: map[string]Record{}, sessions: map[string][]string{}}
}

type memory struct {
	mu       sync.Mutex
	records  map[string]Record   // by attempt
	sessions map[string][]string // attempts by session
}

func (m *memory) Put(ctx context.Context, r Record) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if r.Attempt == "" || r.Session == "" {
		return &provider.Error{Code: provider.InvalidArgument, Op: "ledger.put", Message: "a record needs an attempt and a session", Applied: provider.AppliedNo}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, known := m.records[r.Attempt]; !known {
		m.sessions[r.Session] = append(m.sessions[r.Session], r.Attempt)
	}
	m.records[r.Attempt] = clone(r)
	return nil
}

func (m *memory) Get(ctx context.Context, attempt string) (Record, error) {
	if err := ctx.Err(); err != nil {
		return Record{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	r, ok := m.records[attempt]
	if !ok {
		return Record{}, &provider.Error{Code: provider.NotFound, Op: "ledger.get", Message: "there is no record of this attempt", Applied: provider.AppliedNo}
	}
	return clone(r), nil
}

func (m *memory) Session(ctx context.Context, session string) ([]Record, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	out := []Record{}
	for _, a := range m.sessions[session] {
		out = append(out, clone(m.records[a]))
	}
	return oldestFirst(out), nil
}

func (m *memory) List(ctx context.Context, owner string) ([]Record, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	out := []Record{}
	for _, r := range m.records {
		if r.Owner == owner {
			out = append(out, clone(r))
		}
	}
	return oldestFirst(out), nil
}

func (m *memory) Delete(ctx context.Context, attempt string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
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

func (m *memory) Close() error { return nil }

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
