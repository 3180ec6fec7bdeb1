//go:build !linux

package shim

import (
	"errors"
	"os"
)

// Descriptors are passed on Linux only; elsewhere no FileConn exists and these
// are not reached.

func buffered(*os.File) int { return 0 }

func readNow(*os.File, []byte) (int, bool) { return 0, false }

func setSize(*os.File, uint16, uint16) error { return errors.ErrUnsupported }

func pipes(int) (ours, theirs []*os.File, err error) { return nil, nil, errors.ErrUnsupported }

func swapBlocking(*os.File, *os.File) {}
