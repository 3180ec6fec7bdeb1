package daytona

import (
	"context"
	"sync"

	"github.com/sbxhost/sbxhost/provider"
)

// stages shows how a sandbox comes about: its states, and the log of a build.
type stages struct {
	f      func(provider.Stage)
	mu     sync.Mutex
	last   string
	cancel context.CancelFunc
	done   chan struct{}
}

func (s *stages) tell(name, detail string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.f != nil {
		s.f(provider.Stage{Name: name, Detail: detail})
	}
}

// show reports a state, and begins to follow the log when it is a build's. The
// log is for people only: that it cannot be had is no error.
func (s *stages) show(ctx context.Context, svc service, sb sandboxInfo) {
	if s.f == nil {
		return
	}
	if sb.State != s.last {
		s.last = sb.State
		s.tell(stageName(sb.State), sb.State)
	}
	if sb.State != "building_snapshot" && sb.State != "pending_build" || s.cancel != nil {
		return
	}
	ctx, s.cancel = context.WithCancel(ctx)
	s.done = make(chan struct{})
	go func() {
		defer close(s.done)
		_ = svc.BuildLog(ctx, sb.ID, &lines{f: func(line string) { s.tell("build", line) }})
	}()
}

func stageName(state string) string {
	switch state {
	case "pending_build", "building_snapshot":
		return "build"
	case "pulling_snapshot":
		return "pull"
	}
	return "start"
}

// stop ends the following of the log; nothing is reported after it.
func (s *stages) stop() {
	if s.cancel == nil {
		return
	}
	s.cancel()
	<-s.done
}
