package daytonatest

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// toStarted brings a sandbox from creating, starting or restoring to started (or
// error) after d. No lock is held.
func (s *Server) toStarted(op Op, sb *sandbox, d time.Duration) {
	if f, ok := s.faults.is(SlowStart, op, sb); ok {
		if f.Delay == 0 {
			return // for ever
		}
		d += f.Delay
	}
	reason := badEnv(sb.rawEnv)
	if f, ok := s.faults.is(CreateFails, op, sb); ok {
		reason = f.textOr("failed to create sandbox container: no space left on device")
	}
	unknown, odd := s.faults.is(UnknownState, op, sb)
	s.clock.after(d, func() {
		sb.life.Lock()
		defer sb.life.Unlock()
		s.mu.Lock()
		was := sb.state
		s.mu.Unlock()
		if was != creating && was != starting && was != restoring {
			return // deleted meanwhile
		}
		if reason == "" {
			if err := sb.boot(); err != nil {
				reason = err.Error()
			}
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if reason != "" {
			sb.reason = reason
			sb.set(failed, started)
			return
		}
		if odd {
			sb.hidden = "hibernating"
			if unknown.Delay > 0 {
				s.clock.after(unknown.Delay, func() {
					s.mu.Lock()
					defer s.mu.Unlock()
					sb.hidden = ""
					s.notify()
				})
			}
		}
		sb.reason = nil
		sb.activity = s.Now()
		sb.set(started, started)
	})
}

// target returns the call's sandbox, or answers 404. s.mu is held by the caller
// of the handler it is used in.
func (c *call) target() *sandbox {
	sb := c.s.find(c.params["id"])
	if sb == nil || c.s.Now().Before(sb.visible) {
		return nil
	}
	return sb
}

// with runs f on the call's sandbox with s.mu held, and answers what it returns.
func (c *call) with(f func(sb *sandbox) (int, any)) {
	c.s.mu.Lock()
	sb := c.target()
	var status int
	var body any
	if sb == nil {
		status, body = http.StatusNotFound, "Sandbox with ID or name "+c.params["id"]+" not found"
	} else {
		c.s.rec.note(func() { c.log.Sandbox = sb.id })
		status, body = f(sb)
	}
	c.s.mu.Unlock()
	switch message, isText := body.(string); {
	case status == 0: // answered
	case isText && status >= 400:
		c.fail(status, message)
	case body == nil:
		c.empty(status)
	default:
		c.json(status, body)
	}
}

const inProgress = "Sandbox state change in progress"

func (c *call) get() {
	c.with(func(sb *sandbox) (int, any) { return http.StatusOK, sb.shown(c.op, false) })
}

func (c *call) start() {
	var from string
	var sb *sandbox
	c.with(func(t *sandbox) (int, any) {
		sb, from = t, t.state
		switch {
		case t.pending():
			return http.StatusConflict, inProgress
		case from == started:
			return http.StatusOK, t.shown(c.op, false)
		case from == archived:
			t.set(archived, started)
			return http.StatusOK, t.shown(c.op, false)
		case from != stopped:
			return http.StatusBadRequest, "Sandbox is not in valid state"
		}
		t.set(starting, started)
		return 0, nil
	})
	if sb == nil {
		return
	}
	s := c.s
	switch from {
	case archived:
		if c.w.status != http.StatusOK {
			return
		}
		s.clock.after(s.opts.Timing.Start, func() {
			s.mu.Lock()
			going := sb.state == archived && sb.desired == started
			if going {
				sb.set(restoring, started)
			}
			s.mu.Unlock()
			if going {
				s.toStarted(OpStart, sb, s.opts.Timing.Restore)
			}
		})
	case stopped:
		s.toStarted(c.op, sb, s.opts.Timing.Start)
		s.wait(c.r.Context(), s.opts.Timing.Wait, func() bool { return sb.state != starting })
		s.mu.Lock()
		state, reason, body := sb.state, sb.reason, sb.shown(c.op, false)
		s.mu.Unlock()
		if state == failed {
			c.fail(http.StatusBadRequest, fmt.Sprintf("Sandbox failed to start: %v", reason))
			return
		}
		c.json(http.StatusOK, body)
	}
}

func (c *call) stop() {
	c.with(func(sb *sandbox) (int, any) {
		switch {
		case sb.pending():
			return http.StatusConflict, inProgress
		case sb.state != started:
			return http.StatusBadRequest, "Sandbox is not in a stoppable state"
		}
		c.s.beginStop(sb)
		return http.StatusOK, sb.shown(c.op, false)
	})
}

// beginStop stops a started sandbox; an ephemeral one is destroyed. s.mu is held.
func (s *Server) beginStop(sb *sandbox) {
	if sb.autoDelete == 0 {
		s.beginDestroy(OpStop, sb)
		return
	}
	sb.set(stopping, stopped)
	s.clock.after(s.opts.Timing.Stop, func() {
		sb.life.Lock()
		defer sb.life.Unlock()
		_ = sb.halt() // Close reports what is left
		s.mu.Lock()
		defer s.mu.Unlock()
		sb.stopped = s.Now()
		sb.set(stopped, stopped)
	})
}

func (c *call) delete() {
	c.with(func(sb *sandbox) (int, any) {
		// Creating something is a state change too: it has to end first.
		if sb.pending() {
			return http.StatusConflict, inProgress
		}
		if sb.state == failed || sb.state == buildFailed {
			sb.set(sb.state, destroyed)
			body := sb.shown(c.op, false)
			c.s.clock.after(0, func() { c.s.finishDestroy(sb) })
			sb.destroyed = true
			c.s.notify()
			return http.StatusOK, body
		}
		c.s.beginDestroy(c.op, sb)
		return http.StatusOK, sb.shown(c.op, false)
	})
}

// beginDestroy renames the sandbox and destroys it; s.mu is held.
func (s *Server) beginDestroy(op Op, sb *sandbox) {
	sb.name = "DESTROYED_" + sb.given + "_" + strconv.FormatInt(s.Now().UnixMilli(), 10)
	sb.set(destroying, destroyed)
	d := s.opts.Timing.Destroy
	if f, ok := s.faults.is(StuckDestroying, op, sb); ok {
		if f.Delay == 0 {
			return // for ever
		}
		d += f.Delay
	}
	s.clock.after(d, func() { s.finishDestroy(sb) })
}

func (s *Server) finishDestroy(sb *sandbox) {
	sb.life.Lock()
	defer sb.life.Unlock()
	s.rec.files(sb) // the last look at what the daemon wrote
	_ = sb.halt()   // Close reports what is left
	_ = os.RemoveAll(filepath.Join(sb.dir))
	s.mu.Lock()
	defer s.mu.Unlock()
	sb.destroyed = true
	sb.set(destroyed, destroyed)
}

func (c *call) archive() {
	c.with(func(sb *sandbox) (int, any) {
		switch {
		case sb.pending():
			return http.StatusConflict, inProgress
		case sb.state != stopped:
			return http.StatusBadRequest, "Sandbox is not stopped"
		}
		c.s.beginArchive(sb)
		return http.StatusOK, sb.shown(c.op, false)
	})
}

func (s *Server) beginArchive(sb *sandbox) {
	sb.backup = "InProgress"
	sb.set(archiving, archived)
	s.clock.after(s.opts.Timing.Archive, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		sb.backup, sb.backupAt = "Completed", s.Now()
		sb.set(archived, archived)
	})
}

