package host

import (
	"context"
	"crypto/sha256"
	"sync"

	"github.com/sbxhost/sbxhost/provider"
)

const (
	// maxExecIDs is how many commands with an ID of the caller's a session runs
	// in its life: each is remembered, because none may run twice.
	maxExecIDs = 65_536
	// maxEnded is how many ended commands keep their output for a reader that
	// comes back.
	maxEnded = 32
	// maxLeftovers is how many ended commands with unconfirmed descendants are
	// remembered.
	maxLeftovers = 256
)

// execTable holds the commands of one session.
type execTable struct {
	mu        sync.Mutex
	running   map[*execution]bool
	byID      map[string]*execution        // with the caller's ID; nil once its output was let go
	prints    map[string][sha256.Size]byte // what each of them was
	ended     []*execution                 // whose output is kept, oldest first
	leftovers []provider.Process           // of ended commands that may have descendants
	unknown   bool                         // there may be others that nobody here knows
	exclusive bool                         // a running command must stay alone
}

// table returns the session's commands; most sessions make it early.
func (s *Session) table() *execTable {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.execs == nil {
		s.execs = &execTable{running: map[*execution]bool{}, unknown: s.foreignPast}
	}
	return s.execs
}

// enter makes e known before it starts, or returns the command that its ID
// stands for.
func (t *execTable) enter(e *execution) (*execution, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e.callerID {
		if print, known := t.prints[e.id]; known {
			return t.prior(e, print)
		}
		if len(t.prints) >= maxExecIDs {
			return nil, refusal(provider.ResourceExhausted, opExec, "the session has run 65,536 commands with an ID", "leave ID out, or make a new session")
		}
		if t.byID == nil {
			t.byID, t.prints = map[string]*execution{}, map[string][sha256.Size]byte{}
		}
		t.byID[e.id], t.prints[e.id] = e, e.print
	}
	t.running[e] = true
	return nil, nil
}

func (t *execTable) prior(e *execution, print [sha256.Size]byte) (*execution, error) {
	if print != e.print {
		return nil, refusal(provider.Conflict, opExec, "the ID "+e.id+" was used for another command", "use another ID")
	}
	if old := t.byID[e.id]; old != nil {
		return old, nil
	}
	return nil, refusal(provider.FailedPrecondition, opExec, "the command "+e.id+" has run, and its output is not kept any more", "use another ID to run it again")
}

// never takes back enter: nothing was started, and the ID is free.
func (t *execTable) never(e *execution) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.running, e)
	if e.callerID {
		delete(t.byID, e.id)
		delete(t.prints, e.id)
	}
	t.alone(e)
}

// alone lets others run when e was the one that had to be alone.
func (t *execTable) alone(e *execution) {
	if e.exclusive {
		t.exclusive = false
	}
}

// over moves e from the running to the ended.
func (t *execTable) over(e *execution, proc provider.Process, treeDead bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.running[e] {
		return // taken back by never
	}
	delete(t.running, e)
	t.alone(e)
	switch {
	case treeDead:
	case proc == nil:
		t.unknown = true // it may run all the same
	default:
		if len(t.leftovers) == maxLeftovers {
			t.leftovers, t.unknown = t.leftovers[1:], true
		}
		t.leftovers = append(t.leftovers, proc)
	}
	if !e.callerID {
		return
	}
	t.ended = append(t.ended, e)
	if len(t.ended) > maxEnded {
		t.byID[t.ended[0].id] = nil
		t.ended = t.ended[1:]
	}
}

// stopExecs stops every running command, without waiting.
func (s *Session) stopExecs() {
	s.mu.Lock()
	t := s.execs
	s.mu.Unlock()
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for e := range t.running {
		e.stop(stopEnded, 0)
	}
}

// trust keeps commands apart that must not see each other's request-scoped
// values: on a provider whose processes could read each other's environment, a
// command with such values runs alone, after what others left running is gone.
func (s *Session) trust(ctx context.Context, e *execution) error {
	secrets := e.request.Secrets
	if err := s.armRequest(secrets); err != nil {
		return err
	}
	if s.sharedTrust || s.reg.desc.IsolatesExecs {
		return nil
	}
	t := s.table()
	t.mu.Lock()
	if t.exclusive {
		t.mu.Unlock()
		return refusal(provider.FailedPrecondition, opExec, "a command with request-scoped secrets is running, and this provider cannot keep another one from reading them", "wait for it, or create the session with SharedTrust")
	}
	if secrets.Len() == 0 {
		t.mu.Unlock()
		return nil
	}
	if len(t.running) > 1 { // e itself is one
		t.mu.Unlock()
		return refusal(provider.FailedPrecondition, opExec, "other commands are running, and this provider cannot keep them from reading request-scoped secrets", "wait for them, or create the session with SharedTrust")
	}
	if t.unknown {
		t.mu.Unlock()
		return refusal(provider.FailedPrecondition, opExec, "something of an earlier life of this sandbox may be running, and this provider cannot keep it from reading request-scoped secrets", "create a new session, or resume with SharedTrust")
	}
	t.exclusive, e.exclusive = true, true
	left := t.leftovers
	t.leftovers = nil
	t.mu.Unlock()
	return s.stopLeftovers(ctx, t, left)
}

// stopLeftovers kills what ended commands left running, or puts it back.
func (s *Session) stopLeftovers(ctx context.Context, t *execTable, left []provider.Process) error {
	for i, proc := range left {
		if s.reg.desc.Exec.Kill == provider.KillTree {
			if proc.Kill(ctx, execGrace) == nil {
				continue
			}
		}
		t.mu.Lock()
		t.leftovers = append(t.leftovers, left[i:]...)
		t.mu.Unlock()
		return refusal(provider.FailedPrecondition, opExec, "what another command left running could not be stopped, and could read request-scoped secrets", "create a new session, or one with SharedTrust")
	}
	return nil
}
