package providertest_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sbxhost/sbxhost/provider"
	"github.com/sbxhost/sbxhost/provider/fake"
	"github.com/sbxhost/sbxhost/provider/providertest"
	"github.com/sbxhost/sbxhost/secret"
)

// plain is a fake whose sandboxes have no optional interfaces, so that a wrapper
// that hides them hides nothing declared.
func plain() *fake.Provider {
	return fake.New(fakeOptions(fake.Options{NoPorts: true, NoPauser: true, NoArchiver: true, NoLogs: true,
		Describe: func(d *provider.Description) {
			d.Features.Ports, d.Features.WorkspaceMove = provider.SupportNone, provider.SupportNone
		}}))
}

// broken is one fault, and the checks that must fail because of it, exactly.
// A check in may fails or not, depending on timing.
type broken struct {
	name      string
	fake      func() *fake.Provider // default plain
	wrap      func(f *fake.Provider, w *wrapped)
	must, may []string
	only      []string
	call      time.Duration // CallTimeout
}

// onExec wraps every process.
func onExec(change func(f *fake.Provider, sb provider.Sandbox, req *provider.ExecRequest) func(p provider.Process) provider.Process) func(*fake.Provider, *wrapped) {
	return func(f *fake.Provider, w *wrapped) {
		w.exec = func(ctx context.Context, sb provider.Sandbox, req provider.ExecRequest) (provider.Process, error) {
			after := change(f, sb, &req)
			p, err := sb.Exec(ctx, req)
			if err != nil || after == nil {
				return p, err
			}
			return after(p), nil
		}
	}
}

