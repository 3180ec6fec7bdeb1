package host_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sbxhost/sbxhost/host"
	"github.com/sbxhost/sbxhost/manifest"
	"github.com/sbxhost/sbxhost/provider"
	"github.com/sbxhost/sbxhost/provider/fake"
)

// hostile is a provider that works, except for what a test changes about it.
type hostile struct {
	*fake.Provider
	describe func() provider.Description
	sandbox  func(provider.Sandbox) provider.Sandbox
	list     func([]provider.Resource) []provider.Resource
}

func (h *hostile) Describe() provider.Description {
	if h.describe != nil {
		return h.describe()
	}
	return h.Provider.Describe()
}

func (h *hostile) Create(ctx context.Context, req provider.CreateRequest) (provider.Sandbox, error) {
	sb, err := h.Provider.Create(ctx, req)
	if err != nil || h.sandbox == nil {
		return sb, err
	}
	return h.sandbox(sb), nil
}

func (h *hostile) List(ctx context.Context, q provider.Query) ([]provider.Resource, error) {
	l, err := h.Provider.List(ctx, q)
	if h.list != nil {
		l = h.list(l)
	}
	return l, err
}

type hostileSandbox struct {
	provider.Sandbox
	ref    func() provider.Ref
	files  func() provider.FS
	exec   func(provider.Process) provider.Process
	status func() provider.Status
}

func (s *hostileSandbox) Ref() provider.Ref {
	if s.ref != nil {
		return s.ref()
	}
	return s.Sandbox.Ref()
}

func (s *hostileSandbox) Files() provider.FS {
	if s.files != nil {
		return s.files()
	}
	return s.Sandbox.Files()
}

func (s *hostileSandbox) Exec(ctx context.Context, req provider.ExecRequest) (provider.Process, error) {
	p, err := s.Sandbox.Exec(ctx, req)
	if err != nil || s.exec == nil {
		return p, err
	}
	return s.exec(p), nil
}

func (s *hostileSandbox) Status(ctx context.Context) (provider.Status, error) {
	if s.status != nil {
		return s.status(), nil
	}
	return s.Sandbox.Status(ctx)
}

type hostileProcess struct {
	provider.Process
	stdin func(io.WriteCloser) io.WriteCloser
	exit  func(provider.Exit) provider.Exit
}

func (p *hostileProcess) Stdin() io.WriteCloser { return p.stdin(p.Process.Stdin()) }

func (p *hostileProcess) Wait(ctx context.Context) (provider.Exit, error) {
	exit, err := p.Process.Wait(ctx)
	if p.exit != nil {
		exit = p.exit(exit)
	}
	return exit, err
}

type hostileWriter struct {
	write func(p []byte) (int, error)
}

func (w hostileWriter) Write(p []byte) (int, error) { return w.write(p) }
func (w hostileWriter) Close() error                { panic(tokenCanary) }

// hostileHost registers p as trusted, beside the fake below it.
func hostileHost(t *testing.T, p *hostile) (*host.Host, *recorder) {
	t.Helper()
	rec := &recorder{}
	h, err := host.New(host.Options{Grants: tokenGrant(), Source: newSource(map[string]string{"HOST_TOKEN": tokenCanary}), Sinks: []host.Sink{rec}})
	require.NoError(t, err)
	p.Provider = fake.New(fake.Options{})
	require.NoError(t, h.RegisterTrusted("hostile", p))
	t.Cleanup(func() { assert.NoError(t, h.Close(context.Background())) })
	return h, rec
}

func hostileError(t *testing.T, err error) {
	t.Helper()
	require.Error(t, err)
	for e := err; e != nil; e = errors.Unwrap(e) {
		noCanary(t, fmt.Sprintf("%v %+v %#v", e, e, e))
	}
}

