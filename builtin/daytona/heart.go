package daytona

import (
	"context"
	"sync"
	"time"
)

// heart reports use of a sandbox while commands run in it: the service does not
// see what a quiet command does, and would stop the sandbox under it.
type heart struct {
	sb   *sandbox
	mu   sync.Mutex
	n    int
	stop context.CancelFunc
}

// begin counts a command in; the returned function counts it out.
func (h *heart) begin() func() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.n++; h.n == 1 {
		ctx, cancel := context.WithCancel(context.Background())
		h.stop = cancel
		go h.run(ctx)
	}
	return sync.OnceFunc(func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.n--; h.n == 0 {
			h.stop()
		}
	})
}

func (h *heart) run(ctx context.Context) {
	t := time.NewTicker(h.sb.p.opts.Heartbeat)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			_ = h.sb.p.s.UpdateLastActivity(ctx, h.sb.id) // the next one may get through
		case <-ctx.Done():
			return
		}
	}
}
