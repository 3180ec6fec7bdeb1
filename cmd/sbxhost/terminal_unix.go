//go:build unix

package main

import (
	"os"
	"os/signal"
	"syscall"
)

// followSize calls resize whenever our terminal changes its size. The returned
// function ends that.
func (a *app) followSize(resize func(cols, rows uint16)) (stop func()) {
	changes := make(chan os.Signal, 1)
	signal.Notify(changes, syscall.SIGWINCH)
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-changes:
				resize(a.size())
			case <-done:
				return
			}
		}
	}()
	return func() {
		signal.Stop(changes)
		close(done)
		<-ended
	}
}
