package shim_test

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/iotest"
	"time"

	"github.com/sbxhost/sbxhost/internal/shim"
	"github.com/sbxhost/sbxhost/internal/shim/wire"
	"github.com/sbxhost/sbxhost/provider"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// helper starts `shim files` on the host, as the tests' own user.
type helper struct {
	t     *testing.T
	dials atomic.Int64
	mu    sync.Mutex
	cmds  []*exec.Cmd
}

func (h *helper) dial(context.Context) (io.ReadWriteCloser, error) {
	h.dials.Add(1)
	cmd := exec.Command(program(), "files", "id")
	cmd.Env = shim.EngineEnviron()
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	h.mu.Lock()
	h.cmds = append(h.cmds, cmd)
	h.mu.Unlock()
	return &engine{cmd, in, out}, nil
}

// filesOn returns a Files on a fresh directory, whose idle stream is there until the
// test's end however busy the machine is.
func filesOn(t *testing.T) (*shim.Files, string, *helper) {
	t.Helper()
	h := &helper{t: t}
	dir := t.TempDir()
	f := shim.NewFiles(shim.FilesOptions{Dial: h.dial, Workload: shim.Workload{User: fmt.Sprintf("%d:%d", os.Geteuid(), os.Getegid())}, Root: dir, Provider: "test"})
	shim.KeepIdle(f, time.Hour)
	t.Cleanup(func() {
		_ = f.Close()
		for _, c := range h.cmds {
			done := make(chan struct{})
			go func() { defer close(done); _, _ = c.Process.Wait() }()
			select {
			case <-done:
			case <-time.After(time.Minute):
				_ = c.Process.Kill()
				<-done
				t.Error("a file helper did not end with its stream")
			}
		}
	})
	return f, dir, h
}

func code(t *testing.T, want provider.Code, err error, hint ...any) {
	t.Helper()
	require.Error(t, err, hint...)
	assert.Equal(t, want, provider.CodeOf(err), "%v %v", err, hint)
}

func read(t *testing.T, f *shim.Files, name string) string {
	t.Helper()
	r, _, err := f.Open(t.Context(), name)
	require.NoError(t, err)
	defer func() { require.NoError(t, r.Close()) }()
	b, err := io.ReadAll(r)
	require.NoError(t, err)
	return string(b)
}

func TestFiles(t *testing.T) {
	t.Parallel()
	f, dir, h := filesOn(t)
	ctx := t.Context()
	require.NoError(t, f.Write(ctx, "a/b/c.txt", strings.NewReader("hello"), provider.WriteOptions{}))
	assert.Equal(t, "hello", read(t, f, "a/b/c.txt"))
	info, err := f.Stat(ctx, "a/b/c.txt")
	require.NoError(t, err)
	assert.Equal(t, fs.FileMode(0o644), info.Mode)
	assert.EqualValues(t, 5, info.Size)
	assert.Equal(t, "c.txt", info.Name)
	assert.Equal(t, "a/b/c.txt", info.Path)
	assert.WithinDuration(t, time.Now(), info.ModTime, time.Minute)
	require.NoError(t, f.Write(ctx, "a/b/c.txt", strings.NewReader("x"), provider.WriteOptions{Mode: 0o755}))
	require.NoError(t, f.Write(ctx, "a/b/c.txt", strings.NewReader(""), provider.WriteOptions{}))
	info, err = f.Stat(ctx, "a/b/c.txt")
	require.NoError(t, err)
	assert.Equal(t, fs.FileMode(0o755), info.Mode, "the existing file's")
	require.NoError(t, f.Mkdir(ctx, "a/d/e", 0o700))
	require.NoError(t, f.Mkdir(ctx, "a/d/e", 0))
	require.NoError(t, os.Symlink("b/c.txt", dir+"/a/link"))
	list, err := f.List(ctx, "a")
	require.NoError(t, err)
	require.Len(t, list, 3)
	assert.Equal(t, []string{"a/b", "a/d", "a/link"}, []string{list[0].Path, list[1].Path, list[2].Path})
	assert.Equal(t, "b/c.txt", list[2].Target)
	assert.True(t, list[0].Mode.IsDir())
	list, err = f.List(ctx, "a/d/e")
	require.NoError(t, err)
	assert.NotNil(t, list)
	assert.Empty(t, list)
	require.NoError(t, f.Write(ctx, "a/link", strings.NewReader("through"), provider.WriteOptions{}))
	assert.Equal(t, "through", read(t, f, "a/b/c.txt"))
	code(t, provider.FailedPrecondition, f.Remove(ctx, "a", false))
	require.NoError(t, f.Remove(ctx, "a/link", false))
	require.NoError(t, f.Remove(ctx, "a", true))
	code(t, provider.NotFound, f.Remove(ctx, "a", true))
	_, err = f.Stat(ctx, "a")
	code(t, provider.NotFound, err)
	assert.EqualValues(t, 1, h.dials.Load(), "one stream serves them all")
}

