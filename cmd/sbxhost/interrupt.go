package main

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// errInterrupted is the cause of a context that a signal cancelled.
var errInterrupted = errors.New("interrupted")

// sayTime bounds how long the last words wait for their reader, who may be what the
// process hangs on.
const sayTime = time.Second

// interruptible returns a context that the first Ctrl-C, TERM or HUP cancels. The
// second one ends the process at once.
func (a *app) interruptible(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	signals := make(chan os.Signal, 2)
	for _, s := range []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP} {
		if !signal.Ignored(s) { // as nohup, and a shell for what it runs behind, set it
			signal.Notify(signals, s)
		}
	}
	// A reader that goes away must not end us before we cleaned up: with the
	// signal ignored, writing returns an error.
	ignoreBrokenPipe()
	done := make(chan struct{})
	go func() {
		select {
		case <-signals:
			cancel(errInterrupted)
		case <-done:
			return
		}
		select {
		case <-signals:
			a.restoreTerminal()
			if writable(a.stderr, sayTime) {
				a.note("interrupted again: not waiting for the clean-up")
			}
			os.Exit(exitInterrupted)
		case <-done:
		}
	}()
	return ctx, func() {
		signal.Stop(signals)
		close(done)
		cancel(nil)
	}
}
