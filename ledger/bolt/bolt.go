// Package bolt is a ledger in one file, for hosts whose sandboxes outlive them.
//
// # Durability
//
// Every Put and Delete is one transaction of bbolt, on disk when it returns. The
// process may be killed, or the machine lose power, at any moment: the file then
// holds what was there before the call or what was given.
//
// Where the system names the boot it runs under, as Linux does, a change waits for
// the disk once, and its pages reach it in any order. What a loss of power leaves of
// one that did not return is found when the file is opened under another boot, and
// taken back: the pages of the change before it are still there. Elsewhere, and in a
// file that an older version made, a change waits twice, in bbolt's order.
//
// When the disk reports an error at the end of a change, the ledger takes no more
// changes until it is opened anew.
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
// The one exception is the newest change alone, when the machine has started anew
// since it was made or the file is on another machine: that is what a loss of power
// leaves, and the change is taken back. Damage of another origin in those same pages
// looks the same, and then a change that did return is undone. Options.Logger is
// told. Under the boot of the change before it is damage like any other; a disk that was taken from a
// running machine can leave a file that is refused until the next boot. A copy made
// while the ledger is open may be either.
//
// A ledger holds names, ids and references, never a value. Its file is readable
// by its owner only.
package bolt

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
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
	// Owner makes Open refuse, with FailedPrecondition, a ledger with records of
	// another owner: for files that belong to one owner each, of which a renamed
	// one would otherwise look empty. Default: records of any owner.
	Owner string
	// Logger receives a warning when Open takes back a change that a loss of
	// power interrupted. Default: none.
	Logger *slog.Logger
}

// file is the ledger. What is on disk is in memory too, since nobody else can
// write it; reads never touch the file.
type file struct {
	path string
	mem  ledger.Ledger

	mu      sync.Mutex // orders writes
	db      *bbolt.DB
	commit  func(func(*bbolt.Tx) error) error // db.Update, but in tests
	sync    func() error                      // db.Sync, but in tests
	flush   func(*os.File) error              // its Sync, but in tests
	writeAt func(*os.File, []byte, int64) (int, error)
	sums    map[string]checksum
	seal    seal
	boot    checksum // of the id of the machine's boot now
	settled bool     // the last change was made here, and is on disk
	closed  bool
	broken  error // why nothing may be written any more
}

var (
	bucketFormat  = []byte("sbxhost.ledger")
	bucketRecords = []byte("records") // by attempt
	keyVersion    = []byte("version")
	keySeal       = []byte("seal")
)

// fileVersion is the version of the file's layout. In a file of oldVersion the seal
// does not say which change it is of; it stays one, and every change of it is
// written in two steps. A version after these must change the size of the seal or the
// version in its checksum: a seal that fits is proof that the file is of this one.
const (
	fileVersion = "2"
	oldVersion  = "1"
)

// Open opens the ledger at path, making it, with mode 0600, if there is none; its
// directory must exist. The caller closes it, after the host.
//
// Errors: *InUseError (Unavailable), *DamageError (Internal); Unsupported for a
// file of a newer version; NotFound with Options.MustExist; FailedPrecondition
// when the file cannot be opened or made, or holds what Options.Owner refuses;
// Unavailable, too, when the disk does not take what Open writes.
func Open(path string, opts Options) (ledger.Ledger, error) {
	return open(&file{boot: bootSum(bootID()), flush: (*os.File).Sync, writeAt: (*os.File).WriteAt}, path, opts)
}

func open(l *file, path string, opts Options) (ledger.Ledger, error) {
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
		return nil, absent(path)
	case errors.Is(err, fs.ErrNotExist):
		if err := create(path, l.boot); err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, cannotOpen(path, err)
		}
	case err != nil:
		return nil, cannotOpen(path, err)
	}
	l.path, l.mem = path, ledger.Memory()
	if err := l.open(opts); err != nil {
		return nil, err
	}
	return l, nil
}

func absent(path string) error {
	return &provider.Error{Code: provider.NotFound, Op: "ledger", Subject: path, Message: "there is no such ledger", Applied: provider.AppliedNo}
}