func TestFilesRefuse(t *testing.T) {
	t.Parallel()
	f, dir, h := filesOn(t)
	ctx := t.Context()
	outside := t.TempDir()
	require.NoError(t, os.WriteFile(outside+"/secret", []byte("canary"), 0o644))
	require.NoError(t, os.Symlink(outside, dir+"/out"))
	require.NoError(t, os.Symlink("../"+strings.TrimPrefix(outside, "/tmp/"), dir+"/up"))
	require.NoError(t, os.Symlink("/proc/self/root", dir+"/magic"))
	require.NoError(t, os.Symlink("loop", dir+"/loop"))
	require.NoError(t, os.Mkdir(dir+"/dir", 0o755))
	require.NoError(t, syscall.Mkfifo(dir+"/pipe", 0o644))
	for _, c := range []struct {
		path string
		want provider.Code
	}{
		{"../x", provider.PermissionDenied},
		{"/etc/passwd", provider.PermissionDenied},
		{"dir/../../x", provider.PermissionDenied},
		{"out/secret", provider.PermissionDenied},
		{"magic/etc/passwd", provider.PermissionDenied},
		{"loop/x", provider.PermissionDenied},
		{"a\x00b", provider.InvalidArgument},
		{strings.Repeat("x", 300), provider.InvalidArgument},
		{strings.Repeat("x/", wire.MaxPath), provider.InvalidArgument},
		{"pipe/x", provider.FailedPrecondition},
	} {
		t.Run(fmt.Sprintf("%.20q", c.path), func(t *testing.T) {
			_, _, err := f.Open(ctx, c.path)
			code(t, c.want, err)
			code(t, c.want, f.Write(ctx, c.path, strings.NewReader("x"), provider.WriteOptions{}))
			_, err = f.List(ctx, c.path)
			code(t, c.want, err)
			_, err = f.Stat(ctx, c.path)
			code(t, c.want, err)
			code(t, c.want, f.Remove(ctx, c.path, true))
			code(t, c.want, f.Mkdir(ctx, c.path+"/y", 0))
		})
	}
	// A file that is a link out of the root is neither read nor written through.
	require.NoError(t, os.Symlink(outside+"/secret", dir+"/outfile"))
	require.NoError(t, os.Symlink("../../../../../../../.."+outside+"/secret", dir+"/upfile"))
	for _, n := range []string{"outfile", "upfile"} {
		code(t, provider.PermissionDenied, f.Write(ctx, n, strings.NewReader("x"), provider.WriteOptions{}))
		_, _, err := f.Open(ctx, n)
		code(t, provider.PermissionDenied, err)
	}
	_, _, err := f.Open(ctx, "dir")
	code(t, provider.FailedPrecondition, err)
	_, _, err = f.Open(ctx, "pipe")
	code(t, provider.FailedPrecondition, err)
	code(t, provider.FailedPrecondition, f.Write(ctx, "dir", strings.NewReader("x"), provider.WriteOptions{}))
	code(t, provider.FailedPrecondition, f.Write(ctx, "pipe", strings.NewReader("x"), provider.WriteOptions{}))
	code(t, provider.InvalidArgument, f.Remove(ctx, ".", true))
	code(t, provider.InvalidArgument, f.Write(ctx, "", strings.NewReader("x"), provider.WriteOptions{}))
	code(t, provider.InvalidArgument, f.Write(ctx, "m", strings.NewReader("x"), provider.WriteOptions{Mode: fs.ModeSetuid | 0o755}))
	code(t, provider.InvalidArgument, f.Mkdir(ctx, "m", fs.ModeDir))
	left, err := os.ReadDir(outside)
	require.NoError(t, err)
	assert.Len(t, left, 1)
	assert.EqualValues(t, 1, h.dials.Load(), "a refusal does not cost the stream")
}

