package daytonatest

import "sync"

// jobs are the goroutines of a server. A request that is still being answered may
// start one while Close waits, which a sync.WaitGroup does not allow.
type jobs struct {
	mu   sync.Mutex
	n    int
	idle chan struct{} // closed when n falls to 0; nil: nobody waits
}

// Go runs f in a goroutine.
func (j *jobs) Go(f func()) {
	j.mu.Lock()
	j.n++
	j.mu.Unlock()
	go func() {
		defer j.end()
		f()
	}()
}

func (j *jobs) end() {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.n--; j.n == 0 && j.idle != nil {
		close(j.idle)
		j.idle = nil
	}
}

// Wait returns when none runs. One caller at a time.
func (j *jobs) Wait() {
	j.mu.Lock()
	if j.n == 0 {
		j.mu.Unlock()
		return
	}
	j.idle = make(chan struct{})
	idle := j.idle
	j.mu.Unlock()
	<-idle
}
