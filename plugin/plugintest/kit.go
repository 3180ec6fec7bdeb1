package plugintest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sbxhost/sbxhost/plugin"
	"github.com/sbxhost/sbxhost/plugin/internal/hook"
	"github.com/sbxhost/sbxhost/plugin/plugintest/fakevendor"
	"github.com/sbxhost/sbxhost/provider"
	"github.com/sbxhost/sbxhost/secret"
)

// Options say what to test and against what. Module is required.
type Options struct {
	// Module is the packed module.
	Module []byte
	// FakeCommand starts an executable fake of the vendor; see fakevendor.Main.
	FakeCommand []string
	// Fake is a fake that runs already, in place of FakeCommand. Its Control must
	// be set.
	Fake *fakevendor.Hello
	// Runtime runs the plugin. nil: one of the kit's own.
	Runtime *plugin.Runtime
	// Only limits the run to checks whose names start with one of these.
	Only []string
	// Words are the commands that the sandboxes know; nil: they have a POSIX shell
	// with the usual tools.
	Words Words
	// Volume is how many bytes the volume check writes, as far as the fake's
	// MaxOutput goes; default 4 MiB, which a fake can be expected to hold in memory.
	Volume int64
	// Progress, when set, is told about each check as it ends.
	Progress func(Check)
}

// opTimeout bounds one operation on the fake.
const opTimeout = 10 * time.Second

// hurry is how long the host waits at most between two looks at a sandbox that
// starts, and how long a plugin's sleep takes, in checks that are not about
// waiting: a fake is ready at once, and a kit makes hundreds of sandboxes.
const hurry = 5 * time.Millisecond

// unhurried lets waits take their time.
const unhurried = 24 * time.Hour

// kit is one run.
type kit struct {
	opts               Options
	loader             loader
	module             *plugin.Inspection
	m                  *plugin.Manifest
	rt                 *plugin.Runtime
	lock               *plugin.Lock
	fake               *fake // nil: none was given
	hurried, unhurried *shared
	lists              bool // whether sandboxes can be listed
	desc               provider.Description
	report             *Report
}

// Run tests a plugin. The error says that the kit could not work at all; what is
// wrong with the plugin is in the report. It can be called from any program, not
// only from tests.
func Run(ctx context.Context, opts Options) (*Report, error) {
	if opts.Volume <= 0 {
		opts.Volume = 4 << 20
	}
	if opts.Words != nil {
		if err := opts.Words.check(); err != nil {
			return nil, err
		}
	}
	return runWith(ctx, opts, func(ctx context.Context, rt *plugin.Runtime, cfg plugin.Config) (loaded, error) {
		return plugin.Load(ctx, rt, cfg)
	})
}

// loaded is a plugin as the kit uses it.
type loaded interface {
	provider.Provider
	Close() error
}

// loader is plugin.Load. The kit's own tests put a host in its place that breaks
// its promises.
type loader func(ctx context.Context, rt *plugin.Runtime, cfg plugin.Config) (loaded, error)

