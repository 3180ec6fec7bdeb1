package local_test

import (
	"archive/tar"
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/iotest"
	"time"

	"github.com/sbxhost/sbxhost/builtin/local"
	"github.com/sbxhost/sbxhost/provider"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func users() []int {
	if os.Geteuid() == 0 {
		return []int{0, ordinary}
	}
	return []int{os.Geteuid()}
}

// TestHostIsKilled: SIGKILL of the host process leaves no process behind, and the
// next one finds what is left on disk, can read it and removes it.
func TestHostIsKilled(t *testing.T) {
	t.Parallel()
	for _, level := range []local.Level{local.LevelNamespaces, local.LevelLandlock} {
		for _, uid := range users() {
			t.Run(fmt.Sprintf("%s/uid=%d", level, uid), func(t *testing.T) {
				t.Parallel()
				id := session()
				cmd := again(t, uid, roleHost, nil, wordVariable+"="+id, levelVariable+"="+string(level))
				state := filepath.Join(cmd.Dir, "state")
				out, err := cmd.StdoutPipe()
				require.NoError(t, err)
				require.NoError(t, cmd.Start())
				defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
				line, err := bufio.NewReader(out).ReadString('\n')
				require.NoError(t, err)
				require.Equal(t, "ready\n", line)
				require.Eventually(t, func() bool { return len(withWord(t, id)) >= 3 }, 30*time.Second, 5*time.Millisecond)

				// The next host process, here this one, sees it alive in the other.
				if uid != os.Geteuid() {
					require.NoError(t, os.Chown(state, 0, 0))
				}
				p, err := local.New(local.Options{StateDir: state, Level: level})
				require.NoError(t, err)
				ctx := t.Context()
				ref := provider.Ref{ID: id}
				list, err := p.List(ctx, provider.Query{Owner: "owner", Session: id})
				require.NoError(t, err)
				require.Len(t, list, 1)
				assert.Equal(t, provider.StateRunning, list[0].State)
				_, err = p.Open(ctx, ref)
				require.ErrorIs(t, err, provider.ErrFailedPrecondition)
				require.ErrorIs(t, p.Destroy(ctx, ref), provider.ErrFailedPrecondition)
				_, err = p.Create(ctx, request(id))
				require.ErrorIs(t, err, provider.ErrConflict)

				require.NoError(t, cmd.Process.Kill())
				_ = cmd.Wait()
				require.Eventually(t, func() bool { return len(withWord(t, id)) == 0 }, 30*time.Second, time.Millisecond, "processes survive their host")

				list, err = p.List(ctx, provider.Query{Owner: "owner"})
				require.NoError(t, err)
				require.Len(t, list, 1)
				assert.Equal(t, provider.StateStopped, list[0].State)
				assert.Equal(t, provider.NamePrefix+id, list[0].Name)
				assert.Equal(t, "owner", list[0].Labels[provider.LabelOwner])
				other, err := p.List(ctx, provider.Query{Owner: "somebody else"})
				require.NoError(t, err)
				assert.Empty(t, other)

				if uid == os.Geteuid() { // the files are the other user's otherwise
					sb, err := p.Open(ctx, ref)
					require.NoError(t, err)
					st, err := sb.Status(ctx)
					require.NoError(t, err)
					assert.Equal(t, provider.StateStopped, st.State)
					_, err = sb.Exec(ctx, provider.ExecRequest{ID: "e", Args: []string{"true"}, Stdout: io.Discard, Stderr: io.Discard})
					require.ErrorIs(t, err, provider.ErrFailedPrecondition)
					info, err := sb.Files().Stat(ctx, "dir")
					require.NoError(t, err)
					assert.True(t, info.Mode.IsDir())
				}
				require.NoError(t, p.Destroy(ctx, ref))
				require.NoError(t, p.Destroy(ctx, ref), "again")
				_, err = p.Open(ctx, ref)
				require.ErrorIs(t, err, provider.ErrNotFound)
				list, err = p.List(ctx, provider.Query{})
				require.NoError(t, err)
				assert.Empty(t, list)
				assert.NoDirExists(t, filepath.Join(state, id))
			})
		}
	}
}

// TestUnreadableIsNotGone: a sandbox whose record cannot be read is there all the
// same, and can be removed.
func TestUnreadableIsNotGone(t *testing.T) {
	t.Parallel()
	state := t.TempDir()
	p := newProvider(t, local.Options{StateDir: state})
	ref := provider.Ref{ID: session()}
	_, err := p.Open(t.Context(), ref)
	require.ErrorIs(t, err, provider.ErrNotFound)
	require.NoError(t, os.Mkdir(filepath.Join(state, ref.ID), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(state, ref.ID, "sandbox.json"), nil, 0o600))
	_, err = p.Open(t.Context(), ref)
	require.ErrorIs(t, err, provider.ErrUnavailable)
	list, err := p.List(t.Context(), provider.Query{})
	require.NoError(t, err)
	require.Len(t, list, 1)
	require.NoError(t, p.Destroy(t.Context(), ref))
	_, err = p.Open(t.Context(), ref)
	require.ErrorIs(t, err, provider.ErrNotFound)
}

// TestWorkspaceMoves: what a stopped sandbox left is exported and imported into
// another, byte for byte.
func TestWorkspaceMoves(t *testing.T) {
	t.Parallel()
	p := newProvider(t, local.Options{})
	a, b := create(t, p), create(t, p)
	script := `umask 022; mkdir -p d/e; printf 'a\000b' >d/bin; chmod 751 d/bin; ln -s bin d/link; ln -s /usr/bin/env d/abs; chmod 500 d/e; touch -d 2020-02-02T02:02:02Z d/bin d/e; mkfifo pipe`
	require.Zero(t, run(t, a, script).exit.Code)
	var buf bytes.Buffer
	require.NoError(t, a.(provider.Archiver).Export(t.Context(), &buf))
	raw := bytes.Clone(buf.Bytes())
	broken := io.MultiReader(bytes.NewReader(raw[:1024]), iotest.ErrReader(fmt.Errorf("the connection ended: %w", io.EOF)))
	require.Error(t, b.(provider.Archiver).Import(t.Context(), broken), "not all of it came")
	require.NoError(t, b.(provider.Archiver).Import(t.Context(), &buf))
	show := `find . -printf '%p %y %m %l %T@ %s %u\n' | grep -v '^\. ' | sort; od -c d/bin`
	want := run(t, a, `rm pipe; touch -d 2020-02-02T02:02:02Z d; `+show)
	got := run(t, b, `touch -d 2020-02-02T02:02:02Z d; `+show)
	assert.Equal(t, want.stdout, got.stdout)
	assert.Contains(t, got.stdout, "./d/bin f 751")
	for r := tar.NewReader(bytes.NewReader(raw)); ; {
		h, err := r.Next()
		if err == io.EOF {
			break
		}
		require.NoError(t, err)
		assert.NotEqual(t, "pipe", h.Name)
		assert.Zero(t, h.Uid)
		assert.Empty(t, h.Uname)
	}
}

// TestHostileTreeIsRemoved: no directory is too closed or too deep to be removed.
func TestHostileTreeIsRemoved(t *testing.T) {
	t.Parallel()
	p := newProvider(t, local.Options{})
	sb, err := p.Create(t.Context(), request(session()))
	require.NoError(t, err)
	script := `mkdir -p closed/in; : >closed/in/f; chmod 0 closed/in closed
		perl -e 'for (1..2500) { mkdir "deep" or exit 8; chdir "deep" or exit 9 } mkdir "shut", 0 or exit 7'`
	require.Zero(t, run(t, sb, script).exit.Code)
	// The same by a file call, on a copy of a part.
	require.NoError(t, sb.Files().Remove(t.Context(), "closed", true))
	_, err = sb.Files().Stat(t.Context(), "closed")
	require.ErrorIs(t, err, provider.ErrNotFound)
	require.NoError(t, p.Destroy(t.Context(), sb.Ref()))
	assert.NoDirExists(t, filepath.Join(p.StateDir(), sb.Ref().ID))
}

// TestFallback: where the kernel refuses namespaces the landlock level is taken,
// and says what stays open; where it refuses Landlock too, there is no sandbox
// and the error says how to get one.
func TestFallback(t *testing.T) {
	t.Parallel()
	for _, uid := range users() {
		t.Run(fmt.Sprintf("landlock/uid=%d", uid), func(t *testing.T) {
			t.Parallel()
			out, err := again(t, uid, roleFallback, nil).CombinedOutput()
			require.NoError(t, err, "%s", out)
			text := string(out)
			assert.Contains(t, text, "level: landlock\n")
			assert.Contains(t, text, "isolation: landlock the kernel is shared")
			assert.Contains(t, text, "list of the host's processes")
			assert.Contains(t, text, "SIGKILL")
			assert.Contains(t, text, "reasons: namespaces: ")
			assert.Contains(t, text, "output: works|cat: /proc/1/environ: Permission denied|cat: /etc/shadow: Permission denied|")
		})
		t.Run(fmt.Sprintf("refused/uid=%d", uid), func(t *testing.T) {
			t.Parallel()
			out, err := again(t, uid, roleNothing, nil).CombinedOutput()
			require.NoError(t, err, "%s", out)
			text := string(out)
			assert.Contains(t, text, "error: Unsupported")
			for _, s := range []string{"namespaces: ", "landlock: ", "another provider", "--unsafe-local", "unprivileged_userns_clone"} {
				assert.Contains(t, text, s)
			}
			assert.NotContains(t, text, "works")
		})
		t.Run(fmt.Sprintf("asked for namespaces/uid=%d", uid), func(t *testing.T) {
			t.Parallel()
			out, err := again(t, uid, roleFallback, nil, levelVariable+"="+string(local.LevelNamespaces)).CombinedOutput()
			require.NoError(t, err, "%s", out)
			assert.Contains(t, string(out), "error: Unsupported", "never a weaker level than asked for")
		})
		t.Run(fmt.Sprintf("no file in memory/uid=%d", uid), func(t *testing.T) {
			t.Parallel()
			cmd := again(t, uid, roleNoMemfd, nil)
			out, err := cmd.CombinedOutput()
			require.NoError(t, err, "%s", out)
			assert.Contains(t, string(out), "level: namespaces\n")
			assert.Contains(t, string(out), "output: works|")
			assert.FileExists(t, filepath.Join(cmd.Dir, "state", ".shim"))
		})
		// A process that made itself unreadable cannot map its child's user, so
		// the child does.
		t.Run(fmt.Sprintf("undumpable host/uid=%d", uid), func(t *testing.T) {
			t.Parallel()
			out, err := again(t, uid, roleUndumped, nil).CombinedOutput()
			require.NoError(t, err, "%s", out)
			assert.Contains(t, string(out), "level: namespaces\n")
			assert.Contains(t, string(out), "output: works|")
		})
	}
}

// TestLoneRoot: root of a user namespace that holds an ordinary user alone, as in
// bubblewrap and rootless containers, has no other user to give a sandbox to. It
// is served as the ordinary user that it is.
func TestLoneRoot(t *testing.T) {
	t.Parallel()
	for role, level := range map[string]string{rolePlain: "namespaces", roleFallback: "landlock"} {
		t.Run(level, func(t *testing.T) {
			t.Parallel()
			cmd := again(t, ordinary, role, nil)
			uid, gid := os.Geteuid(), os.Getegid()
			if uid == 0 {
				uid, gid = ordinary, ordinary
			}
			cmd.SysProcAttr = &syscall.SysProcAttr{
				Cloneflags:  syscall.CLONE_NEWUSER,
				UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: uid, Size: 1}},
				GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: gid, Size: 1}},
				Credential:  &syscall.Credential{NoSetGroups: true},
			}
			out, err := cmd.CombinedOutput()
			require.NoError(t, err, "%s", out)
			assert.Contains(t, string(out), "level: "+level+"\n")
			assert.Contains(t, string(out), "output: works|")
			assert.NotContains(t, string(out), "root:", "nothing of /etc/shadow")
		})
	}
}

// TestOrdinaryUser runs the conformance kit again without any privilege.
func TestOrdinaryUser(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("this is an ordinary user already: every other test is this one")
	}
	for _, level := range []string{"namespaces", "landlock"} {
		t.Run(level, func(t *testing.T) {
			t.Parallel()
			out, err := again(t, ordinary, "", []string{
				"-test.run", "^(TestConformance|TestHostileTreeIsRemoved|TestWorkspaceMoves)$/^(" + level + ")?$/^(lifecycle|create|destroy|exec|stdin|timeout|kill|tty|env|secrets|files|archive|background)$",
				"-test.v",
			}).CombinedOutput()
			require.NoError(t, err, "%s", out)
			assert.Greater(t, strings.Count(string(out), "--- PASS"), 40, "%s", out)
		})
	}
}
