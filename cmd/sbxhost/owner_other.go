//go:build !unix

package main

import "io/fs"

// ownPrivate is left to the system's defaults.
func ownPrivate(fs.FileInfo) bool { return true }
