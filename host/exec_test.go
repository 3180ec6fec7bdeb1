package host_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/url"
	"os"
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
	"github.com/sbxhost/sbxhost/secret"
)

func TestExec(t *testing.T) {
	t.Parallel()
	t.Run("T8 success, exit 3, both streams", func(t *testing.T) {
		t.Parallel()
		e := newEnv(t)
		s := e.create(t, ordinary())
		r := run(t, s, "echo", "fine")
		assert.Equal(t, "fine\n", string(r.Stdout))
		assert.Equal(t, host.Exited, r.Status)
		assert.Zero(t, r.ExitCode)
		assert.True(t, r.DeathConfirmed)
		assert.Empty(t, r.Notice)
		r = run(t, s, "exit", "3")
		assert.Equal(t, 3, r.ExitCode)
		r, err := s.Exec(t.Context(), host.ExecRequest{Shell: "echo out; write-stderr err"})
		require.NoError(t, err)
		assert.Equal(t, "out\n", string(r.Stdout))
		assert.Equal(t, "err\n", string(r.Stderr))
		assert.False(t, r.Merged)
	})
	t.Run("T7 stdin is at its end unless given", func(t *testing.T) {
		t.Parallel()
		e := newEnv(t)
		s := e.create(t, ordinary())
		r, err := s.Exec(t.Context(), host.ExecRequest{Shell: "cat; echo after"})
		require.NoError(t, err)
		assert.Equal(t, "after\n", string(r.Stdout))
		r, err = s.Exec(t.Context(), host.ExecRequest{Args: []string{"cat"}, Stdin: strings.NewReader("given")})
		require.NoError(t, err)
		assert.Equal(t, "given", string(r.Stdout))
	})
	t.Run("stdin that breaks is not taken for the whole", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) { // a death that a busy machine confirms late is not confirmed
			s := newEnv(t).create(t, ordinary())
			broken := func() io.Reader {
				return io.MultiReader(strings.NewReader("half\n"), iotest.ErrReader(errors.New("connection reset")))
			}
			r, err := s.Exec(t.Context(), host.ExecRequest{Args: []string{"cat"}, Stdin: broken()})
			require.NoError(t, err)
			assert.Equal(t, host.Killed, r.Status)
			assert.True(t, r.DeathConfirmed)
			assert.Contains(t, r.Notice, "input could not be read to its end")
			// What lost its connection says so around the end of file, which is none.
			r, err = s.Exec(t.Context(), host.ExecRequest{Args: []string{"cat"}, Stdin: io.MultiReader(strings.NewReader("half\n"),
				iotest.ErrReader(&url.Error{Op: "Get", URL: "https://example.com", Err: io.EOF}))})
			require.NoError(t, err)
			assert.Equal(t, host.Killed, r.Status)
			// It is no concern of a command that has ended.
			release := make(chan struct{})
			p, err := s.Start(t.Context(), host.ExecRequest{Args: []string{"true"}, Stdin: io.MultiReader(waiting(release), broken())})
			require.NoError(t, err)
			r, err = p.Wait(t.Context())
			require.NoError(t, err)
			close(release)
			assert.Equal(t, host.Exited, r.Status)
			assert.Empty(t, r.Notice)
		})
	})
	t.Run("stdin is given upfront where the provider wants it so", func(t *testing.T) {
		t.Parallel()
		e := newEnv(t, describe(func(d *provider.Description) { d.Exec.Stdin, d.Exec.TTY = provider.StdinUpfront, false }))
		s := e.create(t, ordinary())
		r, err := s.Exec(t.Context(), host.ExecRequest{Args: []string{"cat"}, Stdin: strings.NewReader("given")})
		require.NoError(t, err)
		assert.Equal(t, "given", string(r.Stdout))
		_, err = s.Start(t.Context(), host.ExecRequest{Args: []string{"cat"}, LiveStdin: true})
		code(t, provider.Unsupported, err)
	})
	t.Run("a program that does not exist, and one that cannot be run", func(t *testing.T) {
		t.Parallel()
		e := newEnv(t)
		s := e.create(t, ordinary())
		_, err := s.Exec(t.Context(), host.ExecRequest{Args: []string{"absent"}})
		code(t, provider.NotFound, err)
		require.NoError(t, s.WriteFile(t.Context(), "data", []byte("x"), host.WriteOptions{}))
		_, err = s.Exec(t.Context(), host.ExecRequest{Args: []string{"./data"}})
		code(t, provider.PermissionDenied, err)
	})
	t.Run("a signal from inside, and one from here", func(t *testing.T) {
		t.Parallel()
		e := newEnv(t)
		s := e.create(t, ordinary())
		r := run(t, s, "raise", "TERM")
		assert.Equal(t, host.Signaled, r.Status)
		assert.Equal(t, "TERM", r.Signal)
		assert.Equal(t, -1, r.ExitCode)
		p, err := s.Start(t.Context(), host.ExecRequest{Args: []string{"sleep", "60"}})
		require.NoError(t, err)
		require.NoError(t, p.Signal(t.Context(), "INT"))
		r, err = p.Wait(t.Context())
		require.NoError(t, err)
		assert.Equal(t, host.Killed, r.Status)
		code(t, provider.FailedPrecondition, p.Signal(t.Context(), "INT"))
	})
	t.Run("the order of the environment", func(t *testing.T) {
		t.Parallel()
		e := newEnv(t, granted, func(s *setup) {
			s.fake.Base = map[string]string{"BASE": "base", "LITERAL": "base", "TOKEN": "base", "REQUEST": "base", "EXEC": "base"}
		})
		m := protected()
		for _, k := range []string{"LITERAL", "REQUEST", "EXEC"} {
			m = with(m, k, manifest.Entry{Literal: "manifest"})
		}
		s := e.create(t, m)
		r, err := s.Exec(t.Context(), host.ExecRequest{Args: []string{"env"},
			Secrets: activation(map[string]string{"REQUEST": requestCanary, "EXEC": "never-seen-by-the-command"}),
			Env:     map[string]string{"EXEC": "exec"}})
		require.NoError(t, err)
		for _, line := range []string{"BASE=base", "LITERAL=manifest", "TOKEN=[redacted:TOKEN]", "REQUEST=[redacted:REQUEST]", "EXEC=exec"} {
			assert.Contains(t, string(r.Stdout), line+"\n")
		}
		d := e.fake.Execs()[0]
		assert.True(t, d.Got("TOKEN", value(tokenCanary)))
		assert.True(t, d.Got("REQUEST", value(requestCanary)))
		assert.Equal(t, []string{"REQUEST"}, d.Secrets)
	})
	t.Run("the create transport gives values at creation only", func(t *testing.T) {
		t.Parallel()
		e := newEnv(t, granted)
		s, err := e.Create(t.Context(), host.CreateRequest{Provider: "fake", Manifest: protected(), Transport: host.TransportCreate})
		require.NoError(t, err)
		assert.Equal(t, "create/record", s.Transport())
		assert.Equal(t, "[redacted:TOKEN]\n", string(run(t, s, "printenv", "TOKEN").Stdout))
		assert.Empty(t, e.fake.Execs()[0].Protected)
		assert.Equal(t, []string{"TOKEN"}, e.fake.Calls()[0].Protected)
	})
	for _, transport := range []host.Transport{host.TransportExec, host.TransportCreate} {
		t.Run("a per-exec literal may not name a protected destination, "+string(transport), func(t *testing.T) {
			t.Parallel()
			e := newEnv(t, granted)
			s, err := e.Create(t.Context(), host.CreateRequest{Provider: "fake", Manifest: protected(), Transport: transport})
			require.NoError(t, err)
			e.fake.Forget()
			_, err = s.Exec(t.Context(), host.ExecRequest{Args: []string{"true"}, Env: map[string]string{"TOKEN": "mine"}})
			code(t, provider.InvalidArgument, err)
			assert.ErrorContains(t, err, "TOKEN")
			e.untouched(t)
		})
	}
	bad := map[string]host.ExecRequest{
		"neither args nor shell": {},
		"both args and shell":    {Args: []string{"a"}, Shell: "a"},
		"K a key with a dash":    {Args: []string{"true"}, Env: map[string]string{"A-B": "x"}},
		"K a key with an equals": {Args: []string{"true"}, Env: map[string]string{"A=B": "x"}},
		"K an empty key":         {Args: []string{"true"}, Env: map[string]string{"": "x"}},
		"K a value with NUL":     {Args: []string{"true"}, Env: map[string]string{"A": "x\x00"}},
		"an ID with a slash":     {Args: []string{"true"}, ID: "a/b"},
		"a negative timeout":     {Args: []string{"true"}, Timeout: -1},
		"an argument with NUL":   {Args: []string{"a\x00"}},
		"live stdin with Exec":   {Args: []string{"cat"}, LiveStdin: true},
	}
	for name, req := range bad {
		t.Run("refuses "+name, func(t *testing.T) {
			t.Parallel()
			e := newEnv(t)
			s := e.create(t, ordinary())
			e.fake.Forget()
			_, err := s.Exec(t.Context(), req)
			code(t, provider.InvalidArgument, err)
			e.untouched(t)
		})
	}
	t.Run("K2 K3 good keys with any value", func(t *testing.T) {
		t.Parallel()
		e := newEnv(t)
		s := e.create(t, ordinary())
		vars := map[string]string{"_U": "$(x)", "a": "`y`", "Mixed_1": "a;b", "LONG_NAME": "q\"'", "N": "line\nline", "E": ""}
		r, err := s.Exec(t.Context(), host.ExecRequest{Args: []string{"env", "-0"}, Env: vars})
		require.NoError(t, err)
		for k, v := range vars {
			assert.Contains(t, string(r.Stdout), k+"="+v+"\x00")
		}
		_, err = s.Exec(t.Context(), host.ExecRequest{Args: []string{"true"}, Env: map[string]string{}})
		require.NoError(t, err)
	})
	t.Run("a wish that the provider cannot honour", func(t *testing.T) {
		t.Parallel()
		e := newEnv(t, describe(func(d *provider.Description) {
			d.Exec = provider.ExecCapabilities{Stdin: provider.StdinNone, Stderr: provider.StderrMerged, Kill: provider.KillProcess, MaxTimeout: time.Minute}
			d.Features.User = provider.SupportNone
		}))
		s := e.create(t, ordinary())
		e.fake.Forget()
		for _, req := range []host.ExecRequest{
			{Args: []string{"true"}, TTY: true}, {Args: []string{"true"}, Stdin: strings.NewReader("x")},
			{Args: []string{"true"}, User: "other"}, {Args: []string{"true"}, Timeout: time.Hour},
		} {
			_, err := s.Exec(t.Context(), req)
			code(t, provider.Unsupported, err)
		}
		e.untouched(t)
		r := run(t, s, "write-stderr", "x")
		assert.True(t, r.Merged)
		assert.Equal(t, "x\n", string(r.Stdout))
	})
}

