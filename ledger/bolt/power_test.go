package bolt_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"

	"github.com/sbxhost/sbxhost/ledger"
	"github.com/sbxhost/sbxhost/ledger/bolt"
	"github.com/sbxhost/sbxhost/ledger/ledgertest"
	"github.com/sbxhost/sbxhost/provider"
)

// sector is what a disk writes as a whole.
const sector = 512

// machine is a ledger on a disk that forgets: it knows what is on it for sure, and
// so every file that a loss of power may leave.
type machine struct {
	t       *testing.T
	rnd     *rand.Rand
	boot    string // of the machine now
	path    string
	images  string // where what is left of it is opened
	l       ledger.Ledger
	durable []byte
	// What the ledger may hold after a loss of power: before, or during, a change.
	allowed [][]ledger.Record
	sizes   bool // records and keys of all sizes

	opened, damaged int // files that a loss of power left; of these, in need of going back
}

func newMachine(t *testing.T, seed uint64) *machine {
	t.Helper()
	images, err := os.MkdirTemp("/dev/shm", "sbxhost-test-") // there are thousands, and none has to be on disk
	if err != nil {
		images = t.TempDir()
	}
	t.Cleanup(func() { _ = os.RemoveAll(images) })
	return &machine{t: t, rnd: rand.New(rand.NewPCG(seed, 1)), boot: "first", images: images,
		path: filepath.Join(t.TempDir(), "ledger.db")}
}

func (m *machine) file() []byte {
	m.t.Helper()
	data, err := os.ReadFile(m.path)
	require.NoError(m.t, err)
	return data
}

// open opens the ledger of this machine. What Open read has to be on disk.
func (m *machine) open() {
	m.t.Helper()
	l, err := bolt.OpenUnder(m.boot, m.path, bolt.Options{}, func(f *os.File) error {
		m.durable = m.file()
		return f.Sync()
	})
	require.NoError(m.t, err)
	m.l = l
	m.crash(m.durable, m.file(), m.list(l))
	bolt.WatchDisk(l, m.commit, func(do func() error) error {
		err := do()
		m.durable = m.file()
		return err
	})
}

// reboot starts the machine anew.
func (m *machine) reboot() {
	m.t.Helper()
	require.NoError(m.t, m.l.Close())
	m.boot += " and another"
	m.open()
}

// kill ends the process within a change, of which written is in the file; nothing
// of that is on disk. Another process opens the ledger.
func (m *machine) kill(change func() error, written func(before, after []byte) []byte) {
	m.t.Helper()
	bolt.WatchDisk(m.l, func(_ bool, do func() error) error { return do() }, func(func() error) error { return nil })
	before := m.file()
	require.NoError(m.t, change())
	after := m.file()
	require.NoError(m.t, m.l.Close())
	require.NoError(m.t, os.WriteFile(m.path, written(before, after), 0o600))
	m.open()
}

func (m *machine) list(l ledger.Ledger) []ledger.Record {
	m.t.Helper()
	records, err := l.List(m.t.Context(), "owner")
	require.NoError(m.t, err)
	return records
}

// commit runs one transaction, and the power fails at every moment of it.
func (m *machine) commit(ordered bool, do func() error) error {
	before := m.file()
	if err := do(); err != nil {
		return err
	}
	after := m.file()
	if !ordered {
		m.crash(m.durable, after, m.allowed...)
		return nil
	}
	m.crash(m.durable, withMetas(after, before), m.allowed...)
	m.crash(withMetas(after, before), after, m.allowed...)
	m.durable = after
	return nil
}

// withMetas returns the file with the two meta pages of another one.
func withMetas(file, metas []byte) []byte {
	file = bytes.Clone(file)
	copy(file, metas[:2*os.Getpagesize()])
	return file
}

// withMeta returns the file with one meta page of another one.
func withMeta(file, other []byte, page int) []byte {
	file, at := bytes.Clone(file), page*os.Getpagesize()
	copy(file[at:at+os.Getpagesize()], other[at:])
	return file
}

// change makes one change. When it has returned, it stays.
func (m *machine) change(f func() error, after []ledger.Record) {
	m.t.Helper()
	m.allowed = [][]ledger.Record{m.list(m.l), after}
	require.NoError(m.t, f())
	require.Equal(m.t, after, m.list(m.l))
	m.crash(m.durable, m.file(), after)
}

