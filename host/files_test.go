package host_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
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
)

func TestFiles(t *testing.T) {
	t.Parallel()
	t.Run("manifest files are there before the first command", func(t *testing.T) {
		t.Parallel()
		e := newEnv(t)
		m := ordinary()
		m.Files = map[string]manifest.File{"main.py": {Content: []byte("print(1)\n")}, "bin/tool": {Content: []byte("echo tool"), Mode: 0o755}}
		s := e.create(t, m)
		assert.Equal(t, "tool\n", string(run(t, s, "./bin/tool").Stdout))
		d, err := s.ReadFile(t.Context(), "main.py")
		require.NoError(t, err)
		assert.Equal(t, "print(1)\n", string(d.Data))
		assert.False(t, d.Redacted())
		info, err := s.Stat(t.Context(), "bin/tool")
		require.NoError(t, err)
		assert.Equal(t, "-rwxr-xr-x", info.Mode.String())
	})
	t.Run("write, list, stat, mkdir, remove", func(t *testing.T) {
		t.Parallel()
		e := newEnv(t)
		s := e.create(t, ordinary())
		require.NoError(t, s.Mkdir(t.Context(), "d/e", 0o755))
		require.NoError(t, s.WriteFile(t.Context(), "d/f", []byte("data"), host.WriteOptions{Mode: 0o600}))
		l, err := s.List(t.Context(), "d")
		require.NoError(t, err)
		require.Len(t, l, 2)
		assert.Equal(t, "e", l[0].Name)
		assert.Equal(t, int64(4), l[1].Size)
		require.Error(t, s.Remove(t.Context(), "d", false))
		require.NoError(t, s.Remove(t.Context(), "d", true))
		_, err = s.Stat(t.Context(), "d")
		code(t, provider.NotFound, err)
		_, err = s.ReadFile(t.Context(), "../etc/passwd")
		code(t, provider.PermissionDenied, err)
	})
	t.Run("contents and names are redacted", func(t *testing.T) {
		t.Parallel()
		e := newEnv(t, granted)
		s := e.create(t, protected())
		r, err := s.Exec(t.Context(), host.ExecRequest{Shell: `echo "a $TOKEN b" > f; echo x > "$TOKEN"; ln -s "$TOKEN" link`})
		require.NoError(t, err)
		require.Zero(t, r.ExitCode)
		d, err := s.ReadFile(t.Context(), "f")
		require.NoError(t, err)
		assert.Equal(t, "a [redacted:TOKEN] b\n", string(d.Data))
		assert.Equal(t, map[string]int64{"TOKEN": 1}, d.Redactions)
		l, err := s.List(t.Context(), "")
		require.NoError(t, err)
		noCanary(t, fmt.Sprintf("%+v", l))
		i, err := s.Stat(t.Context(), "link")
		require.NoError(t, err)
		assert.Equal(t, "[redacted:TOKEN]", i.Target)
		_, err = s.Stat(t.Context(), "absent-"+tokenCanary)
		require.Error(t, err)
		noCanary(t, err.Error())
	})
	t.Run("markers are refused unless allowed", func(t *testing.T) {
		t.Parallel()
		e := newEnv(t, granted)
		s := e.create(t, protected())
		require.NoError(t, s.WriteFile(t.Context(), "other", []byte("[redacted:OTHER]"), host.WriteOptions{}), "another session's marker is data")
		data := []byte("before [redacted:TOKEN] after")
		e.fake.Forget()
		err := s.WriteFile(t.Context(), "f", data, host.WriteOptions{})
		code(t, provider.FailedPrecondition, err)
		assert.ErrorContains(t, err, "TOKEN")
		e.untouched(t)
		require.NoError(t, s.WriteFile(t.Context(), "f", data, host.WriteOptions{AllowMarkers: true}))
	})
	t.Run("ReadFile has a limit", func(t *testing.T) {
		t.Parallel()
		e := newEnv(t, func(s *setup) { s.host.Limits.File = 10 })
		s := e.create(t, ordinary())
		require.NoError(t, s.WriteFile(t.Context(), "ten", []byte("0123456789"), host.WriteOptions{}))
		d, err := s.ReadFile(t.Context(), "ten")
		require.NoError(t, err)
		assert.Len(t, d.Data, 10)
		require.NoError(t, s.WriteFile(t.Context(), "eleven", []byte("0123456789a"), host.WriteOptions{}))
		_, err = s.ReadFile(t.Context(), "eleven")
		code(t, provider.ResourceExhausted, err)
	})
	t.Run("errors of a protected session are masked", func(t *testing.T) {
		t.Parallel()
		e := newEnv(t, granted)
		s := e.create(t, protected())
		for _, m := range []fake.Method{fake.MethodRead, fake.MethodWrite, fake.MethodReadDir, fake.MethodStat, fake.MethodRemove, fake.MethodMkdir, fake.MethodStatus, fake.MethodPause, fake.MethodExport} {
			e.fake.SetHooks(failWith(m, &provider.Error{Code: provider.Unavailable, Message: tokenCanary, Err: errors.New(tokenCanary)}))
			var errs []error
			_, err := s.ReadFile(t.Context(), "f")
			errs = append(errs, err, s.WriteFile(t.Context(), "f", nil, host.WriteOptions{}))
			_, err = s.List(t.Context(), "")
			errs = append(errs, err)
			_, err = s.Stat(t.Context(), "f")
			errs = append(errs, err, s.Remove(t.Context(), "f", false), s.Mkdir(t.Context(), "d", 0))
			_, err = s.Status(t.Context())
			errs = append(errs, err, s.Pause(t.Context()), s.Unpause(t.Context()), s.Export(t.Context(), io.Discard, host.ExportOptions{Unredacted: true}))
			failed := 0
			for _, err := range errs {
				if err == nil {
					continue
				}
				noCanary(t, fmt.Sprintf("%v %+v %#v", err, err, err))
				var le *host.LifecycleError
				require.ErrorAs(t, err, &le)
				assert.Equal(t, s.ID(), le.Facts["session"])
				assert.Equal(t, s.Info().Sandbox, le.Facts["sandbox"])
				if errors.Is(err, provider.ErrUnavailable) {
					failed++
				}
			}
			assert.Positive(t, failed, m)
		}
	})
	t.Run("a code outside the closed set does not get through", func(t *testing.T) {
		t.Parallel()
		e := newEnv(t, granted)
		s := e.create(t, protected())
		e.fake.SetHooks(failWith(fake.MethodStat, &provider.Error{Code: provider.Code(tokenCanary), Applied: provider.Applied(tokenCanary)}))
		_, err := s.Stat(t.Context(), "f")
		code(t, provider.Internal, err)
		noCanary(t, fmt.Sprintf("%+v", err))
	})
}