func runWith(ctx context.Context, opts Options, load loader) (*Report, error) {
	k := &kit{opts: opts, loader: load, report: &Report{}}
	k.static(ctx)
	if k.module == nil {
		return k.report, nil
	}
	k.report.Plugin, k.report.Version, k.report.Kind, k.report.Digest = k.module.Name, k.module.Version, k.module.Kind, k.module.Digest
	k.report.Operations = k.module.Operations
	if k.rt = opts.Runtime; k.rt == nil {
		rt, err := plugin.NewRuntime(ctx, plugin.RuntimeConfig{CompileTimeout: 10 * time.Minute})
		if err != nil {
			return nil, err
		}
		defer func() { _ = rt.Close() }() // frees memory; the report is made
		k.rt = rt
	}
	switch {
	case opts.Fake != nil:
		k.fake = &fake{hello: *opts.Fake}
	case len(opts.FakeCommand) > 0:
		f, err := startFake(ctx, opts.FakeCommand)
		if err != nil {
			return nil, err
		}
		defer f.stop()
		k.fake = f
	}
	k.loadChecks(ctx)
	if k.desc.Name == "" {
		return k.report, nil
	}
	k.report.Description = k.desc
	k.references(ctx)
	if !k.usable() {
		k.add(Check{Name: "operations", Status: NotProved, Reasons: []string{"no fake was given: name one with --fake, so that operations can be exercised"}})
		return k.report, nil
	}
	// They stay loaded, so that the compiled code does too.
	for _, s := range []struct {
		to   **shared
		wait time.Duration
	}{{&k.hurried, hurry}, {&k.unhurried, unhurried}} {
		p, err := k.share(ctx, s.wait)
		if err != nil {
			return nil, err
		}
		defer func() { _ = p.loaded.Close() }() // nothing of it runs
		*s.to = p
	}
	began := time.Now()
	_, first := k.hurried.List(ctx, provider.Query{Owner: owner})
	took := time.Since(began)
	// Where there is no vendor there may be nobody to ask; as in the example memory.
	k.lists = provider.CodeOf(first) != provider.Unsupported || len(k.m.Origins) > 0
	k.check(ctx, "static/compile", "the module compiles and initialises", 3*time.Minute, func(t *t) {
		if k.lists {
			t.must(first, "the first operation")
		}
		t.notef("%s with the first operation", took.Round(time.Millisecond))
	})
	k.check(ctx, "static/list", "what was created can be found again: list works, or the plugin has no vendor and says that it cannot", time.Minute, func(t *t) {
		if !k.lists {
			t.notef("it cannot: its sandboxes are known by their references alone")
			return
		}
		t.must(first, "List")
	})
	k.lifecycle(ctx)
	k.errnos(ctx)
	k.faults(ctx)
	k.cancels(ctx)
	k.limits(ctx)
	k.handles(ctx)
	k.taint(ctx)
	k.provider(ctx)
	return k.report, nil
}

// usable reports whether operations can be carried out.
func (k *kit) usable() bool { return k.fake != nil || len(k.m.Origins) == 0 }

// load loads the plugin with the fake's settings. Everything that the host
// could refuse for want of configuration is given.
func (k *kit) load(ctx context.Context, h *hook.Hooks, trace func(string, []byte), log *slog.Logger) (loaded, error) {
	if k.lock == nil { // once: judging a module takes its time
		lock := &plugin.Lock{}
		if _, err := lock.Approve(k.opts.Module); err != nil {
			return nil, err
		}
		k.lock = lock
	}
	cfg := plugin.Config{
		Module: k.opts.Module, Lock: k.lock, Credentials: map[string]secret.Value{}, Settings: map[string]string{}, Origins: map[string]plugin.Origin{},
		AllowPluginDriven: true, Trace: trace, Logger: log,
	}
	if k.fake != nil {
		cfg.Settings = k.fake.hello.Settings
		for name, v := range k.fake.hello.Credentials {
			cfg.Credentials[name] = secret.FromString(v)
		}
		for name, u := range k.fake.hello.Origins {
			cfg.Origins[name] = plugin.Origin{URL: u, AllowPrivate: true}
		}
	}
	if k.fake == nil { // nothing is going to be sent
		for _, c := range k.m.Credentials {
			cfg.Credentials[c.Name] = secret.FromString("no-fake-no-credential")
		}
		for name, o := range k.m.Origins {
			if o.Configured {
				cfg.Origins[name] = plugin.Origin{URL: "https://" + name + ".invalid"}
			}
		}
	}
	if h == nil {
		h = &hook.Hooks{}
	}
	if h.Hurry == 0 {
		h.Hurry = hurry
	}
	return k.loader(hook.With(ctx, h), k.rt, cfg)
}

// add records a check.
func (k *kit) add(c Check) {
	k.report.Checks = append(k.report.Checks, c)
	if k.opts.Progress != nil {
		k.opts.Progress(c)
	}
}