// What a caller does not finish leaves nothing behind, and the stream is used again.
func TestFilesWriteIsWholeOrNot(t *testing.T) {
	t.Parallel()
	f, dir, h := filesOn(t)
	ctx := t.Context()
	require.NoError(t, f.Write(ctx, "f", strings.NewReader("old"), provider.WriteOptions{}))
	for _, own := range []error{errors.New("own"), fmt.Errorf("the connection ended: %w", io.EOF)} {
		err := f.Write(ctx, "f", io.MultiReader(bytes.NewReader(make([]byte, 1<<20)), iotest.ErrReader(own)), provider.WriteOptions{})
		require.ErrorIs(t, err, own)
		assert.Equal(t, "old", read(t, f, "f"))
	}
	assert.EqualValues(t, 1, h.dials.Load())
	// Refused at once, while the caller has much more to say.
	require.NoError(t, f.Mkdir(ctx, "d", 0))
	n := &counting{r: io.LimitReader(zero{}, 1<<34)}
	code(t, provider.FailedPrecondition, f.Write(ctx, "d", n, provider.WriteOptions{}))
	assert.Less(t, n.n, int64(1<<33), "all was read for nothing")
	assert.EqualValues(t, 1, h.dials.Load())
	c, cancel := context.WithCancel(ctx)
	err := f.Write(c, "f", io.MultiReader(strings.NewReader("new"), hook(cancel), zero{}), provider.WriteOptions{})
	code(t, provider.Canceled, err)
	assert.Equal(t, "old", read(t, f, "f"))
	// The helper that was given up may be on its way out yet.
	var left []os.DirEntry
	assert.Eventually(t, func() bool { left, err = os.ReadDir(dir); return err == nil && len(left) == 2 }, 30*time.Second, 5*time.Millisecond)
	assert.Len(t, left, 2)
}

type zero struct{}

func (zero) Read(p []byte) (int, error) { clear(p); return len(p), nil }

type counting struct {
	r io.Reader
	n int64
}

func (c *counting) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += int64(n)
	return n, err
}

type hook func()

func (h hook) Read([]byte) (int, error) { h(); return 0, io.EOF }

func TestFilesStreamLarge(t *testing.T) {
	t.Parallel()
	f, _, h := filesOn(t)
	const size = 100 << 20
	require.NoError(t, f.Write(t.Context(), "big", io.LimitReader(zero{}, size), provider.WriteOptions{}))
	r, info, err := f.Open(t.Context(), "big")
	require.NoError(t, err)
	assert.EqualValues(t, size, info.Size)
	n, err := io.Copy(io.Discard, r)
	require.NoError(t, err)
	assert.EqualValues(t, size, n)
	require.NoError(t, r.Close())
	for _, c := range h.cmds {
		kb := 0
		_, _ = fmt.Sscanf(statusLine(c.Process.Pid, "VmHWM:"), "%d", &kb)
		assert.Positive(t, kb)
		assert.Less(t, kb, 64<<10, "KiB of memory at most")
	}
	// A reader that is left early is not waited for, and its stream serves again.
	r, _, err = f.Open(t.Context(), "big")
	require.NoError(t, err)
	_, err = io.ReadFull(r, make([]byte, 1000))
	require.NoError(t, err)
	require.NoError(t, r.Close())
	_, err = r.Read(make([]byte, 1))
	require.ErrorIs(t, err, fs.ErrClosed)
	require.Eventually(t, func() bool { _, err := f.Stat(t.Context(), "big"); return err == nil }, 30*time.Second, time.Millisecond)
	ctx, cancel := context.WithCancel(t.Context())
	r, _, err = f.Open(ctx, "big")
	require.NoError(t, err)
	cancel()
	_, err = io.Copy(io.Discard, r)
	code(t, provider.Canceled, err)
	require.NoError(t, r.Close())
}