func (m *machine) put(r ledger.Record) {
	m.t.Helper()
	after := []ledger.Record{}
	for _, old := range m.list(m.l) {
		if old.Attempt != r.Attempt {
			after = append(after, old)
		}
	}
	m.change(func() error { return m.l.Put(m.t.Context(), r) }, sorted(append(after, r)))
}

func (m *machine) remove(attempt string) {
	m.t.Helper()
	after := []ledger.Record{}
	for _, r := range m.list(m.l) {
		if r.Attempt != attempt {
			after = append(after, r)
		}
	}
	m.change(func() error { return m.l.Delete(m.t.Context(), attempt) }, after)
}

// random makes one change or another.
func (m *machine) random() {
	m.t.Helper()
	records := m.list(m.l)
	switch n := m.rnd.IntN(10); {
	case n < 3 && len(records) > 0:
		m.remove(records[m.rnd.IntN(len(records))].Attempt)
	case n < 5 && len(records) > 0:
		r := records[m.rnd.IntN(len(records))]
		r.UpdatedAt = r.UpdatedAt.Add(1)
		m.put(r)
	default:
		m.put(m.record())
	}
}

// record makes a new record, some of them larger than a page.
func (m *machine) record() ledger.Record {
	attempt := fmt.Sprintf("a%016x", m.rnd.Uint64())
	if !m.sizes {
		return ledgertest.Record("s", attempt)
	}
	r := ledgertest.Record("s", attempt+strings.Repeat("k", m.rnd.IntN(200)))
	if size := m.rnd.IntN(12_000); size > 9_000 {
		r.Manifest = []byte(`{"files":"` + strings.Repeat("x", size) + `"}`)
	}
	return r
}

// crash opens every file that a disk may hold while it goes from one to the other:
// every single piece may be written or not yet, and the file may have grown or not.
func (m *machine) crash(from, to []byte, allowed ...[]ledger.Record) {
	m.t.Helper()
	pieces := []int{}
	for at := 0; at < len(to); at += sector {
		if at >= len(from) || !bytes.Equal(from[at:at+sector], to[at:at+sector]) {
			if at < len(from) || len(bytes.Trim(to[at:at+sector], "\x00")) > 0 {
				pieces = append(pieces, at)
			}
		}
	}
	for _, chosen := range m.subsets(len(pieces)) {
		image := make([]byte, len(to))
		copy(image, from)
		for i, at := range pieces {
			if chosen(i) {
				copy(image[at:at+sector], to[at:at+sector])
			}
		}
		m.recover(image, allowed)
		if len(from) < len(to) {
			m.recover(image[:len(from)], allowed)
		}
	}
}

// subsets returns all of them when they are few, otherwise those of and without
// each single piece, and some.
func (m *machine) subsets(n int) []func(int) bool {
	out := []func(int) bool{}
	if n <= 6 {
		for set := range 1 << n {
			out = append(out, func(i int) bool { return set>>i&1 == 1 })
		}
		return out
	}
	out = append(out, func(int) bool { return false }, func(int) bool { return true })
	for one := range n {
		out = append(out, func(i int) bool { return i == one }, func(i int) bool { return i != one })
	}
	for range 12 {
		set := make([]bool, n)
		for i := range set {
			set[i] = m.rnd.IntN(2) == 1
		}
		out = append(out, func(i int) bool { return set[i] })
	}
	return out
}

// recover opens a file that a loss of power left.
func (m *machine) recover(image []byte, allowed [][]ledger.Record) {
	m.t.Helper()
	path := filepath.Join(m.images, "ledger.db")
	require.NoError(m.t, os.WriteFile(path, image, 0o600))
	// While the machine runs nothing can be missing, and nothing is changed.
	l, err := bolt.OpenUnder(m.boot, path, bolt.Options{MustExist: true}, noFlush)
	if err == nil {
		require.Contains(m.t, allowed, m.list(l))
		require.NoError(m.t, l.Close())
	} else {
		var d *bolt.DamageError
		require.ErrorAs(m.t, err, &d)
		m.damaged++
	}
	same, err := os.ReadFile(path)
	require.NoError(m.t, err)
	require.True(m.t, bytes.Equal(image, same))
	m.opened++
	l, err = bolt.OpenUnder(m.boot+" again", path, bolt.Options{MustExist: true}, noFlush)
	require.NoError(m.t, err)
	found := m.list(l)
	require.Contains(m.t, allowed, found)
	if m.rnd.IntN(8) > 0 {
		require.NoError(m.t, l.Close())
		return
	}
	// It goes on.
	require.NoError(m.t, l.Put(m.t.Context(), ledgertest.Record("s", "afterwards")))
	require.NoError(m.t, l.Put(m.t.Context(), ledgertest.Record("s", "and-again")))
	require.NoError(m.t, l.Delete(m.t.Context(), "afterwards"))
	require.NoError(m.t, bolt.Check(l))
	require.NoError(m.t, l.Close())
	data, err := os.ReadFile(path)
	require.NoError(m.t, err)
	got, err := read(data)
	require.NoError(m.t, err)
	require.Equal(m.t, sorted(append(found, ledgertest.Record("s", "and-again"))), sorted(got))
}

