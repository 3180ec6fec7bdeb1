// Package bolt is a ledger in one file, for hosts whose sandboxes outlive them.
//
// # Durability
//
// Every Put and Delete is one transaction of bbolt, on disk (fsync) when it
// returns. The process may be killed, or the machine lose power, at any moment:
// the file then holds what was there before the call or what was given.
//
// # One process
//
// The file is locked for as long as it is open. A second process gets an
// [*InUseError] that names the file and, where the system tells, the process
// that has it.
//
// # Damage
//
// Open reads the whole file before it is used: the pages of bbolt, and of each
// record its version, its checksum and every field. Anything that is not as it
// was written is a [*DamageError] that says where; nothing is repaired, skipped
// or begun anew. A file that was cut short, even to nothing, is damage too.
//
// A ledger holds names, ids and references, never a value. Its file is readable
// by its owner only.
package bolt

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"

	"github.com/sbxhost/sbxhost/ledger"
	"github.com/sbxhost/sbxhost/provider"
)

// Options for Open. The zero value is the sensible one.
type Options struct {
	// Wait is how long to wait for another process to let go of the file.
	// Default: 1 s. Negative: not at all.
	Wait time.Duration
	// MustExist makes Open fail with NotFound when there is no file, instead of
	// making one.
	MustExist bool
}

// file is the ledger. What is on disk is in memory too, since nobody else can
// write it; reads never touch the file.
type file struct {
	path string
	mem  ledger.Ledger

	mu     sync.Mutex // orders writes
	db     *bbolt.DB
	commit func(func(*bbolt.Tx) error) error // db.Update, but in tests
	sums   map[string]checksum
	seal   seal
	closed bool
	broken error // why nothing may be written any more
}

var (
	bucketFormat  = []byte("sbxhost.ledger")
	bucketRecords = []byte("records") // by attempt
	keyVersion    = []byte("version")
	keySeal       = []byte("seal")
)

// fileVersion is the version of the file's layout.
const fileVersion = "1"

// Open opens the ledger at path, making it, with mode 0600, if there is none; its
// directory must exist. The caller closes it, after the host.
//
// Errors: *InUseError (Unavailable), *DamageError (Internal); Unsupported for a
// file of a newer version; NotFound with Options.MustExist; FailedPrecondition
// when the file cannot be opened or made.
func Open(path string, opts Options) (ledger.Ledger, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, cannotOpen(path, err)
	}
	if opts.Wait == 0 {
		opts.Wait = time.Second
	}
	_, err = os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist) && opts.MustExist:
		return nil, &provider.Error{Code: provider.NotFound, Op: "ledger", Subject: path, Message: "there is no such ledger", Applied: provider.AppliedNo}
	case errors.Is(err, fs.ErrNotExist):
		if err := create(path); err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, cannotOpen(path, err)
		}
	case err != nil:
		return nil, cannotOpen(path, err)
	}
	l := &file{path: path, mem: ledger.Memory()}
	if err := l.open(opts.Wait); err != nil {
		return nil, err
	}
	return l, nil
}

// open locks and reads the file, and only then lets bbolt map it.
func (l *file) open(wait time.Duration) (err error) {
	var (
		have    content
		refused error
		opened  *os.File
	)
	defer func() {
		// What the check before let pass and bbolt objects to.
		if r := recover(); r != nil {
			_ = opened.Close() // and with it the lock
			err = &DamageError{Path: l.path, Where: "the page structure", What: fmt.Sprint(r)}
		}
	}()
	db, err := bbolt.Open(l.path, 0o600, &bbolt.Options{
		Timeout: time.Millisecond, // OpenFile has the lock already, or refuses
		OpenFile: func(name string, _ int, _ os.FileMode) (*os.File, error) {
			f, err := os.OpenFile(name, os.O_RDWR, 0)
			if err != nil {
				refused = cannotOpen(l.path, err)
				return nil, refused
			}
			if refused = l.prepare(f, wait, &have); refused != nil {
				_ = f.Close()
				return nil, refused
			}
			opened = f
			return f, nil
		},
	})
	switch {
	case refused != nil:
		return refused
	case errors.Is(err, berrors.ErrTimeout):
		return inUse(l.path)
	case err != nil:
		return cannotOpen(l.path, err)
	}
	for _, r := range have.records {
		if err := l.mem.Put(context.Background(), r); err != nil {
			_ = db.Close()
			return &DamageError{Path: l.path, Where: "the record of attempt " + r.Attempt, What: "it contradicts itself"}
		}
	}
	l.db, l.commit, l.sums, l.seal = db, db.Update, have.sums, have.seal
	return nil
}

// prepare locks an open file, closes it to other users and reads it.
func (l *file) prepare(f *os.File, wait time.Duration, have *content) error {
	if err := lock(f, l.path, wait); err != nil {
		return err
	}
	info, err := f.Stat()
	if err != nil {
		return cannotOpen(l.path, err)
	}
	if !info.Mode().IsRegular() {
		return cannotOpen(l.path, errors.New("it is not a regular file"))
	}
	if exposed(info) {
		if err := f.Chmod(0o600); err != nil {
			return cannotOpen(l.path, err)
		}
	}
	if *have, err = readFile(f, info.Size()); err != nil {
		var d *DamageError
		if errors.As(err, &d) {
			d.Path = l.path
			return d
		}
		return err
	}
	return nil
}