func TestExecOutput(t *testing.T) {
	t.Parallel()
	t.Run("X12 short, equal, longer", func(t *testing.T) {
		t.Parallel()
		for n := range 400 {
			in := bytes.Repeat([]byte("x"), n)
			out, cut := host.Truncate(in, 200)
			assert.Equal(t, n > 200, cut)
			if n <= 200 {
				assert.Equal(t, in, out)
			}
			assert.LessOrEqual(t, len(out), 200)
		}
	})
	t.Run("X13 head and tail with the exact number", func(t *testing.T) {
		t.Parallel()
		for _, total := range []int{201, 1000, 123456} {
			in := make([]byte, total)
			for i := range in {
				in[i] = byte('a' + i%26)
			}
			out, cut := host.Truncate(in, 200)
			require.True(t, cut)
			head, rest, ok := strings.Cut(string(out), "\n[... ")
			require.True(t, ok)
			count, tail, ok := strings.Cut(rest, " bytes left out ...]\n")
			require.True(t, ok)
			assert.Equal(t, fmt.Sprint(total-len(head)-len(tail)), count)
			assert.True(t, bytes.HasPrefix(in, []byte(head)) && len(head) > 50)
			assert.True(t, bytes.HasSuffix(in, []byte(tail)) && len(tail) > 50)
		}
	})
	t.Run("X14 no limit", func(t *testing.T) {
		t.Parallel()
		in := bytes.Repeat([]byte("x"), 5000)
		for _, limit := range []int64{0, -1} {
			out, cut := host.Truncate(in, limit)
			assert.False(t, cut)
			assert.Equal(t, in, out)
		}
	})
	t.Run("no character is cut", func(t *testing.T) {
		t.Parallel()
		in := []byte(strings.Repeat("é😀", 400))
		for limit := int64(100); limit < 120; limit++ {
			out, _ := host.Truncate(in, limit)
			assert.True(t, strings.ToValidUTF8(string(out), "?") == string(out))
			assert.LessOrEqual(t, int64(len(out)), limit)
		}
	})
	t.Run("per stream, drained and counted past the cap", func(t *testing.T) {
		t.Parallel()
		e := newEnv(t)
		s := e.create(t, ordinary())
		r, err := s.Exec(t.Context(), host.ExecRequest{Args: []string{"spam", "3000000"}, MaxOutput: 1000})
		require.NoError(t, err)
		assert.LessOrEqual(t, len(r.Stdout), 1000)
		assert.True(t, r.Truncated.Stdout)
		assert.False(t, r.Truncated.Stderr)
		assert.Contains(t, string(r.Stdout), "bytes left out")
		assert.Zero(t, r.ExitCode)
		r, err = s.Exec(t.Context(), host.ExecRequest{Args: []string{"spam", "3000000"}, MaxOutput: -1})
		require.NoError(t, err)
		assert.Len(t, r.Stdout, 3000000)
		assert.False(t, r.Truncated.Stdout)
	})
	t.Run("redact first, then truncate", func(t *testing.T) {
		t.Parallel()
		e := newEnv(t, granted)
		s := e.create(t, protected())
		// Wherever the cut falls, no part of the value is left beside it.
		for pad := range 60 {
			text := strings.Repeat("p", 150+pad) + "$TOKEN" + strings.Repeat("q", 2000)
			r, err := s.Exec(t.Context(), host.ExecRequest{Shell: `echo "` + text + `"`, MaxOutput: 400})
			require.NoError(t, err)
			for n := 4; n <= len(tokenCanary); n++ {
				assert.NotContains(t, string(r.Stdout), tokenCanary[:n])
			}
		}
	})
	t.Run("redactions are counted, what cannot be masked is said", func(t *testing.T) {
		t.Parallel()
		e := newEnv(t, granted)
		e.source.set("HOST_TOKEN", "yes")
		s := e.create(t, protected())
		r := run(t, s, "printenv", "TOKEN")
		require.Len(t, r.Unmaskable, 1)
		assert.Equal(t, "TOKEN", r.Unmaskable[0].Name)
		assert.Equal(t, r.Unmaskable, s.Unmaskable())
		rec := e.events.wait(t, 1, kind(host.KindRedaction, "unmaskable"))
		assert.Equal(t, []string{"TOKEN"}, rec[0].Names)

		e2 := newEnv(t, granted)
		s2 := e2.create(t, protected())
		r, err := s2.Exec(t.Context(), host.ExecRequest{Shell: `echo "$TOKEN $TOKEN"; write-stderr "$TOKEN"`})
		require.NoError(t, err)
		assert.Equal(t, map[string]int64{"TOKEN": 3}, r.Redactions)
		assert.Empty(t, r.Unmaskable)
	})
}

