package providertest_test

import (
	"context"
	"io"
	"time"

	"github.com/sbxhost/sbxhost/provider"
)

// wrapped is a provider with some of its methods replaced. A nil function calls
// the provider below.
type wrapped struct {
	provider.Provider
	describe func() provider.Description
	create   func(ctx context.Context, req provider.CreateRequest) (provider.Sandbox, error)
	open     func(ctx context.Context, ref provider.Ref) (provider.Sandbox, error)
	list     func(ctx context.Context, q provider.Query) ([]provider.Resource, error)
	destroy  func(ctx context.Context, ref provider.Ref) error
	exec     func(ctx context.Context, sb provider.Sandbox, req provider.ExecRequest) (provider.Process, error)
	files    func(provider.FS) provider.FS
	status   func(ctx context.Context, sb provider.Sandbox) (provider.Status, error)
}

func (w *wrapped) Describe() provider.Description {
	if w.describe != nil {
		return w.describe()
	}
	return w.Provider.Describe()
}

func (w *wrapped) sandbox(sb provider.Sandbox, err error) (provider.Sandbox, error) {
	if err != nil || w.exec == nil && w.files == nil && w.status == nil {
		return sb, err
	}
	return &wrappedSandbox{sb, w}, nil
}

func (w *wrapped) Create(ctx context.Context, req provider.CreateRequest) (provider.Sandbox, error) {
	if w.create != nil {
		return w.sandbox(w.create(ctx, req))
	}
	return w.sandbox(w.Provider.Create(ctx, req))
}

func (w *wrapped) Open(ctx context.Context, ref provider.Ref) (provider.Sandbox, error) {
	if w.open != nil {
		return w.sandbox(w.open(ctx, ref))
	}
	return w.sandbox(w.Provider.Open(ctx, ref))
}

func (w *wrapped) List(ctx context.Context, q provider.Query) ([]provider.Resource, error) {
	if w.list != nil {
		return w.list(ctx, q)
	}
	return w.Provider.List(ctx, q)
}

func (w *wrapped) Destroy(ctx context.Context, ref provider.Ref) error {
	if w.destroy != nil {
		return w.destroy(ctx, ref)
	}
	return w.Provider.Destroy(ctx, ref)
}

// wrappedSandbox hides the optional interfaces of the sandbox below.
type wrappedSandbox struct {
	provider.Sandbox
	w *wrapped
}

func (s *wrappedSandbox) Exec(ctx context.Context, req provider.ExecRequest) (provider.Process, error) {
	if s.w.exec != nil {
		return s.w.exec(ctx, s.Sandbox, req)
	}
	return s.Sandbox.Exec(ctx, req)
}

func (s *wrappedSandbox) Files() provider.FS {
	if s.w.files != nil {
		return s.w.files(s.Sandbox.Files())
	}
	return s.Sandbox.Files()
}

func (s *wrappedSandbox) Status(ctx context.Context) (provider.Status, error) {
	if s.w.status != nil {
		return s.w.status(ctx, s.Sandbox)
	}
	return s.Sandbox.Status(ctx)
}

// wrappedProcess keeps Resizer.
type wrappedProcess struct {
	provider.Process
	noStdin bool
	wait    func(ctx context.Context) (provider.Exit, error)
	kill    func(ctx context.Context, grace time.Duration) error
	signal  func(ctx context.Context, name string) error
}

func (p *wrappedProcess) Stdin() io.WriteCloser {
	if p.noStdin {
		return nil
	}
	return p.Process.Stdin()
}

func (p *wrappedProcess) Wait(ctx context.Context) (provider.Exit, error) {
	if p.wait != nil {
		return p.wait(ctx)
	}
	return p.Process.Wait(ctx)
}

func (p *wrappedProcess) Kill(ctx context.Context, grace time.Duration) error {
	if p.kill != nil {
		return p.kill(ctx, grace)
	}
	return p.Process.Kill(ctx, grace)
}

func (p *wrappedProcess) Signal(ctx context.Context, name string) error {
	if p.signal != nil {
		return p.signal(ctx, name)
	}
	return p.Process.Signal(ctx, name)
}

func (p *wrappedProcess) Resize(ctx context.Context, cols, rows uint16) error {
	return p.Process.(provider.Resizer).Resize(ctx, cols, rows)
}
