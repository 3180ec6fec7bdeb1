package fakevendor

import (
	"embed"
	"io/fs"
)

//go:embed *.go
var source embed.FS

// Source returns the sources of this package, for a copy beside a plugin. It
// depends on the standard library alone.
func Source() fs.FS { return source }
