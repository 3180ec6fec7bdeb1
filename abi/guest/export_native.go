//go:build !wasip1

package guest

import "github.com/sbxhost/sbxhost/abi"

// Invoke runs one operation of the served provider against the host that a test
// installed with guesttest. It exists outside plugins only.
func Invoke(op abi.Op) int32 { return run(op) }