func (c *call) pauseSandbox() {
	c.with(func(*sandbox) (int, any) {
		return http.StatusUnprocessableEntity, "Pause is not supported for sandbox class container"
	})
}

func (c *call) fork() {
	c.with(func(*sandbox) (int, any) {
		return http.StatusUnprocessableEntity, "Fork is not supported for sandbox class container"
	})
}

func (c *call) recover() {
	c.with(func(sb *sandbox) (int, any) {
		switch {
		case sb.pending():
			return http.StatusConflict, inProgress
		case sb.state != failed:
			return http.StatusBadRequest, "Sandbox is not in an error state"
		case !sb.recoverable:
			return http.StatusForbidden, "Sandbox cannot be recovered"
		}
		sb.reason = nil
		sb.set(stopped, stopped)
		return http.StatusOK, sb.shown(c.op, false)
	})
}

func (c *call) resize() {
	var in struct{ CPU, Memory, Disk *int }
	if !c.decode(&in) {
		return
	}
	c.with(func(sb *sandbox) (int, any) {
		switch {
		case sb.pending():
			return http.StatusConflict, inProgress
		case sb.state != started && sb.state != stopped:
			return http.StatusBadRequest, "Sandbox is not in a resizable state"
		}
		for _, p := range []struct{ from, to *int }{{in.CPU, &sb.cpu}, {in.Memory, &sb.memory}, {in.Disk, &sb.disk}} {
			if p.from != nil && *p.from < 1 {
				return http.StatusBadRequest, "resources must not be less than 1"
			}
		}
		for _, p := range []struct{ from, to *int }{{in.CPU, &sb.cpu}, {in.Memory, &sb.memory}, {in.Disk, &sb.disk}} {
			if p.from != nil {
				*p.to = *p.from
			}
		}
		c.passing(sb, resizing)
		return http.StatusOK, sb.shown(c.op, false)
	})
}

