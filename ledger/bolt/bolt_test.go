package bolt_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
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

// pathVariable makes the test binary a second process that wants the ledger.
const pathVariable = "SBXHOST_TEST_LEDGER"

func TestMain(m *testing.M) {
	if path := os.Getenv(pathVariable); path != "" {
		_, err := bolt.Open(path, bolt.Options{Wait: -1})
		fmt.Println(err)
		return
	}
	os.Exit(m.Run())
}

func open(t *testing.T, path string) ledger.Ledger {
	t.Helper()
	l, err := bolt.Open(path, bolt.Options{})
	require.NoError(t, err)
	return l
}

func TestContract(t *testing.T) {
	t.Parallel()
	dir, n := t.TempDir(), 0
	ledgertest.Run(t, func() ledger.Ledger {
		n++
		l, err := bolt.Open(filepath.Join(dir, fmt.Sprint(n, ".db")), bolt.Options{})
		if err != nil {
			panic(err) // the kit has no better way
		}
		return l
	})
}

// fill puts n records, some of them large, and takes some away again.
func fill(t *testing.T, l ledger.Ledger, n int) {
	t.Helper()
	for i := range n {
		r := ledgertest.Record(fmt.Sprintf("s%d", i%7), fmt.Sprintf("a%03d", i))
		if i%10 == 3 {
			r.Manifest = []byte(`{"files":"` + strings.Repeat("x", 9000) + `"}`)
		}
		require.NoError(t, l.Put(t.Context(), r))
		if i%5 == 4 {
			require.NoError(t, l.Delete(t.Context(), fmt.Sprintf("a%03d", i-2)))
		}
	}
}

func TestKeeps(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "ledger.db")
	l := open(t, path)
	fill(t, l, 60)
	want, err := l.List(t.Context(), "owner")
	require.NoError(t, err)
	require.Len(t, want, 48)
	require.NoError(t, l.Close())
	info, err := os.Stat(path)
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o600), info.Mode().Perm())

	require.NoError(t, os.Chmod(path, 0o644))
	l = open(t, path)
	got, err := l.List(t.Context(), "owner")
	require.NoError(t, err)
	assert.Equal(t, want, got)
	one, err := l.Session(t.Context(), "s1")
	require.NoError(t, err)
	assert.NotEmpty(t, one)
	info, err = os.Stat(path)
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o600), info.Mode().Perm(), "a ledger that others could read is closed to them")
	fill(t, l, 60)
	require.NoError(t, l.Close())
	left, err := os.ReadDir(filepath.Dir(path))
	require.NoError(t, err)
	assert.Len(t, left, 1, "nothing beside the ledger is left")
}

func TestMustExist(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "ledger.db")
	_, err := bolt.Open(path, bolt.Options{MustExist: true})
	require.ErrorIs(t, err, provider.ErrNotFound)
	assert.NoFileExists(t, path)
	_, err = bolt.Open(filepath.Join(path, "no", "such"), bolt.Options{})
	require.ErrorIs(t, err, provider.ErrFailedPrecondition)
	_, err = bolt.Open(t.TempDir(), bolt.Options{})
	require.ErrorIs(t, err, provider.ErrFailedPrecondition)
}

// A version that does not fit what is sealed is damage and no newer version, which a
// user would look for in vain.
func TestDamagedVersion(t *testing.T) {
	t.Parallel()
	data, _ := sample(t)
	for _, v := range []string{"7", "\x00", "x", "0"} {
		_, err := read(bytes.ReplaceAll(data, []byte("version2"), []byte("version"+v)))
		var d *bolt.DamageError
		require.ErrorAs(t, err, &d, "%q", v)
		assert.Equal(t, "the file", d.Where)
	}
}

// A ledger that goes while it is being opened is absent like any other.
func TestGoesMeanwhile(t *testing.T) {
	t.Parallel()
	err := bolt.OpenGone(filepath.Join(t.TempDir(), "ledger.db"))
	assert.Equal(t, provider.NotFound, provider.CodeOf(err), err)
}

