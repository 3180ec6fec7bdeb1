package bolt_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// What this disk asks for a change that is durable, whoever makes it: some pages of
// a file that has them already are written, and waited for once. It is the ceiling of
// BenchmarkPut.
func BenchmarkFlush(b *testing.B) {
	const page, pages = 4096, 1024
	for _, n := range []int{1, 4, 6} {
		b.Run(fmt.Sprintf("pages=%d", n), func(b *testing.B) {
			f, err := os.Create(filepath.Join(b.TempDir(), "file"))
			if err != nil {
				b.Fatal(err)
			}
			defer func() { _ = f.Close() }()
			content := make([]byte, page)
			for i := range int64(pages) {
				if _, err := f.WriteAt(content, i*page); err != nil {
					b.Fatal(err)
				}
			}
			if err := f.Sync(); err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				for range n {
					if _, err := f.WriteAt(content, rand.Int64N(pages)*page); err != nil { //nolint:gosec // which page does not matter
						b.Fatal(err)
					}
				}
				if err := unix.Fdatasync(int(f.Fd())); err != nil { //nolint:gosec // a descriptor
					b.Fatal(err)
				}
			}
		})
	}
}
