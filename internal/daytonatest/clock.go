package daytonatest

import (
	"slices"
	"sync"
	"time"
)

// clock is the service's time: the machine's plus what tests added, with tasks
// that are done when they are due.
type clock struct {
	s *Server

	run sync.Mutex // one at a time does what is due

	mu     sync.Mutex
	offset time.Duration
	tasks  []task // by time
	seq    int
	wake   chan struct{}
	quit   chan struct{}
	ended  chan struct{}
}

type task struct {
	at  time.Time
	seq int
	do  func()
}

func (c *clock) start(s *Server) {
	c.s = s
	c.wake, c.quit, c.ended = make(chan struct{}, 1), make(chan struct{}), make(chan struct{})
	go c.loop()
}

func (c *clock) stop() {
	close(c.quit)
	<-c.ended
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Now().Add(c.offset)
}

// after schedules do. It is called without any lock.
func (c *clock) after(d time.Duration, do func()) {
	c.mu.Lock()
	c.seq++
	c.tasks = append(c.tasks, task{time.Now().Add(c.offset + d), c.seq, do})
	slices.SortFunc(c.tasks, func(a, b task) int {
		if x := a.at.Compare(b.at); x != 0 {
			return x
		}
		return a.seq - b.seq
	})
	c.mu.Unlock()
	c.poke()
}

func (c *clock) poke() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// next returns when something is due; zero when nothing is.
func (c *clock) next() time.Time {
	at := c.s.nextLifecycle()
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.tasks) > 0 && (at.IsZero() || c.tasks[0].at.Before(at)) {
		at = c.tasks[0].at
	}
	return at
}

// due does everything that is due now.
func (c *clock) due() {
	c.run.Lock()
	defer c.run.Unlock()
	c.dueLocked()
}

func (c *clock) dueLocked() {
	for {
		now := c.now()
		c.mu.Lock()
		if len(c.tasks) == 0 || c.tasks[0].at.After(now) {
			c.mu.Unlock()
			break
		}
		t := c.tasks[0]
		c.tasks = c.tasks[1:]
		c.mu.Unlock()
		t.do()
	}
	c.s.lifecycles(c.now())
}

func (c *clock) advance(d time.Duration) {
	c.run.Lock()
	defer c.run.Unlock()
	target := c.now().Add(d)
	for range 10_000 { // a bound, should something always be due
		c.dueLocked()
		at := c.next()
		if at.IsZero() || at.After(target) {
			break
		}
		c.jump(at)
	}
	c.jump(target)
	c.dueLocked()
	c.poke()
}

// jump moves the clock on to at least at.
func (c *clock) jump(at time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if d := at.Sub(time.Now().Add(c.offset)); d > 0 {
		c.offset += d
	}
}

func (c *clock) loop() {
	defer close(c.ended)
	for {
		c.due()
		var timer <-chan time.Time
		if at := c.next(); !at.IsZero() {
			timer = time.After(max(at.Sub(c.now()), time.Millisecond))
		}
		select {
		case <-c.wake:
		case <-timer:
		case <-c.quit:
			return
		}
	}
}
