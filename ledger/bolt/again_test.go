package bolt_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sbxhost/sbxhost/ledger"
	"github.com/sbxhost/sbxhost/ledger/bolt"
)

var errPower = errors.New("the power fails here")

// One file through many losses of power, kills and failed flushes, each beginning with
// what the one before left: whatever is in it then is what was there before the change
// that did not return, or after it.
func TestPowerLossAgain(t *testing.T) {
	t.Parallel()
	for seed := range uint64(16) {
		m := newMachine(t, seed)
		m.sizes, m.path = seed%2 == 0, filepath.Join(m.images, "ledger.db") // no disk has to keep up
		l, err := bolt.OpenUnder(m.boot, m.path, bolt.Options{}, nil)
		require.NoError(t, err)
		require.NoError(t, l.Close())
		m.durable, m.allowed = m.file(), [][]ledger.Record{{}}
		for round := range 25 {
			if m.life() {
				m.lose()
				m.boot = fmt.Sprint("after ", round)
			}
		}
	}
}

// life opens the ledger, unless that fails, and makes a few changes, of which the last
// may not come to an end. It reports whether the machine loses its power then.
func (m *machine) life() bool {
	m.t.Helper()
	fails := m.rnd.IntN(6) == 0
	l, err := bolt.OpenUnder(m.boot, m.path, bolt.Options{MustExist: true}, func(*os.File) error {
		if fails {
			return errPower
		}
		m.durable = m.file()
		return nil
	})
	if fails {
		require.ErrorIs(m.t, err, errPower)
		return m.rnd.IntN(2) == 0
	}
	require.NoError(m.t, err)
	records := m.list(l)
	require.Contains(m.t, m.allowed, records)
	if err := bolt.Check(l); err != nil { // a list of free pages that is older than its change only lacks some
		for line := range strings.Lines(err.Error()) {
			require.Contains(m.t, line, "unreachable unfreed")
		}
	}
	for left := m.rnd.IntN(5); left > 0; left-- {
		cut := m.rnd.IntN(12) // where the change ends: at 3 and above, nowhere
		var image []byte
		bolt.WatchDisk(l, func(ordered bool, do func() error) error {
			before := m.file()
			require.NoError(m.t, do())
			after := m.file()
			pages := withMetas(after, before)
			switch {
			case cut == 0:
				image = pages
			case cut < 3 && ordered:
				m.durable = pages
				image = [][]byte{pages, after}[cut-1]
			case cut < 3:
				image = after
			case ordered:
				m.durable = after
			}
			if image != nil {
				return errPower
			}
			return nil
		}, func(func() error) error { m.durable = m.file(); return nil })
		next, change := m.any(l, records)
		err := change()
		if image != nil {
			require.ErrorIs(m.t, err, errPower)
			m.allowed = [][]ledger.Record{records, next}
			require.NoError(m.t, l.Close())
			require.NoError(m.t, os.WriteFile(m.path, image, 0o600))
			return m.rnd.IntN(3) > 0
		}
		require.NoError(m.t, err)
		records = next
	}
	m.allowed = [][]ledger.Record{records}
	require.NoError(m.t, l.Close())
	return m.rnd.IntN(2) == 0
}

// any chooses a change, and says what is there after it.
func (m *machine) any(l ledger.Ledger, records []ledger.Record) ([]ledger.Record, func() error) {
	next := append([]ledger.Record{}, records...)
	if len(records) > 0 && m.rnd.IntN(2) == 0 {
		k := m.rnd.IntN(len(records))
		r := records[k]
		if m.rnd.IntN(2) == 0 {
			return slices.Delete(next, k, k+1), func() error { return l.Delete(m.t.Context(), r.Attempt) }
		}
		r.UpdatedAt = r.UpdatedAt.Add(1)
		next[k] = r
		return next, func() error { return l.Put(m.t.Context(), r) }
	}
	r := m.record()
	return sorted(append(next, r)), func() error { return l.Put(m.t.Context(), r) }
}

// lose leaves of what is not durable a part, of the pages that count or of the others
// mostly.
func (m *machine) lose() {
	m.t.Helper()
	cache := m.file()
	image := bytes.Clone(m.durable)
	if len(cache) > len(image) && m.rnd.IntN(2) == 0 {
		image = append(image, make([]byte, len(cache)-len(image))...)
	}
	metas, pages := 1+m.rnd.IntN(7), 1+m.rnd.IntN(7) // in eighths
	for at := 0; at+sector <= min(len(image), len(cache)); at += sector {
		often := pages
		if at < 2*os.Getpagesize() {
			often = metas
		}
		if m.rnd.IntN(8) < often {
			copy(image[at:at+sector], cache[at:])
		}
	}
	require.NoError(m.t, os.WriteFile(m.path, image, 0o600))
	m.durable = image
}
