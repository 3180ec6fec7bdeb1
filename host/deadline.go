package host

import (
	"context"
	"io"
	"io/fs"
	"slices"
	"time"

	"github.com/sbxhost/sbxhost/provider"
)

// deadlines wraps a provider so that no call of it can hang or panic into the
// host. See bounded.
type deadlines struct {
	inner  provider.Provider
	create time.Duration
	call   time.Duration
}

var _ provider.Provider = deadlines{}

func (d deadlines) Describe() provider.Description { return d.inner.Describe() }

func (d deadlines) Create(ctx context.Context, req provider.CreateRequest) (provider.Sandbox, error) {
	// A sandbox that arrives after the host gave up is nobody's: the ledger
	// would find it, but it need not wait for that.
	late := func(sb provider.Sandbox) {
		if s, err := d.sandbox(context.WithoutCancel(ctx), sb, "create", nil); err == nil {
			_ = d.Destroy(context.WithoutCancel(ctx), s.Ref())
		}
	}
	sb, err := bounded(ctx, d.create, "create", late, func(ctx context.Context) (provider.Sandbox, error) {
		return d.inner.Create(ctx, req)
	})
	return d.sandbox(ctx, sb, "create", err)
}

func (d deadlines) Open(ctx context.Context, ref provider.Ref) (provider.Sandbox, error) {
	sb, err := bounded(ctx, d.call, "open", nil, func(ctx context.Context) (provider.Sandbox, error) {
		return d.inner.Open(ctx, ref)
	})
	return d.sandbox(ctx, sb, "open", err)
}

// sandbox wraps what a provider returned. Its ref is asked for once, here: what
// was checked of it must be what is used.
func (d deadlines) sandbox(ctx context.Context, sb provider.Sandbox, op string, err error) (provider.Sandbox, error) {
	if err != nil {
		return nil, err
	}
	if sb == nil {
		return nil, provider.Errorf(provider.Internal, op, "the provider returned no sandbox and no error")
	}
	ref, err := bounded(ctx, d.call, op, nil, func(context.Context) (provider.Ref, error) { return sb.Ref(), nil })
	if err != nil {
		return nil, err
	}
	ref.Data = slices.Clone(ref.Data)
	return deadlineSandbox{inner: sb, limit: d.call, ref: ref}, nil
}

func (d deadlines) List(ctx context.Context, q provider.Query) ([]provider.Resource, error) {
	return bounded(ctx, d.call, "list", nil, func(ctx context.Context) ([]provider.Resource, error) {
		return d.inner.List(ctx, q)
	})
}

func (d deadlines) Destroy(ctx context.Context, ref provider.Ref) error {
	return boundedErr(ctx, d.call, "destroy", func(ctx context.Context) error {
		return d.inner.Destroy(ctx, ref)
	})
}

// deadlineSandbox is the Sandbox of deadlines.
type deadlineSandbox struct {
	inner provider.Sandbox
	limit time.Duration
	ref   provider.Ref
}

func (s deadlineSandbox) Ref() provider.Ref { return s.ref }

func (s deadlineSandbox) Exec(ctx context.Context, req provider.ExecRequest) (provider.Process, error) {
	// A command that turns out to run after the host gave up is stopped.
	late := func(p provider.Process) {
		if p != nil {
			_ = p.Kill(context.WithoutCancel(ctx), 0)
		}
	}
	return bounded(ctx, s.limit, "exec", late, func(ctx context.Context) (provider.Process, error) {
		p, err := s.inner.Exec(ctx, req)
		if err != nil {
			return nil, err
		}
		if p == nil {
			return nil, provider.Errorf(provider.Internal, "exec", "the provider returned no process and no error")
		}
		d := deadlineProcess{inner: p, limit: s.limit}
		if w := p.Stdin(); w != nil {
			d.stdin = guardedWriter{w}
		}
		return d, nil
	})
}

// Files asks for the provider's FS in each call, where a panic is caught.
func (s deadlineSandbox) Files() provider.FS { return deadlineFS{of: s.inner, limit: s.limit} }

func (s deadlineSandbox) Status(ctx context.Context) (provider.Status, error) {
	return bounded(ctx, s.limit, "status", nil, s.inner.Status)
}

// The optional interfaces are found through unwrap; see optional.go.
func (s deadlineSandbox) unwrap() provider.Sandbox { return s.inner }

// deadlineProcess is the Process of deadlines. Wait has no deadline: the host
// decides how long a command runs.
type deadlineProcess struct {
	inner provider.Process
	stdin io.WriteCloser
	limit time.Duration
}

func (p deadlineProcess) Stdin() io.WriteCloser { return p.stdin }

func (p deadlineProcess) Signal(ctx context.Context, name string) error {
	return boundedErr(ctx, p.limit, "signal", func(ctx context.Context) error { return p.inner.Signal(ctx, name) })
}

func (p deadlineProcess) Kill(ctx context.Context, grace time.Duration) error {
	return boundedErr(ctx, p.limit, "kill", func(ctx context.Context) error { return p.inner.Kill(ctx, grace) })
}

func (p deadlineProcess) Wait(ctx context.Context) (provider.Exit, error) {
	return bounded(ctx, 0, "wait", nil, p.inner.Wait)
}

