package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/term"

	"github.com/sbxhost/sbxhost/internal/config"
	"github.com/sbxhost/sbxhost/manifest"
	"github.com/sbxhost/sbxhost/redact"
)

// app is one invocation: its streams, its global flags, its configuration.
type app struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	getenv         func(string) string

	configFlag string
	logLevel   string
	logFormat  string
	json       bool

	config   *config.Loaded
	logger   *slog.Logger
	messages *redact.Redactor // of what we say ourselves; see maskMessages
	known    bool             // messages masks all that the run is about
	args     []string
	declared []manifest.Pair // by what was read so far of the manifest, and of environment files

	unwritten error // why printf could not write

	unraw func() // gives our terminal back, while it is raw; see raw
	rawMu sync.Mutex

	atExit []func() // what an invocation has to free, last first
}

// leave frees what the invocation made.
func (a *app) leave() {
	for _, f := range slices.Backward(a.atExit) {
		f()
	}
	a.atExit = nil
}

// loadConfig reads the configuration once and makes the logger from it and the
// flags.
func (a *app) loadConfig() (config.Loaded, error) {
	if a.config != nil {
		return *a.config, nil
	}
	l, err := config.Load(a.configFlag, a.getenv)
	if err != nil {
		return l, err
	}
	if err := a.makeLogger(l.Log); err != nil {
		return l, err
	}
	if a.messages == nil {
		a.maskTyped()
	}
	a.config = &l
	a.logger.Debug("configuration", "file", l.Path, "why", l.Why)
	return l, nil
}

// makeLogger sets up diagnostics on stderr; flags win over the configuration. The
// default is error: the host logs every failure as a warning, and we print it as
// our own message.
func (a *app) makeLogger(c config.Log) error {
	level, format := first(a.logLevel, c.Level, "error"), first(a.logFormat, c.Format, "text")
	if !slices.Contains(config.LogLevels, level) {
		return usageError("--log-level must be one of %s", strings.Join(config.LogLevels, ", "))
	}
	if !slices.Contains(config.LogFormats, format) {
		return usageError("--log-format must be one of %s", strings.Join(config.LogFormats, ", "))
	}
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil {
		return usageError("--log-level must be one of %s", strings.Join(config.LogLevels, ", "))
	}
	a.logFormat = format
	opts := &slog.HandlerOptions{Level: l, ReplaceAttr: a.maskedAttr}
	if format == "json" {
		a.logger = slog.New(slog.NewJSONHandler(a.stderr, opts))
	} else {
		a.logger = slog.New(slog.NewTextHandler(a.stderr, opts))
	}
	return nil
}

func first(values ...string) string {
	for _, v := range values {
		if v != "" {
			return v
		}
	}
	return ""
}

// note tells the user something that is neither result nor error.
func (a *app) note(format string, args ...any) {
	if a.logFormat == "json" && a.logger != nil {
		a.logger.Warn(a.masked(fmt.Sprintf(format, args...)))
		return
	}
	_, _ = fmt.Fprintln(a.stderr, a.masked("sbxhost: "+fmt.Sprintf(format, args...)))
}

// printf writes result text. That it could not is said at the end.
func (a *app) printf(format string, args ...any) {
	if _, err := fmt.Fprintf(a.stdout, format, args...); err != nil && a.unwritten == nil {
		a.unwritten = err
	}
}

// printJSON writes one result document.
func (a *app) printJSON(v any) error {
	e := json.NewEncoder(a.stdout)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	if err := e.Encode(v); errors.Is(err, syscall.EPIPE) {
		return exit(exitBrokenPipe)
	} else if err != nil {
		return fmt.Errorf("write the result: %w", err)
	}
	return nil
}

// terminal returns the file descriptor of a stream that is a terminal.
func terminal(stream any) (int, bool) {
	f, ok := stream.(*os.File)
	if !ok {
		return -1, false
	}
	fd := int(f.Fd())
	return fd, term.IsTerminal(fd)
}

// colour wraps text in an ANSI colour when stderr is a terminal and the user has
// not said NO_COLOR.
func (a *app) colour(code, text string) string {
	if _, ok := terminal(a.stderr); !ok || a.getenv("NO_COLOR") != "" || a.getenv("TERM") == "dumb" {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}