// A provider cannot take the host down from any call the host makes, whatever
// it returns, and its panics say nothing.
func TestProviderPanicsAreErrors(t *testing.T) {
	t.Parallel()
	t.Run("describe", func(t *testing.T) {
		t.Parallel()
		h, err := host.New(host.Options{})
		require.NoError(t, err)
		defer func() { _ = h.Close(context.Background()) }()
		hostileError(t, h.Register("p", &hostile{Provider: fake.New(fake.Options{}), describe: func() provider.Description { panic(tokenCanary) }}))
	})
	for name, sandbox := range map[string]func(provider.Sandbox) provider.Sandbox{
		"ref panics": func(sb provider.Sandbox) provider.Sandbox {
			return &hostileSandbox{Sandbox: sb, ref: func() provider.Ref { panic(tokenCanary) }}
		},
		"nil sandbox":       func(provider.Sandbox) provider.Sandbox { return nil },
		"typed nil sandbox": func(provider.Sandbox) provider.Sandbox { return (*hostileSandbox)(nil) },
		"ref holds the value": func(sb provider.Sandbox) provider.Sandbox {
			return &hostileSandbox{Sandbox: sb, ref: func() provider.Ref { return provider.Ref{ID: tokenCanary} }}
		},
		"ref is malformed JSON": func(sb provider.Sandbox) provider.Sandbox {
			return &hostileSandbox{Sandbox: sb, ref: func() provider.Ref { return provider.Ref{ID: "x", Data: []byte("{")} }}
		},
		"ref is empty": func(sb provider.Sandbox) provider.Sandbox {
			return &hostileSandbox{Sandbox: sb, ref: func() provider.Ref { return provider.Ref{} }}
		},
		"files panics at create": func(sb provider.Sandbox) provider.Sandbox {
			return &hostileSandbox{Sandbox: sb, files: func() provider.FS { panic(tokenCanary) }}
		},
		"nil files at create": func(sb provider.Sandbox) provider.Sandbox {
			return &hostileSandbox{Sandbox: sb, files: func() provider.FS { return nil }}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := &hostile{sandbox: sandbox}
			h, _ := hostileHost(t, p)
			m := protected()
			m.Files = map[string]manifest.File{"f": {Content: []byte("x")}}
			_, err := h.Create(t.Context(), host.CreateRequest{Provider: "hostile", Manifest: m})
			hostileError(t, err)
			assert.Empty(t, h.Sessions())
		})
	}
	t.Run("files, stdin and wait of a running session", func(t *testing.T) {
		t.Parallel()
		var files func() provider.FS
		var stdin func(io.WriteCloser) io.WriteCloser
		var exit func(provider.Exit) provider.Exit
		p := &hostile{sandbox: func(sb provider.Sandbox) provider.Sandbox {
			return &hostileSandbox{Sandbox: sb, files: func() provider.FS { return files() }, exec: func(pr provider.Process) provider.Process {
				return &hostileProcess{Process: pr, stdin: func(w io.WriteCloser) io.WriteCloser { return stdin(w) }, exit: exit}
			}}
		}}
		h, _ := hostileHost(t, p)
		ctx := t.Context()
		s, err := h.Create(ctx, host.CreateRequest{Provider: "hostile", Manifest: protected()})
		require.NoError(t, err)

		for name, f := range map[string]func() provider.FS{
			"panic": func() provider.FS { panic(tokenCanary) },
			"nil":   func() provider.FS { return nil },
			"liar":  func() provider.FS { return nilReaderFS{} },
		} {
			files = f
			_, err = s.ReadFile(ctx, "x")
			hostileError(t, err)
			if name == "liar" {
				continue
			}
			_, err = s.List(ctx, ".")
			hostileError(t, err)
			_, err = s.Stat(ctx, ".")
			hostileError(t, err)
			hostileError(t, s.Mkdir(ctx, "d", 0o755))
			hostileError(t, s.Remove(ctx, "d", true))
			hostileError(t, s.WriteFile(ctx, "x", []byte("y"), host.WriteOptions{}))
		}

		stdin = func(io.WriteCloser) io.WriteCloser { panic(tokenCanary) }
		_, err = s.Exec(ctx, host.ExecRequest{Args: []string{"true"}})
		hostileError(t, err)

		for _, w := range []func([]byte) (int, error){
			func([]byte) (int, error) { panic(tokenCanary) },
			func(p []byte) (int, error) { return len(p) + 1, nil },
			func([]byte) (int, error) { return -1, nil },
		} {
			stdin = func(io.WriteCloser) io.WriteCloser { return hostileWriter{w} }
			_, err = s.Exec(ctx, host.ExecRequest{Args: []string{"true"}, Stdin: strings.NewReader("input")})
			require.NoError(t, err, "what a command makes of its input is its affair")
			pr, err := s.Start(ctx, host.ExecRequest{Args: []string{"true"}, LiveStdin: true})
			require.NoError(t, err)
			_, err = pr.Stdin().Write([]byte("input"))
			hostileError(t, err)
			hostileError(t, pr.Stdin().Close())
			_, err = pr.Wait(ctx)
			require.NoError(t, err)
		}

		stdin = func(w io.WriteCloser) io.WriteCloser { return w }
		exit = func(provider.Exit) provider.Exit { panic(tokenCanary) }
		r, err := s.Exec(ctx, host.ExecRequest{Args: []string{"true"}})
		hostileError(t, err)
		require.NotNil(t, r)
		assert.Equal(t, host.Lost, r.Status, "never exit 0")

		exit = func(provider.Exit) provider.Exit {
			return provider.Exit{Kind: provider.ExitSignaled, Code: -1, Signal: tokenCanary + "\x1b[2J", TreeDead: true}
		}
		r, err = s.Exec(ctx, host.ExecRequest{Args: []string{"true"}})
		require.NoError(t, err)
		noCanary(t, fmt.Sprintf("%+v", r))
		assert.Empty(t, r.Signal)

		exit = func(provider.Exit) provider.Exit { return provider.Exit{Kind: "made up", Code: 0} }
		r, err = s.Exec(ctx, host.ExecRequest{Args: []string{"true"}})
		require.Error(t, err)
		assert.Equal(t, host.Lost, r.Status, "never exit 0")
		files = func() provider.FS { return nil }
	})
}

