package bolt

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/sbxhost/sbxhost/provider"
)

// InUseError says that another process has the ledger open.
type InUseError struct {
	Path string
	// PID of that process; 0 when the system does not tell.
	PID int
}

// Error names the file and how to find the process.
func (e *InUseError) Error() string {
	who := "another process"
	find := "fuser " + strconv.Quote(e.Path) + " or lsof " + strconv.Quote(e.Path) + " names it"
	if e.PID > 0 {
		who = fmt.Sprintf("process %d", e.PID)
		find = fmt.Sprintf("ps -p %d shows it", e.PID)
	}
	return "the ledger " + e.Path + " is in use by " + who + "; " + find + "; end it, or use another file: one ledger is for one process"
}

// ErrorCode returns provider.Unavailable.
func (e *InUseError) ErrorCode() provider.Code { return provider.Unavailable }

// Is matches the error's code.
func (e *InUseError) Is(target error) bool { return target == error(e.ErrorCode()) }

// DamageError says that the file is not as it was written. Nothing was changed, unless
// the newest change was taken back first.
type DamageError struct {
	Path  string
	Where string // the page or record
	What  string // what is wrong with it; nothing of its content
}

// Error names the file, the place and what to do.
func (e *DamageError) Error() string {
	return "the ledger " + e.Path + " is damaged: " + e.Where + ": " + e.What +
		"; restore it from a copy; or move it away and look at the providers for sandboxes that it knew: nothing else does"
}

// ErrorCode returns provider.Internal.
func (e *DamageError) ErrorCode() provider.Code { return provider.Internal }

// Is matches the error's code.
func (e *DamageError) Is(target error) bool { return target == error(e.ErrorCode()) }

func inUse(path string) error { return &InUseError{Path: path, PID: holder(path)} }

func damage(where, format string, args ...any) error {
	return &DamageError{Where: where, What: fmt.Sprintf(format, args...)}
}

var (
	errShort = errors.New("the file ends before it")
	errFirst = errors.New("its first key is not the one that the page above names")
)
