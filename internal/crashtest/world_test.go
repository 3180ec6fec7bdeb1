//go:build linux

package crashtest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"

	"github.com/sbxhost/sbxhost/grants"
	"github.com/sbxhost/sbxhost/host"
	"github.com/sbxhost/sbxhost/manifest"
	"github.com/sbxhost/sbxhost/provider/providertest/fault"
)

const canary = "canary-cr4sh-0f8e61d2a7"

// ownerOf is the name of dir's hosts.
func ownerOf(dir string) string {
	sum := sha256.Sum256([]byte(dir))
	return "crashtest-" + hex.EncodeToString(sum[:8])
}

// entry is one line of the journal: what the process was about to do with a
// session, and then that it has done it. The journal is the truth that its end is
// measured by.
type entry struct {
	Op   string // create, write, close; step and end are about the process
	Tag  string // which session
	ID   string `json:",omitempty"`
	Text string `json:",omitempty"`
	Done bool
	N    int `json:",omitempty"`
}

// world is the process that will be killed.
type world struct {
	target
	ctx     context.Context
	h       *host.Host
	faults  *fault.Provider
	journal *os.File
	mu      sync.Mutex
	live    map[string]*host.Session
	texts   int
}

func (w *world) note(e entry) {
	doc, _ := json.Marshal(e) // plain data
	w.mu.Lock()
	defer w.mu.Unlock()
	_, _ = w.journal.Write(append(doc, '\n'))
}

// newWorld opens everything, and reconciles as a daemon does.
func newWorld(t target, dir string, s *steps) (*world, error) {
	w := &world{target: t, ctx: context.Background(), live: map[string]*host.Session{}}
	var err error
	if w.journal, err = os.OpenFile(journalPath(dir), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600); err != nil {
		return nil, err
	}
	s.log = func(n int, name string) { w.note(entry{Op: "step", N: n, Text: name}) }
	led, err := openLedger(dir)
	if err != nil {
		return nil, err
	}
	p, err := t.open(dir, s.step)
	if err != nil {
		return nil, err
	}
	w.faults = fault.New(p)
	w.faults.Watch(s.watch)
	w.h, err = host.New(options(stepLedger{led, s}, ownerOf(dir)))
	if err != nil {
		return nil, err
	}
	if err := w.h.RegisterTrusted("p", w.faults); err != nil {
		return nil, err
	}
	_, err = w.h.Reconcile(w.ctx)
	return w, err
}

func ordinary() manifest.Manifest {
	m := manifest.New()
	m.Files = map[string]manifest.File{"made": {Content: []byte("made")}}
	return m
}

func protected() manifest.Manifest {
	m := ordinary()
	m.Environment = map[string]manifest.Entry{"TOKEN": {Reference: &manifest.Reference{Name: "HOST_TOKEN"}}}
	return m
}

func manifestOf(tag string) manifest.Manifest {
	if tag[0] == 'p' {
		return protected()
	}
	return ordinary()
}

func (w *world) create(tag string) error {
	w.note(entry{Op: "create", Tag: tag})
	s, err := w.h.Create(w.ctx, host.CreateRequest{Provider: "p", Manifest: manifestOf(tag), Key: tag})
	if err != nil {
		return err
	}
	w.live[tag] = s
	w.note(entry{Op: "create", Tag: tag, ID: s.ID(), Done: true})
	return w.write(tag)
}

// write changes a file by a command.
func (w *world) write(tag string) error {
	w.texts++
	e := entry{Op: "write", Tag: tag, Text: fmt.Sprintf("%s-%d-%d", tag, os.Getpid(), w.texts)}
	w.note(e)
	if err := w.run(tag, w.target.write("data", e.Text)); err != nil {
		return err
	}
	e.Done = true
	w.note(e)
	if tag[0] == 'p' {
		return w.run(tag, w.reveal("seen"))
	}
	return nil
}

func (w *world) run(tag string, req host.ExecRequest) error {
	r, err := w.live[tag].Exec(w.ctx, req)
	if err == nil && (r.Status != host.Exited || r.ExitCode != 0) {
		err = fmt.Errorf("%s: the command ended with %s %d: %s", tag, r.Status, r.ExitCode, r.Stderr)
	}
	return err
}

func (w *world) state(tag string, detach bool) ([]byte, error) {
	if detach {
		return w.live[tag].Detach(w.ctx)
	}
	return w.live[tag].State(w.ctx)
}

