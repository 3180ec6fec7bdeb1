//go:build !linux

package bolt

func bootID() string { return "" }
