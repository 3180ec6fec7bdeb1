package local

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/sbxhost/sbxhost/provider"
)

// probePrefix starts the names of the directories that probes use.
const probePrefix = "probe-"

// probeLimit is more than a probe takes on the busiest machine: one that is given up
// costs the level.
const probeLimit = time.Minute

// probeAge is how old the directory of a probe must be that holds no lock.
const probeAge = time.Minute

// probe tries a level for real: it makes a throw-away sandbox and runs a command
// in it.
func (p *Provider) probe(l Level) error {
	switch l {
	case LevelNone:
		return nil
	case LevelLandlock:
		if p.abi < requiredABI {
			return fmt.Errorf("the kernel has Landlock ABI %d, and %d is needed", p.abi, requiredABI)
		}
	case LevelNamespaces:
	default:
		return fmt.Errorf("unknown level %q", l)
	}
	p.sweepProbes()
	dir, err := os.MkdirTemp(p.opts.StateDir, probePrefix)
	if err != nil {
		return err
	}
	lock, err := lockDir(dir)
	if err != nil {
		_ = os.Remove(dir)
		return err
	}
	defer func() { _ = lock.Close() }()
	ctx, cancel := context.WithTimeout(context.Background(), probeLimit)
	defer cancel()
	r := &record{ID: filepath.Base(dir), Root: "/workspace", Network: "none", Level: l}
	if p.root {
		r.UID = p.ids.of(r.ID)
	}
	s := &sandbox{p: p.trial(l), record: r, dir: dir, work: p.workOf(r.ID), bare: map[*watcher]struct{}{}}
	defer s.removeFiles() //nolint:errcheck // what is left holds nothing
	if err := s.makeWork(); err != nil {
		return err
	}
	if err := s.start(ctx); err != nil {
		return plain(err)
	}
	defer s.destroyProcesses(ctx) //nolint:errcheck // its processes are gone or the next step says so
	proc, err := s.Exec(ctx, provider.ExecRequest{ID: "probe", Args: []string{"/bin/sh", "-c", "exit 42"}, Stdout: io.Discard, Stderr: io.Discard})
	if err != nil {
		return plain(err)
	}
	exit, err := proc.Wait(ctx)
	if err != nil {
		return plain(err)
	}
	if exit.Kind != provider.ExitExited || exit.Code != 42 {
		return fmt.Errorf("a trial command ended with %s %d %s", exit.Kind, exit.Code, exit.Signal)
	}
	return nil
}

// sweepProbes removes the directories of probes whose process was killed.
func (p *Provider) sweepProbes() {
	entries, err := os.ReadDir(p.opts.StateDir)
	if err != nil {
		return
	}
	for _, e := range entries {
		if !e.IsDir() || !strings.HasPrefix(e.Name(), probePrefix) {
			continue
		}
		if info, err := e.Info(); err != nil || time.Since(info.ModTime()) < probeAge {
			continue // it may not have taken its lock yet
		}
		dir := filepath.Join(p.opts.StateDir, e.Name())
		lock, err := lockDir(dir)
		if err != nil {
			continue // at work, or not ours
		}
		// Those of the other level may have had their files elsewhere.
		s := &sandbox{p: p, record: &record{ID: e.Name()}, dir: dir, work: p.workOf(e.Name())}
		_ = s.removeFiles() // the next one tries again
		unlock(lock)
	}
}

// trial is a Provider of its own that shares what is already known.
func (p *Provider) trial(l Level) *Provider {
	return &Provider{opts: p.opts, level: l, abi: p.abi, root: p.root, ids: p.ids, program: p.program, work: p.work}
}

// plain takes the wrapping off that only matters to callers of a provider.
func plain(err error) error {
	var pe *provider.Error
	if errors.As(err, &pe) && pe.Err != nil {
		return fmt.Errorf("%s: %w", pe.Message, pe.Err)
	}
	return err
}