func TestExecDeadline(t *testing.T) {
	t.Parallel()
	t.Run("T4 singular and plural", func(t *testing.T) {
		t.Parallel()
		assert.Equal(t, "1 second", host.Seconds(time.Second))
		assert.Equal(t, "1.5 seconds", host.Seconds(1500*time.Millisecond))
		assert.Equal(t, "600 seconds", host.Seconds(10*time.Minute))
	})
	t.Run("T10 the notice mentions background and server", func(t *testing.T) {
		t.Parallel()
		n := host.TimeoutNotice(time.Second, true)
		assert.Contains(t, n, "1 second")
		assert.Contains(t, n, "background")
		assert.Contains(t, n, "server")
		assert.NotContains(t, n, "not confirmed")
		assert.Contains(t, host.TimeoutNotice(time.Second, false), "not confirmed")
	})
	bubble := func(name string, f func(*testing.T)) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, f)
		})
	}
	bubble("T1 a background child does not delay the result", func(t *testing.T) {
		e := newEnv(t)
		s := e.create(t, ordinary())
		begun := time.Now()
		r, err := s.Exec(t.Context(), host.ExecRequest{Shell: "background -hold sleep 5; echo done", Timeout: 10 * time.Second})
		require.NoError(t, err)
		assert.Less(t, time.Since(begun), 3*time.Second)
		assert.Contains(t, string(r.Stdout), "done")
		assert.Equal(t, 1, r.LeftRunning)
		assert.Len(t, e.fake.Running(provider.Ref{ID: s.Info().Sandbox}), 1, "it goes on")
	})
	bubble("T3 an endless command is stopped, with its output and a notice", func(t *testing.T) {
		e := newEnv(t)
		s := e.create(t, ordinary())
		begun := time.Now()
		r, err := s.Exec(t.Context(), host.ExecRequest{Shell: "echo partial; background -setsid sleep 3000; sleep 3000", Timeout: time.Second})
		require.NoError(t, err)
		assert.Less(t, time.Since(begun), 5*time.Second)
		assert.Equal(t, host.TimedOut, r.Status)
		assert.True(t, r.TimedOut)
		assert.True(t, r.DeathConfirmed)
		assert.Equal(t, -1, r.ExitCode)
		assert.Equal(t, "partial\n", string(r.Stdout))
		assert.Contains(t, r.Notice, "1 second,")
		assert.Empty(t, e.fake.Running(provider.Ref{ID: s.Info().Sandbox}), "the whole tree is dead")
	})
	bubble("T9 the default is 600 seconds", func(t *testing.T) {
		e := newEnv(t)
		s := e.create(t, ordinary())
		begun := time.Now()
		r := run(t, s, "sleep", "100000")
		assert.Equal(t, host.TimedOut, r.Status)
		assert.InDelta(t, 600, time.Since(begun).Seconds(), 5)
	})
	bubble("F3 a command's own timeout and cap, command unchanged", func(t *testing.T) {
		e := newEnv(t)
		s := e.create(t, ordinary())
		begun := time.Now()
		r, err := s.Exec(t.Context(), host.ExecRequest{Shell: "spam 5000; sleep 100", Timeout: 42 * time.Second, MaxOutput: 321})
		require.NoError(t, err)
		assert.Equal(t, host.TimedOut, r.Status)
		assert.InDelta(t, 42, time.Since(begun).Seconds(), 5)
		assert.LessOrEqual(t, len(r.Stdout), 321)
		assert.True(t, r.Truncated.Stdout)
		rec, ok := e.fake.Record(provider.Ref{ID: s.Info().Sandbox})
		require.True(t, ok)
		assert.NotEmpty(t, rec.Find(secret.FromString("spam 5000; sleep 100")), "the command is as it was given")
	})
	for _, m := range []fake.Method{fake.MethodExec, fake.MethodWait, fake.MethodKill} {
		bubble("holds against a provider that hangs in "+string(m), func(t *testing.T) {
			e := newEnv(t, describe(func(d *provider.Description) {
				d.Exec.Kill = provider.KillNone // the fake's own deadline is out of the way
			}))
			s := e.create(t, ordinary())
			release := make(chan struct{})
			e.fake.SetHooks(fake.Hooks{Before: func(_ context.Context, c fake.Call) error {
				if c.Method == m {
					<-release // not even its context is honoured
				}
				return nil
			}})
			begun := time.Now()
			r, err := s.Exec(t.Context(), host.ExecRequest{Args: []string{"sleep", "20"}, Timeout: time.Second})
			require.NoError(t, err)
			assert.Less(t, time.Since(begun), 1*time.Second+5*time.Second+2*host.AnswerGrace)
			assert.Equal(t, host.TimedOut, r.Status)
			assert.False(t, r.DeathConfirmed)
			assert.Contains(t, r.Notice, "not confirmed")
			close(release)
			time.Sleep(30 * time.Second) // the abandoned command ends
		})
	}
	bubble("a cancelled caller gets the output and its error, and the tree is dead", func(t *testing.T) {
		e := newEnv(t)
		s := e.create(t, ordinary())
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		r, err := s.Exec(ctx, host.ExecRequest{Shell: "echo partial; sleep 100"})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NotNil(t, r)
		assert.Equal(t, host.Killed, r.Status)
		assert.Equal(t, "partial\n", string(r.Stdout))
		assert.Empty(t, e.fake.Running(provider.Ref{ID: s.Info().Sandbox}))
	})
	bubble("an abandoned Wait lets the command go on", func(t *testing.T) {
		e := newEnv(t)
		s := e.create(t, ordinary())
		p, err := s.Start(t.Context(), host.ExecRequest{Args: []string{"sleep", "10"}})
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = p.Wait(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		r, err := p.Wait(t.Context())
		require.NoError(t, err)
		assert.Zero(t, r.ExitCode)
	})
}

