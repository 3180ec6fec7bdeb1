package host

import "time"

// Limits bounds what a host runs at once and how long it waits. Zero fields
// take the default; negative ones mean no limit.
type Limits struct {
	Live           int // sessions, those being made included; default 16,384
	Pending        int // sessions being made; default 256
	Execs          int // commands running; default 4,096
	RequestSecrets int // request-scoped values per session; default 1,000

	ExecTimeout time.Duration // of a command; default 10 min
	Output      int64         // kept bytes per output stream; default 10 MiB
	File        int64         // bytes that ReadFile returns; default 64 MiB

	CreateTimeout time.Duration // of a provider's create, image pulls included; default 15 min
	CallTimeout   time.Duration // of any other provider call; default 2 min
}
