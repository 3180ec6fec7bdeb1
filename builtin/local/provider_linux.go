package local

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"time"

	"github.com/sbxhost/sbxhost/internal/shim/shimbin"
	"github.com/sbxhost/sbxhost/provider"
	"golang.org/x/sys/unix"
)

// Provider makes local sandboxes. It is safe for concurrent use and has nothing
// to close: when its last sandbox is destroyed nothing of it is left.
type Provider struct {
	opts     Options
	level    Level
	reasons  []string // why not a stronger level
	abi      int      // of Landlock
	root     bool
	ids      idRange
	cgroups  *cgroups // nil: none we may write
	program  *program
	starter  starter
	describe provider.Description
	seccomp  programs
	etc      etcFiles
	work     string // holds the workspaces: the state directory, or one below which their users can reach them
	late     func() // in tests: before the supervisor of a jail is heard

	mu        sync.Mutex
	sandboxes map[string]*sandbox
	creating  map[string]chan struct{} // closed when the create of that id is over
}

// Format implements fmt.Formatter: its name, whatever the verb. Printing
// reads none of the fields that change.
func (p *Provider) Format(f fmt.State, _ rune) {
	_, _ = io.WriteString(f, "local.Provider["+p.describe.Name+"]")
}

// New probes the machine and returns a Provider, or a *provider.Error that says
// what is missing and how to get it.
func New(opts Options) (*Provider, error) {
	if opts.PIDs <= 0 {
		opts.PIDs = 256
	}
	if opts.Environ == nil {
		opts.Environ = os.Environ
	}
	if opts.Unsafe {
		if opts.Level == "" {
			opts.Level = LevelNone
		}
	} else if opts.Level == LevelNone {
		return nil, problem(provider.InvalidArgument, "new", "", "level none is not chosen without Unsafe").remedy("set local.unsafe, or --unsafe-local")
	}
	dir, err := stateDir(opts.StateDir)
	if err != nil {
		return nil, problem(provider.FailedPrecondition, "new", "", "no usable state directory").cause(err).remedy("set local.stateDir to a directory of this user that nobody else can write to")
	}
	opts.StateDir = dir
	bin, ok := shimbin.Linux(runtime.GOARCH)
	if !ok {
		return nil, problem(provider.Unsupported, "new", "", "there is no supervisor for linux/"+runtime.GOARCH).remedy("use amd64 or arm64, or another provider")
	}
	p := &Provider{
		opts: opts, root: os.Geteuid() == 0, abi: landlockABI(),
		sandboxes: map[string]*sandbox{}, creating: map[string]chan struct{}{},
	}
	if p.program, err = loadProgram(bin, dir); err != nil {
		return nil, problem(provider.FailedPrecondition, "new", "", "the supervisor cannot be made executable").cause(err).remedy("set local.stateDir to a directory on a file system that is not mounted noexec")
	}
	if p.root {
		p.ids, p.root = unprivilegedIDs()
	}
	if p.root {
		p.cgroups = findCgroups()
	}
	if err := p.chooseLevel(); err != nil {
		return nil, err
	}
	if p.level != LevelNamespaces {
		p.cgroups = nil
	}
	p.describe = p.description()
	removeUnfinished(dir)
	return p, nil
}

// chooseLevel takes the strongest level that works.
func (p *Provider) chooseLevel() error {
	levels := []Level{LevelNamespaces, LevelLandlock}
	if p.opts.Level != "" {
		levels = []Level{p.opts.Level}
	}
	for _, l := range levels {
		p.level = l
		err := p.chooseWork()
		if err == nil {
			err = p.probe(l)
		}
		if err == nil {
			return nil
		}
		if p.work != p.opts.StateDir {
			_ = os.Remove(p.work)
		}
		p.reasons = append(p.reasons, string(l)+": "+err.Error())
	}
	e := problem(provider.Unsupported, "new", "", "no isolation can be had on this machine").
		remedy("allow user namespaces (kernel.unprivileged_userns_clone=1, user.max_user_namespaces>0, kernel.apparmor_restrict_unprivileged_userns=0), or use a kernel with Landlock ABI 6 (Linux 6.12), or another provider; --unsafe-local runs without isolation")
	return e.cause(errors.New(joinReasons(p.reasons)))
}

// Level returns the level in force.
func (p *Provider) Level() Level { return p.level }

