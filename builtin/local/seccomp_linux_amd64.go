package local

import "golang.org/x/sys/unix"

// refusedHere are system calls that only this architecture has.
var refusedHere = []uint32{unix.SYS_IOPL, unix.SYS_IOPERM, unix.SYS_USELIB, unix.SYS_MODIFY_LDT}