func TestExecLost(t *testing.T) {
	t.Parallel()
	broken := &provider.Error{Code: provider.Lost, Message: "stream broke after " + tokenCanary}
	t.Run("a broken stream is lost, never exit 0, and never run again", func(t *testing.T) {
		t.Parallel()
		e := newEnv(t)
		s := e.create(t, ordinary())
		e.fake.SetHooks(fake.Hooks{After: func(_ context.Context, c fake.Call, _ error) error {
			if c.Method == fake.MethodWait {
				return errors.New("connection reset")
			}
			return nil
		}})
		r, err := s.Exec(t.Context(), host.ExecRequest{Args: []string{"echo", "x"}})
		require.Error(t, err)
		assert.Equal(t, host.Lost, r.Status)
		assert.Equal(t, -1, r.ExitCode)
		assert.Equal(t, 1, e.fake.Count(fake.MethodExec))
	})
	t.Run("of a protected session the error is masked", func(t *testing.T) {
		t.Parallel()
		e := newEnv(t, granted)
		s := e.create(t, protected())
		e.fake.SetHooks(failWith(fake.MethodWait, broken))
		_, err := s.Exec(t.Context(), host.ExecRequest{Args: []string{"true"}})
		var le *host.LifecycleError
		require.ErrorAs(t, err, &le)
		assert.Equal(t, provider.Lost, le.Code)
		noCanary(t, fmt.Sprintf("%v %+v %#v", err, err, err))
		assert.Nil(t, errors.Unwrap(err))
	})
	t.Run("an ambiguous start is not repeated under the same ID", func(t *testing.T) {
		t.Parallel()
		e := newEnv(t)
		s := e.create(t, ordinary())
		e.fake.SetHooks(fake.Drop(fake.MethodExec, provider.Unavailable))
		req := host.ExecRequest{Args: []string{"append", "log", "once"}, ID: "one"}
		_, err := s.Exec(t.Context(), req)
		code(t, provider.Unavailable, err)
		e.fake.SetHooks(fake.Hooks{})
		_, err = s.Exec(t.Context(), req)
		code(t, provider.Unavailable, err)
		assert.Equal(t, 1, e.fake.Count(fake.MethodExec))
	})
	t.Run("a start that did not happen frees the ID", func(t *testing.T) {
		t.Parallel()
		e := newEnv(t)
		s := e.create(t, ordinary())
		e.fake.SetHooks(fake.Fail(fake.MethodExec, provider.Unavailable))
		req := host.ExecRequest{Args: []string{"echo", "x"}, ID: "one"}
		_, err := s.Exec(t.Context(), req)
		code(t, provider.Unavailable, err)
		e.fake.SetHooks(fake.Hooks{})
		r, err := s.Exec(t.Context(), req)
		require.NoError(t, err)
		assert.Equal(t, "x\n", string(r.Stdout))
	})
}