// Reasons says for each stronger level why it is not in force.
func (p *Provider) Reasons() []string { return append([]string(nil), p.reasons...) }

// StateDir returns where the sandboxes' directories are.
func (p *Provider) StateDir() string { return p.opts.StateDir }

// Place is the state directory: sandboxes of another one are not seen from here.
func (p *Provider) Place() string { return p.opts.StateDir }

// Describe implements provider.Provider.
func (p *Provider) Describe() provider.Description {
	d := p.describe
	d.OpenEnds = append([]string(nil), d.OpenEnds...)
	d.Transports = append([]provider.TransportInfo(nil), d.Transports...)
	return d
}

// stateDir makes and checks the directory that holds the sandboxes'.
func stateDir(dir string) (string, error) {
	if dir == "" {
		switch home, err := os.UserHomeDir(); {
		case os.Getenv("XDG_STATE_HOME") != "":
			dir = filepath.Join(os.Getenv("XDG_STATE_HOME"), "sbxhost", "local")
		case err == nil && filepath.IsAbs(home) && home != "/":
			dir = filepath.Join(home, ".local", "state", "sbxhost", "local")
		default:
			dir = filepath.Join(os.TempDir(), "sbxhost-local-"+itoa(os.Geteuid()))
		}
		if err := os.MkdirAll(dir, 0o700); err != nil { //nolint:gosec // the operator's own environment names it
			dir = filepath.Join(os.TempDir(), "sbxhost-local-"+itoa(os.Geteuid()))
		}
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil { //nolint:gosec // the operator names it
		return "", err
	}
	// Links in the path are the user's affair; the directory itself must be
	// ours.
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		return "", err
	}
	return dir, checkPrivate(dir)
}

// chooseWork decides where the workspaces are. Root's workloads are somebody
// else, who must be able to go there by a path unless it is mounted for them.
func (p *Provider) chooseWork() error {
	p.work = p.opts.StateDir
	if !p.root || p.level == LevelNamespaces {
		return nil
	}
	if reachable(filepath.Dir(p.opts.StateDir)) {
		return os.Chmod(p.opts.StateDir, 0o711)
	}
	sum := sha256.Sum256([]byte(p.opts.StateDir))
	base := os.TempDir()
	for _, dir := range []string{"/tmp", "/var/tmp"} {
		if !reachable(base) {
			base = dir
		}
	}
	p.work = filepath.Join(base, "sbxhost-local-0-"+hex.EncodeToString(sum[:6]))
	return p.makeWork()
}

// makeWork makes the directory that chooseWork chose outside the state directory.
func (p *Provider) makeWork() error {
	if err := os.Mkdir(p.work, 0o700); err != nil && !os.IsExist(err) {
		return err
	}
	var st unix.Stat_t
	if err := unix.Lstat(p.work, &st); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR || int(st.Uid) != os.Geteuid() || st.Mode&0o022 != 0 {
		return errors.New(p.work + " is not a directory that only this user can write to")
	}
	return os.Chmod(p.work, 0o711)
}

// workOf returns where a sandbox's workspace is.
func (p *Provider) workOf(id string) string { return filepath.Join(p.work, id) }

// reachable reports whether every user may go through dir.
func reachable(dir string) bool {
	for {
		st, err := os.Stat(dir)
		if err != nil || st.Mode()&0o001 == 0 {
			return false
		}
		if dir == "/" {
			return true
		}
		dir = filepath.Dir(dir)
	}
}

// List implements provider.Provider.
func (p *Provider) List(ctx context.Context, q provider.Query) ([]provider.Resource, error) {
	if err := ctx.Err(); err != nil {
		return nil, ctxProblem("list", "", err, provider.AppliedNo)
	}
	records, err := readRecords(p.opts.StateDir)
	if err != nil {
		return nil, problem(provider.Unavailable, "list", "", "the state directory cannot be read").cause(err)
	}
	var out []provider.Resource
	for _, r := range records {
		if !r.matches(q) {
			continue
		}
		out = append(out, provider.Resource{
			Ref: provider.Ref{ID: r.ID}, Name: r.Name, Labels: r.Labels,
			State: p.state(r.ID), CreatedAt: r.CreatedAt,
		})
	}
	return out, nil
}

