//go:build unix

package fakevendor

import "time"

// Stall keeps a command's output from being read.
func (c *Command) Stall(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	time.Sleep(d)
}