func TestExecID(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	s := e.create(t, ordinary())
	req := host.ExecRequest{Args: []string{"append", "log", "line"}, ID: "one"}
	first, err := s.Exec(t.Context(), req)
	require.NoError(t, err)
	again, err := s.Exec(t.Context(), req)
	require.NoError(t, err)
	assert.Equal(t, first, again)
	d, err := s.ReadFile(t.Context(), "log")
	require.NoError(t, err)
	assert.Equal(t, "line\n", string(d.Data), "it ran once")
	other := req
	other.Args = []string{"append", "log", "other"}
	_, err = s.Exec(t.Context(), other)
	code(t, provider.Conflict, err)

	t.Run("many at once run once", func(t *testing.T) {
		req := host.ExecRequest{Args: []string{"append", "many", "line"}, ID: "many"}
		errs := make(chan error, 20)
		for range 20 {
			go func() {
				p, err := s.Start(t.Context(), req)
				if err == nil {
					_, err = p.Wait(t.Context())
				}
				errs <- err
			}()
		}
		for range 20 {
			assert.NoError(t, <-errs)
		}
		d, err := s.ReadFile(t.Context(), "many")
		require.NoError(t, err)
		assert.Equal(t, "line\n", string(d.Data))
	})
	t.Run("old output is let go, the ID is not", func(t *testing.T) {
		for i := range 40 {
			_, err := s.Exec(t.Context(), host.ExecRequest{Args: []string{"true"}, ID: fmt.Sprint("n", i)})
			require.NoError(t, err)
		}
		_, err := s.Exec(t.Context(), req)
		code(t, provider.FailedPrecondition, err)
	})
}

