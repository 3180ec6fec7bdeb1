package docker

import (
	"context"

	"github.com/docker/docker/api/types/container"

	"github.com/sbxhost/sbxhost/internal/shim"
)

// settleEngineRestart ends commands whose supervisor the engine lost. When an
// engine restarts and leaves its containers running, the input of what runs in
// them does not end, and so nothing there notices that nobody listens any more.
// Whatever the engine still knows belongs to a host that is there, or has ended by
// itself. Called when a process first sees a sandbox; what cannot be done is left
// for the next time.
func (s *sandbox) settleEngineRestart(ctx context.Context, info container.InspectResponse) {
	s.mu.Lock()
	done := s.settled
	s.settled = true
	s.mu.Unlock()
	if done || s.p.shim == nil || !info.State.Running || info.State.Paused {
		return
	}
	err := s.control(ctx, func(c *shim.Control) error {
		running, err := c.Execs(ctx)
		if err != nil || len(running) == 0 {
			return err
		}
		// Asked after the list, so that one which had started is known. As long
		// as the engine knows any, ours and the lost ones cannot be told apart.
		known, err := s.engineExecs(ctx)
		if err != nil || known > 0 {
			return err
		}
		for _, id := range running {
			if _, err := c.KillExec(ctx, id); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		s.mu.Lock()
		s.settled = false
		s.mu.Unlock()
	}
}

// owe notes a command that was lost while nothing could be done about it: with an
// engine that was killed, the command's input does not end.
func (s *sandbox) owe(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lost = append(s.lost, id)
}

// settleLost ends commands that were lost. Called before another one starts; what
// cannot be done is left for the next time.
func (s *sandbox) settleLost(ctx context.Context) {
	s.mu.Lock()
	ids := s.lost
	s.lost = nil
	s.mu.Unlock()
	for _, id := range ids {
		if s.sweep(ctx, id) != nil {
			s.owe(id)
		}
	}
}

// engineExecs counts the running execs whose input and output the engine holds.
func (s *sandbox) engineExecs(ctx context.Context) (int, error) {
	info, err := s.p.inspectContainer(ctx, s.id)
	if err != nil {
		return 0, err
	}
	n := 0
	for _, x := range info.ExecIDs {
		e, err := s.p.e.ContainerExecInspect(ctx, x)
		if gone(err) {
			continue
		}
		if err != nil {
			return 0, err
		}
		if e.Running {
			n++
		}
	}
	return n, nil
}
