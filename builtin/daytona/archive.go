package daytona

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"path"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/sbxhost/sbxhost/provider"
)

// Export implements provider.Archiver. A stopped sandbox is started for it, and
// stopped again afterwards, whatever comes of it.
func (sb *sandbox) Export(ctx context.Context, w io.Writer) error {
	if ctx.Err() != nil {
		return ctxProblem("export", sb.id, ctx.Err(), provider.AppliedNo)
	}
	st, err := sb.Status(ctx)
	if err != nil {
		return err
	}
	switch st.State {
	case provider.StateGone:
		return problem(provider.NotFound, "export", sb.id, "the sandbox is gone")
	case provider.StatePaused:
		defer func() {
			back, cancel := context.WithTimeout(context.WithoutCancel(ctx), sb.p.opts.cleanUp())
			defer cancel()
			_ = sb.Pause(back) // left running, the service stops it when it is unused
		}()
		if err := sb.Resume(ctx); err != nil {
			return err
		}
	}
	// A command like any other, but of ours: its output is delivered as it comes.
	out := &failing{w: w}
	p, err := sb.start(ctx, provider.ExecRequest{ID: "export", Shell: "exec tar -cf - -C " + quote(sb.root) + " .", Dir: "/", Stdout: out, Stderr: io.Discard}, sb.hidden)
	if err != nil {
		return err
	}
	out.stopBy(p.cancel)
	exit, err := p.Wait(ctx)
	if err != nil {
		stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		_ = p.Kill(stop, 0)
		cancel()
		<-p.done // w is used no longer
		return err
	}
	switch {
	case out.failure() != nil:
		return problem(provider.Canceled, "export", sb.id, "the archive could not be written").cause(out.failure())
	case exit.Kind != provider.ExitExited:
		return problem(provider.Lost, "export", sb.id, "the archive broke off").remedy("try again")
	case exit.Code == 127:
		return problem(provider.Unsupported, "export", sb.id, "the sandbox has no tar").remedy("use a snapshot or image that has it")
	case exit.Code != 0:
		return problem(provider.FailedPrecondition, "export", sb.id, "tar failed in the sandbox; a file may have changed under it, or may not be read by its user").remedy("stop what writes there, and try again")
	}
	return nil
}

// failing remembers that its writer failed, and ends the transfer. Output may
// come before it is known how to end that.
type failing struct {
	w io.Writer

	mu   sync.Mutex
	stop func()
	err  error
}

func (f *failing) Write(p []byte) (int, error) {
	if err := f.failure(); err != nil {
		return 0, err
	}
	n, err := f.w.Write(p)
	if err != nil {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.err = err
		if f.stop != nil {
			f.stop()
		}
	}
	return n, err
}

// stopBy says how to end the transfer, and ends it if the writer failed already.
func (f *failing) stopBy(stop func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.stop = stop
	if f.err != nil {
		stop()
	}
}

func (f *failing) failure() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.err
}

// Import implements provider.Archiver. The archive is judged while it goes into a
// place outside the root; it is unpacked when all of it was found good.
func (sb *sandbox) Import(ctx context.Context, r io.Reader) error {
	const op = "import"
	if ctx.Err() != nil {
		return ctxProblem(op, sb.id, ctx.Err(), provider.AppliedNo)
	}
	f := &files{sb}
	out, err := f.run(ctx, op, "", nil, false, `find . -type l -print0 | base64`, true)
	if err != nil {
		return err
	}
	data, err := encoded(op, "", out)
	if err != nil {
		return err
	}
	links := map[string]bool{}
	for _, l := range bytes.Split(data, []byte{0}) {
		if len(l) > 0 {
			links[path.Clean(string(l))] = true
		}
	}
	tag := random()
	defer sb.removeParts(ctx, tag)
	pr, pw := io.Pipe()
	judged := make(chan error, 1)
	go func() {
		err := judge(r, pw, links)
		judged <- err
		_ = pw.CloseWithError(err)
	}()
	total := int64(0)
	err = sb.upload(ctx, op, tag, pr, func(n int) { total += int64(n) })
	_ = pr.CloseWithError(errors.New("the upload ended"))
	bad := <-judged
	var refused *fault
	if asFault(bad, &refused) {
		return refused
	}
	if err != nil {
		return err
	}
	if bad != nil {
		return problem(provider.InvalidArgument, op, sb.id, "the archive cannot be read").cause(bad)
	}
	return f.finish(ctx, op, "", nil, false, `[ "$(($(cat `+file(tag, "p")+`* | wc -c)))" = `+strconv.FormatInt(total, 10)+` ] || die short
cat `+file(tag, "p")+`* | tar -xpof - || die failed`, false)
}

// judge copies an archive entry by entry, in its own words, and refuses one that
// would land outside the root: by its name, or through a link that is in the
// archive or in the root.
func judge(r io.Reader, w io.Writer, links map[string]bool) error {
	in, out := tar.NewReader(r), tar.NewWriter(w)
	refuse := func(message string) error {
		return problem(provider.PermissionDenied, "import", "", message) // names are not repeated: they come from anywhere
	}
	for {
		h, err := in.Next()
		if err == io.EOF {
			return out.Close()
		}
		if err != nil {
			return err
		}
		name := path.Clean(h.Name)
		if path.IsAbs(h.Name) || name == ".." || strings.HasPrefix(name, "../") || strings.Contains("/"+h.Name+"/", "/../") || strings.ContainsRune(h.Name, 0) {
			return refuse("an entry of the archive would land outside the root")
		}
		for dir := path.Dir(name); dir != "." && dir != "/"; dir = path.Dir(dir) {
			if links[dir] {
				return refuse("an entry of the archive would land behind a link")
			}
		}
		clean := &tar.Header{Name: "./" + name, Mode: h.Mode & 0o7777, ModTime: h.ModTime.Truncate(time.Second), Typeflag: h.Typeflag, Format: tar.FormatPAX}
		switch h.Typeflag {
		case tar.TypeReg, tar.TypeGNUSparse:
			clean.Typeflag, clean.Size = tar.TypeReg, h.Size
			delete(links, name) // replaced by a file
		case tar.TypeDir:
			if links[name] {
				return refuse("a directory of the archive would land behind a link")
			}
			clean.Name += "/"
		case tar.TypeSymlink:
			clean.Linkname = h.Linkname
			links[name] = true
		case tar.TypeLink:
			target := path.Clean(h.Linkname)
			if path.IsAbs(h.Linkname) || target == ".." || strings.HasPrefix(target, "../") {
				return refuse("a link of the archive leads outside the root")
			}
			for dir := target; dir != "." && dir != "/"; dir = path.Dir(dir) {
				if links[dir] && dir != target {
					return refuse("a link of the archive leads behind another link")
				}
			}
			clean.Linkname = "./" + target
			if links[target] {
				links[name] = true
			}
		default:
			continue // devices, pipes and sockets stay behind
		}
		if err := out.WriteHeader(clean); err != nil {
			return err
		}
		if clean.Typeflag == tar.TypeReg {
			if _, err := io.Copy(out, in); err != nil {
				return err
			}
		}
	}
}
