package local

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/sbxhost/sbxhost/internal/shim"
	"github.com/sbxhost/sbxhost/internal/shim/wire"
)

// watcher is the supervisor of one exec where there are no namespaces. It lives
// as long as anything of the exec does. When the host ends, however it ends, the
// watcher sees the end of its socket and kills the tree.
type watcher struct {
	process *os.Process
	exec    *shim.Exec
	dead    chan struct{}
}

// bareConfig confines an exec without namespaces.
func (s *sandbox) bareConfig() *wire.Config {
	p, r := s.p, s.record
	c := &wire.Config{Rlimits: rlimits(r, false), PIDs: uint64(r.pids(p.opts.PIDs))}
	if p.root {
		c.IDs, c.UID, c.GID = wire.IDSet, r.UID, r.UID
	} else {
		c.PIDs += userTasks()
	}
	if p.level == LevelNone {
		c.Unconfined = true
		return c
	}
	c.Seccomp = p.seccomp.get(filter{bare: true, noInet: r.Network != "default", sameUser: !p.root})
	c.Landlock = p.bareDomain(r, filepath.Join(s.work, workspaceDir), filepath.Join(s.work, tmpDir))
	return c
}

// execBare starts a command under a supervisor of its own.
func (s *sandbox) execBare(ctx context.Context, req shim.Request) (*shim.Exec, *watcher, error) {
	setup, err := s.bareConfig().MarshalBinary()
	if err != nil {
		return nil, nil, err
	}
	conn, theirs, err := shim.SocketPair()
	if err != nil {
		return nil, nil, err
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		_ = conn.Close()
		_ = theirs.Close()
		return nil, nil, err
	}
	w := &watcher{dead: make(chan struct{})}
	w.process, err = os.StartProcess(s.p.program.path, []string{"sbx-shim", "exec"}, &os.ProcAttr{
		Dir: "/", Env: shim.Environ(), Files: []*os.File{null, null, null, theirs},
		Sys: &syscall.SysProcAttr{Setsid: true},
	})
	_ = null.Close()
	_ = theirs.Close()
	if err != nil {
		_ = conn.Close()
		return nil, nil, err
	}
	s.mu.Lock()
	if s.bare == nil {
		s.bare = map[*watcher]struct{}{}
	}
	s.bare[w] = struct{}{}
	s.mu.Unlock()
	go func() {
		_, _ = w.process.Wait()
		s.mu.Lock()
		delete(s.bare, w)
		s.mu.Unlock()
		close(w.dead)
	}()
	req.Setup = setup
	e, err := shim.Start(ctx, conn, req)
	s.mu.Lock()
	w.exec = e
	s.mu.Unlock()
	if err != nil {
		if ctx.Err() != nil {
			return nil, nil, err
		}
		// It has nothing to do and ends by itself.
		select {
		case <-w.dead:
		case <-time.After(time.Second):
			_ = w.process.Kill()
			<-w.dead
		}
		return nil, nil, err
	}
	return e, w, nil
}

// end kills the exec's tree and waits for its supervisor, which ends when nothing
// of the exec is left.
func (w *watcher) end(ctx context.Context) error {
	t := time.NewTimer(destroyLimit)
	defer t.Stop()
	if w.exec != nil {
		if err := w.exec.Kill(ctx, 0); err != nil && !errors.Is(err, shim.ErrLost) {
			return err
		}
	}
	select {
	case <-w.dead:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return errors.New("the supervisor of a command does not end")
	}
}

// userTasks counts this user's processes and threads, which the limit on their
// number counts too where there is no user namespace.
func userTasks() uint64 {
	dirs, _ := filepath.Glob("/proc/[0-9]*/task/[0-9]*")
	uid := uint32(os.Geteuid())
	n := uint64(0)
	for _, d := range dirs {
		if st, err := os.Lstat(d); err == nil {
			if sys, ok := st.Sys().(*syscall.Stat_t); ok && sys.Uid == uid {
				n++
			}
		}
	}
	return n
}
