//go:build linux

package crashtest

import (
	"context"
	"os"
	"sync"
	"syscall"

	"github.com/sbxhost/sbxhost/ledger"
	"github.com/sbxhost/sbxhost/provider/providertest/fault"
)

// steps counts the moments of a process at which it can die, and lets it die at
// one of them.
type steps struct {
	mu   sync.Mutex
	n    int
	kill int // the step to die at; 0: none
	log  func(n int, name string)
}

func (s *steps) step(name string) {
	s.mu.Lock()
	defer s.mu.Unlock() // nothing else goes on once the end has come
	s.n++
	if s.n != s.kill {
		return
	}
	s.log(s.n, name)
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {}
}

// watch is for fault.Provider.Watch.
func (s *steps) watch(m fault.Method, at fault.Point) { s.step(string(at) + " provider " + string(m)) }

// stepLedger takes a step before and after each write.
type stepLedger struct {
	ledger.Ledger
	s *steps
}

func (l stepLedger) Put(ctx context.Context, r ledger.Record) error {
	l.s.step("before ledger put " + string(r.Phase))
	err := l.Ledger.Put(ctx, r)
	l.s.step("after ledger put " + string(r.Phase))
	return err
}

func (l stepLedger) Delete(ctx context.Context, attempt string) error {
	l.s.step("before ledger delete")
	err := l.Ledger.Delete(ctx, attempt)
	l.s.step("after ledger delete")
	return err
}
