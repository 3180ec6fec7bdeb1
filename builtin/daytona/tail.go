package daytona

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/sbxhost/sbxhost/provider"
)

// How often a running command's output is looked for: often after some came,
// seldom when it is quiet.
const (
	firstLook = 60 * time.Millisecond
	lastLook  = time.Second
)

// How long a transfer may stand still.
const (
	idleLimit = 10 * time.Second
	idleAfter = 1500 * time.Millisecond // when the command was lost or killed
)

// tailing is shared by the two streams of a command.
type tailing struct {
	over chan struct{} // closed when the command has ended; the rest is set then

	wait [2]*stall // of each stream

	mu    sync.Mutex
	whole bool   // all of the output must arrive
	flags string // which streams have any; "" when it is not known
	bad   bool
}

func newTailing(over chan struct{}) *tailing {
	return &tailing{over: over, wait: [2]*stall{newStall(idleLimit), newStall(idleLimit)}}
}

// settle notes how the command ended, before over is closed.
func (t *tailing) settle(exit provider.Exit, res executeResult, run runner) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if exit.Kind == provider.ExitExited || exit.Kind == provider.ExitSignaled {
		t.whole = true
		_, _, t.flags = run.said(res.output)
	}
	// A transfer that stands still does not hold up the end when there is nothing
	// to come, or not all of it is needed.
	for i, w := range t.wait {
		switch {
		case !t.whole:
			w.shorten(idleAfter)
		case t.flags != "" && !strings.Contains(t.flags, streamKinds[i].flag):
			w.shorten(0)
		}
	}
}

func (t *tailing) ended() (whole bool, flags string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.whole, t.flags
}

func (t *tailing) isOver() bool {
	select {
	case <-t.over:
		return true
	default:
		return false
	}
}

func (t *tailing) breaks() {
	t.mu.Lock()
	t.bad = true
	t.mu.Unlock()
}

func (t *tailing) broken() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.bad
}

// stall bounds how long a transfer stands still. It can be shortened meanwhile.
type stall struct {
	mu    sync.Mutex
	limit time.Duration
	timer *time.Timer // while something is waited for
}

func newStall(limit time.Duration) *stall { return &stall{limit: limit} }

// begin waits from now on, and calls give when it was too long.
func (p *stall) begin(give func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.timer != nil {
		p.timer.Stop()
	}
	p.timer = time.AfterFunc(p.limit, give)
}

func (p *stall) stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.timer != nil {
		p.timer.Stop()
		p.timer = nil
	}
}

func (p *stall) shorten(limit time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.limit = limit
	if p.timer != nil {
		p.timer.Reset(limit)
	}
}

var streamKinds = [...]struct{ kind, flag string }{{"out", "o"}, {"err", "e"}}

// tail delivers one stream until the command has ended and everything it wrote
// until then was delivered.
func (p *process) tail(ctx context.Context, i int, to io.Writer, state *tailing) {
	name := file(p.run.tag, streamKinds[i].kind)
	offset, pause := int64(0), firstLook
	for {
		final := false
		t := time.NewTimer(pause)
		select {
		case <-state.over:
			final = true
		case <-t.C:
		}
		t.Stop()
		if final {
			p.rest(ctx, name, streamKinds[i].flag, offset, to, state, state.wait[i])
			return
		}
		n, _, err := p.sb.pull(ctx, name, offset, to, state.wait[i], false)
		if whole, _ := state.ended(); !whole && state.isOver() && errors.Is(err, context.Canceled) {
			return // it stood still, and had its time
		}
		if offset += n; n > 0 {
			pause = firstLook
		} else {
			pause = min(pause*3/2, lastLook)
		}
	}
}

// rest delivers what an ended command has written past the offset.
func (p *process) rest(ctx context.Context, name, flag string, offset int64, to io.Writer, state *tailing, wait *stall) {
	whole, flags := state.ended()
	if !whole {
		ctx, cancel := context.WithTimeout(ctx, 2*idleAfter)
		defer cancel()
		_, _, _ = p.sb.pull(ctx, name, offset, to, wait, false)
		return
	}
	if offset == 0 && flags != "" && !strings.Contains(flags, flag) {
		return // nothing was written
	}
	stalls := 0
	for range 6 {
		n, total, err := p.sb.pull(ctx, name, offset, to, wait, true)
		offset += n
		if total < 0 && err == nil {
			if total, err = p.sb.size(ctx, name); err != nil {
				continue
			}
		}
		if err == nil && offset >= total {
			return
		}
		if errors.Is(err, context.Canceled) {
			if stalls++; stalls == 2 {
				break
			}
		}
		if !sleep(ctx, 20*time.Millisecond) {
			break
		}
	}
	state.breaks()
}

// pull copies a file from an offset to its present end. total is its size, -1
// when that is not known. filled: it has something in it, so that a range of it
// can be asked for, whose answer has the size.
func (sb *sandbox) pull(ctx context.Context, name string, offset int64, to io.Writer, wait *stall, filled bool) (n, total int64, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	wait.begin(cancel)
	defer wait.stop()
	at := offset
	if at == 0 && !filled {
		at = -1
	}
	d, err := sb.box.Download(ctx, name, at)
	switch {
	case statusOf(err) == http.StatusRequestedRangeNotSatisfiable:
		return 0, -1, nil // there is nothing at this offset
	case err != nil:
		return 0, -1, err
	}
	defer func() { _ = d.Close() }()
	buf := make([]byte, 64<<10)
	for {
		wait.begin(cancel)
		m, err := d.Read(buf)
		wait.stop() // whoever takes the output may take long
		if m > 0 {
			n += int64(m)
			if to != nil {
				if _, wErr := to.Write(buf[:m]); wErr != nil {
					to = nil // the rest is drained and dropped
				}
			}
		}
		switch {
		case err == io.EOF:
			return n, d.total, nil
		case err != nil:
			return n, d.total, &callError{what: "the answer broke off", err: plain(err)}
		}
	}
}

// size asks the sandbox itself.
func (sb *sandbox) size(ctx context.Context, name string) (int64, error) {
	out, err := sb.helper(ctx, helper{op: "exec", again: true, script: `wc -c <` + quote(name)})
	if err != nil {
		return -1, err
	}
	return strconv.ParseInt(strings.TrimSpace(out), 10, 64)
}