// A helper that was killed while idle is noticed; one that dies at work is Lost.
func TestFilesHelperDies(t *testing.T) {
	t.Parallel()
	f, _, h := filesOn(t)
	ctx := t.Context()
	require.NoError(t, f.Write(ctx, "f", strings.NewReader("text"), provider.WriteOptions{}))
	require.NoError(t, h.cmds[0].Process.Kill())
	_, err := f.Stat(ctx, "f")
	require.NoError(t, err)
	assert.EqualValues(t, 2, h.dials.Load())
	err = f.Write(ctx, "f", io.MultiReader(strings.NewReader("x"), hook(func() { _ = h.cmds[1].Process.Kill() }), io.LimitReader(zero{}, 1<<30)), provider.WriteOptions{})
	code(t, provider.Lost, err)
	assert.Equal(t, provider.AppliedUnknown, provider.AppliedOf(err))
	assert.Equal(t, "text", read(t, f, "f"))
	bad := shim.NewFiles(shim.FilesOptions{Dial: func(context.Context) (io.ReadWriteCloser, error) { return nil, errors.New("no engine") }, Provider: "test"})
	_, err = bad.Stat(ctx, "f")
	code(t, provider.Unavailable, err)
}

func TestFilesSetupFails(t *testing.T) {
	t.Parallel()
	h := &helper{t: t}
	for _, c := range []struct {
		user, root string
		want       provider.Code
	}{
		{"no-such-user-here", "/", provider.InvalidArgument},
		{"0:no-such-group-here", "/", provider.InvalidArgument},
		{fmt.Sprint(os.Geteuid()), "/no/such/root", provider.FailedPrecondition},
		{fmt.Sprint(os.Geteuid()), "/etc/passwd", provider.FailedPrecondition},
		{"a\nb", "/", provider.InvalidArgument},
	} {
		f := shim.NewFiles(shim.FilesOptions{Dial: h.dial, Workload: shim.Workload{User: c.user}, Root: c.root, Provider: "test"})
		_, err := f.Stat(t.Context(), ".")
		code(t, c.want, err, c.user)
	}
	for _, c := range h.cmds {
		_, _ = c.Process.Wait()
	}
}

// A program that is not ours, or was taken over, gets no further than an error.
func TestFilesDistrustsItsHelper(t *testing.T) {
	t.Parallel()
	ready := wire.Append(nil, wire.FileReady, nil)
	done := wire.Append(nil, wire.FileDone, nil)
	entry := func(name string, mode uint32) []byte {
		return wire.AppendInfo(append([]byte(nil), ready...), wire.FileInfo, wire.Info{Name: name, Mode: mode})
	}
	for name, says := range map[string][]byte{
		"another protocol": []byte("HTTP/1.1 200 OK\r\n\r\n"),
		"nothing":          nil,
		"parent":           append(entry("..", 0o100644), done...),
		"slash":            append(entry("a/../../b", 0o100644), done...),
		"empty":            append(entry("", 0o100644), done...),
		"absolute":         append(entry("/etc/x", 0o100644), done...),
		"device":           append(entry("x/../..", 0o060644), done...),
		"stray data":       wire.Append(append([]byte(nil), ready...), wire.FileData, []byte("x")),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := shim.NewFiles(shim.FilesOptions{Root: "/", Provider: "test", Dial: func(context.Context) (io.ReadWriteCloser, error) {
				return &rw{bytes.NewReader(says), io.Discard, func() error { return nil }}, nil
			}})
			_, err := f.List(t.Context(), "")
			code(t, provider.Lost, err)
			var buf bytes.Buffer
			code(t, provider.Lost, f.Export(t.Context(), &buf))
			assert.NotContains(t, buf.String(), "etc/x")
		})
	}
}

