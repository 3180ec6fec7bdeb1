package snapshot_test

import (
	"bytes"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sbxhost/sbxhost/plugin/internal/snapshot"
)

const osPage = 4 << 10

// use runs fn as a module's call would be run.
func use(m *snapshot.Memory, fn func()) {
	m.Enter()
	defer m.Leave()
	fn()
}

// sure runs fn until a use is known without a look. Once in a while a thread faults
// on something else meanwhile: its own stack, or code that was taken out of memory.
func sure(t *testing.T, m *snapshot.Memory, fn func(), msg string) {
	t.Helper()
	for range 20 {
		use(m, fn)
		if m.Sure() {
			return
		}
		require.NoError(t, m.Reset())
	}
	assert.Fail(t, "every use needed a look", msg)
}

func newMemory(t *testing.T, src []byte) (*snapshot.Memory, []byte) {
	t.Helper()
	img, err := snapshot.NewImage(src)
	require.NoError(t, err)
	a := &snapshot.Allocator{Image: img}
	lin := a.Allocate(0, uint64(2*len(src)))
	t.Cleanup(func() {
		lin.Free()
		require.NoError(t, img.Close())
	})
	return a.Memory, lin.Reallocate(page)
}

// Every way to write, watched and not, in every order that matters: what a reset
// knows about the use before must never make it leave out a page.
func TestResetAfterEveryKindOfUse(t *testing.T) {
	t.Parallel()
	src := source(40 * page)
	pages := len(src) / osPage
	stride := func(k, off int) func([]byte) {
		return func(mem []byte) {
			for p := 0; p < pages; p += k {
				mem[p*osPage+(off+p)%osPage]++
			}
		}
	}
	uses := map[string]func(mem []byte){
		"nothing":          func([]byte) {},
		"first byte":       func(mem []byte) { mem[0]++ },
		"last byte":        func(mem []byte) { mem[len(mem)-1]++ },
		"every page":       stride(1, 0),
		"every 2nd page":   stride(2, 17),
		"every 7th page":   stride(7, osPage-1),
		"every 160th page": stride(160, 1),
		"read everything": func(mem []byte) {
			require.True(t, bytes.Equal(src, mem))
		},
		"same bytes again": func(mem []byte) { copy(mem[100*osPage:], src[100*osPage:110*osPage]) },
		"one page, then it as it was": func(mem []byte) {
			mem[200*osPage]++
			mem[200*osPage]--
		},
		"across a border":     func(mem []byte) { copy(mem[300*osPage-8:], "sixteen bytes of it") },
		"read, then write it": func(mem []byte) { mem[301*osPage] = mem[301*osPage] + 1 },
		"on another thread": func(mem []byte) {
			var wg sync.WaitGroup
			wg.Go(func() { mem[302*osPage]++ })
			wg.Wait()
		},
	}
	names := make([]string, 0, len(uses))
	for name := range uses {
		names = append(names, name)
	}
	slices.Sort(names)
	m, mem := newMemory(t, src)
	for _, first := range names {
		for _, second := range names {
			for range 2 {
				for _, name := range []string{first, second} {
					if name == "on another thread" {
						// As a host function that waits has to do.
						m.Enter()
						m.Loose()
						uses[name](mem)
						m.Leave()
					} else {
						use(m, func() { uses[name](mem) })
					}
					require.NoError(t, m.Reset())
					require.True(t, bytes.Equal(src, mem), "%s after %s", second, first)
				}
			}
		}
		for range 6 { // until all pages are given back
			require.NoError(t, m.Reset())
		}
		if first == "last byte" {
			require.NoError(t, m.Trim())
		}
	}
}

// A use that touches what the ones before touched costs no look at the page
// tables, and one that touches more is found out.
func TestResetKnows(t *testing.T) {
	t.Parallel()
	if !snapshot.Aware() {
		t.Log("this kernel does not tell; every reset looks")
		return
	}
	src := source(16 * page)
	m, mem := newMemory(t, src)
	write := func(pages ...int) func() {
		return func() {
			for _, p := range pages {
				mem[p*osPage]++
			}
		}
	}
	reset := func() {
		t.Helper()
		require.NoError(t, m.Reset())
		require.True(t, bytes.Equal(src, mem))
	}
	assert.False(t, m.Sure(), "nothing is known at first")
	use(m, write(3, 4, 9))
	assert.False(t, m.Sure())
	reset()
	assert.True(t, m.Hot())
	sure(t, m, write(4, 3), "no new page")
	reset()
	assert.False(t, m.Sure(), "a reset answers for one use only")
	write(9)()
	assert.False(t, m.Sure(), "nobody watched")
	reset()
	use(m, write(10))
	assert.False(t, m.Sure(), "a new page")
	reset()
	sure(t, m, write(10, 3), "no new page")
	reset()
	require.NoError(t, m.Trim())
	assert.False(t, m.Hot())
	sure(t, m, func() {}, "nothing is private and nothing happened")
	reset()
	use(m, write(3))
	assert.False(t, m.Sure(), "its private copy was given back")
	reset()
	m.Enter()
	m.Loose()
	m.Leave()
	assert.False(t, m.Sure(), "it may have been elsewhere meanwhile")
	reset()
}

