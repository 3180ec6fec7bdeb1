package local

import (
	"errors"
	"os"
	"path/filepath"

	"github.com/sbxhost/sbxhost/internal/shim/beneath"
	"golang.org/x/sys/unix"
)

// removeAll removes a directory tree that a hostile workload filled: without
// permissions, deeper than descriptors reach, with any kind of file. Nothing is
// followed.
func removeAll(dir string) error {
	if err := os.RemoveAll(dir); err == nil {
		return nil
	}
	parent, err := unix.Open(filepath.Dir(dir), unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(parent)
	return beneath.RemoveTree(parent, filepath.Base(dir))
}

func ignoreAbsent(err error) error {
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	return err
}
