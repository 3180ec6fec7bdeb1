//go:build !unix

package bolt

import (
	"io/fs"
	"os"
	"time"
)

// lock leaves the lock to bbolt, which takes it next.
func lock(*os.File, string, time.Duration) error { return nil }

func exposed(fs.FileInfo) bool { return false }

func syncDir(string) error { return nil }
