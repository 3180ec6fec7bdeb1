//go:build !wasip1

package abi

import (
	"embed"
	"io/fs"
)

//go:embed *.go schema.json guest include rust/Cargo.toml rust/src
var kit embed.FS

// Kit returns what a plugin is written with: the sources of this package and of
// the Go guest kit, the C headers in include, the Rust crate in rust. A copy of
// it lets authors work without a network.
func Kit() fs.FS { return kit }
