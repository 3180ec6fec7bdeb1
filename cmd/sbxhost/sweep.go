package main

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sbxhost/sbxhost/host"
	"github.com/sbxhost/sbxhost/ledger"
	"github.com/sbxhost/sbxhost/ledger/bolt"
	"github.com/sbxhost/sbxhost/provider"
)

// Each one-shot run has a ledger file of its own, locked for as long as it lives.
// A file that nobody has locked is of a run that was killed; the next run, and
// sbxhost reconcile, finish what it left.

// runOwner starts the host id of every one-shot run, which is also the owner
// label of its sandbox and the name of its ledger.
const runOwner = "sbxhost-run-"

const (
	ledgerExt = ".db"
	keptExt   = ".kept" + ledgerExt // what --keep left is not to be finished
)

// sweepTime bounds how long a run looks after what others left.
const sweepTime = 2 * time.Second

// startTime is how long a run may take from making its ledger to locking it.
const startTime = time.Minute

// runLedger is the ledger of this run.
type runLedger struct {
	ledger.Ledger
	id, path string
	kept     bool
}

// openRunLedger makes the ledger of one run.
func (a *app) openRunLedger() (*runLedger, error) {
	dir, err := runDir(a.getenv)
	if err != nil {
		return nil, err
	}
	var b [8]byte
	if _, err := rand.Read(b[:]); err != nil {
		return nil, err
	}
	l := &runLedger{id: runOwner + hex.EncodeToString(b[:])}
	l.path = filepath.Join(dir, l.id+ledgerExt)
	if l.Ledger, err = bolt.Open(l.path, bolt.Options{Wait: 10 * time.Second, Logger: a.logger}); err != nil {
		return nil, fmt.Errorf("make the ledger of this run: %w", err)
	}
	return l, nil
}

// placeMark is between a ledger's run and the place of its sandbox.
const placeMark = "@"

// placeOf is a short name of where a provider's sandboxes are: an engine, a state
// directory. From another one they look gone, and their record must stay. "" for a
// provider that has one place only, or does not say.
func placeOf(name string, p provider.Provider) string {
	l, ok := p.(interface{ Place() string })
	if !ok || l.Place() == "" {
		return ""
	}
	sum := sha256.Sum256([]byte(name + "\x00" + l.Place()))
	return hex.EncodeToString(sum[:4])
}

// checkPlace refuses a provider that is not where a run's sandbox is.
func checkPlace(name string, p provider.Provider, place string) error {
	if have := placeOf(name, p); place != "" && have != place {
		return errors.New("its sandbox is on another engine or service, or in another state directory, than this configuration names; use the one of that run (DOCKER_HOST, docker.host, daytona.apiUrl and its API key, local.stateDir); if that is no more, remove the ledger")
	}
	return nil
}

// place notes, in the file's name, where the sandbox of this run will be.
func (l *runLedger) place(place string) error {
	if place == "" {
		return nil
	}
	path := strings.TrimSuffix(l.path, ledgerExt) + placeMark + place + ledgerExt
	if err := l.rename(path); err != nil {
		return fmt.Errorf("note the place of this run: %w", err)
	}
	return nil
}

// keep marks the ledger as one of a run that ended and left its sandbox on
// purpose.
func (l *runLedger) keep() error {
	kept := strings.TrimSuffix(l.path, ledgerExt) + keptExt
	if err := l.rename(kept); err != nil {
		return fmt.Errorf("keep the ledger of this run: %w", err)
	}
	l.kept = true
	return nil
}