// wanted reports whether a check is among those asked for.
func (k *kit) wanted(name string) bool {
	return len(k.opts.Only) == 0 || slices.ContainsFunc(k.opts.Only, func(p string) bool { return strings.HasPrefix(name, p) })
}

// t is one check while it runs.
type t struct {
	ctx context.Context //nolint:containedctx // a check's own, like testing.T's

	mu       sync.Mutex
	failures []string
	notes    []string
	status   Status // other than passed and failed, with why
	why      string
	cleanups []func()
}

type stop struct{}

func (t *t) errorf(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.failures) < 20 {
		t.failures = append(t.failures, fmt.Sprintf(format, args...))
	}
}

func (t *t) fatalf(format string, args ...any) {
	t.errorf(format, args...)
	panic(stop{})
}

func (t *t) must(err error, what string) {
	if err != nil {
		t.fatalf("%s failed: %s", what, describeError(err))
	}
}

func (t *t) notef(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.notes = append(t.notes, fmt.Sprintf(format, args...))
}

// leave ends a check that does not apply.
func (t *t) leave(s Status, format string, args ...any) {
	t.mu.Lock()
	t.status, t.why = s, fmt.Sprintf(format, args...)
	t.mu.Unlock()
	panic(stop{})
}

func (t *t) cleanup(f func()) { t.cleanups = append(t.cleanups, f) }

// check runs one check in a goroutine of its own, so that it can be given up.
func (k *kit) check(ctx context.Context, name, rule string, limit time.Duration, run func(t *t)) {
	if !k.wanted(name) {
		return
	}
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	tt := &t{ctx: ctx}
	done := make(chan struct{})
	go func() {
		defer close(done)
		tt.guard(func() { run(tt) })
		for _, f := range slices.Backward(tt.cleanups) {
			tt.guard(f)
		}
	}()
	select {
	case <-done:
	case <-ctx.Done():
		select {
		case <-done:
		case <-time.After(30 * time.Second):
			tt.errorf("the check was given up: an operation neither ended nor heeded its context")
		}
	}
	tt.mu.Lock()
	defer tt.mu.Unlock()
	c := Check{Name: name, Rule: rule, Status: Passed, Notes: tt.notes, Duration: time.Since(began)}
	switch {
	case len(tt.failures) > 0:
		c.Status, c.Reasons = Failed, slices.Clone(tt.failures)
	case tt.status != "":
		c.Status, c.Reasons = tt.status, []string{tt.why}
	}
	k.add(c)
}

func (t *t) guard(f func()) {
	defer func() {
		switch v := recover().(type) {
		case nil, stop:
		default:
			t.errorf("the kit or the host panicked with a value of type %T\n%s", v, debug.Stack())
		}
	}()
	f()
}

// describeError is what a report says of an error.
func describeError(err error) string {
	return fmt.Sprintf("%s (%s)", err.Error(), provider.CodeOf(err))
}

// broke says how an error shows that the plugin itself failed: no vendor and no
// errno may have that effect. "" when it does not.
func broke(err error) string {
	var (
		trap  *plugin.PluginTrap
		panik *plugin.PluginPanic
		abi   *plugin.ABIViolation
		bug   *plugin.HostBug
		fuel  *plugin.FuelExhausted
		limit *plugin.LimitExceeded
		typed *provider.Error
	)
	switch {
	case err == nil:
		return ""
	case errors.As(err, &bug):
		return "the host failed: " + bug.Error()
	case errors.As(err, &panik):
		return panik.Error()
	case errors.As(err, &trap):
		return trap.Error()
	case errors.As(err, &abi):
		return abi.Error()
	case errors.As(err, &fuel):
		return fuel.Error()
	case errors.As(err, &limit):
		return limit.Error()
	case !errors.As(err, &typed):
		return "an error without a code: " + err.Error()
	}
	return ""
}
