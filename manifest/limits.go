package manifest

// Limits of one manifest. Each is refused by its name.
const (
	MaxJSON         = 1 << 20   // bytes of JSON, as read and as written back
	MaxEntries      = 4096      // environment entries
	MaxValue        = 128 << 10 // bytes of one NAME=VALUE with its terminating NUL: what Linux accepts for one string
	MaxEnvironment  = 1 << 20   // bytes of all NAME=VALUE strings, each with its NUL
	MaxFiles        = 10_000    // entries of files
	MaxDepth        = 64        // nesting of the JSON document
	MaxPathGrants   = 1_000     // entries of pathGrants
	maxMemoryMiB    = 1 << 30   // 1 PiB; keeps sums of bytes far from overflow
	maxPIDs         = 1 << 22   // the kernel's own limit
	maxCPUs         = 1 << 16
	maxNameInLabels = 256 // bytes of a label's key
)