// One use that touches very much must not stay in memory, nor cost the small ones
// after it.
func TestUnusedPagesAreGivenBack(t *testing.T) {
	t.Parallel()
	if !snapshot.Aware() {
		t.Log("this kernel does not tell; every reset gives back all")
		return
	}
	src := source(100 * page)
	m, mem := newMemory(t, src)
	private := func() int {
		list, ok := snapshot.PrivatePages(m, false)
		require.True(t, ok)
		return len(list)
	}
	for p := range 300 {
		mem[p*osPage]++
	}
	require.NoError(t, m.Reset())
	assert.Equal(t, 300, private())
	for range 6 {
		use(m, func() { mem[7*osPage]++ })
		require.NoError(t, m.Reset())
	}
	assert.Equal(t, 1, private())
	sure(t, m, func() { mem[7*osPage]++ }, "no new page")
	use(m, func() { mem[8*osPage]++ })
	assert.False(t, m.Sure(), "given back, so writing it is noticed")
	require.NoError(t, m.Reset())
	require.True(t, bytes.Equal(src, mem))
	for p := range 1500 { // more than is kept
		mem[p*osPage]++
	}
	require.NoError(t, m.Reset())
	assert.Zero(t, private())
	require.True(t, bytes.Equal(src, mem))
}

// Pages that are written with what they hold look unused. They must not be given
// back over and over.
func TestRewrittenPagesStay(t *testing.T) {
	t.Parallel()
	if !snapshot.Aware() {
		t.Log("this kernel does not tell; every reset looks")
		return
	}
	src := source(4 * page)
	m, mem := newMemory(t, src)
	cheap := 0
	for range 30_000 {
		use(m, func() {
			mem[0]++
			mem[0]--
			mem[osPage]++
		})
		if m.Sure() {
			cheap++
		}
		require.NoError(t, m.Reset())
	}
	require.True(t, bytes.Equal(src, mem))
	assert.Greater(t, cheap, 30_000-30)
}

// Both ways to ask the kernel give the same answer, for ranges of every kind.
func TestKernelTellsPrivatePages(t *testing.T) {
	t.Parallel()
	m, mem := newMemory(t, source(64*page))
	var want []int
	for p := 0; p < len(mem)/osPage; p++ {
		switch {
		case p%5 == 0, p > 400 && p < 700, p == len(mem)/osPage-1:
			mem[p*osPage+p]++
			want = append(want, p)
		case p%3 == 0:
			_ = mem[p*osPage]
		}
	}
	asked := 0
	for _, scan := range []bool{false, true} {
		if got, ok := snapshot.PrivatePages(m, scan); ok {
			asked++
			assert.Equal(t, want, got)
		}
	}
	t.Logf("%d ways to ask", asked)
}

func BenchmarkReset(b *testing.B) {
	for _, bm := range []struct {
		name  string
		write int
		watch bool
	}{{"10 pages", 10, true}, {"10 pages, looking", 10, false}, {"64 pages", 64, true}, {"500 pages", 500, true}, {"500 pages, looking", 500, false}} {
		b.Run(bm.name, func(b *testing.B) {
			src := source(52 * page)
			img, err := snapshot.NewImage(src)
			require.NoError(b, err)
			a := &snapshot.Allocator{Image: img}
			lin := a.Allocate(0, uint64(len(src)))
			mem, m := lin.Reallocate(page), a.Memory
			require.True(b, bytes.Equal(src, mem))
			for b.Loop() {
				if bm.watch {
					m.Enter()
				}
				for p := range bm.write {
					mem[p*osPage]++
				}
				m.Leave()
				require.NoError(b, m.Reset())
			}
			lin.Free()
			require.NoError(b, img.Close())
		})
	}
}
