package providertest

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"
	"runtime/pprof"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sbxhost/sbxhost/provider"
)

// Status is how a check went.
type Status string

const (
	Passed     Status = "passed"
	Failed     Status = "failed"
	Undeclared Status = "not declared" // Describe does not claim it
	Unproven   Status = "not proved"   // the harness gives no means to prove it
	Skipped    Status = "skipped"      // by the harness, which says why
)

// Result of one check.
type Result struct {
	Check  string
	Status Status
	// Messages: what failed, or why it was not run.
	Messages []string
	Duration time.Duration
}

// Report of a whole run.
type Report struct {
	Description provider.Description
	Results     []Result
}

// With returns the names of the checks with this status, in order.
func (r Report) With(s Status) []string {
	var out []string
	for _, c := range r.Results {
		if c.Status == s {
			out = append(out, c.Check)
		}
	}
	return out
}

// String summarises the report for people.
func (r Report) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "provider %s: %d checks passed, %d failed", r.Description.Name, len(r.With(Passed)), len(r.With(Failed)))
	for _, s := range []Status{Failed, Undeclared, Unproven, Skipped} {
		for _, c := range r.Results {
			if c.Status == s {
				fmt.Fprintf(&b, "\n  %-12s %s: %s", s, c.Check, strings.Join(c.Messages, "\n               "))
			}
		}
	}
	return b.String()
}

// Info describes one check.
type Info struct{ Name, Rule string }

// Checks lists every check that needs no shell of the harness, in order, with
// the rule it holds a provider to. The matrix checks are named after the
// harness's shells.
func Checks() []Info {
	var out []Info
	for _, c := range allChecks(&Harness{}) {
		out = append(out, Info{c.name, c.rule})
	}
	return out
}

// Run tests the provider and reports each check that applies as a subtest of t.
// What does not apply, because the provider does not declare it or the harness
// cannot prove it, is no subtest: it would count as a test that passed or was
// skipped. The report, which is logged at the end, lists it with the reason.
func Run(t *testing.T, h Harness) {
	t.Helper()
	s := newSuite(&h)
	t.Cleanup(func() { t.Log(s.report.String()) })
	t.Cleanup(s.close)
	if !s.open() {
		t.Fatal(strings.Join(s.setup.messages(), "\n"))
	}
	for _, c := range s.checks() {
		if st, _ := s.applies(c); st != Passed {
			s.run(c) // records why
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			r := s.run(c)
			switch r.Status {
			case Failed:
				t.Errorf("%s\nrule: %s", strings.Join(r.Messages, "\n"), c.rule)
			case Passed:
			default:
				t.Logf("%s: %s", r.Status, strings.Join(r.Messages, "; "))
			}
		})
	}
}

// Check tests the provider outside a test and returns what it found. It never
// panics because of the provider.
func Check(h Harness) Report {
	s := newSuite(&h)
	defer s.close()
	if !s.open() {
		s.report.Results = append(s.report.Results, Result{Check: "setup", Status: Failed, Messages: s.setup.messages()})
		return s.report
	}
	for _, c := range s.checks() {
		s.run(c)
	}
	return s.report
}

// check is one named check.
type check struct {
	name string
	rule string
	// needs returns why the check does not apply, as a status and a reason; nil
	// always applies.
	needs []need
	limit time.Duration // the longest it may take; 0: the default
	run   func(t *T)
}

// need is a condition of a check.
type need func(s *suite) (Status, string)

// suite is one run.
type suite struct {
	h      *Harness
	p      provider.Provider
	d      provider.Description
	owner  string
	setup  *recorder
	report Report
}

func newSuite(h *Harness) *suite {
	if h.Timeout == 0 {
		h.Timeout = time.Second
	}
	if h.Slack == 0 {
		h.Slack = 3 * time.Second
	}
	if h.CallTimeout == 0 {
		h.CallTimeout = time.Minute
	}
	if h.Volume == 0 {
		h.Volume = 200 << 20
	}
	return &suite{h: h, owner: "kit-" + random(8), setup: &recorder{}}
}

// open makes the provider.
func (s *suite) open() bool {
	s.setup.guard("setup", func() {
		if s.h.New == nil || s.h.Commands.Exit == nil || s.h.Commands.Print == nil {
			s.setup.Fatalf("the harness must give New, Commands.Exit and Commands.Print")
		}
		s.p = s.h.New(s.setup)
		s.d = s.p.Describe()
		s.report.Description = s.d
	})
	return !s.setup.failed()
}

func (s *suite) close() { s.setup.guard("setup", func() { s.setup.clean() }) }

