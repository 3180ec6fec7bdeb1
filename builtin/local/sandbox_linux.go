package local

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/sbxhost/sbxhost/provider"
	"golang.org/x/sys/unix"
)

// sandbox is one sandbox: live, or what a dead one left on disk.
type sandbox struct {
	p      *Provider
	record *record
	dir    string // record and lock
	work   string // workspace; mostly the same
	lock   *os.File
	group  *cgroup
	jail   *jail // LevelNamespaces
	ttl    *time.Timer

	mu       sync.Mutex
	bare     map[*watcher]struct{} // LevelLandlock and LevelNone: one supervisor each
	live     bool
	reason   string
	starting sync.WaitGroup // execs that are being started
	root     *os.File       // of the files
}

// Format implements fmt.Formatter: its name, whatever the verb. Printing
// reads none of the fields that change.
func (s *sandbox) Format(f fmt.State, _ rune) {
	_, _ = io.WriteString(f, "local.Sandbox["+s.record.ID+"]")
}

// Create implements provider.Provider.
func (p *Provider) Create(ctx context.Context, req provider.CreateRequest) (provider.Sandbox, error) {
	if err := ctx.Err(); err != nil {
		return nil, ctxProblem("create", req.Name, err, provider.AppliedNo)
	}
	r, err := p.newRecord(req)
	if err != nil {
		return nil, err
	}
	release, err := p.claim(ctx, r.ID)
	if err != nil {
		return nil, ctxProblem("create", r.ID, err, provider.AppliedNo)
	}
	defer release()

	s := p.existing(r, req.Replaces != nil)
	if s != nil {
		if !s.record.same(r, req.Replaces != nil) {
			return nil, conflict(r)
		}
		if s.alive() {
			return s, nil
		}
		if err := s.destroyProcesses(ctx); err != nil {
			return nil, err
		}
		return p.bringUp(ctx, s)
	}
	s, err = p.prepare(r, req.Replaces != nil)
	if err != nil {
		return nil, err
	}
	if req.Checkpoint != nil {
		if err := req.Checkpoint(s.Ref()); err != nil {
			e := problem(provider.Internal, "create", r.ID, "the sandbox's ref could not be made durable").cause(err)
			if derr := s.destroy(context.WithoutCancel(ctx)); derr != nil {
				_ = e.applied(provider.AppliedUnknown)
			}
			return nil, e
		}
	}
	return p.bringUp(ctx, s)
}

// existing finds the live sandbox that a create would adopt. One that took a
// session over has another id than its session.
func (p *Provider) existing(r *record, replaces bool) *sandbox {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s := p.sandboxes[r.ID]; s != nil || replaces {
		return s
	}
	for _, s := range p.sandboxes {
		if s.record.Labels[provider.LabelSession] == r.Labels[provider.LabelSession] {
			return s
		}
	}
	return nil
}

func conflict(r *record) error {
	return problem(provider.Conflict, "create", r.ID, "a sandbox of this session exists and was made from another request").remedy("destroy it, or use another session")
}

// newRecord checks a request.
func (p *Provider) newRecord(req provider.CreateRequest) (*record, error) {
	if err := provider.ValidateCreate(req); err != nil {
		return nil, ours(err)
	}
	if err := provider.CheckCreate(p.describe, req); err != nil {
		return nil, ours(err)
	}
	r := &record{
		Version: 1, ID: strings.TrimPrefix(req.Name, provider.NamePrefix), Name: req.Name, Digest: req.Digest, Labels: req.Labels, Root: req.Root,
		Network: req.Network, Level: p.level, Resources: req.Resources, Mounts: req.Mounts, CreatedAt: time.Now().UTC(),
		TTL: req.TTL,
	}
	if !validID(r.ID) {
		return nil, problem(provider.InvalidArgument, "create", req.SessionID, "the sandbox's name is not made of letters, digits, - and _")
	}
	if p.root {
		r.UID = p.ids.of(r.ID)
	}
	if err := checkTargets(r); err != nil {
		return nil, err
	}
	for _, m := range r.Mounts {
		if st, err := os.Stat(m.HostPath); err != nil || !filepath.IsAbs(m.HostPath) {
			return nil, problem(provider.InvalidArgument, "create", m.Path, "the granted host path is not there").cause(errors.Unwrap(err))
		} else if !st.IsDir() && !st.Mode().IsRegular() {
			return nil, problem(provider.InvalidArgument, "create", m.Path, "the granted host path is neither a directory nor a file")
		}
	}
	return r, nil
}

