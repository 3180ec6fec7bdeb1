//go:build unix

package config

import (
	"fmt"
	"os"
	"syscall"
)

// checkOwner refuses a file that somebody else could have put there.
func checkOwner(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return fmt.Errorf("read configuration (current directory): %w", err)
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return nil
	}
	uid := os.Getuid()
	if int(st.Uid) != uid && st.Uid != 0 {
		return &Error{File: path, Message: fmt.Sprintf("belongs to user %d, not to you (%d), and it could grant secrets; use --config %s if you trust it", st.Uid, uid, path)}
	}
	if info.Mode().Perm()&0o002 != 0 {
		return &Error{File: path, Message: fmt.Sprintf("anyone may write it, and it could grant secrets; chmod o-w %s, or use --config %s if you trust it", path, path)}
	}
	return nil
}