func TestFilesArchive(t *testing.T) {
	t.Parallel()
	f, dir, _ := filesOn(t)
	ctx := t.Context()
	for name, content := range map[string]string{"a": "one", "d/b": strings.Repeat("x", 200000), "d/empty": "", "shut/in": "two"} {
		require.NoError(t, f.Write(ctx, name, strings.NewReader(content), provider.WriteOptions{Mode: 0o640}))
	}
	require.NoError(t, os.Symlink("/etc/passwd", dir+"/d/link"))
	require.NoError(t, syscall.Mkfifo(dir+"/d/pipe", 0o644))
	require.NoError(t, os.Link(dir+"/a", dir+"/hard"))
	require.NoError(t, os.Chmod(dir+"/shut/in", 0))
	require.NoError(t, os.Chmod(dir+"/shut", 0o100))
	old := time.Unix(1e9, 5e8)
	require.NoError(t, os.Chtimes(dir+"/a", old, old))
	require.NoError(t, os.Chtimes(dir+"/d", old, old))
	var buf bytes.Buffer
	require.NoError(t, f.Export(ctx, &buf))
	g, other, _ := filesOn(t)
	broken := io.MultiReader(bytes.NewReader(buf.Bytes()[:1024]), iotest.ErrReader(fmt.Errorf("the connection ended: %w", io.EOF)))
	require.Error(t, g.Import(ctx, broken), "not all of it came")
	require.NoError(t, g.Import(ctx, iotest.OneByteReader(bytes.NewReader(buf.Bytes()))))
	var names []string
	for r := tar.NewReader(&buf); ; {
		h, err := r.Next()
		if err == io.EOF {
			break
		}
		require.NoError(t, err)
		names = append(names, fmt.Sprintf("%s %o", h.Name, h.Mode))
	}
	assert.Equal(t, []string{"a 640", "d/ 755", "d/b 640", "d/empty 640", "d/link 777", "hard 640", "shut/ 100", "shut/in 0"}, names)
	assert.Equal(t, "one", read(t, g, "a"))
	assert.Len(t, read(t, g, "d/b"), 200000)
	st, err := g.Stat(ctx, "d/link")
	require.NoError(t, err)
	assert.Equal(t, "/etc/passwd", st.Target)
	for _, n := range []string{"a", "d"} {
		st, err = g.Stat(ctx, n)
		require.NoError(t, err)
		assert.Equal(t, old.UnixNano(), st.ModTime.UnixNano(), n)
	}
	st, err = g.Stat(ctx, "shut")
	require.NoError(t, err)
	assert.Equal(t, fs.FileMode(0o100)|fs.ModeDir, st.Mode)
	fi, err := os.Stat(dir + "/shut")
	require.NoError(t, err)
	assert.Equal(t, fs.FileMode(0o100), fi.Mode().Perm(), "put back")
	for _, d := range []string{dir, other} {
		require.NoError(t, os.Chmod(d+"/shut", 0o700))
	}
	failing := errors.New("full")
	require.ErrorIs(t, f.Export(ctx, writerFunc(func([]byte) (int, error) { return 0, failing })), failing)
	_, err = f.Stat(ctx, "a")
	require.NoError(t, err)
}

type writerFunc func([]byte) (int, error)

func (w writerFunc) Write(p []byte) (int, error) { return w(p) }

