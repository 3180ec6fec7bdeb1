package shim

import (
	"io"
	"os"
)

// Environ is the supervisor's whole environment: it tunes the Go runtime of the
// supervisor and holds nothing of the host.
func Environ() []string { return []string{"GOGC=off", "GOMEMLIMIT=48MiB", "GOMAXPROCS=2"} }

// Conn carries frames to and from a supervisor. Closing it before the exit frame
// makes the supervisor kill the command's tree.
type Conn interface{ io.ReadWriteCloser }

// FileConn is a Conn that also carries descriptors, so that a command's streams
// need not be relayed.
type FileConn interface {
	Conn
	// WriteFiles writes b with descriptors attached to its first byte.
	WriteFiles(b []byte, files ...*os.File) error
	// TakeFile returns a descriptor that came with what was read so far, nil
	// when there is none. The caller owns it.
	TakeFile() *os.File
}