func noFlush(*os.File) error { return nil }

// Whenever the power fails, and whatever of the unfinished change is on disk then,
// the ledger is as before it or as after it, and goes on.
func TestPowerLoss(t *testing.T) {
	t.Parallel()
	t.Run("a new ledger", func(t *testing.T) {
		t.Parallel()
		m := newMachine(t, 1)
		m.open()
		for range 10 {
			m.random()
		}
		assert.Greater(t, m.damaged, m.opened/10, "of %d", m.opened)
	})
	t.Run("many pages", func(t *testing.T) {
		t.Parallel()
		m := newMachine(t, 2)
		m.sizes = true
		l, err := bolt.OpenUnder(m.boot, m.path, bolt.Options{}, nil)
		require.NoError(t, err)
		for range 24 {
			require.NoError(t, l.Put(t.Context(), m.record()))
		}
		require.NoError(t, l.Close())
		m.open()
		for range 4 {
			m.random()
		}
		assert.Greater(t, m.damaged, m.opened/10, "of %d", m.opened)
	})
	// A ledger with one small record is one page, which is half written at each of its
	// places: in the record, in the seal, in the version.
	t.Run("one page", func(t *testing.T) {
		t.Parallel()
		m := newMachine(t, 7)
		m.open()
		r := ledgertest.Record("s", "a")
		r.Protected, r.ProtectedNames, r.Manifest = false, nil, nil
		for i := range 90 {
			size := 6 * i // the boundary between two sectors goes through everything
			if i%2 == 1 {
				size = 560 - i
			}
			r.Ref.Data = json.RawMessage(`"` + strings.Repeat(string(rune('a'+i%26)), size) + `"`)
			m.put(r)
		}
		assert.Greater(t, m.damaged, m.opened/10, "of %d", m.opened)
	})
	t.Run("another boot", func(t *testing.T) {
		t.Parallel()
		m := newMachine(t, 3)
		m.open()
		for range 3 {
			m.random()
			m.reboot()
			m.random()
			m.random()
		}
	})
	// What a killed process wrote is not taken for what the next one writes.
	t.Run("after a kill", func(t *testing.T) {
		t.Parallel()
		m := newMachine(t, 4)
		m.open()
		for range 3 {
			m.random()
			r := m.record()
			before := m.list(m.l)
			m.kill(func() error { return m.l.Put(t.Context(), r) },
				func(before, after []byte) []byte { return withMetas(after, before) })
			require.Equal(t, before, m.list(m.l), "nothing of it is there")
			m.put(m.record())
			m.random()
			m.kill(func() error { return m.l.Delete(t.Context(), r.Attempt) },
				func(_, after []byte) []byte { return after })
			m.random()
		}
	})
	t.Run("no boot id", func(t *testing.T) {
		t.Parallel()
		m := newMachine(t, 5)
		m.boot = ""
		m.open()
		for range 4 {
			m.random()
		}
		assert.Zero(t, m.damaged)
	})
	t.Run("an old file", func(t *testing.T) {
		t.Parallel()
		m := newMachine(t, 6)
		require.NoError(t, bolt.MakeOld(m.path))
		m.open()
		for range 4 {
			m.random()
		}
		assert.Zero(t, m.damaged)
		assert.Contains(t, string(m.file()), "version1", "it stays one that an older sbxhost can open")
	})
}

