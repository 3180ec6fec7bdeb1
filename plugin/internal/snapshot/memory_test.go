package snapshot_test

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sbxhost/sbxhost/plugin/internal/snapshot"
)

const page = 64 << 10

func source(n int) []byte {
	b := make([]byte, n)
	r := rand.New(rand.NewPCG(1, 1))
	for i := range n / 2 { // the other half stays zero
		b[i] = byte(r.Uint32())
	}
	return b
}

func TestResetRestoresEveryByte(t *testing.T) {
	t.Parallel()
	if !snapshot.Supported {
		t.Skip("no images on this system")
	}
	src := source(64 * page)
	img, err := snapshot.NewImage(src)
	require.NoError(t, err)
	defer func() { require.NoError(t, img.Close()) }()
	a := &snapshot.Allocator{Image: img}
	b := &snapshot.Allocator{Image: img}
	am, bm := a.Allocate(0, 128*page), b.Allocate(0, 128*page)
	defer am.Free()
	defer bm.Free()
	mem, other := am.Reallocate(page), bm.Reallocate(page)
	require.Len(t, mem, len(src), "the image's size, although less was asked for")
	require.True(t, bytes.Equal(src, mem))
	r := rand.New(rand.NewPCG(2, 2))
	hot := 0
	for round := range 60 {
		writes := []int{0, 1, 10, 100, 1000}[round%5]
		for range writes {
			mem[r.IntN(len(mem))]++
			_ = mem[r.IntN(len(mem))]
		}
		if round%7 == 6 {
			require.NoError(t, a.Memory.Trim())
			require.False(t, a.Memory.Hot())
		} else {
			require.NoError(t, a.Memory.Reset())
		}
		if a.Memory.Hot() {
			hot++
		}
		require.True(t, bytes.Equal(src, mem), "round %d", round)
	}
	t.Logf("%d of 60 resets copied", hot)
	assert.True(t, bytes.Equal(src, other), "another memory of the image saw nothing")
}

func TestGrowth(t *testing.T) {
	t.Parallel()
	a := &snapshot.Allocator{}
	m := a.Allocate(0, 4*page)
	defer m.Free()
	b := m.Reallocate(page)
	require.Len(t, b, page)
	b[0] = 7
	assert.False(t, a.Memory.Grown())
	b = m.Reallocate(3 * page)
	require.Len(t, b, 3*page)
	assert.EqualValues(t, 7, b[0])
	b[3*page-1] = 1
	assert.True(t, a.Memory.Grown())
	assert.Nil(t, m.Reallocate(5*page), "beyond the maximum")
	require.Error(t, a.Memory.Reset(), "grown memories cannot be reset")
}
