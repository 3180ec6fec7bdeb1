// Package manifest is what a user wants in a sandbox: image, files,
// environment, limits. It is plain data that can be stored anywhere: a secret is
// only ever named, by a [Reference], never held.
package manifest

import (
	"io/fs"
	"time"
)

// Version is the manifest version this package reads and writes.
const Version = 1

// DefaultRoot is the working directory used when a manifest names none.
const DefaultRoot = "/workspace"

// Start says what runs when a sandbox starts.
type Start string

const (
	StartIdle  Start = "idle"  // nothing but our supervisor
	StartImage Start = "image" // the image's own entrypoint
)

// Network is the network a sandbox gets.
type Network string

const (
	NetworkUnset   Network = ""        // the provider's default
	NetworkNone    Network = "none"    // no network
	NetworkDefault Network = "default" // the provider's ordinary network
)

// Manifest describes one sandbox. The zero value is not valid: use [New] or
// [Parse]. A Manifest may be copied with Clone; copying, editing or re-parsing
// carries no authority whatsoever.
type Manifest struct {
	Version     int
	Image       string           // what to start from, where the provider has images
	Root        string           // absolute; Files lie below it, commands start in it
	User        string           // the workload's user, where the provider has users
	Environment map[string]Entry // by name, an identifier
	Files       map[string]File  // by path, relative to Root
	PathGrants  []PathGrant
	Ports       []int // that may be asked for later
	Start       Start
	Network     Network
	Resources   Resources
	Lifetime    Lifetime
	Labels      map[string]string
}

// Entry is one environment variable: a literal, or a reference when Reference
// is not nil.
type Entry struct {
	Literal   string
	Reference *Reference
}

// Reference names a host variable instead of holding its value. It is plain
// data: it holds no authority and compares by content.
type Reference struct {
	// Name of the variable on the host; "" means the same as the destination.
	Name string
	// Description for people.
	Description string
}

// Pair is one exact destination → source pair.
type Pair struct {
	Destination string // the variable's name inside the sandbox
	Source      string // its name on the host
}

// File is one file or directory to be put under Root. Exactly one of Content
// and HostPath is meaningful: HostPath when it is not "".
type File struct {
	Content  []byte
	Mode     fs.FileMode // 0: 0644
	HostPath string      // copied in; only under a directory that the host's configuration allows
}

// PathGrant is a bind mount.
type PathGrant struct {
	Path     string // absolute, inside the sandbox
	HostPath string // only under a directory that the host's configuration allows
	ReadOnly bool
}

// Resources are limits; zero means the provider's default.
type Resources struct {
	CPUs      float64 // whole or parts of processors
	MemoryMiB int64
	PIDs      int64 // processes and threads
	DiskMiB   int64
}

// Lifetime bounds how long a sandbox lives; zero means without limit.
type Lifetime struct {
	TTL  time.Duration // since creation
	Idle time.Duration // since the last use
}
