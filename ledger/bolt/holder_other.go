//go:build !linux

package bolt

func holder(string) int { return 0 }