// How often a change makes the disk write: once, unless the change before it is not
// known to be whole, or nothing would tell that a change is not.
func TestSyncs(t *testing.T) {
	t.Parallel()
	const twice, once = "in order", "in no order, sync"
	broken := errors.New("input/output error")
	for name, tt := range map[string]struct {
		boot string
		old  bool
		want []string
	}{
		"as always":   {"first", false, []string{twice, once, once}},
		"a new boot":  {"second", false, []string{twice, once, once, once}}, // one more says under which boot
		"no boot id":  {"", false, []string{twice, twice, twice, twice}},
		"an old file": {"first", true, []string{twice, twice, twice}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "ledger.db")
			if tt.old {
				require.NoError(t, bolt.MakeOld(path))
			}
			l, err := bolt.OpenUnder("first", path, bolt.Options{}, nil)
			require.NoError(t, err)
			require.NoError(t, l.Close())
			l, err = bolt.OpenUnder(tt.boot, path, bolt.Options{}, nil)
			require.NoError(t, err)
			var got []string
			bolt.WatchDisk(l, func(ordered bool, do func() error) error {
				if got = append(got, "in no order"); ordered {
					got[len(got)-1] = twice
				}
				return do()
			}, func(do func() error) error {
				got[len(got)-1] += ", sync"
				return do()
			})
			require.NoError(t, l.Put(t.Context(), ledgertest.Record("s", "a")))
			require.NoError(t, l.Put(t.Context(), ledgertest.Record("s", "b")))
			require.NoError(t, l.Delete(t.Context(), "a"))
			assert.Equal(t, tt.want, got)
			require.NoError(t, l.Delete(t.Context(), "a"))
			assert.Len(t, got, len(tt.want), "what changes nothing writes nothing")

			// After a failure nobody knows which pages of it are on disk.
			bolt.BreakCommits(l, func(bolt.Commit) bolt.Commit { return func(func(*bbolt.Tx) error) error { return broken } })
			require.ErrorIs(t, l.Delete(t.Context(), "b"), broken)
			got = nil
			bolt.WatchDisk(l, func(ordered bool, do func() error) error {
				assert.True(t, ordered)
				return do()
			}, nil)
			require.NoError(t, l.Delete(t.Context(), "b"))
			require.NoError(t, l.Close())
		})
	}
}

// When the sync of a change fails it is in the file and perhaps not on disk. Nothing
// may be built on it, and what is read is what a new start reads.
func TestFailedSync(t *testing.T) {
	t.Parallel()
	fails := errors.New("input/output error")
	for name, ordered := range map[string]bool{"of two": true, "the only one": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx := t.Context()
			path := filepath.Join(t.TempDir(), "ledger.db")
			l, err := bolt.OpenUnder("boot", path, bolt.Options{}, nil)
			require.NoError(t, err)
			if !ordered {
				require.NoError(t, l.Put(ctx, ledgertest.Record("s", "before")))
			}
			commits := 0
			bolt.WatchDisk(l, func(is bool, do func() error) error {
				assert.Equal(t, ordered, is)
				if commits++; ordered {
					return errors.Join(do(), fails)
				}
				return do()
			}, func(func() error) error { return fails })
			err = l.Put(ctx, ledgertest.Record("s", "a"))
			require.ErrorIs(t, err, provider.ErrUnavailable)
			require.ErrorIs(t, err, fails)
			for _, err := range []error{l.Put(ctx, ledgertest.Record("s", "b")), l.Delete(ctx, "a"), l.Put(ctx, ledgertest.Record("s", "a"))} {
				require.ErrorIs(t, err, provider.ErrUnavailable)
				require.ErrorContains(t, err, "start again")
			}
			assert.Equal(t, 1, commits, "nothing more is written")
			_, err = l.Get(ctx, "a")
			require.NoError(t, err)
			require.NoError(t, l.Close())

			_, err = bolt.OpenUnder("boot", path, bolt.Options{}, func(*os.File) error { return fails })
			require.ErrorIs(t, err, provider.ErrUnavailable, "a ledger whose content may not be on disk is not believed")
			l, err = bolt.OpenUnder("boot", path, bolt.Options{}, nil)
			require.NoError(t, err)
			_, err = l.Get(ctx, "a")
			require.NoError(t, err)
			require.NoError(t, l.Put(ctx, ledgertest.Record("s", "b")))
			require.NoError(t, l.Close())
		})
	}
}