// state of a sandbox that has a record.
func (p *Provider) state(id string) provider.State {
	p.mu.Lock()
	s := p.sandboxes[id]
	_, busy := p.creating[id]
	p.mu.Unlock()
	switch {
	case s != nil && s.alive():
		return provider.StateRunning
	case s != nil:
		return provider.StateStopped
	case busy:
		return provider.StatePending
	case heldElsewhere(filepath.Join(p.opts.StateDir, id)):
		return provider.StateRunning
	}
	return provider.StateStopped
}

// Open implements provider.Provider. A sandbox whose host process ended can be
// opened too: its files are there, its commands are not.
func (p *Provider) Open(ctx context.Context, ref provider.Ref) (provider.Sandbox, error) {
	if err := ctx.Err(); err != nil {
		return nil, ctxProblem("open", ref.ID, err, provider.AppliedNo)
	}
	p.mu.Lock()
	s := p.sandboxes[ref.ID]
	p.mu.Unlock()
	if s != nil {
		return s, nil
	}
	r, err := readRecord(p.opts.StateDir, ref.ID)
	switch _, serr := os.Lstat(filepath.Join(p.opts.StateDir, ref.ID)); {
	case err == nil:
	case !validID(ref.ID) || os.IsNotExist(serr):
		return nil, problem(provider.NotFound, "open", ref.ID, "no such sandbox").applied(provider.AppliedNo)
	default: // who hears that it is gone forgets it
		return nil, problem(provider.Unavailable, "open", ref.ID, "the sandbox's record cannot be read").cause(err).
			remedy("try again; or destroy the sandbox").applied(provider.AppliedNo)
	}
	if heldElsewhere(filepath.Join(p.opts.StateDir, r.ID)) {
		return nil, problem(provider.FailedPrecondition, "open", ref.ID, "the sandbox belongs to another process").remedy("open it there").applied(provider.AppliedNo)
	}
	return p.stopped(r)
}

// Destroy implements provider.Provider.
func (p *Provider) Destroy(ctx context.Context, ref provider.Ref) error {
	if err := ctx.Err(); err != nil {
		return ctxProblem("destroy", ref.ID, err, provider.AppliedNo)
	}
	if !validID(ref.ID) {
		return nil // nothing of ours has such a name
	}
	release, err := p.claim(ctx, ref.ID)
	if err != nil {
		return ctxProblem("destroy", ref.ID, err, provider.AppliedNo)
	}
	defer release()
	p.mu.Lock()
	s := p.sandboxes[ref.ID]
	p.mu.Unlock()
	stopped := s == nil
	if stopped {
		r, err := readRecord(p.opts.StateDir, ref.ID)
		dir := filepath.Join(p.opts.StateDir, ref.ID)
		if err != nil {
			if _, serr := os.Lstat(dir); os.IsNotExist(serr) {
				return nil
			}
			r.ID = ref.ID // a create that was interrupted before its record
		}
		lock, err := lockDir(dir)
		switch {
		case errors.Is(err, errHeld):
			return problem(provider.FailedPrecondition, "destroy", ref.ID, "the sandbox belongs to another process").remedy("destroy it there, or end that process").applied(provider.AppliedNo)
		case os.IsNotExist(err):
			return nil
		case err != nil:
			return problem(provider.Internal, "destroy", ref.ID, "the sandbox cannot be locked").cause(err).applied(provider.AppliedNo)
		}
		s = &sandbox{p: p, record: r, dir: dir, work: p.workOf(r.ID), lock: lock}
	}
	if err := s.destroy(ctx); err != nil {
		if stopped {
			unlock(s.lock) // the next try takes it again
		}
		return err
	}
	p.mu.Lock()
	delete(p.sandboxes, ref.ID)
	p.mu.Unlock()
	return nil
}

// claim makes creates and destroys of one id take turns.
func (p *Provider) claim(ctx context.Context, id string) (release func(), err error) {
	for {
		p.mu.Lock()
		busy := p.creating[id]
		if busy == nil {
			c := make(chan struct{})
			p.creating[id] = c
			p.mu.Unlock()
			return func() {
				p.mu.Lock()
				delete(p.creating, id)
				p.mu.Unlock()
				close(c)
			}, nil
		}
		p.mu.Unlock()
		select {
		case <-busy:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// destroyLimit bounds how long destroy waits for processes to die.
const destroyLimit = 30 * time.Second