// open locks and reads the file, and only then lets bbolt map it.
func (l *file) open(opts Options) (err error) {
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
			switch {
			case errors.Is(err, fs.ErrNotExist) && opts.MustExist: // it went meanwhile
				refused = absent(l.path)
				return nil, refused
			case err != nil:
				refused = cannotOpen(l.path, err)
				return nil, refused
			}
			if refused = l.prepare(f, opts, &have); refused != nil {
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
	l.db, l.commit, l.sync, l.sums, l.seal = db, db.Update, db.Sync, have.sums, have.seal
	return nil
}

// prepare locks an open file, closes it to other users and reads it.
func (l *file) prepare(f *os.File, opts Options, have *content) error {
	if err := lock(f, l.path, opts.Wait); err != nil {
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
	if *have, err = readFile(f, info.Size(), l.boot); err != nil {
		var d *DamageError
		if errors.As(err, &d) {
			d.Path = l.path
			return d
		}
		return err
	}
	for _, r := range have.records {
		if opts.Owner != "" && r.Owner != opts.Owner {
			return &provider.Error{Code: provider.FailedPrecondition, Op: "ledger", Subject: l.path, Message: "it holds records of " + r.Owner,
				Remedy: "give it back the name it had; or, if that ledger is there, move this copy away", Applied: provider.AppliedNo}
		}
	}
	if have.undo != nil {
		if opts.Logger != nil {
			opts.Logger.Warn("the last change of the ledger is incomplete, as after a loss of power, and is taken back",
				"ledger", l.path, "where", have.undo.why.Where, "what", have.undo.why.What)
		}
		if _, err := l.writeAt(f, have.undo.page, have.undo.at); err != nil {
			return l.cannotWrite(err)
		}
	} else if !otherBoot(have.seal.boot, l.boot) {
		if err := l.rewrite(f, have.used); err != nil {
			return l.cannotWrite(err)
		}
		_ = os.Chtimes(l.path, time.Time{}, info.ModTime()) // when it was changed: not now
	}
	// A process that was killed leaves what is not on disk yet.
	if err := l.flush(f); err != nil {
		return l.cannotWrite(err)
	}
	return nil
}

// rewrite writes the file's pages as they are. Where a process before could not get
// one to the disk, the system shows it and believes that it is there: only what is
// written anew reaches the disk, or fails again.
func (l *file) rewrite(f *os.File, used int64) error {
	buf := make([]byte, min(used, 1<<20))
	for at := int64(0); at < used; at += int64(len(buf)) {
		b := buf[:min(int64(len(buf)), used-at)]
		if _, err := f.ReadAt(b, at); err != nil {
			return err
		}
		if _, err := l.writeAt(f, b, at); err != nil {
			return err
		}
	}
	return nil
}

func (l *file) cannotWrite(err error) error {
	return &provider.Error{Code: provider.Unavailable, Op: "ledger", Subject: l.path, Message: "the ledger cannot be written", Err: err,
		Remedy: "see that the disk is not full and works", Applied: provider.AppliedUnknown}
}

func cannotOpen(path string, err error) error {
	return &provider.Error{Code: provider.FailedPrecondition, Op: "ledger", Subject: path, Message: "the ledger cannot be opened", Err: err,
		Remedy: "see that its directory is there and that this user may write to both", Applied: provider.AppliedNo}
}

// Format implements fmt.Formatter: its path, whatever the verb. Printing
// reads none of the fields that change.
func (l *file) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, "bolt.Ledger["+l.path+"]") }

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
	if l.seal.tx != 0 && l.seal.boot != l.boot {
		// First this alone: the change before says whether one may be taken back.
		if _, err := l.change(l.seal, func(*bbolt.Bucket) error { return nil }); err != nil {
			return false, err
		}
	}
	return l.change(next, f)
}

// change is one transaction. It is written in one step, in no order, where Open can
// tell that it is incomplete and take it back; otherwise in bbolt's two. A change
// that failed or was killed may have left pages with the number of this one, which
// Open could not tell from its own.
func (l *file) change(next seal, f func(*bbolt.Bucket) error) (there bool, err error) {
	l.db.NoSync = l.settled && l.seal.boot == l.boot && l.boot != checksum{}
	err = l.guard(func() error {
		err := l.commit(func(tx *bbolt.Tx) error {
			if l.seal.tx != 0 {
				next.tx, next.boot = uint64(tx.ID()), l.boot
			}
			if err := f(tx.Bucket(bucketRecords)); err != nil {
				return err
			}
			return tx.Bucket(bucketFormat).Put(keySeal, next.encode())
		})
		if err == nil && l.db.NoSync {
			err = l.sync()
		}
		return err
	})
	if l.settled = err == nil; l.settled {
		l.seal = next
		return true, nil
	}
	if there = l.agree(next); there {
		// Nothing may be built on what may not be on disk.
		l.seal, l.broken = next, &provider.Error{Code: provider.Unavailable, Op: "ledger", Subject: l.path,
			Message: "the ledger takes no more changes: the last one may not be on disk",
			Remedy:  "see that the disk works, and start again", Applied: provider.AppliedNo}
	}
	if damaged := (*DamageError)(nil); errors.As(err, &damaged) {
		return there, err
	}
	return there, l.cannotWrite(err)
}

// agree finds out which state a failed change left the file in: what is in memory
// must stay what is in the file, or the next change would seal something else. A file
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
