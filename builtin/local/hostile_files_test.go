//go:build linux

package local_test

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sbxhost/sbxhost/builtin/local"
	"github.com/sbxhost/sbxhost/provider"
)

// fileDeadline is far above what any file operation takes on a busy machine, and
// below what one that hangs on a FIFO would.
const fileDeadline = time.Minute

// trap is a file system object that a workload planted for the host to fall into.
type trap struct {
	name string
	// plant is a shell command, run in the root. $OUT is a host directory.
	plant string
	// open is what opening it may answer; nil: content of its own.
	open []error
}

func traps() []trap {
	denied := []error{provider.ErrPermissionDenied}
	return []trap{
		{"link-to-host-file", `ln -s "$OUT/canary" link-to-host-file`, denied},
		{"link-to-passwd", `ln -s /etc/passwd link-to-passwd`, denied},
		{"link-up", `ln -s ../../../../../../../../../../etc/passwd link-up`, denied},
		{"link-to-root", `ln -s / link-to-root`, []error{provider.ErrPermissionDenied, provider.ErrFailedPrecondition}},
		{"link-to-out", `ln -s "$OUT" link-to-out`, []error{provider.ErrPermissionDenied, provider.ErrFailedPrecondition}},
		{"link-through-proc", `ln -s /proc/self/root/etc/passwd link-through-proc`, denied},
		{"link-to-proc-environ", `ln -s /proc/self/environ link-to-proc-environ`, denied},
		{"link-to-proc-cwd", `ln -s /proc/self/cwd link-to-proc-cwd`, []error{provider.ErrPermissionDenied, provider.ErrFailedPrecondition}},
		{"link-to-dev-zero", `ln -s /dev/zero link-to-dev-zero`, denied},
		{"link-chain", `ln -s link-chain-2 link-chain; ln -s link-chain-3 link-chain-2; ln -s /etc/passwd link-chain-3`, denied},
		{"link-loop", `ln -s link-loop link-loop`, []error{provider.ErrPermissionDenied, provider.ErrFailedPrecondition, provider.ErrInvalidArgument, provider.ErrNotFound}},
		{"link-dangling", `ln -s nowhere link-dangling`, []error{provider.ErrNotFound}},
		{"fifo", `mkfifo fifo`, []error{provider.ErrFailedPrecondition, provider.ErrPermissionDenied, provider.ErrUnsupported}},
		{"link-to-fifo", `mkfifo hidden-fifo; ln -s hidden-fifo link-to-fifo`, []error{provider.ErrFailedPrecondition, provider.ErrPermissionDenied, provider.ErrUnsupported}},
		{"directory-of-links", `mkdir directory-of-links; ln -s /etc directory-of-links/etc; ln -s "$OUT" directory-of-links/out`, []error{provider.ErrFailedPrecondition}},
		{"unreadable", `echo x >unreadable; chmod 000 unreadable`, []error{nil, provider.ErrPermissionDenied}},
		{"hard-link", `echo own >original; ln original hard-link`, []error{nil}},
		{"setuid", `echo x >setuid; chmod 4755 setuid`, []error{nil}},
		{"newline\nname", "touch 'newline\nname'", []error{nil}},
	}
}

// planted makes a sandbox with every trap in it and a host directory that the
// traps point to.
func planted(t *testing.T) (context.Context, provider.Sandbox, string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	t.Cleanup(cancel)
	out, err := os.MkdirTemp("", "hostile-out-")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(out) })
	require.NoError(t, os.Chmod(out, 0o777))
	require.NoError(t, os.WriteFile(filepath.Join(out, "canary"), []byte("host canary"), 0o666))
	require.NoError(t, os.Chmod(filepath.Join(out, "canary"), 0o666))

	state, err := os.MkdirTemp("", "hostile-state-")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(state) })
	p, err := local.New(local.Options{StateDir: state})
	require.NoError(t, err)
	v := &victimSandbox{sb: plainSandbox(ctx, t, p, strings.Repeat("a", 32))}
	t.Cleanup(func() { assert.NoError(t, p.Destroy(context.WithoutCancel(ctx), v.sb.Ref())) })
	for _, tr := range traps() {
		text, exit, err := v.run(ctx, provider.ExecRequest{Shell: tr.plant, Env: map[string]string{"OUT": out}})
		require.NoError(t, err, tr.name)
		require.Equal(t, 0, exit.Code, "%s: %s", tr.name, text)
	}
	return ctx, v.sb, out
}