// One process at a time; the second one is told who has it. It is not parallel to
// other tests: a process that is being started has their files, and with them their
// locks, until it runs its own program.
func TestInUse(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ledger.db")
	l := open(t, path)
	require.NoError(t, l.Put(t.Context(), ledgertest.Record("s", "a")))

	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), pathVariable+"="+path)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err)
	assert.Contains(t, string(out), path+" is in use by")
	assert.Contains(t, string(out), fmt.Sprint("process ", os.Getpid()), "this process has it")

	_, err = bolt.Open(path, bolt.Options{Wait: -1})
	var used *bolt.InUseError
	require.ErrorAs(t, err, &used)
	require.ErrorIs(t, err, provider.ErrUnavailable)
	assert.Equal(t, provider.Unavailable, provider.CodeOf(err))

	// Waiting for it helps when the other one ends.
	got := make(chan error, 1)
	go func() {
		l, err := bolt.Open(path, bolt.Options{Wait: time.Minute})
		if err == nil {
			err = l.Close()
		}
		got <- err
	}()
	require.NoError(t, l.Close())
	require.NoError(t, <-got)
}

// sample returns the bytes of a ledger with records, and these.
func sample(t testing.TB) ([]byte, []ledger.Record) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "ledger.db")
	l, err := bolt.Open(path, bolt.Options{})
	require.NoError(t, err)
	for i := range 12 {
		r := ledgertest.Record("s", fmt.Sprintf("a%02d", i))
		if i == 7 {
			r.Manifest = []byte(`{"files":"` + strings.Repeat("x", 9000) + `"}`)
		}
		require.NoError(t, l.Put(t.Context(), r))
	}
	require.NoError(t, l.Delete(t.Context(), "a03"))
	records, err := l.List(t.Context(), "owner")
	require.NoError(t, err)
	require.NoError(t, l.Close())
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	return data, records
}

func read(data []byte) ([]ledger.Record, error) {
	got, err := bolt.ReadFile(bytes.NewReader(data), int64(len(data)))
	return sorted(got), err
}

func sorted(records []ledger.Record) []ledger.Record {
	slices.SortFunc(records, func(a, b ledger.Record) int { return strings.Compare(a.Attempt, b.Attempt) })
	return records
}

// Cut short anywhere, to nothing included, a ledger is damaged, and Open says so
// instead of beginning a new one.
func TestTruncated(t *testing.T) {
	t.Parallel()
	data, records := sample(t)
	dir := t.TempDir()
	whole := 0
	for n := 0; n < len(data); n += 512 {
		path := filepath.Join(dir, fmt.Sprint(n))
		require.NoError(t, os.WriteFile(path, data[:n], 0o600))
		l, err := bolt.Open(path, bolt.Options{})
		if err == nil {
			// The end of the file may be room that was never used.
			got, lerr := l.List(t.Context(), "owner")
			require.NoError(t, lerr)
			require.Equal(t, records, got, "cut at %d of %d", n, len(data))
			require.NoError(t, l.Close())
			whole++
			continue
		}
		var d *bolt.DamageError
		require.ErrorAs(t, err, &d, "cut at %d of %d", n, len(data))
		require.Equal(t, path, d.Path)
		require.NotEmpty(t, d.Where)
		require.ErrorIs(t, err, provider.ErrInternal)
		after, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, data[:n], after, "a damaged ledger is not changed")
	}
	assert.Less(t, whole, len(data)/512/2)
}