// A system reports once that it could not write a page, shows it all the same, and
// takes it for written: what Open found of a process before is written anew, or what
// is built on it would be lost with it.
func TestFailedSyncAndAnotherStart(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	path := filepath.Join(t.TempDir(), "ledger.db")
	read := func() []byte {
		data, err := os.ReadFile(path)
		require.NoError(t, err)
		return data
	}
	l, err := bolt.OpenUnder("first", path, bolt.Options{}, nil)
	require.NoError(t, err)
	for i := range 40 {
		require.NoError(t, l.Put(ctx, ledgertest.Record("s", fmt.Sprintf("b%02d", i))))
	}
	durable := read()
	bolt.WatchDisk(l, func(_ bool, do func() error) error { return do() }, func(func() error) error { return errors.New("input/output error") })
	require.Error(t, l.Put(ctx, ledgertest.Record("s", "a"))) // of which nothing is on disk
	require.NoError(t, l.Close())

	image := make([]byte, len(read()))
	copy(image, durable)
	changed := time.Now().Add(-time.Hour).Truncate(time.Second)
	require.NoError(t, os.Chtimes(path, changed, changed))
	l, err = bolt.OpenSeen("first", path, func(b []byte, at int64) { copy(image[at:], b) })
	require.NoError(t, err)
	info, err := os.Stat(path)
	require.NoError(t, err)
	assert.Equal(t, changed, info.ModTime(), "to open it is no change")
	before := read()
	want := ledgertest.Record("s", "c")
	require.NoError(t, l.Put(ctx, want))
	require.NoError(t, l.Close())
	after := read()
	image = append(image, make([]byte, max(0, len(after)-len(image)))...)
	for at := 0; at < len(after); at += sector {
		if at >= len(before) || !bytes.Equal(before[at:at+sector], after[at:at+sector]) {
			copy(image[at:at+sector], after[at:at+sector])
		}
	}
	require.NoError(t, os.WriteFile(path, image, 0o600))
	l, err = bolt.OpenUnder("second", path, bolt.Options{MustExist: true}, nil)
	require.NoError(t, err)
	list, err := l.List(ctx, want.Owner)
	require.NoError(t, err)
	assert.Len(t, list, 42)
	require.NoError(t, bolt.Check(l))
	require.NoError(t, l.Close())
}

// So it is where no boot is known.
func TestRewritesAnOldFile(t *testing.T) {
	t.Parallel()
	for name, boot := range map[string]string{"a boot": "first", "none": ""} {
		path := filepath.Join(t.TempDir(), "ledger.db")
		require.NoError(t, bolt.MakeOld(path))
		data, err := os.ReadFile(path)
		require.NoError(t, err)
		image := make([]byte, len(data))
		l, err := bolt.OpenSeen(boot, path, func(b []byte, at int64) { copy(image[at:], b) })
		require.NoError(t, err)
		require.NoError(t, l.Close())
		got, err := read(image)
		require.NoError(t, err, name)
		assert.Empty(t, got)
	}
}

// What is taken back is said before anything is done about it.
func TestTakenBackIsSaid(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "ledger.db")
	l, err := bolt.OpenUnder("first", path, bolt.Options{}, nil)
	require.NoError(t, err)
	for _, a := range []string{"a", "b", "c"} {
		require.NoError(t, l.Put(t.Context(), ledgertest.Record("s", a)))
	}
	require.NoError(t, l.Close())
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, bytes.ReplaceAll(data, []byte(`"id-c"`), []byte(`"id-?"`)), 0o600))
	var log bytes.Buffer
	o := bolt.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))}
	_, err = bolt.OpenUnder("second", path, o, func(*os.File) error { return errors.New("input/output error") })
	require.ErrorIs(t, err, provider.ErrUnavailable)
	assert.Contains(t, log.String(), "level=WARN")
	assert.Contains(t, log.String(), "is taken back")
	l, err = bolt.OpenUnder("second", path, o, nil)
	require.NoError(t, err)
	list, err := l.List(t.Context(), "owner")
	require.NoError(t, err)
	assert.Len(t, list, 2)
	require.NoError(t, l.Close())
}