func plainSandbox(ctx context.Context, t *testing.T, p provider.Provider, session string) provider.Sandbox {
	t.Helper()
	digest := "sha256:" + strings.Repeat("0", 64)
	sb, err := p.Create(ctx, provider.CreateRequest{
		SessionID: session, Name: provider.NamePrefix + session, Digest: digest,
		Labels: map[string]string{provider.LabelOwner: "hostile", provider.LabelSession: session, provider.LabelEpoch: "1",
			provider.LabelAttempt: session, provider.LabelDigest: digest, provider.LabelProtected: "0"},
		Root: "/workspace", Network: "none", Start: "idle",
	})
	require.NoError(t, err)
	return sb
}

// within fails the test when f takes as long as a hang would.
func within(t *testing.T, what string, f func() error) error {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- f() }()
	select {
	case err := <-done:
		return err
	case <-time.After(fileDeadline):
		require.FailNow(t, "hangs", what)
		return nil
	}
}

func anyOf(t *testing.T, err error, allowed []error, what string) {
	t.Helper()
	for _, a := range allowed {
		if a == nil && err == nil || a != nil && errors.Is(err, a) {
			return
		}
	}
	assert.Fail(t, "wrong answer", "%s: %v", what, err)
}

// TestHostFileCallsStayBeneathRoot lets a workload plant links, FIFOs and the
// like, and calls every file operation on them from the host: nothing outside the
// root may be read, written, listed, removed or made, and nothing may hang.
func TestHostFileCallsStayBeneathRoot(t *testing.T) {
	t.Parallel()
	ctx, sb, out := planted(t)
	files := sb.Files()
	secrets := []string{"host canary", "root:x:0:0"}

	for _, tr := range traps() {
		t.Run("open/"+tr.name, func(t *testing.T) {
			var data []byte
			err := within(t, "open", func() error {
				r, _, err := files.Open(ctx, tr.name)
				if err != nil {
					return err
				}
				defer func() { _ = r.Close() }()
				data, err = io.ReadAll(io.LimitReader(r, 1<<20))
				return err
			})
			anyOf(t, err, tr.open, "open")
			for _, s := range secrets {
				assert.NotContains(t, string(data), s)
				if err != nil {
					assert.NotContains(t, err.Error(), s)
				}
			}
		})
		t.Run("stat/"+tr.name, func(t *testing.T) {
			var info provider.FileInfo
			require.NoError(t, within(t, "stat", func() (err error) { info, err = files.Stat(ctx, tr.name); return err }))
			if strings.HasPrefix(tr.name, "link") {
				assert.NotZero(t, info.Mode&os.ModeSymlink, "a final link must not be followed")
			}
		})
	}
	for _, dir := range []string{"link-to-root", "link-to-out", "link-to-proc-cwd", "directory-of-links/etc", "directory-of-links/out", "link-to-root/etc", "..", "../..", "/etc", "link-to-root/../etc", "directory-of-links/../../..", "link-loop/x", "fifo", "fifo/x"} {
		t.Run("list/"+dir, func(t *testing.T) {
			var list []provider.FileInfo
			err := within(t, "list", func() (err error) { list, err = files.List(ctx, dir); return err })
			require.Error(t, err)
			assert.Empty(t, list)
		})
	}
	t.Run("list/root", func(t *testing.T) {
		list, err := files.List(ctx, "")
		require.NoError(t, err)
		names := map[string]provider.FileInfo{}
		for _, i := range list {
			names[i.Name] = i
		}
		for _, tr := range traps() {
			assert.Contains(t, names, tr.name)
		}
		assert.Equal(t, out, names["link-to-out"].Target)
	})
	for _, name := range []string{"link-to-out/planted", "directory-of-links/out/planted", "link-to-root/tmp/planted-by-host", "link-to-proc-cwd/planted", "../planted", "link-up/planted", "link-chain/x", "directory-of-links/etc/planted", "fifo/planted", "link-loop/planted"} {
		t.Run("write/"+name, func(t *testing.T) {
			require.Error(t, within(t, "write", func() error {
				return files.Write(ctx, name, strings.NewReader("planted"), provider.WriteOptions{})
			}))
		})
		t.Run("mkdir/"+name, func(t *testing.T) {
			require.Error(t, within(t, "mkdir", func() error { return files.Mkdir(ctx, name, 0o755) }))
		})
		t.Run("remove/"+name, func(t *testing.T) {
			require.Error(t, within(t, "remove", func() error { return files.Remove(ctx, name, true) }))
		})
	}
	t.Run("remove/beyond-links", func(t *testing.T) {
		require.Error(t, files.Remove(ctx, "link-to-out/canary", false))
		require.Error(t, files.Remove(ctx, "directory-of-links/out/canary", true))
	})
	t.Run("export", func(t *testing.T) {
		archiver, ok := sb.(provider.Archiver)
		require.True(t, ok, "local can export")
		var tarball bytes.Buffer
		require.NoError(t, within(t, "export", func() error { return archiver.Export(ctx, &tarball) }))
		for _, s := range secrets {
			assert.NotContains(t, tarball.String(), s)
		}
		for r := tar.NewReader(&tarball); ; {
			h, err := r.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			require.NoError(t, err)
			assert.NotContains(t, []byte{tar.TypeBlock, tar.TypeChar}, h.Typeflag, h.Name)
			assert.False(t, path.IsAbs(h.Name) || strings.Contains(h.Name, ".."), h.Name)
		}
	})
	t.Run("import", func(t *testing.T) {
		archiver := sb.(provider.Archiver)
		for name, header := range map[string]tar.Header{
			"dotdot":        {Name: "../planted", Typeflag: tar.TypeReg, Mode: 0o644, Size: 1},
			"absolute":      {Name: filepath.Join(out, "planted"), Typeflag: tar.TypeReg, Mode: 0o644, Size: 1},
			"through-link":  {Name: "link-to-out/planted", Typeflag: tar.TypeReg, Mode: 0o644, Size: 1},
			"hard-link-out": {Name: "stolen", Typeflag: tar.TypeLink, Linkname: filepath.Join(out, "canary")},
			"hard-link-up":  {Name: "stolen", Typeflag: tar.TypeLink, Linkname: "../../../../../../../etc/passwd"},
		} {
			t.Run(name, func(t *testing.T) {
				var b bytes.Buffer
				w := tar.NewWriter(&b)
				require.NoError(t, w.WriteHeader(&header))
				if header.Size > 0 {
					_, err := w.Write([]byte("x"))
					require.NoError(t, err)
				}
				require.NoError(t, w.Close())
				require.Error(t, within(t, "import", func() error { return archiver.Import(ctx, &b) }))
			})
		}
		t.Run("device", func(t *testing.T) {
			var b bytes.Buffer
			w := tar.NewWriter(&b)
			require.NoError(t, w.WriteHeader(&tar.Header{Name: "device", Typeflag: tar.TypeChar, Devmajor: 1, Devminor: 1, Mode: 0o666}))
			require.NoError(t, w.Close())
			_ = within(t, "import", func() error { return archiver.Import(ctx, &b) })
			_, err := files.Stat(ctx, "device")
			require.ErrorIs(t, err, provider.ErrNotFound, "refused or left out, but never made")
		})
		t.Run("link-then-through-it", func(t *testing.T) {
			var b bytes.Buffer
			w := tar.NewWriter(&b)
			require.NoError(t, w.WriteHeader(&tar.Header{Name: "new-link", Typeflag: tar.TypeSymlink, Linkname: out}))
			require.NoError(t, w.WriteHeader(&tar.Header{Name: "new-link/planted", Typeflag: tar.TypeReg, Mode: 0o644, Size: 1}))
			_, err := w.Write([]byte("x"))
			require.NoError(t, err)
			require.NoError(t, w.Close())
			_ = within(t, "import", func() error { return archiver.Import(ctx, &b) })
		})
	})
	for _, tr := range traps() {
		if strings.HasPrefix(tr.name, "directory") || tr.name == "unreadable" {
			continue
		}
		t.Run("replace-and-remove/"+tr.name, func(t *testing.T) {
			// Writing to a planted name replaces what is there, or is refused; it
			// never writes through it.
			err := within(t, "write", func() error {
				return files.Write(ctx, tr.name, strings.NewReader("written by the host"), provider.WriteOptions{})
			})
			if err == nil {
				r, info, err := files.Open(ctx, tr.name)
				require.NoError(t, err)
				data, err := io.ReadAll(r)
				require.NoError(t, err)
				require.NoError(t, r.Close())
				assert.Equal(t, "written by the host", string(data))
				assert.True(t, info.Mode.IsRegular())
				assert.Zero(t, info.Mode&os.ModeSetuid, "a written file must not keep setuid")
			}
			require.NoError(t, within(t, "remove", func() error { return files.Remove(ctx, tr.name, true) }))
			_, err = files.Stat(ctx, tr.name)
			require.ErrorIs(t, err, provider.ErrNotFound)
		})
	}
	t.Run("remove-tree-of-links", func(t *testing.T) {
		require.NoError(t, within(t, "remove", func() error { return files.Remove(ctx, "directory-of-links", true) }))
	})
	outsideUntouched(t, out)
}