func TestOpen(t *testing.T) {
	t.Parallel()
	e := newEnv(t, granted)
	s := e.create(t, protected())
	var script strings.Builder
	for range 50 {
		script.WriteString(`echo "line with $TOKEN in it" >> f; `)
	}
	_, err := s.Exec(t.Context(), host.ExecRequest{Shell: script.String()})
	require.NoError(t, err)
	whole, err := s.ReadFile(t.Context(), "f")
	require.NoError(t, err)

	f, err := s.Open(t.Context(), "f")
	require.NoError(t, err)
	defer func() { assert.NoError(t, f.Close()) }()
	all, err := io.ReadAll(f)
	require.NoError(t, err)
	assert.Equal(t, whole.Data, all)
	assert.Equal(t, map[string]int64{"TOKEN": 50}, f.Redactions())
	assert.Equal(t, "f", f.Info().Name)

	t.Run("offsets address redacted bytes", func(t *testing.T) {
		for off := int64(0); off < int64(len(all)); off += 97 {
			b := make([]byte, 61)
			n, err := f.ReadAt(b, off)
			if err != nil {
				require.ErrorIs(t, err, io.EOF)
			}
			assert.Equal(t, all[off:off+int64(n)], b[:n])
			noCanary(t, string(b))
		}
	})
	t.Run("backwards", func(t *testing.T) {
		for off := int64(len(all)) - 50; off >= 0; off -= 333 {
			b := make([]byte, 50)
			_, err := f.ReadAt(b, off)
			require.NoError(t, err)
			assert.Equal(t, all[off:off+50], b)
		}
	})
	t.Run("as an io.ReaderAt", func(t *testing.T) {
		r := io.NewSectionReader(f, 0, int64(len(all)))
		require.NoError(t, iotest.TestReader(r, all))
	})
	t.Run("a closed file, and a closed session", func(t *testing.T) {
		g, err := s.Open(t.Context(), "f")
		require.NoError(t, err)
		require.NoError(t, g.Close())
		require.NoError(t, g.Close())
		_, err = g.Read(make([]byte, 1))
		code(t, provider.FailedPrecondition, err)
		_, err = f.ReadAt(make([]byte, 1), -1)
		code(t, provider.InvalidArgument, err)
	})
}