type nilReaderFS struct{ provider.FS }

func (nilReaderFS) Open(context.Context, string) (io.ReadCloser, provider.FileInfo, error) {
	return nil, provider.FileInfo{}, nil
}

// A ref that changes after it was looked at is not followed: what was checked is
// what is kept, shown and destroyed.
func TestRefIsAskedForOnce(t *testing.T) {
	t.Parallel()
	asked := 0
	p := &hostile{sandbox: func(sb provider.Sandbox) provider.Sandbox {
		return &hostileSandbox{Sandbox: sb, ref: func() provider.Ref {
			if asked++; asked > 1 {
				return provider.Ref{ID: tokenCanary}
			}
			return sb.Ref()
		}}
	}}
	h, _ := hostileHost(t, p)
	s, err := h.Create(t.Context(), host.CreateRequest{Provider: "hostile", Manifest: protected()})
	require.NoError(t, err)
	state, err := s.State(t.Context())
	require.NoError(t, err)
	noCanary(t, string(state))
	require.NoError(t, s.Close(t.Context()))
	left, err := p.Provider.List(t.Context(), provider.Query{})
	require.NoError(t, err)
	assert.Empty(t, left, "the sandbox that was made is the one destroyed")
}

// What a provider returns stays the provider's: masking it changes a copy.
func TestAnswersAreCopied(t *testing.T) {
	t.Parallel()
	kept := []provider.FileInfo{{Name: tokenCanary, Path: tokenCanary}}
	unenforced := []string{tokenCanary}
	p := &hostile{sandbox: func(sb provider.Sandbox) provider.Sandbox {
		return &hostileSandbox{Sandbox: sb,
			files:  func() provider.FS { return listFS{sb.Files(), kept} },
			status: func() provider.Status { return provider.Status{State: provider.StateRunning, Unenforced: unenforced} }}
	}}
	h, _ := hostileHost(t, p)
	s, err := h.Create(t.Context(), host.CreateRequest{Provider: "hostile", Manifest: protected()})
	require.NoError(t, err)
	list, err := s.List(t.Context(), ".")
	require.NoError(t, err)
	noCanary(t, fmt.Sprintf("%+v", list))
	assert.Equal(t, tokenCanary, kept[0].Name)
	st, err := s.Status(t.Context())
	require.NoError(t, err)
	noCanary(t, fmt.Sprintf("%+v", st))
	assert.Equal(t, tokenCanary, unenforced[0])
}

