package local

// refusedHere are system calls that only this architecture has.
var refusedHere []uint32
