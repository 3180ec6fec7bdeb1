package bolt

import (
	"errors"
	"io"
	"os"

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

// Newer returns a value as a newer version might write it.
func Newer(key string, value []byte) []byte {
	out := append([]byte{valueVersion + 1}, value[1:]...)
	c := sum(out[0], key, out[1+sumSize:])
	copy(out[1:], c[:])
	return out
}

func ReadFile(in io.ReaderAt, size int64) ([]ledger.Record, error) {
	c, err := readFile(in, size, checksum{})
	return c.records, err
}

// OpenUnder opens a ledger as if the machine had this boot id. Flush takes the
// place of what Open does so that what it read is on disk; nil: leave it.
func OpenUnder(boot, path string, opts Options, flush func(*os.File) error) (ledger.Ledger, error) {
	l := &file{boot: bootSum(boot), flush: (*os.File).Sync, writeAt: (*os.File).WriteAt}
	if flush != nil {
		l.flush = flush
	}
	return open(l, path, opts)
}

// WatchDisk calls these with what a ledger does: commit is one transaction, whose
// pages reach the disk in bbolt's order or in none; sync is what makes them durable
// in the second case.
func WatchDisk(l ledger.Ledger, commit func(ordered bool, do func() error) error, sync func(do func() error) error) {
	f := l.(*file)
	f.commit = func(fn func(*bbolt.Tx) error) error {
		return commit(!f.db.NoSync, func() error { return f.db.Update(fn) })
	}
	f.sync = func() error { return sync(f.db.Sync) }
}

// Check is bbolt's own check of a ledger's file.
func Check(l ledger.Ledger) error {
	var found []error
	err := l.(*file).db.View(func(tx *bbolt.Tx) error {
		for err := range tx.Check() {
			found = append(found, err)
		}
		return nil
	})
	return errors.Join(append(found, err)...)
}

// MakeOld makes an empty ledger of the file version before this one.
func MakeOld(path string) error {
	if err := create(path, checksum{}); err != nil {
		return err
	}
	db, err := bbolt.Open(path, 0o600, nil)
	if err != nil {
		return err
	}
	err = db.Update(func(tx *bbolt.Tx) error {
		b := tx.Bucket(bucketFormat)
		return errors.Join(b.Put(keyVersion, []byte(oldVersion)), b.Put(keySeal, seal{}.encode()))
	})
	return errors.Join(err, db.Close())
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

// MakeNewer makes a ledger one of a newer file version, in one change.
func MakeNewer(path string) error {
	db, err := bbolt.Open(path, 0o600, nil)
	if err != nil {
		return err
	}
	err = db.Update(func(tx *bbolt.Tx) error { return tx.Bucket(bucketFormat).Put(keyVersion, []byte("3")) })
	return errors.Join(err, db.Close())
}

// OpenSeen opens a ledger as OpenUnder does, and tells what Open itself writes.
func OpenSeen(boot, path string, written func(b []byte, at int64)) (ledger.Ledger, error) {
	return open(&file{boot: bootSum(boot), flush: (*os.File).Sync, writeAt: func(f *os.File, b []byte, at int64) (int, error) {
		written(b, at)
		return f.WriteAt(b, at)
	}}, path, Options{})
}

// OpenGone opens a ledger that went after Open saw it.
func OpenGone(path string) error {
	return (&file{path: path}).open(Options{MustExist: true})
}
