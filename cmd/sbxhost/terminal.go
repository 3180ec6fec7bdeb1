package main

import (
	"fmt"

	"golang.org/x/term"

	"github.com/sbxhost/sbxhost/provider"
)

// raw puts our terminal into raw mode, so that keys reach the command's terminal
// unchanged, Ctrl-C included. The returned function puts it back, and so does
// restoreTerminal.
func (a *app) raw() (restore func(), err error) {
	fd, ok := terminal(a.stdin)
	if !ok {
		return func() {}, nil
	}
	old, err := term.MakeRaw(fd)
	if err != nil {
		return nil, fmt.Errorf("set up the terminal: %w", err)
	}
	a.rawMu.Lock()
	defer a.rawMu.Unlock()
	a.unraw = func() { _ = term.Restore(fd, old) } // nothing more can be done
	return a.restoreTerminal, nil
}

// restoreTerminal ends raw mode, if it is on. A process that leaves without it
// leaves its user a terminal that shows nothing of what is typed.
func (a *app) restoreTerminal() {
	a.rawMu.Lock()
	defer a.rawMu.Unlock()
	if a.unraw != nil {
		a.unraw()
		a.unraw = nil
	}
}

// size returns our terminal's size, 80×24 without one.
func (a *app) size() (cols, rows uint16) {
	for _, stream := range []any{a.stdout, a.stdin, a.stderr} {
		if fd, ok := terminal(stream); ok {
			if w, h, err := term.GetSize(fd); err == nil && w > 0 && h > 0 && w < 1<<16 && h < 1<<16 {
				return uint16(w), uint16(h)
			}
		}
	}
	return 80, 24
}

// progress returns a display of a long create, nil when nobody watches.
func (a *app) progress() func(provider.Stage) {
	if _, ok := terminal(a.stderr); !ok || a.json {
		return nil
	}
	last := ""
	return func(s provider.Stage) {
		line := s.Name
		if s.Detail != "" {
			line += " " + s.Detail
		}
		if line != last && line != "" {
			last = line
			_, _ = fmt.Fprintf(a.stderr, "%s\r\n", a.colour("2", "sbxhost: "+line))
		}
	}
}
