//go:build !linux

// Command shim is the in-sandbox supervisor; it runs on Linux only.
package main

import "os"

func main() { os.Exit(125) }