func cannotOpen(path string, err error) error {
	return &provider.Error{Code: provider.FailedPrecondition, Op: "ledger", Subject: path, Message: "the ledger cannot be opened", Err: err,
		Remedy: "see that its directory is there and that this user may write to both", Applied: provider.AppliedNo}
}

// Put implements ledger.Ledger.
func (l *file) Put(ctx context.Context, r ledger.Record) error {
	return l.write(ctx, func() error {
		stored, err := l.mem.Get(ctx, r.Attempt)
		switch {
		case err == nil:
			err = ledger.CheckPut(&stored, r)
		case provider.CodeOf(err) == provider.NotFound:
			err = ledger.CheckPut(nil, r)
		}
		if err != nil {
			return err
		}
		value, c, err := encode(r)
		if err != nil {
			return err
		}
		next := l.seal.with(c, 1)
		if old, replaces := l.sums[r.Attempt]; replaces {
			next = next.with(old, -1)
		}
		there, err := l.update(next, func(b *bbolt.Bucket) error { return b.Put([]byte(r.Attempt), value) })
		if there {
			l.sums[r.Attempt] = c
			if merr := l.mem.Put(context.WithoutCancel(ctx), r); err == nil {
				err = merr
			}
		}
		return err
	})
}

// Delete implements ledger.Ledger.
func (l *file) Delete(ctx context.Context, attempt string) error {
	return l.write(ctx, func() error {
		if _, err := l.mem.Get(ctx, attempt); err != nil {
			if provider.CodeOf(err) == provider.NotFound {
				return nil
			}
			return err
		}
		next := l.seal.with(l.sums[attempt], -1)
		there, err := l.update(next, func(b *bbolt.Bucket) error { return b.Delete([]byte(attempt)) })
		if there {
			delete(l.sums, attempt)
			if merr := l.mem.Delete(context.WithoutCancel(ctx), attempt); err == nil {
				err = merr
			}
		}
		return err
	})
}

// write orders a change among the others.
func (l *file) write(ctx context.Context, f func() error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return &provider.Error{Code: provider.FailedPrecondition, Op: "ledger", Message: "the ledger is closed", Applied: provider.AppliedNo}
	}
	if l.broken != nil {
		return l.broken
	}
	return f()
}

// update makes one durable change of the records, and of the seal over them. It
// reports whether the change is in the file, which it may be even with an error:
// the last part of a commit can fail when all is written.
func (l *file) update(next seal, f func(*bbolt.Bucket) error) (there bool, err error) {
	err = l.guard(func() error {
		return l.commit(func(tx *bbolt.Tx) error {
			if err := f(tx.Bucket(bucketRecords)); err != nil {
				return err
			}
			return tx.Bucket(bucketFormat).Put(keySeal, next.encode())
		})
	})
	if err == nil {
		l.seal = next
		return true, nil
	}
	if there = l.agree(next); there {
		l.seal = next
	}
	if damaged := (*DamageError)(nil); errors.As(err, &damaged) {
		return there, err
	}
	return there, &provider.Error{Code: provider.Unavailable, Op: "ledger", Subject: l.path, Message: "the ledger cannot be written", Err: err,
		Remedy: "see that the disk is not full and works", Applied: provider.AppliedUnknown}
}

// agree finds out which state a failed change left the file in: what is in memory
// must stay what is on disk, or the next change would seal something else. A file
// that is in neither state takes no more changes.
func (l *file) agree(next seal) (changed bool) {
	var have []byte
	err := l.guard(func() error {
		return l.db.View(func(tx *bbolt.Tx) error {
			have = bytes.Clone(tx.Bucket(bucketFormat).Get(keySeal))
			return nil
		})
	})
	switch {
	case err == nil && bytes.Equal(have, next.encode()):
		return true
	case err == nil && bytes.Equal(have, l.seal.encode()):
		return false
	}
	l.broken = &DamageError{Path: l.path, Where: "the records", What: "a change of them failed half-way"}
	return false
}

// guard turns a panic of bbolt's into an error.
func (l *file) guard(f func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = &DamageError{Path: l.path, Where: "the page structure", What: fmt.Sprint(r)}
		}
	}()
	return f()
}

// Get implements ledger.Ledger.
func (l *file) Get(ctx context.Context, attempt string) (ledger.Record, error) {
	return l.mem.Get(ctx, attempt)
}

// Session implements ledger.Ledger.
func (l *file) Session(ctx context.Context, session string) ([]ledger.Record, error) {
	return l.mem.Session(ctx, session)
}

// List implements ledger.Ledger.
func (l *file) List(ctx context.Context, owner string) ([]ledger.Record, error) {
	return l.mem.List(ctx, owner)
}

// Close implements ledger.Ledger. It lets go of the file.
func (l *file) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil
	}
	l.closed = true
	_ = l.mem.Close() // never fails
	if err := l.db.Close(); err != nil {
		return &provider.Error{Code: provider.Unavailable, Op: "ledger", Subject: l.path, Message: "the ledger cannot be closed", Err: err}
	}
	return nil
}
