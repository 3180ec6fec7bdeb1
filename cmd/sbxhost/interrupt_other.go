//go:build !unix

package main

import "time"

func ignoreBrokenPipe() {} // there is no such signal here

// writable cannot be told here.
func writable(any, time.Duration) bool { return true }