func (s *suite) checks() []check { return allChecks(s.h) }

var runs atomic.Int64

// applies returns why a check is not run, or Passed.
func (s *suite) applies(c check) (Status, []string) {
	if why, ok := s.h.Skip[c.name]; ok {
		return Skipped, []string{why}
	}
	if len(s.h.Only) > 0 && !slices.ContainsFunc(s.h.Only, func(p string) bool { return strings.HasPrefix(c.name, p) }) {
		return Skipped, []string{"not among the harness's Only"}
	}
	for _, n := range c.needs {
		if st, why := n(s); why != "" {
			return st, []string{why}
		}
	}
	return Passed, nil
}

// run runs one check in its own goroutine, so that it can be given up.
func (s *suite) run(c check) Result {
	res := Result{Check: c.name}
	res.Status, res.Messages = s.applies(c)
	if res.Status == Passed {
		began := time.Now()
		rec := &recorder{}
		limit := c.limit
		if limit == 0 {
			limit = 3*s.h.CallTimeout + 10*time.Second // of many calls
		}
		ctx, cancel := context.WithTimeout(context.Background(), limit)
		label := strconv.FormatInt(runs.Add(1), 10)
		done := make(chan struct{})
		go func() {
			defer close(done)
			pprof.Do(ctx, pprof.Labels(labelKey, label), func(ctx context.Context) {
				t := &T{recorder: rec, suite: s, ctx: ctx, label: label}
				rec.guard(c.name, func() { c.run(t) })
				rec.guard(c.name, func() { rec.clean() })
			})
		}()
		select {
		case <-done:
		case <-ctx.Done():
			select {
			case <-done:
			case <-time.After(2 * time.Second):
				rec.Errorf("the check was given up after %s: a call of the provider neither returned nor heeded its context", limit)
			}
		}
		cancel()
		res.Duration = time.Since(began)
		if why := rec.notDeclared(); why != "" {
			res.Status, res.Messages = Undeclared, []string{why}
		}
		if rec.failed() {
			res.Status, res.Messages = Failed, rec.messages()
		}
	}
	s.report.Results = append(s.report.Results, res)
	return res
}

// recorder is the kit's own TB.
type recorder struct {
	mu       sync.Mutex
	errors   []string
	logs     []string
	cleanups []func()
	missing  string // what turned out not to be declared
}

func (r *recorder) Helper() {}

func (r *recorder) Logf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.logs = append(r.logs, fmt.Sprintf(format, args...))
}

func (r *recorder) Errorf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.errors = append(r.errors, fmt.Sprintf(format, args...))
}

func (r *recorder) FailNow() {
	r.mu.Lock()
	if len(r.errors) == 0 {
		r.errors = append(r.errors, "failed")
	}
	r.mu.Unlock()
	panic(stop{})
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	r.FailNow()
}

func (r *recorder) Cleanup(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cleanups = append(r.cleanups, f)
}

func (r *recorder) failed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.errors) > 0
}

func (r *recorder) messages() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := slices.Clone(r.errors)
	if len(out) > 0 && len(r.logs) > 0 {
		out = append(out, r.logs...)
	}
	return out
}

// undeclared ends a check that turned out not to apply.
func (r *recorder) undeclared(why string) {
	r.mu.Lock()
	r.missing = why
	r.mu.Unlock()
	panic(stop{})
}

func (r *recorder) notDeclared() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.missing
}

// clean runs the clean-ups, last first.
func (r *recorder) clean() {
	for {
		r.mu.Lock()
		n := len(r.cleanups)
		if n == 0 {
			r.mu.Unlock()
			return
		}
		f := r.cleanups[n-1]
		r.cleanups = r.cleanups[:n-1]
		r.mu.Unlock()
		f()
	}
}

// stop ends a check; it is not a failure by itself.
type stop struct{}

// guard runs f and turns a panic of the provider into a failure. The panic's
// value is not repeated: it may hold anything.
func (r *recorder) guard(name string, f func()) {
	defer func() {
		switch v := recover().(type) {
		case nil, stop:
		case runtime.Error:
			r.Errorf("%s: panic: %s\n%s", name, v.Error(), where())
		default:
			r.Errorf("%s: panic with a value of type %T\n%s", name, v, where())
		}
	}()
	f()
}

// where returns the part of the stack that says where a panic came from.
func where() string {
	_, after, ok := strings.Cut(string(debug.Stack()), "\npanic(")
	lines := strings.Split(after, "\n")
	if !ok || len(lines) < 3 {
		return string(debug.Stack())
	}
	return strings.Join(lines[2:min(len(lines), 12)], "\n")
}