// prepare makes, or takes over, a sandbox's directory.
func (p *Provider) prepare(r *record, replaces bool) (*sandbox, error) {
	dir := filepath.Join(p.opts.StateDir, r.ID)
	internal := func(what string, err error) error {
		code := provider.Internal
		if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) || errors.Is(err, unix.EMFILE) {
			code = provider.ResourceExhausted
		}
		return problem(code, "create", r.ID, what).cause(err).applied(provider.AppliedUnknown)
	}
	lock, err := makeDir(p.opts.StateDir, r)
	fresh := err == nil
	switch {
	case fresh:
	case os.IsExist(err):
		lock, err = lockDir(dir)
	default:
		return nil, internal("the sandbox's directory cannot be made", err)
	}
	if errors.Is(err, errHeld) {
		return nil, problem(provider.Conflict, "create", r.ID, "a sandbox of this session runs in another process")
	} else if err != nil {
		return nil, internal("the sandbox cannot be locked", err)
	}
	s := &sandbox{p: p, record: r, dir: dir, work: p.workOf(r.ID), lock: lock, bare: map[*watcher]struct{}{}}
	if !fresh {
		old, err := readRecord(p.opts.StateDir, r.ID)
		switch {
		case err == nil && !old.same(r, replaces):
			unlock(lock)
			return nil, conflict(r)
		case err == nil:
			// The same request: go on with its files.
			s.record = old
			old.Level, old.TTL = p.level, r.TTL
		}
	}
	r = s.record
	if err := s.makeWork(); err != nil {
		s.abandon()
		return nil, internal("the workspace cannot be made", err)
	}
	if err := writeRecord(dir, r); err != nil {
		s.abandon()
		return nil, internal("the sandbox's record cannot be written", err)
	}
	return s, nil
}

// makeWork makes the directories the workload writes to and gives them to its
// user.
func (s *sandbox) makeWork() error {
	dirs := []string{s.work, filepath.Join(s.work, workspaceDir)}
	if s.p.level != LevelNamespaces {
		dirs = append(dirs, filepath.Join(s.work, tmpDir))
	}
	for i, path := range dirs {
		err := os.Mkdir(path, 0o700)
		if i == 0 && os.IsNotExist(err) { // the last sandbox took it along
			if err = s.p.makeWork(); err == nil {
				err = os.Mkdir(path, 0o700)
			}
		}
		if err != nil && !os.IsExist(err) {
			return err
		}
		if !s.p.root {
			continue
		}
		if i > 0 {
			if err := os.Lchown(path, int(s.record.UID), int(s.record.UID)); err != nil {
				return err
			}
		} else if s.p.level != LevelNamespaces {
			if err := os.Chmod(path, 0o711); err != nil {
				return err
			}
		}
	}
	return nil
}

// abandon removes what a failed create made; what it cannot remove is listed as
// stopped.
func (s *sandbox) abandon() {
	_ = s.removeFiles()
	unlock(s.lock)
}

// removeFiles removes the workspace first: while the record is there, the rest
// can be found again.
func (s *sandbox) removeFiles() error {
	if s.work != "" && s.work != s.dir {
		if err := removeAll(s.work); err != nil {
			return err
		}
		_ = os.Remove(s.p.work) // when this was the last one
	}
	if err := removeAll(filepath.Join(s.dir, workspaceDir)); err != nil {
		return err
	}
	// What is left goes at once: a directory that had lost its record could not
	// be told from somebody else's.
	rest := filepath.Join(filepath.Dir(s.dir), unfinishedPrefix+filepath.Base(s.dir))
	if err := os.Rename(s.dir, rest); err != nil {
		return ignoreAbsent(err)
	}
	return removeAll(rest)
}

// bringUp starts what runs commands.
func (p *Provider) bringUp(ctx context.Context, s *sandbox) (provider.Sandbox, error) {
	err := s.start(ctx)
	if err != nil {
		if derr := s.destroy(context.WithoutCancel(ctx)); derr != nil {
			var pe *provider.Error
			if errors.As(err, &pe) {
				pe.Applied = provider.AppliedUnknown
			}
		}
		return nil, err
	}
	p.mu.Lock()
	p.sandboxes[s.record.ID] = s
	p.mu.Unlock()
	return s, nil
}

func (s *sandbox) start(ctx context.Context) error {
	r := s.record
	memory, cpus := r.Resources.MemoryMiB<<20, r.Resources.CPUs
	if s.p.cgroups != nil && (memory > 0 || cpus > 0) {
		g, err := s.p.cgroups.make(r.Name, memory, cpus)
		if err != nil {
			return problem(provider.Internal, "create", r.ID, "the limits cannot be set").cause(err)
		}
		s.group = g
	}
	if s.p.level == LevelNamespaces {
		cfg, err := s.p.jailConfig(r, s.work)
		if err != nil {
			return problem(provider.Internal, "create", r.ID, "the jail cannot be described").cause(err)
		}
		var enter func(int) error
		if s.group != nil {
			enter = s.group.enter
		}
		j, err := s.p.startJail(ctx, cfg, r.Network == "default", enter)
		if err != nil {
			if ctx.Err() != nil {
				return ctxProblem("create", r.ID, ctx.Err(), provider.AppliedNo)
			}
			if errors.Is(err, errSupervisorEnded) && s.group != nil && s.group.ranOut() {
				return problem(provider.ResourceExhausted, "create", r.ID, "the jail cannot be set up").cause(err).
					remedy("raise resources.memoryMiB: " + strconv.FormatInt(r.Resources.MemoryMiB, 10) + " may be too little for the supervisor alone")
			}
			return problem(provider.Internal, "create", r.ID, "the jail cannot be set up").cause(err)
		}
		s.mu.Lock()
		s.jail, s.root = j, j.workspace
		s.mu.Unlock()
	} else {
		root, err := os.Open(filepath.Join(s.work, workspaceDir))
		if err != nil {
			return problem(provider.Internal, "create", r.ID, "the workspace cannot be opened").cause(err)
		}
		s.mu.Lock()
		s.root = root
		s.mu.Unlock()
	}
	s.mu.Lock()
	s.live, s.reason = true, ""
	s.mu.Unlock()
	if r.TTL > 0 {
		s.ttl = time.AfterFunc(r.TTL, func() {
			// What cannot be removed now is listed as stopped.
			_ = s.p.Destroy(context.Background(), s.Ref())
		})
	}
	return nil
}