// Resize implements provider.Resizer where the process does.
func (p deadlineProcess) Resize(ctx context.Context, cols, rows uint16) error {
	r, ok := p.inner.(provider.Resizer)
	if !ok {
		return &provider.Error{Code: provider.Unsupported, Op: "resize", Message: "the command has no terminal", Applied: provider.AppliedNo}
	}
	return boundedErr(ctx, p.limit, "resize", func(ctx context.Context) error { return r.Resize(ctx, cols, rows) })
}

// guardedWriter is a command's input. A write may block as long as the command
// does not read, but not panic, nor claim more than it was given.
type guardedWriter struct{ inner io.WriteCloser }

func (w guardedWriter) Write(p []byte) (n int, err error) {
	defer func() {
		if r := recover(); r != nil {
			n, err = 0, errPanicked("stdin")
		}
	}()
	n, err = w.inner.Write(p)
	if n < 0 || n > len(p) {
		return 0, provider.Errorf(provider.Internal, "stdin", "the provider returned an impossible length")
	}
	return n, err
}

func (w guardedWriter) Close() (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = errPanicked("stdin")
		}
	}()
	return w.inner.Close()
}

// deadlineFS is the FS of deadlines. Open and Write move any amount of data and
// are bounded by the caller's context only.
type deadlineFS struct {
	of    provider.Sandbox
	limit time.Duration
}

type opened struct {
	r    io.ReadCloser
	info provider.FileInfo
}

func (f deadlineFS) Open(ctx context.Context, path string) (io.ReadCloser, provider.FileInfo, error) {
	late := func(o opened) {
		if o.r != nil {
			_ = o.r.Close()
		}
	}
	o, err := bounded(ctx, 0, "open", late, func(ctx context.Context) (opened, error) {
		r, info, err := f.of.Files().Open(ctx, path)
		if err == nil && r == nil {
			err = provider.Errorf(provider.Internal, "open", "the provider returned no reader and no error")
		}
		return opened{r, info}, err
	})
	if err != nil {
		return nil, provider.FileInfo{}, err
	}
	return &deadlineReader{inner: o.r, ctx: ctx}, o.info, nil
}

// deadlineReader reads a file that its provider may never deliver.
type deadlineReader struct {
	inner io.ReadCloser
	ctx   context.Context
	buf   []byte
	lost  <-chan readAnswer // of a read that has not come back; nothing may touch buf again
}

type readAnswer struct {
	n   int
	err error
}

func (r *deadlineReader) Read(p []byte) (int, error) {
	if r.lost != nil || r.ctx.Err() != nil {
		return 0, errNotRead(r.ctx)
	}
	const most = 64 << 10
	if p = p[:min(len(p), most)]; len(r.buf) < len(p) {
		r.buf = make([]byte, len(p))
	}
	buf := r.buf[:len(p)]
	answers := make(chan readAnswer, 1)
	go func() {
		a := readAnswer{err: errPanicked("read")}
		defer func() {
			_ = recover()
			answers <- a
		}()
		a.n, a.err = r.inner.Read(buf)
	}()
	select {
	case a := <-answers:
		if a.n < 0 || a.n > len(buf) {
			return 0, provider.Errorf(provider.Internal, "read", "the provider returned an impossible length")
		}
		return copy(p, buf[:a.n]), a.err
	case <-r.ctx.Done():
		r.lost = answers
		return 0, errNotRead(r.ctx)
	}
}

func errNotRead(ctx context.Context) error {
	return &provider.Error{Code: provider.CodeOf(context.Cause(ctx)), Op: "read", Message: "the reader gave up, or the session ended", Applied: provider.AppliedNo}
}

func (r *deadlineReader) Close() error {
	return boundedErr(context.WithoutCancel(r.ctx), closeLimit, "close", func(context.Context) error {
		if r.lost != nil { // a reader need not bear to be closed while it is read
			patience := time.NewTimer(answerGrace)
			defer patience.Stop()
			select {
			case <-r.lost:
			case <-patience.C:
			}
		}
		return r.inner.Close()
	})
}

// closeLimit is how long letting go of a file may take.
const closeLimit = 10 * time.Second

func (f deadlineFS) Write(ctx context.Context, path string, content io.Reader, opts provider.WriteOptions) error {
	in := &inlet{r: content}
	defer in.leave() // it is the caller's again
	return boundedErr(ctx, 0, "write", func(ctx context.Context) error { return f.of.Files().Write(ctx, path, in, opts) })
}

func (f deadlineFS) List(ctx context.Context, path string) ([]provider.FileInfo, error) {
	return bounded(ctx, f.limit, "list", nil, func(ctx context.Context) ([]provider.FileInfo, error) {
		return f.of.Files().List(ctx, path)
	})
}

func (f deadlineFS) Stat(ctx context.Context, path string) (provider.FileInfo, error) {
	return bounded(ctx, f.limit, "stat", nil, func(ctx context.Context) (provider.FileInfo, error) {
		return f.of.Files().Stat(ctx, path)
	})
}

func (f deadlineFS) Remove(ctx context.Context, path string, recursive bool) error {
	return boundedErr(ctx, f.limit, "remove", func(ctx context.Context) error { return f.of.Files().Remove(ctx, path, recursive) })
}

func (f deadlineFS) Mkdir(ctx context.Context, path string, mode fs.FileMode) error {
	return boundedErr(ctx, f.limit, "mkdir", func(ctx context.Context) error { return f.of.Files().Mkdir(ctx, path, mode) })
}