// passing shows a state for a moment and then the present one again; s.mu is
// held.
func (c *call) passing(sb *sandbox, state string) {
	before, desired := sb.state, sb.desired
	sb.set(state, desired)
	c.s.clock.after(c.s.opts.Timing.Stop, func() {
		c.s.mu.Lock()
		defer c.s.mu.Unlock()
		if sb.state == state {
			sb.set(before, desired)
		}
	})
}

func (c *call) backup() {
	c.with(func(sb *sandbox) (int, any) {
		sb.backup, sb.backupAt = "Completed", c.s.Now()
		c.s.notify()
		return http.StatusOK, sb.shown(c.op, false)
	})
}

func (c *call) labels() {
	var in struct {
		Labels map[string]string `json:"labels"`
	}
	if !c.decode(&in) {
		return
	}
	if in.Labels == nil {
		c.fail(http.StatusBadRequest, "labels must be an object")
		return
	}
	c.with(func(sb *sandbox) (int, any) {
		sb.labels = in.Labels
		sb.updated = c.s.Now()
		sb.publish("sandbox.labels.updated")
		c.s.notify()
		return http.StatusOK, sb.shown(c.op, false)
	})
}

// interval changes one of the automatic intervals, in minutes.
func interval(least int, field func(*sandbox) *int) func(*call) {
	return func(c *call) {
		n, err := strconv.Atoi(c.params["n"])
		if err != nil || n < least {
			c.fail(http.StatusBadRequest, "interval must be a number of minutes, not less than "+strconv.Itoa(least))
			return
		}
		c.with(func(sb *sandbox) (int, any) {
			*field(sb) = n
			c.s.notify()
			c.s.clock.poke()
			// The specification says 200; the service says 201.
			return http.StatusCreated, sb.shown(c.op, false)
		})
	}
}

func (c *call) setPublic() {
	c.with(func(sb *sandbox) (int, any) {
		sb.public = c.params["public"] == "true"
		c.s.notify()
		return http.StatusOK, sb.shown(c.op, false)
	})
}

func (c *call) network() {
	var in struct {
		NetworkBlockAll  *bool   `json:"networkBlockAll"`
		NetworkAllowList *string `json:"networkAllowList"`
		DomainAllowList  *string `json:"domainAllowList"`
	}
	if !c.decode(&in) {
		return
	}
	c.with(func(sb *sandbox) (int, any) {
		if in.NetworkBlockAll != nil {
			sb.blockAll = *in.NetworkBlockAll
		}
		if in.NetworkAllowList != nil {
			sb.allow = *in.NetworkAllowList
		}
		if in.DomainAllowList != nil {
			sb.domains = *in.DomainAllowList
		}
		c.s.notify()
		return http.StatusOK, sb.shown(c.op, false)
	})
}

func (c *call) lastActivity() {
	c.with(func(sb *sandbox) (int, any) {
		sb.activity = c.s.Now()
		return http.StatusCreated, nil
	})
}

// nextLifecycle returns when a sandbox is next due for something automatic.
func (s *Server) nextLifecycle() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	var first time.Time
	for _, sb := range s.sandboxes {
		if at, _ := sb.due(); !at.IsZero() && (first.IsZero() || at.Before(first)) {
			first = at
		}
	}
	return first
}

// due returns when and what is next done to the sandbox automatically; s.mu is
// held.
func (sb *sandbox) due() (time.Time, func()) {
	var at time.Time
	var do func()
	consider := func(t time.Time, minutes int, f func()) {
		if t = t.Add(time.Duration(minutes) * time.Minute); at.IsZero() || t.Before(at) {
			at, do = t, f
		}
	}
	if sb.destroyed || sb.pending() {
		return at, do
	}
	s := sb.s
	if sb.ttl > 0 {
		consider(sb.created, sb.ttl, func() { s.beginDestroy(OpDelete, sb) })
	}
	switch {
	case sb.state == started && sb.autoStop > 0:
		consider(sb.activity, sb.autoStop, func() { s.beginStop(sb) })
	case sb.state == stopped:
		if sb.autoDelete >= 0 {
			consider(sb.stopped, sb.autoDelete, func() { s.beginDestroy(OpDelete, sb) })
		}
		if sb.autoArchive > 0 {
			consider(sb.stopped, sb.autoArchive, func() { s.beginArchive(sb) })
		}
	case sb.state == archived && sb.autoDelete >= 0:
		consider(sb.stopped, sb.autoDelete, func() { s.beginDestroy(OpDelete, sb) })
	}
	return at, do
}

// lifecycles does what is due at now. Requests under way count as activity.
func (s *Server) lifecycles(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, sb := range s.sandboxes {
		if sb.inflight > 0 {
			sb.activity = now
		}
		if at, do := sb.due(); !at.IsZero() && !at.After(now) {
			do()
		}
	}
}