// resume resumes a session, after letting go of it if detach says so.
func (w *world) resume(tag string, detach bool) error {
	state, err := w.state(tag, detach)
	if err != nil {
		return err
	}
	m := manifestOf(tag)
	s, err := w.h.Resume(w.ctx, host.ResumeRequest{State: state, Provider: "p", Manifest: &m})
	if s != nil {
		w.live[tag] = s
	}
	if re := (*host.RetirementError)(nil); err != nil && !errors.As(err, &re) {
		return err
	}
	return w.write(tag)
}

func (w *world) close(tag string) error {
	s := w.live[tag]
	e := entry{Op: "close", Tag: tag, ID: s.ID()}
	w.note(e)
	delete(w.live, tag)
	if err := s.Close(w.ctx); err != nil {
		return err
	}
	e.Done = true
	w.note(e)
	return nil
}

// once arms a fault, does something, and says whether it failed.
func (w *world) once(r fault.Rule, f func() error) error {
	w.faults.Set(r)
	defer w.faults.Clear()
	return f()
}

// failed turns an expected failure into success, and success into a failure.
func failed(err error) error {
	if err == nil {
		return errors.New("it should have failed")
	}
	return nil
}

// life is what the process does: every operation, whole and broken.
func (w *world) life() error {
	for _, f := range []func() error{
		func() error { return w.create("a") },
		func() error { return w.create("p") },
		func() error { return w.resume("p", false) },
		func() error { return w.resume("p", true) },
		func() error { return w.resume("a", true) },
		func() error { return w.create("b") },
		func() error { return w.close("b") },
		// The previous sandbox cannot be removed; the next create does it.
		func() error {
			return w.once(fault.Rule{Method: fault.Destroy, Kind: fault.Fail}, func() error { return w.resume("p", false) })
		},
		// A create whose answer is lost is found by its labels.
		func() error {
			return w.once(fault.Rule{Method: fault.Create, Kind: fault.Drop}, func() error { return w.create("c") })
		},
		// One whose request was lost is not made twice.
		func() error {
			return w.once(fault.Rule{Method: fault.Create, Kind: fault.Lose}, func() error { return failed(w.create("lost")) })
		},
		// A removal whose answer was lost is settled by the next one.
		func() error {
			return w.once(fault.Rule{Method: fault.Destroy, Kind: fault.Drop}, func() error { return failed(w.close("c")) })
		},
		func() error { return w.create("pd") },
		// A replacement that fails leaves the previous one as it was.
		func() error {
			return w.once(fault.Rule{Method: fault.Create, Kind: fault.Fail}, func() error { return failed(w.resume("pd", false)) })
		},
		func() error { return w.write("pd") },
		func() error { _, err := w.h.Reconcile(w.ctx); return err },
		func() error { return w.leave("a") },
		func() error { return w.leave("p") },
		func() error {
			w.note(entry{Op: "close", Tag: "pd", ID: w.live["pd"].ID()})
			return w.h.Close(w.ctx)
		},
	} {
		if err := f(); err != nil {
			return err
		}
	}
	return nil
}

// leave lets go of a session for the next process.
func (w *world) leave(tag string) error {
	_, err := w.state(tag, true)
	delete(w.live, tag)
	return err
}

// randomLife does the same in an order that nobody chose, until it is killed.
func (w *world) randomLife(r *rand.Rand) error {
	tags := []string{"a", "b", "p", "pd"}
	kinds := []fault.Kind{fault.Fail, fault.Lose, fault.Drop, fault.Duplicate, fault.Stale}
	methods := fault.Methods()
	for round := 0; ; round++ {
		w.faults.Clear()
		if r.IntN(3) == 0 {
			w.faults.Set(fault.Rule{Method: methods[r.IntN(len(methods))], Kind: kinds[r.IntN(len(kinds))], From: 1 + r.IntN(3)})
		}
		tag := tags[r.IntN(len(tags))]
		var err error
		switch s := w.live[tag]; {
		case s == nil:
			// A tag is a session's for good; a new one gets a new tag.
			tag = fmt.Sprintf("%s-%d", tag, round)
			if err = w.create(tag); w.live[tag] != nil {
				tags = append(tags, tag)
			}
		case r.IntN(4) == 0:
			err = w.close(tag)
		case r.IntN(2) == 0:
			err = w.resume(tag, r.IntN(2) == 0)
			if err != nil {
				// Whatever failed: is somebody still holding it?
				if now, ok := w.h.Session(s.ID()); ok {
					w.live[tag] = now
				} else {
					delete(w.live, tag)
				}
			}
		default:
			err = w.write(tag)
		}
		_ = err // faults are meant to fail; what counts is what is left
		if r.IntN(10) == 0 {
			_, _ = w.h.Reconcile(w.ctx)
		}
	}
}

func source() grants.Source { return grants.MapSource(map[string]string{"HOST_TOKEN": canary}) }
