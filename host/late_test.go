package host_test

import (
	"context"
	"io"
	"io/fs"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sbxhost/sbxhost/host"
	"github.com/sbxhost/sbxhost/manifest"
	"github.com/sbxhost/sbxhost/provider"
	"github.com/sbxhost/sbxhost/provider/fake"
	"github.com/sbxhost/sbxhost/provider/providertest/fault"
)

// A file whose end could not be seen is not taken for one that is whole.
func TestReadFileThatBreaksAtTheLimit(t *testing.T) {
	t.Parallel()
	l := newLives(fake.Options{})
	h := l.next(t, func(o *host.Options) { o.Limits.File = 10 })
	s, err := h.Create(t.Context(), host.CreateRequest{Provider: "fake", Manifest: ordinary()})
	require.NoError(t, err)
	require.NoError(t, s.WriteFile(t.Context(), "f", []byte("0123456789 and more"), host.WriteOptions{}))
	l.faults.Set(fault.Rule{Method: fault.FileRead, From: 2, Kind: fault.Fail})
	d, err := s.ReadFile(t.Context(), "f")
	code(t, provider.Unavailable, err)
	assert.Empty(t, d.Data)
	l.faults.Set()
	require.NoError(t, h.Close(t.Context()))
}

// Nor is one whose connection ended: around an end of file that is none, and what is
// around it is masked as any other error.
func TestReadThatIsCut(t *testing.T) {
	t.Parallel()
	for name, m := range map[string]manifest.Manifest{"ordinary": ordinary(), "protected": protected()} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := newEnv(t, granted, func(s *setup) { s.host.Limits.File = 10 })
			require.NoError(t, e.RegisterTrusted("cut", cut{fake.New(fake.Options{})}))
			s, err := e.Create(t.Context(), host.CreateRequest{Provider: "cut", Manifest: m})
			require.NoError(t, err)
			d, err := s.ReadFile(t.Context(), "f")
			code(t, provider.Unavailable, err)
			assert.Empty(t, d.Data)
			if name == "protected" {
				noCanary(t, err.Error())
				f, err := s.Open(t.Context(), "f")
				require.NoError(t, err)
				_, err = io.ReadAll(f)
				var le *host.LifecycleError
				require.ErrorAs(t, err, &le)
				noCanary(t, err.Error())
				require.NoError(t, f.Close())
			}
		})
	}
}

// cut is a provider whose files break off after ten bytes.
type cut struct{ *fake.Provider }

func (c cut) Create(ctx context.Context, req provider.CreateRequest) (provider.Sandbox, error) {
	sb, err := c.Provider.Create(ctx, req)
	return cutSandbox{sb}, err
}

type cutSandbox struct{ provider.Sandbox }

func (s cutSandbox) Files() provider.FS { return cutFiles{s.Sandbox.Files()} }

type cutFiles struct{ provider.FS }

func (cutFiles) Open(context.Context, string) (io.ReadCloser, provider.FileInfo, error) {
	lost := &provider.Error{Code: provider.Unavailable, Op: "read", Message: "the connection of " + tokenCanary + " ended", Err: io.EOF}
	return io.NopCloser(io.MultiReader(strings.NewReader("0123456789"), iotest.ErrReader(lost))), provider.FileInfo{Mode: 0o644}, nil
}

// What a file has read ahead is not given out any more once its context has
// ended, or its session.
func TestOpenFileIsHeardAtOnce(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(context.CancelFunc, *host.Session) error{
		"the caller gave up": func(cancel context.CancelFunc, _ *host.Session) error { cancel(); return nil },
		"the session ended":  func(_ context.CancelFunc, s *host.Session) error { return s.Close(context.Background()) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := newEnv(t, granted)
			s := e.create(t, protected())
			require.NoError(t, s.WriteFile(t.Context(), "f", []byte(strings.Repeat("x", 100_000)), host.WriteOptions{}))
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			f, err := s.Open(ctx, "f")
			require.NoError(t, err)
			_, err = io.ReadFull(f, make([]byte, 10))
			require.NoError(t, err)
			require.NoError(t, end(cancel, s))
			n, err := f.Read(make([]byte, 50_000))
			assert.Zero(t, n)
			require.ErrorIs(t, err, context.Canceled)
			var le *host.LifecycleError
			require.ErrorAs(t, err, &le)
			n, err = f.ReadAt(make([]byte, 10), 10)
			assert.Zero(t, n)
			require.ErrorIs(t, err, context.Canceled)
			_ = f.Close()
		})
	}
}

// late is a provider whose file operations go on when their callers have gone.
type late struct {
	*fake.Provider
	release chan struct{}
	done    chan error
}

