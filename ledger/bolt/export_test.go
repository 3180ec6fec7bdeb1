package bolt

import (
	"io"

	"go.etcd.io/bbolt"

	"github.com/sbxhost/sbxhost/ledger"
)

// For the tests that damage files and records.

func Encode(r ledger.Record) ([]byte, error) {
	b, _, err := encode(r)
	return b, err
}

func Decode(key string, value []byte) (ledger.Record, error) {
	r, _, err := decode(key, value)
	return r, err
}

func ReadFile(in io.ReaderAt, size int64) ([]ledger.Record, error) {
	c, err := readFile(in, size)
	return c.records, err
}

// Commit is how a ledger's changes get to its file.
type Commit = func(func(*bbolt.Tx) error) error

// BreakCommits puts something in the way of a ledger's changes, until it is called
// with nil.
func BreakCommits(l ledger.Ledger, with func(Commit) Commit) {
	f := l.(*file)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.commit = f.db.Update; with != nil {
		f.commit = with(f.db.Update)
	}
}