// Whatever single bit of the file is wrong, the records are right or the file is
// refused.
func TestFlippedBits(t *testing.T) {
	t.Parallel()
	data, records := sample(t)
	refused := 0
	for i := range data {
		// Every byte of what gives the pages their structure, some of the rest.
		if i%4096 > 64 && i%97 != 0 {
			continue
		}
		data[i] ^= 1 << (i % 8)
		got, err := read(data)
		data[i] ^= 1 << (i % 8)
		if err != nil {
			refused++
			continue
		}
		if !reflect.DeepEqual(records, got) {
			require.Equal(t, records, got, "byte %d", i)
		}
	}
	assert.Greater(t, refused, 300)
}

// What the check lets pass is also what bbolt itself can read and write.
func TestDamagedPagesAreNamed(t *testing.T) {
	t.Parallel()
	data, _ := sample(t)
	at := bytes.Index(data, []byte(`"attempt":"a05"`))
	require.Positive(t, at)
	for name, tt := range map[string]struct {
		change func([]byte)
		want   string
	}{
		"a record's field":    {func(b []byte) { b[bytes.LastIndex(b, []byte(`"attempt":"a05"`))+12] = 'b' }, `the record "a05": its checksum is wrong`},
		"the first meta page": {func(b []byte) { b[40]++ }, "page 0: its checksum is wrong"},
		"the magic":           {func(b []byte) { b[16]++ }, "page 0: this is no ledger"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := bytes.Clone(data)
			tt.change(b)
			path := filepath.Join(t.TempDir(), "ledger.db")
			require.NoError(t, os.WriteFile(path, b, 0o600))
			_, err := bolt.Open(path, bolt.Options{})
			require.ErrorContains(t, err, tt.want)
			require.ErrorContains(t, err, path)
			require.ErrorContains(t, err, "restore it from a copy")
			require.NotContains(t, err.Error(), "HOST_TOKEN")
			// It is not held either.
			require.NoError(t, os.WriteFile(path, data, 0o600))
			l, err := bolt.Open(path, bolt.Options{Wait: -1})
			require.NoError(t, err)
			require.NoError(t, l.Close())
		})
	}
}