// outsideUntouched checks the host directory that the traps point to.
func outsideUntouched(t *testing.T, out string) {
	t.Helper()
	entries, err := os.ReadDir(out)
	require.NoError(t, err)
	require.Len(t, entries, 1, "something was planted or removed outside: %v", entries)
	data, err := os.ReadFile(filepath.Join(out, "canary"))
	require.NoError(t, err)
	assert.Equal(t, "host canary", string(data))
	for _, f := range []string{"/tmp/planted-by-host", "/etc/planted"} {
		assert.NoFileExists(t, f)
	}
}

// TestHostFileCallsRace lets a workload swap a directory for a link to a host
// directory, again and again, while the host reads, writes, lists and removes
// below it.
func TestHostFileCallsRace(t *testing.T) {
	t.Parallel()
	ctx, sb, out := planted(t)
	files := sb.Files()
	var printed safeBuffer
	swapper, err := sb.Exec(ctx, provider.ExecRequest{ID: "swap", Stdin: provider.StdinNone, Stdout: &printed, Stderr: &printed,
		Env: map[string]string{"OUT": out},
		Shell: `mkdir real; echo own >real/canary; ln -s "$OUT" evil
while :; do mv -T real victim 2>/dev/null; mv -T victim real 2>/dev/null; mv -T evil victim 2>/dev/null; mv -T victim evil 2>/dev/null; done`})
	require.NoError(t, err)
	own, denied, other := 0, 0, 0
	began := time.Now()
	// On a busy machine it may take long until the directory is in place once.
	for since := time.Duration(0); since < 1500*time.Millisecond || own == 0 && since < fileDeadline; since = time.Since(began) {
		r, _, err := files.Open(ctx, "victim/canary")
		switch {
		case err == nil:
			data, rerr := io.ReadAll(r)
			_ = r.Close()
			require.NoError(t, rerr)
			require.Equal(t, "own\n", string(data), "read outside the root")
			own++
		case errors.Is(err, provider.ErrPermissionDenied):
			denied++
		default:
			other++
		}
		_ = files.Write(ctx, "victim/planted", strings.NewReader("planted"), provider.WriteOptions{})
		_ = files.Mkdir(ctx, "victim/planted-dir/deep", 0o755)
		if list, err := files.List(ctx, "victim"); err == nil {
			for _, i := range list {
				require.Contains(t, []string{"canary", "planted", "planted-dir"}, i.Name)
			}
		}
		_ = files.Remove(ctx, "victim/planted", false)
		_ = files.Remove(ctx, "victim/planted-dir", true)
	}
	t.Logf("read %d times, refused %d times, absent %d times", own, denied, other)
	require.NoError(t, swapper.Kill(ctx, 0))
	_, err = swapper.Wait(ctx)
	require.NoError(t, err)
	require.Positive(t, own, "the race never had the directory in place")
	outsideUntouched(t, out)
}