var faults = []broken{
	{name: "List hides what does not run", fake: func() *fake.Provider { return fake.New(fakeOptions(fake.Options{})) },
		wrap: func(f *fake.Provider, w *wrapped) {
			w.list = func(ctx context.Context, q provider.Query) ([]provider.Resource, error) {
				all, err := f.List(ctx, q)
				return slices.DeleteFunc(all, func(r provider.Resource) bool { return r.State != provider.StateRunning }), err
			}
		}, must: []string{"list/paused"}},
	{name: "List ignores the owner", wrap: func(f *fake.Provider, w *wrapped) {
		w.list = func(ctx context.Context, q provider.Query) ([]provider.Resource, error) {
			q.Owner = ""
			return f.List(ctx, q)
		}
	}, must: []string{"list/owner"}},
	{name: "List forgets user labels", wrap: func(f *fake.Provider, w *wrapped) {
		w.list = func(ctx context.Context, q provider.Query) ([]provider.Resource, error) {
			all, err := f.List(ctx, q)
			for _, r := range all {
				maps.DeleteFunc(r.Labels, func(k, _ string) bool { return !strings.HasPrefix(k, provider.LabelPrefix) })
			}
			return all, err
		}
	}, must: []string{"list/session"}},
	{name: "Destroy of what is absent fails", wrap: func(f *fake.Provider, w *wrapped) {
		var mu sync.Mutex
		w.destroy = func(ctx context.Context, ref provider.Ref) error {
			mu.Lock()
			defer mu.Unlock()
			if _, err := f.Open(ctx, ref); err != nil {
				return err
			}
			return f.Destroy(ctx, ref)
		}
	}, must: []string{"destroy/absent", "destroy/twice", "destroy/concurrent"}},
	{name: "Destroy does nothing", wrap: func(_ *fake.Provider, w *wrapped) {
		w.destroy = func(context.Context, provider.Ref) error { return nil }
	}, must: []string{"destroy/verified", "destroy/in-use", "lifecycle/open-gone", "lifecycle/gone-sandbox", "list/gone"}},
	{name: "Destroy takes the neighbours along", wrap: func(f *fake.Provider, w *wrapped) {
		w.destroy = func(ctx context.Context, ref provider.Ref) error {
			all, err := f.List(ctx, provider.Query{})
			if err != nil {
				return err
			}
			for _, r := range all {
				err = errors.Join(err, f.Destroy(ctx, r.Ref))
			}
			return err
		}
	}, must: []string{"destroy/others", "create/replaces"}},
	{name: "Create is not idempotent", wrap: func(f *fake.Provider, w *wrapped) {
		var n atomic.Int64
		w.create = func(ctx context.Context, req provider.CreateRequest) (provider.Sandbox, error) {
			if provider.ValidateCreate(req) == nil {
				// As a replacement with an attempt of its own it is always a new one.
				req.Labels = maps.Clone(req.Labels)
				req.Labels[provider.LabelAttempt] = fmt.Sprintf("%08d", n.Add(1))
				req.Name = provider.ReplacementName(req.SessionID, req.Labels[provider.LabelAttempt])
				req.Replaces = &provider.Ref{ID: "none"}
			}
			return f.Create(ctx, req)
		}
	}, must: []string{"create/adopts", "create/adopts-once", "create/conflict", "create/replaces", "list/session"}},
	{name: "Create adopts whatever the digest", wrap: func(f *fake.Provider, w *wrapped) {
		w.create = func(ctx context.Context, req provider.CreateRequest) (provider.Sandbox, error) {
			if req.Replaces == nil && req.SessionID != "" {
				if all, err := f.List(ctx, provider.Query{Session: req.SessionID}); err == nil && len(all) == 1 {
					return f.Open(ctx, all[0].Ref)
				}
			}
			return f.Create(ctx, req)
		}
	}, must: []string{"create/conflict"}},
	{name: "Create ignores Checkpoint", wrap: func(f *fake.Provider, w *wrapped) {
		w.create = func(ctx context.Context, req provider.CreateRequest) (provider.Sandbox, error) {
			req.Checkpoint = nil
			return f.Create(ctx, req)
		}
	}, must: []string{"create/checkpoint"}},
	{name: "Create makes what it says it did not", wrap: func(f *fake.Provider, w *wrapped) {
		w.create = func(ctx context.Context, req provider.CreateRequest) (provider.Sandbox, error) {
			sb, err := f.Create(context.WithoutCancel(ctx), req)
			if err == nil && ctx.Err() != nil {
				return nil, &provider.Error{Code: provider.Canceled, Op: "create", Applied: provider.AppliedNo}
			}
			return sb, err
		}
	}, must: []string{"cancel/create"}, may: []string{"cancel/create-late"}}, // whose first context ends after a millisecond
	{name: "a lost stream counts as exit 0", wrap: onExec(func(*fake.Provider, provider.Sandbox, *provider.ExecRequest) func(provider.Process) provider.Process {
		return func(p provider.Process) provider.Process {
			return &wrappedProcess{Process: p, wait: func(ctx context.Context) (provider.Exit, error) {
				e, err := p.Wait(ctx)
				if e.Kind == provider.ExitLost {
					e.Kind, e.Code = provider.ExitExited, 0
				}
				return e, err
			}}
		}
	}), must: []string{"exec/lost"}},
	{name: "a process keeps its request where it is printed", wrap: onExec(func(_ *fake.Provider, _ provider.Sandbox, req *provider.ExecRequest) func(provider.Process) provider.Process {
		if req.TTY {
			return nil // it must stay a Resizer
		}
		kept := *req
		return func(p provider.Process) provider.Process {
			return &struct {
				provider.Process
				req provider.ExecRequest
			}{p, kept}
		}
	}), must: []string{"exec/printed"}},
	{name: "Wait waits for children that hold the output", wrap: onExec(func(f *fake.Provider, sb provider.Sandbox, req *provider.ExecRequest) func(provider.Process) provider.Process {
		id := req.ID
		return func(p provider.Process) provider.Process {
			return &wrappedProcess{Process: p, wait: func(ctx context.Context) (provider.Exit, error) {
				e, err := p.Wait(ctx)
				for e.Kind != provider.ExitLost && slices.ContainsFunc(f.Running(sb.Ref()), func(r fake.Process) bool { return r.Exec == id }) {
					select {
					case <-ctx.Done():
						return provider.Exit{}, &provider.Error{Code: provider.DeadlineExceeded}
					case <-time.After(10 * time.Millisecond):
					}
				}
				return e, err
			}}
		}
	}), must: []string{"background/no-delay", "background/survives", "kill/left-over"}},
	{name: "standard input stays open", wrap: onExec(func(_ *fake.Provider, _ provider.Sandbox, req *provider.ExecRequest) func(provider.Process) provider.Process {
		if req.Stdin != provider.StdinNone {
			return nil
		}
		req.Stdin = provider.StdinLive
		return func(p provider.Process) provider.Process { return &wrappedProcess{Process: p, noStdin: true} }
	}), must: []string{"stdin/none"}},
	{name: "stderr is merged though declared separate", wrap: onExec(func(_ *fake.Provider, _ provider.Sandbox, req *provider.ExecRequest) func(provider.Process) provider.Process {
		req.Stderr = req.Stdout
		return nil
	}), must: []string{"exec/stderr"}},
	{name: "values end at a newline", wrap: onExec(func(_ *fake.Provider, _ provider.Sandbox, req *provider.ExecRequest) func(provider.Process) provider.Process {
		req.Protected = cut(req.Protected)
		return nil
	}), must: []string{"env/exec-exact", "env/other-sandbox", "secrets/beside"}},
	{name: "request secrets end at a newline", wrap: onExec(func(_ *fake.Provider, _ provider.Sandbox, req *provider.ExecRequest) func(provider.Process) provider.Process {
		req.Secrets = cut(req.Secrets)
		return nil
	}), must: []string{"secrets/exact", "secrets/one-exec"}},
	{name: "protected values stay for the next command", wrap: func(_ *fake.Provider, w *wrapped) {
		var mu sync.Mutex
		kept := map[string]secret.Env{}
		w.exec = func(ctx context.Context, sb provider.Sandbox, req provider.ExecRequest) (provider.Process, error) {
			mu.Lock()
			if req.Protected.Len() > 0 {
				kept[sb.Ref().ID] = req.Protected
			} else if req.Secrets.Len() == 0 {
				req.Protected = kept[sb.Ref().ID]
			}
			mu.Unlock()
			return sb.Exec(ctx, req)
		}
	}, must: []string{"env/exec-only-there"}},
	{name: "values are copied into a literal", wrap: onExec(func(_ *fake.Provider, _ provider.Sandbox, req *provider.ExecRequest) func(provider.Process) provider.Process {
		req.Env = maps.Clone(req.Env)
		if req.Env == nil {
			req.Env = map[string]string{}
		}
		for _, env := range []secret.Env{req.Protected, req.Secrets} {
			for k, v := range env.All() {
				if !v.HasNUL() {
					req.Env["COPY_OF_"+k] = string(v.Reveal())
				}
			}
		}
		return nil
	}), must: []string{"env/records", "secrets/records"}},
	{name: "values are written to a file", wrap: func(_ *fake.Provider, w *wrapped) {
		w.exec = func(ctx context.Context, sb provider.Sandbox, req provider.ExecRequest) (provider.Process, error) {
			for k, v := range req.Protected.All() {
				_ = sb.Files().Write(ctx, ".env-"+k, strings.NewReader(string(v.Reveal())), provider.WriteOptions{})
			}
			return sb.Exec(ctx, req)
		}
	}, must: []string{"env/elsewhere"}},
	{name: "errors repeat values", wrap: func(_ *fake.Provider, w *wrapped) {
		w.exec = func(ctx context.Context, sb provider.Sandbox, req provider.ExecRequest) (provider.Process, error) {
			p, err := sb.Exec(ctx, req)
			if v, ok := req.Protected.Get("KIT_PLAIN"); ok && err != nil {
				var pe *provider.Error
				if errors.As(err, &pe) {
					pe.Message += " with KIT_PLAIN=" + string(v.Reveal())
				}
			}
			return p, err
		}
	}, must: []string{"env/errors"}},
	{name: "paths may leave the root", wrap: func(_ *fake.Provider, w *wrapped) {
		w.files = func(f provider.FS) provider.FS { return escaping{f, false} }
	}, must: []string{"files/escape-dotdot", "files/escape-absolute", "files/escape-link"}},
	{name: "links may leave the root", wrap: func(_ *fake.Provider, w *wrapped) {
		w.files = func(f provider.FS) provider.FS { return escaping{f, true} }
	}, must: []string{"files/escape-link"}},
	{name: "timeouts are ignored", wrap: onExec(func(_ *fake.Provider, _ provider.Sandbox, req *provider.ExecRequest) func(provider.Process) provider.Process {
		req.Timeout = 0
		return nil
	}), must: []string{"timeout/kills", "timeout/partial", "timeout/tree", "timeout/term-ignored", "timeout/others"}},
	{name: "kills the command alone though declared tree", fake: func() *fake.Provider {
		return fake.New(fakeOptions(fake.Options{Describe: func(d *provider.Description) { d.Exec.Kill = provider.KillProcess }}))
	}, wrap: func(f *fake.Provider, w *wrapped) {
		w.describe = func() provider.Description {
			d := f.Describe()
			d.Exec.Kill = provider.KillTree
			return d
		}
	}, must: []string{"kill/tree", "kill/left-over", "timeout/tree"}},
	{name: "kills the group though declared tree", fake: func() *fake.Provider {
		return fake.New(fakeOptions(fake.Options{Describe: func(d *provider.Description) { d.Exec.Kill = provider.KillGroup }}))
	}, wrap: func(f *fake.Provider, w *wrapped) {
		w.describe = func() provider.Description {
			d := f.Describe()
			d.Exec.Kill = provider.KillTree
			return d
		}
	}, must: []string{"kill/tree", "kill/left-over", "timeout/tree"}},
	{name: "Kill returns before the end", wrap: onExec(func(_ *fake.Provider, _ provider.Sandbox, _ *provider.ExecRequest) func(provider.Process) provider.Process {
		return func(p provider.Process) provider.Process {
			return &wrappedProcess{Process: p, kill: func(context.Context, time.Duration) error { return nil }}
		}
	}), must: []string{"kill/ends", "kill/tree", "kill/term-ignored", "kill/idempotent", "kill/left-over", "goroutines/none-left"}},
	{name: "goroutines are left behind", wrap: onExec(func(*fake.Provider, provider.Sandbox, *provider.ExecRequest) func(provider.Process) provider.Process {
		go func() { <-leaked }()
		return nil
	}), must: []string{"goroutines/none-left"}},
	{name: "Open fails with the wrong code", wrap: func(f *fake.Provider, w *wrapped) {
		w.open = func(ctx context.Context, ref provider.Ref) (provider.Sandbox, error) {
			sb, err := f.Open(ctx, ref)
			if provider.CodeOf(err) == provider.NotFound {
				err = provider.Errorf(provider.Internal, "open", "no answer")
			}
			return sb, err
		}
	}, must: []string{"lifecycle/open-gone"}},
	{name: "errors are not typed", wrap: func(_ *fake.Provider, w *wrapped) {
		w.exec = func(ctx context.Context, sb provider.Sandbox, req provider.ExecRequest) (provider.Process, error) {
			p, err := sb.Exec(ctx, req)
			if len(req.Args) == 1 && strings.Contains(req.Args[0], "no") && err != nil {
				err = errors.New("exec: not found")
			}
			return p, err
		}
	}, must: []string{"exec/not-found"}},
	{name: "a refused request is started", wrap: onExec(func(_ *fake.Provider, _ provider.Sandbox, req *provider.ExecRequest) func(provider.Process) provider.Process {
		req.Env = maps.Clone(req.Env)
		maps.DeleteFunc(req.Env, func(k, _ string) bool { return !provider.ValidEnvKey(k) })
		return nil
	}), must: []string{"exec/invalid", "env/errors"}},
	{name: "commands are run twice", wrap: func(_ *fake.Provider, w *wrapped) {
		w.exec = func(ctx context.Context, sb provider.Sandbox, req provider.ExecRequest) (provider.Process, error) {
			if len(req.Args) > 0 && req.Args[0] == "append" {
				if p, err := sb.Exec(ctx, req); err == nil {
					_, _ = p.Wait(ctx)
				}
			}
			return sb.Exec(ctx, req)
		}
	}, must: []string{"exec/once", "create/root", "files/shared"}},
	{name: "Describe changes", wrap: func(f *fake.Provider, w *wrapped) {
		var n atomic.Int64
		w.describe = func() provider.Description {
			d := f.Describe()
			d.Version = fmt.Sprint(n.Add(1))
			return d
		}
	}, must: []string{"describe/stable"}},
	{name: "Describe contradicts itself", wrap: func(f *fake.Provider, w *wrapped) {
		w.describe = func() provider.Description {
			d := f.Describe()
			slices.Reverse(d.Transports)
			return d
		}
	}, must: []string{"describe/valid"}},
	{name: "Wait gives different exits", wrap: onExec(func(*fake.Provider, provider.Sandbox, *provider.ExecRequest) func(provider.Process) provider.Process {
		return func(p provider.Process) provider.Process {
			var n atomic.Int64
			return &wrappedProcess{Process: p, wait: func(ctx context.Context) (provider.Exit, error) {
				e, err := p.Wait(ctx)
				if n.Add(1) > 1 && e.Kind == provider.ExitExited {
					e.Code++
				}
				return e, err
			}}
		}
	}), must: []string{"exec/wait-same", "kill/idempotent"}, may: []string{"exec/wait-canceled"}},
	{name: "exit codes are cut to success and failure", wrap: onExec(func(*fake.Provider, provider.Sandbox, *provider.ExecRequest) func(provider.Process) provider.Process {
		return func(p provider.Process) provider.Process {
			return &wrappedProcess{Process: p, wait: func(ctx context.Context) (provider.Exit, error) {
				e, err := p.Wait(ctx)
				e.Code = min(e.Code, 1)
				return e, err
			}}
		}
	}), must: []string{"env/exec-only-there", "env/other-sandbox", "exec/env", "exec/exit-codes",
		"kill/idempotent", "lifecycle/open", "secrets/one-exec", "stdin/unread", "timeout/in-time"}},
	{name: "writers are used after Wait", wrap: func(_ *fake.Provider, w *wrapped) {
		w.exec = func(ctx context.Context, sb provider.Sandbox, req provider.ExecRequest) (provider.Process, error) {
			p, err := sb.Exec(ctx, req)
			if err != nil {
				return p, err
			}
			out := req.Stdout
			var once sync.Once
			return &wrappedProcess{Process: p, wait: func(ctx context.Context) (provider.Exit, error) {
				e, err := p.Wait(ctx)
				once.Do(func() {
					go func() {
						for range 100 { // whenever the check looks
							time.Sleep(10 * time.Millisecond)
							_, _ = out.Write(nil)
						}
					}()
				})
				return e, err
			}}, nil
		}
	}, must: []string{"exec/writers"}},
	{name: "unknown signals are accepted", wrap: onExec(func(*fake.Provider, provider.Sandbox, *provider.ExecRequest) func(provider.Process) provider.Process {
		return func(p provider.Process) provider.Process {
			return &wrappedProcess{Process: p, signal: func(ctx context.Context, name string) error {
				if err := p.Signal(ctx, name); provider.CodeOf(err) != provider.InvalidArgument {
					return err
				}
				return nil
			}}
		}
	}), must: []string{"signal/unknown"}},
	{name: "output is only delivered at the end though declared live", fake: func() *fake.Provider {
		return fake.New(fakeOptions(fake.Options{Describe: func(d *provider.Description) { d.Exec.Stream = false }}))
	}, wrap: func(f *fake.Provider, w *wrapped) {
		w.describe = func() provider.Description {
			d := f.Describe()
			d.Exec.Stream = true
			return d
		}
	}, must: []string{"exec/live-output", "stdin/live"}, only: []string{"exec/live", "stdin/live"}},
	{name: "a call hangs whatever its context says", wrap: func(_ *fake.Provider, w *wrapped) {
		w.status = func(context.Context, provider.Sandbox) (provider.Status, error) {
			<-leaked
			return provider.Status{}, nil
		}
	}, must: []string{"lifecycle/ready"}, only: []string{"lifecycle/re", "describe"}, call: 10 * time.Second},
	{name: "a call panics", wrap: func(_ *fake.Provider, w *wrapped) {
		w.status = func(context.Context, provider.Sandbox) (provider.Status, error) { panic("canary-in-panic") }
	}, must: []string{"lifecycle/ready"}, only: []string{"lifecycle/re", "describe"}},
}