func (l *late) Create(ctx context.Context, req provider.CreateRequest) (provider.Sandbox, error) {
	sb, err := l.Provider.Create(ctx, req)
	return lateSandbox{sb, l}, err
}

type lateSandbox struct {
	provider.Sandbox
	l *late
}

func (s lateSandbox) Files() provider.FS { return lateFiles{s.Sandbox.Files(), s.l} }

func (s lateSandbox) Export(_ context.Context, w io.Writer) error {
	<-s.l.release
	_, err := io.WriteString(w, "late")
	s.l.done <- err
	return err
}

func (s lateSandbox) Exec(_ context.Context, req provider.ExecRequest) (provider.Process, error) {
	<-s.l.release
	_, err := io.ReadAll(req.Input)
	s.l.done <- err
	return nil, err
}

func (s lateSandbox) Import(context.Context, io.Reader) error { return nil }

type lateFiles struct {
	provider.FS
	l *late
}

func (f lateFiles) Write(_ context.Context, _ string, r io.Reader, _ provider.WriteOptions) error {
	<-f.l.release
	_, err := io.ReadAll(r)
	f.l.done <- err
	return err
}

func (f lateFiles) Open(context.Context, string) (io.ReadCloser, provider.FileInfo, error) {
	return &lateReader{l: f.l}, provider.FileInfo{Mode: fs.ModePerm}, nil
}

// lateReader must not be closed while it is read, as package provider permits.
type lateReader struct {
	l    *late
	busy atomic.Bool
}

func (r *lateReader) Read([]byte) (int, error) {
	r.busy.Store(true)
	defer r.busy.Store(false)
	<-r.l.release
	return 0, io.EOF
}

func (r *lateReader) Close() error {
	var err error
	if r.busy.Load() {
		err = io.ErrNoProgress
	}
	r.l.done <- err
	return nil
}

// What the caller gave is the caller's again when the call has returned, whatever
// its provider does later.
func TestProviderThatGoesOnWithoutItsCaller(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		call func(context.Context, *host.Session, io.Writer) error
		want error // what the provider then gets
	}{
		"export": {func(ctx context.Context, s *host.Session, w io.Writer) error {
			return s.Export(ctx, w, host.ExportOptions{})
		}, io.ErrClosedPipe},
		"write": {func(ctx context.Context, s *host.Session, _ io.Writer) error {
			return s.WriteFile(ctx, "f", []byte("data"), host.WriteOptions{})
		}, io.ErrClosedPipe},
		"exec": {func(ctx context.Context, s *host.Session, _ io.Writer) error {
			_, err := s.Exec(ctx, host.ExecRequest{Args: []string{"cat"}, Stdin: strings.NewReader("data")})
			return err
		}, io.ErrClosedPipe},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				l := &late{fake.New(fake.Options{Describe: upfront}), make(chan struct{}), make(chan error, 1)}
				s := lateSession(t, l)
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				out := &untouched{t: t}
				require.ErrorIs(t, tt.call(ctx, s, out), context.DeadlineExceeded)
				out.forbidden.Store(true)
				close(l.release)
				require.ErrorIs(t, <-l.done, tt.want)
				require.NoError(t, s.Close(t.Context()))
			})
		})
	}
	t.Run("a reader is closed after its read", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			l := &late{fake.New(fake.Options{}), make(chan struct{}), make(chan error, 1)}
			s := lateSession(t, l)
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			f, err := s.Open(ctx, "f")
			require.NoError(t, err)
			_, err = f.Read(make([]byte, 1))
			require.ErrorIs(t, err, context.DeadlineExceeded)
			time.AfterFunc(host.AnswerGrace/2, sync.OnceFunc(func() { close(l.release) }))
			require.NoError(t, f.Close())
			require.NoError(t, <-l.done)
			require.NoError(t, s.Close(t.Context()))
		})
	})
}

func upfront(d *provider.Description) { d.Exec.Stdin, d.Exec.TTY = provider.StdinUpfront, false }

func lateSession(t *testing.T, l *late) *host.Session {
	t.Helper()
	h, err := host.New(host.Options{})
	require.NoError(t, err)
	require.NoError(t, h.Register("late", l))
	t.Cleanup(func() { assert.NoError(t, h.Close(context.Background())) })
	s, err := h.Create(t.Context(), host.CreateRequest{Provider: "late", Manifest: ordinary()})
	require.NoError(t, err)
	return s
}

// untouched is a writer that is the caller's own again from some moment on.
type untouched struct {
	t         *testing.T
	forbidden atomic.Bool
}

func (u *untouched) Write(p []byte) (int, error) {
	assert.False(u.t, u.forbidden.Load(), "written to after the call returned")
	return len(p), nil
}
