package providertest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"
	"sync"

	"github.com/sbxhost/sbxhost/provider"
)

// outside is what escapes are tried for: a file that exists in every sandbox or
// would be made by a write.
const outside = "../kit-outside"

func fileChecks() []check {
	links := probe("Commands.Symlink", func(h *Harness) bool { return h.Commands.Symlink != nil })
	reads := probe("Commands.ReadFile", func(h *Harness) bool { return h.Commands.ReadFile != nil })
	write := func(t *T, sb provider.Sandbox, path, content string, mode fs.FileMode) error {
		ctx, cancel := t.call()
		defer cancel()
		return sb.Files().Write(ctx, path, strings.NewReader(content), provider.WriteOptions{Mode: mode})
	}
	return []check{
		{name: "files/exact", rule: "what Write stores, Open gives back byte for byte", run: func(t *T) {
			sb := t.create()
			all := make([]byte, 256)
			for i := range all {
				all[i] = byte(i)
			}
			for i, content := range []string{"", "text\n", string(all), strings.Repeat(string(all), 8<<10)} {
				path := fmt.Sprintf("file-%d", i)
				t.must(write(t, sb, path, content, 0), "Write")
				got, err := t.read(sb, path)
				t.must(err, "reading it back")
				t.wantText("the file", got, content)
				ctx, cancel := t.call()
				r, info, err := sb.Files().Open(ctx, path)
				t.must(err, "Open")
				_ = r.Close()
				cancel()
				if info.Size != int64(len(content)) || info.Name != path || info.Path != path || !info.Mode.IsRegular() {
					t.Errorf("Open describes a file of %d bytes as %+v", len(content), info)
				}
			}
		}},
		{name: "files/replace", rule: "Write replaces a file's content, and makes missing parents", run: func(t *T) {
			sb := t.create()
			t.must(write(t, sb, "a/b/c.txt", "a longer first content", 0), "Write")
			t.must(write(t, sb, "a/b/c.txt", "second", 0), "the second Write")
			got, err := t.read(sb, "a/b/c.txt")
			t.must(err, "reading it back")
			t.wantText("the file", got, "second")
		}},
		{name: "files/names", rule: "any POSIX file name works", run: func(t *T) {
			sb := t.create()
			for _, name := range []string{"with space", "grüße 世界", "-n", "a'b\"c$d", "back\\slash", "new\nline", ".hidden", "~", "*"} {
				t.must(write(t, sb, name, name, 0), fmt.Sprintf("Write of %q", name))
				got, err := t.read(sb, name)
				t.must(err, fmt.Sprintf("reading %q", name))
				t.wantText("the file", got, name)
			}
		}},
		{name: "files/mode", rule: "WriteOptions.Mode is the file's; 0 is 0644, or the existing file's", run: func(t *T) {
			sb := t.create()
			ctx, cancel := t.call()
			defer cancel()
			want := func(path string, mode fs.FileMode) {
				info, err := sb.Files().Stat(ctx, path)
				t.must(err, "Stat")
				if info.Mode.Perm() != mode {
					t.Errorf("%s has mode %o, it must be %o", path, info.Mode.Perm(), mode)
				}
			}
			t.must(write(t, sb, "tool", "x", 0o755), "Write")
			want("tool", 0o755)
			t.must(write(t, sb, "tool", "y", 0), "Write over it")
			want("tool", 0o755)
			t.must(write(t, sb, "plain", "x", 0), "Write")
			want("plain", 0o644)
			t.must(write(t, sb, "own", "x", 0o600), "Write")
			want("own", 0o600)
		}},
		{name: "files/failed-write", rule: "a Write whose reader fails leaves the old content and no other file", run: func(t *T) {
			sb := t.create()
			t.must(write(t, sb, "kept", "old", 0), "Write")
			ctx, cancel := t.call()
			defer cancel()
			broken := io.MultiReader(strings.NewReader(strings.Repeat("new", 50_000)), failingReader{})
			if err := sb.Files().Write(ctx, "kept", broken, provider.WriteOptions{}); err == nil {
				t.Errorf("Write succeeded though its reader failed")
			}
			got, err := t.read(sb, "kept")
			t.must(err, "reading the file")
			t.wantText("the file after a failed Write", got, "old")
			infos, err := sb.Files().List(ctx, ".")
			t.must(err, "List")
			if len(infos) != 1 {
				t.Errorf("%d entries are there after a failed Write, it must be 1", len(infos))
			}
		}},
		{name: "files/atomic", rule: "nobody sees a file half written", run: func(t *T) {
			sb := t.create()
			a, b := strings.Repeat("a", 200_000), strings.Repeat("b", 200_000)
			t.must(write(t, sb, "f", a, 0), "Write")
			done := make(chan struct{})
			var wg sync.WaitGroup
			wg.Go(func() {
				defer close(done)
				for i := range 10 {
					if err := write(t, sb, "f", []string{b, a}[i%2], 0); err != nil {
						t.Errorf("Write failed: %v", err)
						return
					}
				}
			})
			for more := true; more; {
				select {
				case <-done:
					more = false
				default:
				}
				got, err := t.read(sb, "f")
				if err != nil {
					t.Errorf("the file could not be read while it was replaced: %v", err)
					break
				}
				if got != a && got != b {
					t.Errorf("a file half written was seen: %d bytes", len(got))
					break
				}
			}
			wg.Wait()
		}},
		{name: "files/list", rule: "List returns a directory's entries sorted by name, with their kinds; paths are relative to the root", needs: []need{links}, run: func(t *T) {
			sb := t.create()
			for _, p := range []string{"d/b", "d/a", "d/sub/x"} {
				t.must(write(t, sb, p, "12345", 0), "Write")
			}
			t.wantExit(t.run(sb, t.h.Commands.Symlink("a", "d/link")), "making a link", 0)
			ctx, cancel := t.call()
			defer cancel()
			for _, dir := range []string{"d", "d/", "./d"} {
				infos, err := sb.Files().List(ctx, dir)
				t.must(err, "List")
				var got []string
				for _, i := range infos {
					got = append(got, fmt.Sprintf("%s %s %s", i.Name, i.Path, i.Mode.Type()))
				}
				want := []string{"a d/a ----------", "b d/b ----------", "link d/link L---------", "sub d/sub d---------"}
				if !slices.Equal(got, want) {
					t.Errorf("List of %q returned %q, want %q", dir, got, want)
				}
				for _, i := range infos {
					if i.Mode.IsRegular() && i.Size != 5 || i.Mode.IsDir() && i.Size != 0 || i.Name == "link" && i.Target != "a" {
						t.Errorf("List describes %s as %+v", i.Path, i)
					}
				}
			}
			root, err := sb.Files().List(ctx, "")
			t.must(err, "List of the root")
			if len(root) != 1 || root[0].Path != "d" {
				t.Errorf("List of the root returned %+v, it must be the directory d alone", root)
			}
		}},
		{name: "files/stat", rule: "Stat describes a file without following a final link", needs: []need{links}, run: func(t *T) {
			sb := t.create()
			t.must(write(t, sb, "real", "12345", 0), "Write")
			t.wantExit(t.run(sb, t.h.Commands.Symlink("real", "link")), "making a link", 0)
			t.wantExit(t.run(sb, t.h.Commands.Symlink("nowhere", "dangling")), "making a link", 0)
			ctx, cancel := t.call()
			defer cancel()
			info, err := sb.Files().Stat(ctx, "link")
			t.must(err, "Stat of a link")
			if info.Mode.Type() != fs.ModeSymlink || info.Target != "real" {
				t.Errorf("Stat of a link to \"real\" says type %s and target %q", info.Mode.Type(), info.Target)
			}
			_, err = sb.Files().Stat(ctx, "dangling")
			t.must(err, "Stat of a dangling link")
			info, err = sb.Files().Stat(ctx, "")
			t.must(err, "Stat of the root")
			if !info.Mode.IsDir() {
				t.Errorf("Stat of the root says it is no directory")
			}
			got, err := t.read(sb, "link")
			t.must(err, "reading through a link that stays inside")
			t.wantText("the file", got, "12345")
		}},
		{name: "files/errors", rule: "what is not there is NotFound, a directory opened as a file is FailedPrecondition", run: func(t *T) {
			sb := t.create()
			ctx, cancel := t.call()
			defer cancel()
			f := sb.Files()
			t.must(f.Mkdir(ctx, "dir", 0o755), "Mkdir")
			t.must(write(t, sb, "file", "x", 0), "Write")
			_, _, err := f.Open(ctx, "nothing")
			t.wantCode(err, "Open of nothing", provider.NotFound)
			_, _, err = f.Open(ctx, "dir")
			t.wantCode(err, "Open of a directory", provider.FailedPrecondition)
			_, err = f.Stat(ctx, "nothing")
			t.wantCode(err, "Stat of nothing", provider.NotFound)
			_, err = f.Stat(ctx, "no/parents")
			t.wantCode(err, "Stat under nothing", provider.NotFound)
			_, err = f.List(ctx, "nothing")
			t.wantCode(err, "List of nothing", provider.NotFound)
			_, err = f.List(ctx, "file")
			t.wantCode(err, "List of a file", provider.FailedPrecondition)
			t.wantCode(f.Remove(ctx, "nothing", false), "Remove of nothing", provider.NotFound)
			t.wantCode(f.Remove(ctx, "nothing", true), "recursive Remove of nothing", provider.NotFound)
			t.wantCode(write(t, sb, "dir", "x", 0), "Write over a directory", provider.FailedPrecondition, provider.AlreadyExists)
			t.wantCode(f.Mkdir(ctx, "file", 0o755), "Mkdir over a file", provider.FailedPrecondition, provider.AlreadyExists)
		}},
		{name: "files/remove", rule: "Remove removes a file, a link, an empty directory, and a whole tree when told to", needs: []need{links}, run: func(t *T) {
			sb := t.create()
			ctx, cancel := t.call()
			defer cancel()
			f := sb.Files()
			t.must(write(t, sb, "tree/a/file", "x", 0), "Write")
			t.must(write(t, sb, "kept", "x", 0), "Write")
			t.must(f.Mkdir(ctx, "empty", 0o755), "Mkdir")
			t.must(f.Mkdir(ctx, "dir", 0o755), "Mkdir")
			t.wantExit(t.run(sb, t.h.Commands.Symlink("kept", "link")), "making a link", 0)
			t.must(f.Remove(ctx, "empty", false), "Remove of an empty directory")
			t.must(f.Remove(ctx, "link", false), "Remove of a link")
			t.wantCode(f.Remove(ctx, "tree", false), "Remove of a full directory", provider.FailedPrecondition)
			t.must(f.Remove(ctx, "tree", true), "recursive Remove")
			_, err := f.Stat(ctx, "tree")
			t.wantCode(err, "Stat after Remove", provider.NotFound)
			if _, err := t.read(sb, "kept"); err != nil {
				t.Errorf("removing a link removed the file it names")
			}
			for _, root := range []string{"", ".", "./", "dir/.."} {
				t.wantCode(f.Remove(ctx, root, true), fmt.Sprintf("Remove of the root as %q", root), provider.InvalidArgument)
			}
		}},
		{name: "files/mkdir", rule: "Mkdir makes a directory and its parents; an existing one is success", run: func(t *T) {
			sb := t.create()
			ctx, cancel := t.call()
			defer cancel()
			t.must(sb.Files().Mkdir(ctx, "x/y/z", 0o755), "Mkdir")
			t.must(sb.Files().Mkdir(ctx, "x/y/z", 0o755), "the second Mkdir")
			t.must(sb.Files().Mkdir(ctx, "", 0o755), "Mkdir of the root")
			info, err := sb.Files().Stat(ctx, "x/y/z")
			t.must(err, "Stat")
			if !info.Mode.IsDir() {
				t.Errorf("Mkdir made something that is no directory")
			}
		}},
		{name: "files/shared", rule: "commands and file operations see the same files", needs: []need{appends, reads}, run: func(t *T) {
			sb := t.create()
			t.must(write(t, sb, "from-host", "host\n", 0), "Write")
			t.wantText("what the command read", t.run(sb, t.h.Commands.ReadFile("from-host")).stdout, "host\n")
			t.wantExit(t.run(sb, t.h.Commands.Append("from-host", "command")), "appending", 0)
			got, err := t.read(sb, "from-host")
			t.must(err, "reading it back")
			t.wantText("the file", got, "host\ncommand\n")
		}},
		{name: "files/escape-dotdot", rule: "a path that leads out of the root is PermissionDenied", run: func(t *T) {
			sb := t.create()
			t.must(write(t, sb, "d/x", "x", 0), "Write")
			for _, p := range []string{"..", outside, "d/../../kit-outside", "d/../../../etc/passwd"} {
				t.escape(sb, p, provider.PermissionDenied)
			}
		}},
		{name: "files/escape-absolute", rule: "an absolute path does not reach out of the root", run: func(t *T) {
			sb := t.create()
			for _, p := range []string{"/etc/passwd", "/kit-outside", "//etc/passwd"} {
				t.escape(sb, p, provider.PermissionDenied, provider.InvalidArgument)
			}
		}},
		{name: "files/escape-link", rule: "a symbolic link that leads out of the root is PermissionDenied", needs: []need{links}, run: func(t *T) {
			sb := t.create()
			ctx, cancel := t.call()
			defer cancel()
			t.must(sb.Files().Mkdir(ctx, "d", 0o755), "Mkdir")
			for i, target := range []string{"/etc", "..", "../../etc", "d/../../etc"} {
				link := fmt.Sprintf("link%d", i)
				t.wantExit(t.run(sb, t.h.Commands.Symlink(target, link)), "making a link", 0)
				for _, name := range []string{"passwd", "kit-outside"} {
					t.escape(sb, link+"/"+name, provider.PermissionDenied)
				}
			}
			// A link to a file, and a chain of links.
			for link, target := range map[string]string{"file": "/etc/passwd", "new": "../kit-outside", "chain": "file"} {
				t.wantExit(t.run(sb, t.h.Commands.Symlink(target, link)), "making a link", 0)
			}
			for _, link := range []string{"file", "new", "chain"} {
				_, _, err := sb.Files().Open(ctx, link)
				t.wantCode(err, "Open through a link out of the root", provider.PermissionDenied)
			}
			t.wantCode(sb.Files().Mkdir(ctx, "link0/kit-dir", 0o755), "Mkdir through a link out of the root", provider.PermissionDenied)
		}},
		{name: "files/nul", rule: "a path with NUL is InvalidArgument", run: func(t *T) {
			ctx, cancel := t.call()
			defer cancel()
			_, err := t.create().Files().Stat(ctx, "a\x00b")
			t.wantCode(err, "Stat of a path with NUL", provider.InvalidArgument)
		}},
		{name: "files/context", rule: "Open's context covers the whole read: after it has ended no byte is given", run: func(t *T) {
			sb := t.create()
			t.must(write(t, sb, "big", strings.Repeat("x", 8<<20), 0), "Write")
			ctx, cancel := context.WithCancel(t.ctx)
			defer cancel()
			r, _, err := sb.Files().Open(ctx, "big")
			t.must(err, "Open")
			defer func() { _ = r.Close() }()
			_, err = io.ReadFull(r, make([]byte, 10))
			t.must(err, "reading")
			cancel()
			if n, err := io.Copy(io.Discard, r); err == nil {
				t.Errorf("an 8 MiB read went on to its end after its context was cancelled")
			} else if n > 0 {
				t.Errorf("a read gave %d bytes more after its context was cancelled", n)
			}
		}},
	}
}

// escape tries every operation on a path that leads out of the root.
func (t *T) escape(sb provider.Sandbox, path string, codes ...provider.Code) {
	ctx, cancel := t.call()
	defer cancel()
	f := sb.Files()
	_, _, err := f.Open(ctx, path)
	t.wantCode(err, fmt.Sprintf("Open of %q", path), codes...)
	_, err = f.Stat(ctx, path)
	t.wantCode(err, fmt.Sprintf("Stat of %q", path), codes...)
	_, err = f.List(ctx, path)
	t.wantCode(err, fmt.Sprintf("List of %q", path), codes...)
	if strings.Contains(path, "kit-outside") {
		// Only a path that is nobody's is written to and removed.
		err = f.Write(ctx, path, strings.NewReader("escaped"), provider.WriteOptions{})
		t.wantCode(err, fmt.Sprintf("Write to %q", path), codes...)
		t.wantCode(f.Remove(ctx, path, false), fmt.Sprintf("Remove of %q", path), codes...)
		t.wantCode(f.Mkdir(ctx, path, 0o755), fmt.Sprintf("Mkdir of %q", path), codes...)
	}
}

type failingReader struct{}

func (failingReader) Read([]byte) (int, error) { return 0, errors.New("reader failed on purpose") }