// A change that fails is either in the file or not, and memory agrees with the
// file: the changes after it are sealed as they are.
func TestFailedCommit(t *testing.T) {
	t.Parallel()
	broken := errors.New("input/output error")
	for name, tt := range map[string]struct {
		with func(bolt.Commit) bolt.Commit
	}{
		"before anything is written": {func(bolt.Commit) bolt.Commit {
			return func(func(*bbolt.Tx) error) error { return broken }
		}},
		"in its midst": {func(c bolt.Commit) bolt.Commit {
			return func(f func(*bbolt.Tx) error) error {
				return c(func(tx *bbolt.Tx) error { return errors.Join(f(tx), broken) })
			}
		}},
		"in a panic": {func(c bolt.Commit) bolt.Commit {
			return func(f func(*bbolt.Tx) error) error {
				return c(func(tx *bbolt.Tx) error { _ = f(tx); panic("a page is wrong") })
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx := t.Context()
			path := filepath.Join(t.TempDir(), "ledger.db")
			l := open(t, path)
			require.NoError(t, l.Put(ctx, ledgertest.Record("s", "old")))
			require.NoError(t, l.Put(ctx, ledgertest.Record("s", "goes")))
			bolt.BreakCommits(l, tt.with)
			require.Error(t, l.Put(ctx, ledgertest.Record("s", "new")))
			require.Error(t, l.Delete(ctx, "goes"))
			bolt.BreakCommits(l, nil)
			attempts := func(l ledger.Ledger) []string {
				records, err := l.List(ctx, "owner")
				require.NoError(t, err)
				out := []string{}
				for _, r := range records {
					out = append(out, r.Attempt)
				}
				slices.Sort(out)
				return out
			}
			assert.Equal(t, []string{"goes", "old"}, attempts(l))
			// It goes on.
			require.NoError(t, l.Put(ctx, ledgertest.Record("s", "after")))
			require.NoError(t, l.Put(ctx, ledgertest.Record("s", "new")))
			require.NoError(t, l.Delete(ctx, "goes"))
			require.NoError(t, l.Close())
			l = open(t, path)
			assert.Equal(t, []string{"after", "new", "old"}, attempts(l))
			require.NoError(t, l.Close())
		})
	}
	t.Run("half-way is the end", func(t *testing.T) {
		t.Parallel()
		path := filepath.Join(t.TempDir(), "ledger.db")
		l := open(t, path)
		require.NoError(t, l.Put(t.Context(), ledgertest.Record("s", "old")))
		bolt.BreakCommits(l, func(c bolt.Commit) bolt.Commit {
			return func(func(*bbolt.Tx) error) error {
				return errors.Join(broken, c(func(tx *bbolt.Tx) error { return tx.DeleteBucket([]byte("sbxhost.ledger")) }))
			}
		})
		require.Error(t, l.Put(t.Context(), ledgertest.Record("s", "new")))
		bolt.BreakCommits(l, nil)
		var d *bolt.DamageError
		require.ErrorAs(t, l.Put(t.Context(), ledgertest.Record("s", "new")), &d)
		require.ErrorAs(t, l.Delete(t.Context(), "old"), &d)
		require.Equal(t, path, d.Path)
		require.NoError(t, l.Close())
		_, err := bolt.Open(path, bolt.Options{})
		require.ErrorAs(t, err, &d)
	})
}

func TestDecode(t *testing.T) {
	t.Parallel()
	good, err := bolt.Encode(ledgertest.Record("s", "a"))
	require.NoError(t, err)
	r, err := bolt.Decode("a", good)
	require.NoError(t, err)
	require.Equal(t, ledgertest.Record("s", "a"), r)
	_, err = bolt.Decode("b", good)
	require.ErrorContains(t, err, "checksum")
	_, err = bolt.Decode("a", bolt.Newer("a", good))
	require.ErrorIs(t, err, provider.ErrUnsupported)
	flipped := bytes.Clone(good)
	flipped[0]++
	_, err = bolt.Decode("a", flipped)
	require.ErrorContains(t, err, "checksum", "what is damaged is not called newer")
	for n := range good {
		_, err := bolt.Decode("a", good[:n])
		require.Error(t, err)
	}
}

func FuzzDecode(f *testing.F) {
	good, err := bolt.Encode(ledgertest.Record("s", "a"))
	require.NoError(f, err)
	f.Add("a", good)
	f.Add("b", good)
	f.Add("", []byte{})
	f.Add("a", []byte{1})
	f.Add("a", append(good, '\n'))
	f.Fuzz(func(t *testing.T, key string, value []byte) {
		r, err := bolt.Decode(key, value)
		if err != nil {
			return
		}
		require.Equal(t, key, r.Attempt)
		again, err := bolt.Encode(r)
		require.NoError(t, err)
		back, err := bolt.Decode(key, again)
		require.NoError(t, err)
		require.Equal(t, r, back)
	})
}

// FuzzFile damages a real file in one place: it is refused, or its records are
// unharmed.
func FuzzFile(f *testing.F) {
	data, records := sample(f)
	f.Add(0, []byte{})
	f.Add(4096, []byte{1, 2, 3, 4})
	f.Add(len(data), []byte{0})
	f.Add(3*4096+8, []byte{0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, at int, with []byte) {
		if at < 0 || at > len(data) {
			return
		}
		b := bytes.Clone(data)
		if len(with) == 0 {
			b = b[:at]
		} else {
			copy(b[at:], with)
		}
		if got, err := read(b); err == nil {
			require.Equal(t, records, got)
		}
	})
}

// What one durable change costs on this disk.
func BenchmarkPut(b *testing.B) {
	l, err := bolt.Open(filepath.Join(b.TempDir(), "ledger.db"), bolt.Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	r := ledgertest.Record("s", "a")
	for b.Loop() {
		if err := l.Put(b.Context(), r); err != nil {
			b.Fatal(err)
		}
	}
}