// rename waits for the disk too: what the name says must outlast a loss of power.
func (l *runLedger) rename(path string) error {
	if err := os.Rename(l.path, path); err != nil {
		return err
	}
	l.path = path
	if runtime.GOOS == "windows" { // where no directory can be waited for
		return nil
	}
	d, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// close lets go of the ledger, and removes it when nothing is left to remember.
func (l *runLedger) close() {
	records, err := l.List(context.Background(), l.id)
	if err == nil && len(records) == 0 {
		_ = os.Remove(l.path) // an empty ledger does no harm
	}
	_ = l.Close() // every change is on disk
}

// runDir makes and returns the directory of the runs' ledgers.
func runDir(getenv func(string) string) (string, error) {
	last := filepath.Join(os.TempDir(), "sbxhost-run-"+strconv.Itoa(os.Geteuid()))
	dirs := []string{last}
	if home := getenv("HOME"); filepath.IsAbs(home) && home != "/" {
		dirs = slices.Insert(dirs, 0, filepath.Join(home, ".local", "state", "sbxhost", "run"))
	}
	if state := getenv("XDG_STATE_HOME"); filepath.IsAbs(state) {
		dirs = slices.Insert(dirs, 0, filepath.Join(state, "sbxhost", "run"))
	}
	for _, dir := range dirs {
		if os.MkdirAll(dir, 0o700) != nil {
			continue
		}
		// Others can make the last one before we do.
		if info, err := os.Lstat(dir); err == nil && info.IsDir() && (dir != last || ownPrivate(info)) {
			return dir, nil
		}
	}
	return "", errors.New("there is no place for the ledger of this run; set XDG_STATE_HOME to a directory that you can write to")
}

// leftRun is what became of what one run left.
type leftRun struct {
	Run string `json:"run"`
	// Status: running, finished, kept, pending, unreadable.
	Status    string   `json:"status"`
	Destroyed []string `json:"destroyed,omitempty"` // sessions
	Kept      []string `json:"kept,omitempty"`
	Pending   []string `json:"pending,omitempty"`
	Providers []string `json:"providers,omitempty"` // of what is pending
	Error     string   `json:"error,omitempty"`
	Ledger    string   `json:"ledger,omitempty"` // with pending and unreadable
}

// registrar makes a provider known to a host, if it is in this place.
type registrar func(h *host.Host, name, place string) error

// finishRuns finishes what runs left that are not alive any more. all includes
// what --keep left, whose lifetime is looked after otherwise. It never fails: what
// cannot be finished now is reported, and tried again by the next one.
func (a *app) finishRuns(ctx context.Context, register registrar, all bool) ([]leftRun, error) {
	dir, err := runDir(a.getenv)
	if err != nil {
		return nil, err
	}
	// Not by a pattern: the directory's name is not ours, and what cannot be listed is
	// not empty.
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("look for what runs left: %w", err)
	}
	removeUnmade(dir, entries)
	out := []leftRun{}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), runOwner) || !strings.HasSuffix(e.Name(), ledgerExt) {
			continue
		}
		path := filepath.Join(dir, e.Name())
		if ctx.Err() != nil {
			return out, ctx.Err()
		}
		if r, ok := a.finishRun(ctx, path, register, all); ok {
			out = append(out, r)
		}
	}
	return out, nil
}

// removeUnmade removes ledgers whose runs were killed while making them; nothing
// was made that they could know of.
func removeUnmade(dir string, entries []fs.DirEntry) {
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), "."+runOwner) || !strings.Contains(e.Name(), ledgerExt+".new-") {
			continue
		}
		if info, err := e.Info(); err == nil && info.Mode().IsRegular() && time.Since(info.ModTime()) > startTime {
			_ = os.Remove(filepath.Join(dir, e.Name())) // the next one tries again
		}
	}
}