type listFS struct {
	provider.FS
	list []provider.FileInfo
}

func (f listFS) List(context.Context, string) ([]provider.FileInfo, error) { return f.list, nil }

// Reconcile destroys nothing that a provider lists under foreign or altered
// labels, however much it lists.
func TestForeignListings(t *testing.T) {
	t.Parallel()
	p := &hostile{}
	h, _ := hostileHost(t, p)
	s, err := h.Create(t.Context(), host.CreateRequest{Provider: "hostile", Manifest: ordinary()})
	require.NoError(t, err)
	other, err := host.New(host.Options{})
	require.NoError(t, err)
	defer func() { assert.NoError(t, other.Close(context.Background())) }()
	require.NoError(t, other.RegisterTrusted("hostile", p.Provider))
	foreign, err := other.Create(t.Context(), host.CreateRequest{Provider: "hostile", Manifest: ordinary()})
	require.NoError(t, err)
	var ref provider.Ref
	listed, err := p.Provider.List(t.Context(), provider.Query{Session: foreign.ID()})
	require.NoError(t, err)
	require.Len(t, listed, 1)
	ref = listed[0].Ref
	p.list = func(l []provider.Resource) []provider.Resource {
		out := make([]provider.Resource, 0, len(l)+10000)
		for i := range 10000 {
			out = append(out, provider.Resource{Ref: ref, Name: fmt.Sprint(i), State: provider.StateRunning, CreatedAt: time.Now().Add(-time.Hour)})
		}
		for _, r := range l { // ours, under another ref
			r.Ref = ref
			r.Labels = map[string]string{provider.LabelOwner: r.Labels[provider.LabelOwner]}
			out = append(out, r)
		}
		return append(out, l...)
	}
	_, err = h.Reconcile(t.Context())
	require.NoError(t, err)
	_, err = s.Exec(t.Context(), host.ExecRequest{Args: []string{"true"}})
	require.NoError(t, err, "the live session is untouched")
	_, err = foreign.Exec(t.Context(), host.ExecRequest{Args: []string{"true"}})
	require.NoError(t, err, "and so is the foreign one")
	p.list = nil
}

// A sandbox whose labels cannot be seen right now may be a protected one, so it
// is not adopted. A provider that can never list is another matter.
func TestAdoptNeedsTheLabels(t *testing.T) {
	t.Parallel()
	p := &hostile{}
	h, _ := hostileHost(t, p)
	other, err := host.New(host.Options{Grants: tokenGrant(), Source: newSource(map[string]string{"HOST_TOKEN": tokenCanary})})
	require.NoError(t, err)
	defer func() { assert.NoError(t, other.Close(context.Background())) }()
	require.NoError(t, other.RegisterTrusted("hostile", p.Provider))
	s, err := other.Create(t.Context(), host.CreateRequest{Provider: "hostile", Manifest: protected()})
	require.NoError(t, err)
	listed, err := p.List(t.Context(), provider.Query{Session: s.ID()})
	require.NoError(t, err)
	require.Len(t, listed, 1)
	adopt := func() error {
		_, err := h.Adopt(t.Context(), host.AdoptRequest{Provider: "hostile", Ref: listed[0].Ref, Manifest: ordinary()})
		return err
	}
	code(t, provider.Unsupported, adopt())
	p.Provider.SetHooks(fake.Fail(fake.MethodList, provider.Unavailable))
	code(t, provider.Unavailable, adopt())
	p.Provider.SetHooks(fake.Hooks{})
}