func TestFilesImportRefuses(t *testing.T) {
	t.Parallel()
	reg := func(name string) *tar.Header { return &tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o644} }
	for name, c := range map[string]struct {
		headers []*tar.Header
		want    provider.Code
	}{
		"parent":            {[]*tar.Header{reg("../evil")}, provider.PermissionDenied},
		"inner parent":      {[]*tar.Header{reg("a/../../evil")}, provider.PermissionDenied},
		"absolute":          {[]*tar.Header{reg("/evil")}, provider.PermissionDenied},
		"by a link":         {[]*tar.Header{{Name: "l", Typeflag: tar.TypeSymlink, Linkname: "OUT"}, reg("l/evil")}, provider.PermissionDenied},
		"by a link upwards": {[]*tar.Header{{Name: "l", Typeflag: tar.TypeSymlink, Linkname: ".."}, reg("l/evil")}, provider.PermissionDenied},
		"hard link out":     {[]*tar.Header{{Name: "h", Typeflag: tar.TypeLink, Linkname: "../../etc/passwd"}}, provider.PermissionDenied},
		"hard link by link": {[]*tar.Header{{Name: "l", Typeflag: tar.TypeSymlink, Linkname: "/etc"}, {Name: "h", Typeflag: tar.TypeLink, Linkname: "l/passwd"}}, provider.PermissionDenied},
		"hard link to self": {[]*tar.Header{reg("h"), {Name: "h", Typeflag: tar.TypeLink, Linkname: "h"}}, provider.InvalidArgument},
		"over a directory":  {[]*tar.Header{{Name: "d/", Typeflag: tar.TypeDir, Mode: 0o755}, reg("d")}, provider.FailedPrecondition},
		"below a file":      {[]*tar.Header{reg("f"), reg("f/g")}, provider.FailedPrecondition},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, dir, h := filesOn(t)
			out := t.TempDir()
			var buf bytes.Buffer
			w := tar.NewWriter(&buf)
			require.NoError(t, w.WriteHeader(reg("before")))
			for _, hd := range c.headers {
				hd.Linkname = strings.ReplaceAll(hd.Linkname, "OUT", out)
				require.NoError(t, w.WriteHeader(hd))
			}
			require.NoError(t, w.WriteHeader(&tar.Header{Name: "after", Typeflag: tar.TypeReg, Mode: 0o644}))
			require.NoError(t, w.Close())
			code(t, c.want, f.Import(t.Context(), &buf))
			for _, p := range []string{out + "/evil", dir + "/../evil", dir + "/evil", "/evil"} {
				_, err := os.Lstat(p)
				assert.ErrorIs(t, err, fs.ErrNotExist, p)
			}
			_, err := f.Stat(t.Context(), "before")
			require.NoError(t, err)
			assert.EqualValues(t, 1, h.dials.Load())
		})
	}
	f, _, _ := filesOn(t)
	code(t, provider.InvalidArgument, f.Import(t.Context(), strings.NewReader(strings.Repeat("no tar at all ", 100))))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	code(t, provider.Canceled, f.Import(ctx, strings.NewReader("")))
}

// Links that change while operations run never lead one out.
func TestFilesRace(t *testing.T) {
	t.Parallel()
	f, dir, _ := filesOn(t)
	outside := t.TempDir()
	require.NoError(t, os.WriteFile(outside+"/f", []byte("outside"), 0o644))
	require.NoError(t, os.Mkdir(dir+"/real", 0o755))
	require.NoError(t, os.WriteFile(dir+"/real/f", []byte("inside"), 0o644))
	require.NoError(t, os.Symlink(outside, dir+"/evil"))
	require.NoError(t, os.Symlink("real", dir+"/d"))
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Add(1)
	go func() {
		defer wg.Done()
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			tmp := dir + "/tmp"
			_ = os.Symlink([]string{"real", outside}[i%2], tmp)
			_ = os.Rename(tmp, dir+"/d")
		}
	}()
	for range 300 {
		r, _, err := f.Open(t.Context(), "d/f")
		if err == nil {
			b, _ := io.ReadAll(r)
			_ = r.Close()
			assert.NotEqual(t, "outside", string(b))
		}
		_ = f.Write(t.Context(), "d/f", strings.NewReader("inside"), provider.WriteOptions{})
		_ = f.Remove(t.Context(), "d/g", true)
	}
	close(stop)
	wg.Wait()
	b, err := os.ReadFile(outside + "/f")
	require.NoError(t, err)
	assert.Equal(t, "outside", string(b))
}