func TestProcess(t *testing.T) {
	t.Parallel()
	t.Run("events end with exactly one terminal event, and offsets add up", func(t *testing.T) {
		t.Parallel()
		e := newEnv(t, granted)
		s := e.create(t, protected())
		p, err := s.Start(t.Context(), host.ExecRequest{Shell: `echo "a $TOKEN"; write-stderr err; spam 200000; echo "$TOKEN"`})
		require.NoError(t, err)
		var out [2]bytes.Buffer
		ends := 0
		for ev := range p.Events() {
			require.Zero(t, ends, "nothing follows the end")
			if ev.Exit != nil {
				ends++
				assert.Equal(t, host.Exited, ev.Exit.Status)
				continue
			}
			b := &out[0]
			if ev.Stream == host.Stderr {
				b = &out[1]
			}
			require.Equal(t, int64(b.Len()), ev.Offset)
			b.Write(ev.Data)
		}
		assert.Equal(t, 1, ends)
		noCanary(t, out[0].String())
		assert.True(t, strings.HasPrefix(out[0].String(), "a [redacted:TOKEN]\n"))
		assert.True(t, strings.HasSuffix(out[0].String(), "[redacted:TOKEN]\n"))
		assert.Equal(t, "err\n", out[1].String())

		// A reader that comes back goes on where it was.
		var rest bytes.Buffer
		for ev := range p.EventsFrom(5, 100) {
			if ev.Stream == host.Stdout {
				rest.Write(ev.Data)
			}
		}
		assert.Equal(t, out[0].String()[5:], rest.String())
	})
	t.Run("a slow reader loses nothing", func(t *testing.T) {
		t.Parallel()
		e := newEnv(t, func(s *setup) { s.host.Limits.Output = 1000 })
		s := e.create(t, ordinary())
		const size = 8 << 20
		p, err := s.Start(t.Context(), host.ExecRequest{Args: []string{"spam", fmt.Sprint(size)}})
		require.NoError(t, err)
		var n int64
		for ev := range p.Events() {
			if ev.Exit != nil {
				assert.True(t, ev.Exit.Truncated.Stdout)
				assert.LessOrEqual(t, len(ev.Exit.Stdout), 1000)
				break
			}
			require.Equal(t, n, ev.Offset)
			n += int64(len(ev.Data))
			if rand.IntN(50) == 0 {
				time.Sleep(time.Millisecond)
			}
		}
		assert.Equal(t, int64(size), n)
	})
	t.Run("a reader that leaves does not stop the command", func(t *testing.T) {
		t.Parallel()
		e := newEnv(t, func(s *setup) { s.host.Limits.Output = 1000 })
		s := e.create(t, ordinary())
		p, err := s.Start(t.Context(), host.ExecRequest{Args: []string{"spam", "8000000"}})
		require.NoError(t, err)
		for range p.Events() {
			break
		}
		r, err := p.Wait(t.Context())
		require.NoError(t, err)
		assert.Zero(t, r.ExitCode)
	})
	t.Run("Wait alone drains", func(t *testing.T) {
		t.Parallel()
		e := newEnv(t, func(s *setup) { s.host.Limits.Output = 1000 })
		s := e.create(t, ordinary())
		p, err := s.Start(t.Context(), host.ExecRequest{Args: []string{"spam", "8000000"}})
		require.NoError(t, err)
		r, err := p.Wait(t.Context())
		require.NoError(t, err)
		assert.True(t, r.Truncated.Stdout)
	})
	t.Run("live stdin and a terminal", func(t *testing.T) {
		t.Parallel()
		e := newEnv(t)
		s := e.create(t, ordinary())
		p, err := s.Start(t.Context(), host.ExecRequest{Args: []string{"cat"}, LiveStdin: true})
		require.NoError(t, err)
		_, err = io.WriteString(p.Stdin(), "live")
		require.NoError(t, err)
		require.NoError(t, p.Stdin().Close())
		r, err := p.Wait(t.Context())
		require.NoError(t, err)
		assert.Equal(t, "live", string(r.Stdout))
		code(t, provider.Unsupported, p.Resize(t.Context(), 1, 1))

		p, err = s.Start(t.Context(), host.ExecRequest{Args: []string{"tty"}, TTY: true, Cols: 80, Rows: 24, LiveStdin: true})
		require.NoError(t, err)
		r, err = p.Wait(t.Context())
		require.NoError(t, err)
		assert.Equal(t, "80x24\r\n", string(r.Stdout))
		assert.True(t, r.Merged)
	})
	t.Run("a terminal can be resized", func(t *testing.T) {
		t.Parallel()
		e := newEnv(t)
		s := e.create(t, ordinary())
		p, err := s.Start(t.Context(), host.ExecRequest{Args: []string{"winch"}, TTY: true, Cols: 80, Rows: 24, LiveStdin: true, ID: "term"})
		require.NoError(t, err)
		assert.Equal(t, "term", p.ID())
		for ev := range p.Events() {
			if strings.Contains(string(ev.Data), "80x24") {
				require.NoError(t, p.Resize(t.Context(), 100, 50))
			}
			if ev.Exit != nil {
				assert.Contains(t, string(ev.Exit.Stdout), "100x50")
			}
		}
	})
	t.Run("Kill ends the whole tree and waits", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) { // a death that a busy machine confirms late is not confirmed
			e := newEnv(t)
			s := e.create(t, ordinary())
			p, err := s.Start(t.Context(), host.ExecRequest{Shell: "background -setsid sleep 600; sleep 600"})
			require.NoError(t, err)
			synctest.Wait()
			require.Len(t, e.fake.Running(provider.Ref{ID: s.Info().Sandbox}), 2)
			require.NoError(t, p.Kill(t.Context()))
			r, err := p.Wait(t.Context())
			require.NoError(t, err)
			assert.Equal(t, host.Killed, r.Status)
			assert.True(t, r.DeathConfirmed)
			assert.Empty(t, e.fake.Running(provider.Ref{ID: s.Info().Sandbox}))
			require.NoError(t, p.Kill(t.Context()), "killing it again is no error")
		})
	})
	t.Run("a secret held at a pause comes out at the end, masked", func(t *testing.T) {
		t.Parallel()
		e := newEnv(t, granted)
		s := e.create(t, protected())
		half := tokenCanary[:len(tokenCanary)-3]
		r := run(t, s, "print", half)
		noCanary(t, string(r.Stdout))
		assert.Equal(t, "[redacted:TOKEN]", string(r.Stdout), "a cut-off secret is masked")
	})
}

func TestHostEnvironmentIsNotInherited(t *testing.T) {
	t.Setenv("SBXHOST_TEST_PLATFORM_KEY", tokenCanary)
	e := newEnv(t)
	s := e.create(t, ordinary())
	for _, id := range []string{"A5 a host credential that nobody declared", "K6 platform key gone, PATH kept", "L4"} {
		t.Run(id, func(t *testing.T) {
			r := run(t, s, "env")
			assert.NotContains(t, string(r.Stdout), "SBXHOST_TEST_PLATFORM_KEY")
			noCanary(t, string(r.Stdout))
			assert.Contains(t, string(r.Stdout), "PATH=")
		})
	}
	require.Equal(t, tokenCanary, os.Getenv("SBXHOST_TEST_PLATFORM_KEY"))
}

// waiting is a reader that ends when the channel is closed.
type waiting chan struct{}

func (w waiting) Read([]byte) (int, error) { <-w; return 0, io.EOF }