// Damage is taken for an unfinished change only in the newest change, and only when
// the machine has started since.
func TestGoesBackOnlyOneChange(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	path := filepath.Join(t.TempDir(), "ledger.db")
	l, err := bolt.OpenUnder("first", path, bolt.Options{}, nil)
	require.NoError(t, err)
	var files [][]byte
	for _, a := range []string{"a", "b", "c", "d"} {
		require.NoError(t, l.Put(ctx, ledgertest.Record("s", a)))
		data, err := os.ReadFile(path)
		require.NoError(t, err)
		files = append(files, data)
	}
	require.NoError(t, l.Close())
	l, err = bolt.OpenUnder("second", path, bolt.Options{}, nil)
	require.NoError(t, err)
	require.NoError(t, l.Put(ctx, ledgertest.Record("s", "e")))
	require.NoError(t, l.Close())
	rebooted, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, bolt.MakeNewer(path))
	newer, err := os.ReadFile(path)
	require.NoError(t, err)
	// damage spoils a record wherever the file has it.
	damage := func(data []byte, attempt string) []byte {
		return bytes.ReplaceAll(data, []byte(`"id-`+attempt+`"`), []byte(`"id-?"`))
	}
	for name, tt := range map[string]struct {
		file []byte
		boot string
		want []string // nil: it is refused
	}{
		"the newest record":              {damage(files[3], "d"), "second", []string{"a", "b", "c"}},
		"under the same boot":            {damage(files[3], "d"), "first", nil},
		"under an unknown boot":          {damage(files[3], "d"), "", nil},
		"a record of both changes":       {damage(files[3], "a"), "second", nil},
		"the change before it":           {damage(files[3], "c"), "second", nil},
		"the newest of three":            {damage(files[2], "c"), "second", []string{"a", "b"}},
		"the change before is used anew": {damage(withMetas(files[3], files[2]), "c"), "second", nil},
		"the first after a boot":         {damage(rebooted, "e"), "second", nil},
		"the first before a boot":        {damage(rebooted, "e"), "third", []string{"a", "b", "c", "d"}},
		"several changes are lost":       {withMeta(files[0], files[3], 0), "second", nil},
		"a newer version":                {newer, "third", nil},
		"a page that is not used yet":    {withMetas(files[3], files[2]), "second", []string{"a", "b", "c"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "ledger.db")
			require.NoError(t, os.WriteFile(path, tt.file, 0o600))
			var log bytes.Buffer
			l, err := bolt.OpenUnder(tt.boot, path, bolt.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))}, nil)
			if tt.want == nil {
				if name == "a newer version" {
					require.ErrorIs(t, err, provider.ErrUnsupported)
				} else {
					require.ErrorIs(t, err, provider.ErrInternal)
				}
				after, err := os.ReadFile(path)
				require.NoError(t, err)
				require.Equal(t, tt.file, after)
				require.Empty(t, log.String())
				return
			}
			require.NoError(t, err)
			records, err := l.List(ctx, "owner")
			require.NoError(t, err)
			got := []string{}
			for _, r := range records {
				got = append(got, r.Attempt)
			}
			require.Equal(t, tt.want, got)
			require.NoError(t, l.Close())
			if !strings.HasPrefix(name, "a page") {
				require.Contains(t, log.String(), "level=WARN")
				require.Contains(t, log.String(), path)
				require.NotContains(t, log.String(), "HOST_TOKEN")
			} else {
				require.Empty(t, log.String())
			}
			data, err := os.ReadFile(path)
			require.NoError(t, err)
			_, err = read(data)
			require.NoError(t, err, "it is whole")
		})
	}
}

// A change that is half on the disk is no newer version, whatever digit is where its
// version belongs: its seal says whose it is, also when the records are not all there.
func TestTornVersion(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "ledger.db")
	l, err := bolt.OpenUnder("first", path, bolt.Options{}, nil)
	require.NoError(t, err)
	var before []byte
	for _, a := range []string{"a", "b", "c"} {
		before, _ = os.ReadFile(path)
		require.NoError(t, l.Put(t.Context(), ledgertest.Record("s", a)))
	}
	require.NoError(t, l.Close())
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	torn := bytes.Clone(data)
	for at := 0; at < len(torn); at += os.Getpagesize() { // only in pages of the newest change
		page := torn[at : at+os.Getpagesize()]
		if at >= len(before) || !bytes.Equal(page, before[at:at+len(page)]) {
			copy(page, bytes.ReplaceAll(page, []byte("version2"), []byte("version7")))
			copy(page, bytes.ReplaceAll(page, []byte(`"id-c"`), []byte(`"id-?"`)))
		}
	}
	require.NotEqual(t, data, torn)
	for boot, want := range map[string]int{"second": 2, "first": -1} {
		require.NoError(t, os.WriteFile(path, torn, 0o600))
		l, err := bolt.OpenUnder(boot, path, bolt.Options{}, nil)
		if want < 0 {
			require.ErrorIs(t, err, provider.ErrInternal)
			continue
		}
		require.NoError(t, err)
		list, err := l.List(t.Context(), "owner")
		require.NoError(t, err)
		assert.Len(t, list, want)
		require.NoError(t, l.Close())
	}
}