func (a *app) finishRun(ctx context.Context, path string, register registrar, all bool) (leftRun, bool) {
	id, kept := strings.CutSuffix(filepath.Base(path), keptExt)
	id, place, _ := strings.Cut(strings.TrimSuffix(id, ledgerExt), placeMark)
	r := leftRun{Run: id}
	led, err := bolt.Open(path, bolt.Options{MustExist: true, Wait: -1, Owner: id, Logger: a.logger})
	var used *bolt.InUseError
	switch {
	case provider.CodeOf(err) == provider.NotFound:
		return r, false // it has ended meanwhile
	case errors.As(err, &used):
		r.Status = "running"
		return r, true
	case err != nil:
		r.Status, r.Error, r.Ledger = "unreadable", err.Error(), path
		return r, true
	}
	defer func() { _ = led.Close() }() // every change is on disk
	before, err := led.List(ctx, id)
	if err != nil {
		r.Status, r.Error, r.Ledger = "pending", err.Error(), path
		return r, true
	}
	if len(before) == 0 {
		if info, err := os.Stat(path); err == nil && (kept || time.Since(info.ModTime()) > startTime) {
			_ = os.Remove(path) // the next one tries again
		}
		return r, false
	}
	err = a.settleRun(ctx, id, place, led, before, register, kept && !all)
	after, lerr := led.List(context.WithoutCancel(ctx), id)
	if lerr != nil {
		after = before
	}
	r.describe(before, after, kept && !all, err)
	if r.Status == "pending" {
		r.Ledger = path
	}
	if len(after) == 0 {
		_ = os.Remove(path) // an empty ledger does no harm
	}
	return r, true
}

// describe says what became of each session.
func (r *leftRun) describe(before, after []ledger.Record, kept bool, err error) {
	note := func(list *[]string, what string) {
		if !slices.Contains(*list, what) {
			*list = append(*list, what)
		}
	}
	left := map[string]bool{}
	for _, rec := range after {
		left[rec.Session] = true
		if kept && rec.Phase == ledger.Created {
			note(&r.Kept, rec.Session)
			continue
		}
		note(&r.Pending, rec.Session)
		note(&r.Providers, rec.Provider)
	}
	for _, rec := range before {
		if !left[rec.Session] {
			note(&r.Destroyed, rec.Session)
		}
	}
	switch {
	case len(r.Pending) > 0 || err != nil:
		r.Status = "pending"
	case len(r.Kept) > 0:
		r.Status = "kept"
	default:
		r.Status = "finished"
	}
	if err != nil {
		r.Error = err.Error()
	}
}

// settleRun removes what a run left; of one that was kept only what is over.
func (a *app) settleRun(ctx context.Context, id, place string, led ledger.Ledger, records []ledger.Record, register registrar, kept bool) (err error) {
	h, err := host.New(host.Options{ID: id, Ledger: led, Logger: a.logger})
	if err != nil {
		return err
	}
	defer func() {
		c, cancel := cleanupContext(ctx)
		defer cancel()
		err = errors.Join(err, h.Close(c))
	}()
	var errs []error
	registered := map[string]bool{}
	for _, rec := range records {
		if registered[rec.Provider] {
			continue
		}
		registered[rec.Provider] = true
		if err := register(h, rec.Provider, place); err != nil {
			errs = append(errs, fmt.Errorf("provider %s: %w", rec.Provider, err))
		}
	}
	if kept {
		_, err := h.Reconcile(ctx)
		return errors.Join(append(errs, err)...)
	}
	done := map[string]bool{}
	for _, rec := range records {
		if done[rec.Session] || ctx.Err() != nil {
			continue
		}
		done[rec.Session] = true
		if err := h.Discard(ctx, rec.Session); err != nil && provider.CodeOf(err) != provider.NotFound {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// sweepRuns finishes what earlier runs of this provider left because they were
// killed and could not clean up. Nothing here fails the run in hand.
func (a *app) sweepRuns(ctx context.Context, name string, p provider.Provider) {
	ctx, cancel := context.WithTimeout(ctx, sweepTime)
	defer cancel()
	register := func(h *host.Host, other, place string) error {
		if other != name {
			return fs.ErrNotExist
		}
		if err := checkPlace(name, p, place); err != nil {
			return err
		}
		return h.Register(name, p)
	}
	left, err := a.finishRuns(ctx, register, false)
	if err != nil {
		a.logger.Debug("what earlier runs left cannot be finished", "code", string(provider.CodeOf(err)))
	}
	for _, r := range left {
		if len(r.Destroyed) > 0 {
			a.logger.Info("removed what an earlier run left when it was killed", "run", r.Run)
		}
		if r.Status == "pending" || r.Status == "unreadable" {
			a.logger.Info("an earlier run left something; sbxhost reconcile says what", "run", r.Run)
		}
	}
}
