package main

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/sbxhost/sbxhost/grants"
	"github.com/sbxhost/sbxhost/internal/config"
	"github.com/sbxhost/sbxhost/manifest"
	"github.com/sbxhost/sbxhost/provider"
)

// Exit codes beside the sandboxed command's own.
const (
	exitFailedCheck = 1   // a check ran and its answer is no
	exitTimedOut    = 124 // the command was stopped at its deadline
	exitFailed      = 125 // sbxhost itself failed
	exitCannotRun   = 126 // the command exists and cannot be run
	exitNotFound    = 127 // the command does not exist
	exitSignal      = 128 // + the number of the signal that ended the command
	exitInterrupted = 130 // Ctrl-C, TERM or HUP
	exitBrokenPipe  = 141 // whoever read our output went away
)

// exitError carries an exit code. With a nil err everything has been said.
type exitError struct {
	code  int
	err   error
	usage bool
}

func (e *exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit %d", e.code)
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

// exit returns an error that only sets the exit code.
func exit(code int) error {
	if code == 0 {
		return nil
	}
	if code > 255 {
		code = 255 // the system keeps eight bits, and 256 must not become success
	}
	return &exitError{code: code}
}

func usageError(format string, args ...any) error {
	return &exitError{code: exitFailed, err: fmt.Errorf(format, args...), usage: true}
}

// failure is how --json reports an error.
type failure struct {
	Error failureDetail `json:"error"`
}

type failureDetail struct {
	Code    provider.Code     `json:"code"`
	Message string            `json:"message"`
	Applied string            `json:"applied,omitempty"`
	Kind    string            `json:"kind,omitempty"`  // of a grants error
	Pairs   []pair            `json:"pairs,omitempty"` // destinations and sources concerned
	Fix     []string          `json:"fix,omitempty"`
	Facts   map[string]string `json:"facts,omitempty"`
}

type pair struct {
	Destination string `json:"destination"`
	Source      string `json:"source"`
}

// report prints an error and returns the exit code.
func (a *app) report(err error, command string) int {
	if err == nil {
		return 0
	}
	code, usage := exitFailed, false
	var x *exitError
	if errors.As(err, &x) {
		code, usage = x.code, x.usage
		if x.err == nil {
			return code
		}
	}
	message, fix := a.masked(strings.TrimRight(err.Error(), "\n")), remedies(err)
	if a.json {
		d := failureDetail{Code: codeOf(err), Message: message, Fix: fix}
		if ap := provider.AppliedOf(err); ap != provider.AppliedUnknown {
			d.Applied = string(ap)
		}
		var g *grants.Error
		if errors.As(err, &g) {
			d.Kind = string(g.Kind)
			for _, p := range g.Pairs {
				d.Pairs = append(d.Pairs, pair{p.Destination, p.Source})
			}
		}
		_ = a.printJSON(failure{d}) // the exit code still tells
	}
	_, _ = fmt.Fprintf(a.stderr, "%s %s\n", a.colour("31", "sbxhost:"), message)
	if len(fix) > 0 {
		_, _ = fmt.Fprintln(a.stderr, "  in sbxhost.yaml:")
	}
	for _, line := range fix {
		_, _ = fmt.Fprintln(a.stderr, "    "+line)
	}
	if usage {
		_, _ = fmt.Fprintf(a.stderr, "  see: %s --help\n", command)
	}
	return code
}

// codeOf is provider.CodeOf for errors of packages below the provider contract
// too.
func codeOf(err error) provider.Code {
	if c := provider.CodeOf(err); c != provider.Internal {
		return c
	}
	var g *grants.Error
	if errors.As(err, &g) {
		switch g.Kind {
		case grants.KindNotGranted, grants.KindNotSet:
			return provider.NotGranted
		case grants.KindSource:
			return provider.Unavailable
		case grants.KindInvalidBinding:
			return provider.FailedPrecondition
		}
		return provider.InvalidArgument
	}
	var m *manifest.Error
	var x *exitError
	var c *config.Error
	if errors.As(err, &m) || errors.As(err, &c) || (errors.As(err, &x) && x.usage) {
		return provider.InvalidArgument
	}
	if f, ok := errors.AsType[*fs.PathError](err); ok { // a file that the command line names
		switch {
		case errors.Is(f, fs.ErrNotExist):
			return provider.NotFound
		case errors.Is(f, fs.ErrPermission):
			return provider.PermissionDenied
		}
	}
	return provider.Internal
}

// remedies adds what one line cannot hold: the lines of the configuration that
// would grant what is missing. The error itself says the rest.
func remedies(err error) []string {
	var g *grants.Error
	if !errors.As(err, &g) || g.Kind != grants.KindNotGranted {
		return nil
	}
	var lines []string
	for _, p := range g.Pairs {
		if strings.HasPrefix(p.Source, "<") || strings.HasPrefix(p.Destination, "<") {
			continue // an unusual name, which is not shown
		}
		lines = append(lines, "  "+p.Destination+": "+p.Source)
	}
	if len(lines) == 0 {
		return nil
	}
	return append([]string{"processEnvironmentBindings:"}, lines...)
}