func TestFileThatNeverComes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := newEnv(t)
		s := e.create(t, ordinary())
		release := make(chan struct{})
		e.fake.SetHooks(fake.Hooks{Before: func(_ context.Context, c fake.Call) error {
			if c.Method == fake.MethodRead {
				<-release
			}
			return nil
		}})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		begun := time.Now()
		_, err := s.ReadFile(ctx, "f")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		assert.LessOrEqual(t, time.Since(begun), time.Second+host.AnswerGrace)
		close(release)
	})
}

func TestExport(t *testing.T) {
	t.Parallel()
	e := newEnv(t, granted)
	plain := e.create(t, ordinary())
	require.NoError(t, plain.WriteFile(t.Context(), "f", []byte("x"), host.WriteOptions{}))
	var b bytes.Buffer
	require.NoError(t, plain.Export(t.Context(), &b, host.ExportOptions{}))
	assert.NotZero(t, b.Len())
	s := e.create(t, protected())
	e.fake.Forget()
	code(t, provider.Unsupported, s.Export(t.Context(), io.Discard, host.ExportOptions{}))
	e.untouched(t)
	require.NoError(t, s.Export(t.Context(), io.Discard, host.ExportOptions{Unredacted: true}))
	_, err := plain.Exec(t.Context(), host.ExecRequest{Args: []string{"true"}, Secrets: activation(map[string]string{"K": requestCanary})})
	require.NoError(t, err)
	code(t, provider.Unsupported, plain.Export(t.Context(), io.Discard, host.ExportOptions{}))
}

func TestOptionalInterfaces(t *testing.T) {
	t.Parallel()
	t.Run("a provider without them", func(t *testing.T) {
		t.Parallel()
		e := newEnv(t, func(s *setup) { s.fake.NoPorts, s.fake.NoPauser, s.fake.NoArchiver = true, true, true })
		s := e.create(t, ordinary())
		_, err := s.Port(t.Context(), 80)
		code(t, provider.Unsupported, err)
		code(t, provider.Unsupported, s.Pause(t.Context()))
		code(t, provider.Unsupported, s.Export(t.Context(), io.Discard, host.ExportOptions{}))
	})
	t.Run("a signed address is redacted elsewhere", func(t *testing.T) {
		t.Parallel()
		const url = "https://8080-sandbox.example.com/?sig=canary-S1gned-1234567890"
		e := newEnv(t, func(s *setup) {
			s.fake.Endpoint = func(provider.Ref, int) provider.Endpoint { return provider.Endpoint{Address: url, Secret: true} }
		})
		m := ordinary()
		m.Ports = []int{8080}
		s := e.create(t, m)
		ep, err := s.Port(t.Context(), 8080)
		require.NoError(t, err)
		assert.Equal(t, url, ep.Address)
		r := run(t, s, "echo", url)
		assert.Equal(t, "[redacted:PORT_8080]\n", string(r.Stdout))
		_, err = s.Port(t.Context(), 81)
		code(t, provider.NotFound, err)
	})
	t.Run("pause and go on", func(t *testing.T) {
		t.Parallel()
		e := newEnv(t)
		s := e.create(t, ordinary())
		require.NoError(t, s.Pause(t.Context()))
		st, err := s.Status(t.Context())
		require.NoError(t, err)
		assert.Equal(t, provider.StatePaused, st.State)
		require.NoError(t, s.Unpause(t.Context()))
		run(t, s, "true")
	})
}