// In a container the operations have the session user's access, and that user cannot
// reach the helper.
func TestFilesInAContainer(t *testing.T) {
	t.Parallel()
	b, c := startBox(t, boxOptions{Root: "/workspace", User: "app"})
	n := 0
	files := func(user string) *shim.Files {
		f := shim.NewFiles(shim.FilesOptions{Root: "/workspace", Provider: "test", Workload: shim.Workload{User: user}, Dial: func(context.Context) (io.ReadWriteCloser, error) {
			n++
			return b.engineExec(shim.FilesArgs(fmt.Sprintf("files-%d", n))), nil
		}})
		shim.KeepIdle(f, time.Hour)
		t.Cleanup(func() { _ = f.Close() })
		return f
	}
	app := files("app")
	require.NoError(t, app.Write(t.Context(), "mine", strings.NewReader("x"), provider.WriteOptions{Mode: 0o600}))
	inUse, _, err := app.Open(t.Context(), "mine")
	require.NoError(t, err)
	x, out, _ := b.exec("x", "app", `stat -c '%u %g %a' mine; mkdir closed; chmod 0 closed; for d in /proc/[0-9]*; do case "$(tr '\0' ' ' <$d/cmdline)" in "/.sbx/shim files"*) pid=${d#/proc/};; esac; done
		kill -KILL $pid || kill -STOP $pid || head -c1 /proc/$pid/environ || echo "cannot reach $((pid > 1))"`, func(r *shim.Request) { r.Dir = "/workspace" })
	wait(t, x)
	assert.Contains(t, out.String(), "1000 1001 600")
	assert.Contains(t, out.String(), "cannot reach 1")
	lives(t, c, "files-1")
	require.NoError(t, inUse.Close())
	other := files("other")
	_, _, err = other.Open(t.Context(), "mine")
	code(t, provider.PermissionDenied, err)
	code(t, provider.PermissionDenied, other.Write(t.Context(), "theirs", strings.NewReader("x"), provider.WriteOptions{}))
	code(t, provider.PermissionDenied, app.Write(t.Context(), "closed/x", strings.NewReader("x"), provider.WriteOptions{}))
	root := files("")
	require.NoError(t, root.Write(t.Context(), "closed/x", strings.NewReader("x"), provider.WriteOptions{}), "root has DAC_OVERRIDE")
	k, err := c.KillAllExcept(soon(t), nil)
	require.NoError(t, err)
	assert.Positive(t, k.Execs)
	_, err = app.Stat(t.Context(), "mine")
	require.NoError(t, err, "the next operation has a helper of its own")
}

// halfCancelled is a context in the middle of being cancelled: it says that it has
// ended, and what waits for its end has not been told yet.
type halfCancelled struct {
	context.Context
	ended atomic.Bool
}

func (c *halfCancelled) Err() error {
	if c.ended.Load() {
		return context.Canceled
	}
	return nil
}

func (c *halfCancelled) AfterFunc(func()) func() bool { return func() bool { return true } }

// The rest of a cancelled read's answer is nobody else's answer.
func TestFilesCancelledReadKeepsItsStream(t *testing.T) {
	t.Parallel()
	f, dir, h := filesOn(t)
	require.NoError(t, os.WriteFile(dir+"/a", bytes.Repeat([]byte("x"), 8<<20), 0o600))
	ctx := &halfCancelled{Context: t.Context()}
	r, _, err := f.Open(ctx, "a")
	require.NoError(t, err)
	_, err = io.ReadFull(r, make([]byte, 10))
	require.NoError(t, err)
	ctx.ended.Store(true)
	n, err := r.Read(make([]byte, 10))
	require.Zero(t, n)
	code(t, provider.Canceled, err)
	code(t, provider.NotFound, f.Remove(t.Context(), "missing", false), "the program's own answer")
	require.NoError(t, r.Close())
	assert.EqualValues(t, 2, h.dials.Load())
}