// stopped is a sandbox without processes.
func (p *Provider) stopped(r *record) (provider.Sandbox, error) {
	return &sandbox{p: p, record: r, dir: filepath.Join(p.opts.StateDir, r.ID), work: p.workOf(r.ID), reason: "its host process ended"}, nil
}

// alive reports whether commands can be started.
func (s *sandbox) alive() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.live && (s.jail == nil || s.jail.alive())
}

// stop ends every process and refuses new ones.
func (s *sandbox) stop(ctx context.Context, reason string) error {
	s.mu.Lock()
	if s.live {
		s.live, s.reason = false, reason
	}
	var watchers []*watcher
	for w := range s.bare {
		watchers = append(watchers, w)
	}
	s.mu.Unlock()
	if s.jail != nil {
		return s.jail.kill(ctx)
	}
	s.starting.Wait()
	s.mu.Lock()
	watchers = watchers[:0]
	for w := range s.bare {
		watchers = append(watchers, w)
	}
	s.mu.Unlock()
	var first error
	for _, w := range watchers {
		if err := w.end(ctx); err != nil && first == nil {
			first = err
		}
	}
	return first
}

// destroyProcesses ends everything that runs and what limits it.
func (s *sandbox) destroyProcesses(ctx context.Context) error {
	if s.ttl != nil {
		s.ttl.Stop()
	}
	if err := s.stop(ctx, "it was destroyed"); err != nil {
		if ctx.Err() != nil {
			return ctxProblem("destroy", s.record.ID, ctx.Err(), provider.AppliedUnknown)
		}
		return problem(provider.Unavailable, "destroy", s.record.ID, "its processes do not end").cause(err).remedy("try again").applied(provider.AppliedUnknown)
	}
	s.mu.Lock()
	root := s.root
	s.root = nil
	s.mu.Unlock()
	if root != nil {
		_ = root.Close()
	}
	if s.group != nil {
		if err := s.group.remove(); err != nil {
			return problem(provider.Unavailable, "destroy", s.record.ID, "its cgroup cannot be removed").cause(err).remedy("try again").applied(provider.AppliedUnknown)
		}
		s.group = nil
	}
	return nil
}

// destroy removes everything of the sandbox and checks that it is gone.
func (s *sandbox) destroy(ctx context.Context) error {
	if err := s.destroyProcesses(ctx); err != nil {
		return err
	}
	if err := s.removeFiles(); err != nil {
		return problem(provider.Internal, "destroy", s.record.ID, "its files cannot be removed").cause(err).applied(provider.AppliedUnknown)
	}
	if _, err := os.Lstat(s.dir); !os.IsNotExist(err) {
		return problem(provider.Internal, "destroy", s.record.ID, "its directory is still there").cause(err).applied(provider.AppliedUnknown)
	}
	if s.lock != nil {
		unlock(s.lock)
		s.lock = nil
	}
	return nil
}

// Ref implements provider.Sandbox.
func (s *sandbox) Ref() provider.Ref { return provider.Ref{ID: s.record.ID} }

// Status implements provider.Sandbox.
func (s *sandbox) Status(ctx context.Context) (provider.Status, error) {
	if err := ctx.Err(); err != nil {
		return provider.Status{}, ctxProblem("status", s.record.ID, err, provider.AppliedNo)
	}
	st := provider.Status{State: provider.StateStopped, Unenforced: s.unenforced()}
	s.mu.Lock()
	st.Reason = s.reason
	s.mu.Unlock()
	if s.alive() {
		st.State = provider.StateRunning
	} else if _, err := os.Lstat(s.dir); os.IsNotExist(err) {
		st.State = provider.StateGone
	} else if st.Reason == "" {
		st.Reason = "its supervisor ended"
	}
	return st, nil
}

// unenforced lists wishes that are accepted and not enforced.
func (s *sandbox) unenforced() []string {
	var out []string
	r := s.record.Resources
	if r.DiskMiB > 0 {
		out = append(out, "resources.diskMiB: not limited")
	}
	if r.MemoryMiB > 0 && s.p.cgroups == nil {
		out = append(out, fmt.Sprintf("resources.memoryMiB: %d MiB of address space for each process, not for all together", r.MemoryMiB))
	}
	if s.p.level != LevelNamespaces && !s.p.root {
		out = append(out, "resources.pids: counted over all processes of this user")
	}
	return out
}