// leaked is closed when the tests of this package are over.
var leaked = make(chan struct{})

// cut cuts every value at its first newline.
func cut(env secret.Env) secret.Env {
	m := map[string]secret.Value{}
	for k, v := range env.All() {
		line, _, _ := strings.Cut(string(v.Reveal()), "\n")
		m[k] = secret.FromString(line)
	}
	return secret.NewEnv(m)
}

// escaping answers for what lies outside the root.
type escaping struct {
	provider.FS
	linksOnly bool
}

func (e escaping) Open(ctx context.Context, path string) (io.ReadCloser, provider.FileInfo, error) {
	r, info, err := e.FS.Open(ctx, path)
	byItself := strings.HasPrefix(path, "/") || strings.Contains(path, "..")
	if provider.CodeOf(err) == provider.PermissionDenied && !(e.linksOnly && byItself) {
		return io.NopCloser(strings.NewReader("root:x:0:0")), provider.FileInfo{Name: "passwd"}, nil
	}
	return r, info, err
}

// Every deliberately broken provider fails exactly the checks that are there for
// its fault.
func TestBroken(t *testing.T) {
	t.Parallel()
	// Many at once: they mostly wait. Too many would disturb each other's timing.
	slots := make(chan struct{}, 20)
	reports := make([]chan providertest.Report, len(faults))
	for i, b := range faults {
		reports[i] = make(chan providertest.Report, 1)
		go func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			f := plain()
			if b.fake != nil {
				f = b.fake()
			}
			w := &wrapped{Provider: f}
			b.wrap(f, w)
			h := fakeHarness(f, w)
			h.Volume, h.Only = 1<<20, b.only
			h.Slack = 10 * time.Second // each of what must fail waits for it
			if b.call > 0 {
				h.CallTimeout = b.call
			}
			reports[i] <- providertest.Check(h)
			// What the fault kept alive ends here.
			all, _ := f.List(context.Background(), provider.Query{})
			for _, r := range all {
				_ = f.Destroy(context.Background(), r.Ref)
			}
		}()
	}
	for i, b := range faults {
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			r := <-reports[i]
			failed := slices.DeleteFunc(r.With(providertest.Failed), func(c string) bool { return slices.Contains(b.may, c) })
			require.ElementsMatch(t, b.must, failed, r.String())
			require.NotContains(t, r.String(), "canary-", "a report must not repeat a value")
		})
	}
}
