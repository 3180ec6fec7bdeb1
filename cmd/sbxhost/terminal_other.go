//go:build !unix

package main

// followSize does nothing: this system has no signal for it.
func (a *app) followSize(func(cols, rows uint16)) (stop func()) { return func() {} }
