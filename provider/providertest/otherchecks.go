package providertest

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"runtime/pprof"
	"strings"
	"time"

	"github.com/sbxhost/sbxhost/provider"
)

func cancelChecks() []check {
	// ended gives a context that is over before the call.
	ended := func(t *T) context.Context {
		ctx, cancel := context.WithCancel(t.ctx)
		cancel()
		return ctx
	}
	return []check{
		{name: "cancel/create", rule: "a cancelled Create is Canceled; what may be left is said by Applied, and found by List", run: func(t *T) {
			req := t.request()
			t.Cleanup(func() { t.destroySession(req.SessionID) })
			_, err := t.tryCreate(ended(t), req)
			t.wantCode(err, "Create with a cancelled context", provider.Canceled)
			if provider.AppliedOf(err) == provider.AppliedNo && !t.h.CannotList && t.existing(req.SessionID) != 0 {
				t.Errorf("Create says Applied no, and a sandbox of the session exists")
			}
		}},
		{name: "cancel/create-late", rule: "a Create cancelled half way returns promptly and leaves nothing it does not own up to", run: func(t *T) {
			for _, after := range []time.Duration{time.Millisecond, 20 * time.Millisecond, 200 * time.Millisecond} {
				req := t.request()
				t.Cleanup(func() { t.destroySession(req.SessionID) })
				ctx, cancel := context.WithTimeout(t.ctx, after)
				began := time.Now()
				_, err := t.tryCreate(ctx, req)
				cancel()
				if err == nil {
					continue // it was quicker
				}
				t.wantCode(err, "Create whose context ended", provider.Canceled, provider.DeadlineExceeded)
				if took := time.Since(began) - after; took > t.soon() {
					t.Errorf("Create returned %s after its context had ended", took)
				}
				if provider.AppliedOf(err) == provider.AppliedNo && !t.h.CannotList && t.existing(req.SessionID) != 0 {
					t.Errorf("Create says Applied no, and a sandbox of the session exists")
				}
			}
		}},
		{name: "cancel/exec", rule: "Exec with a cancelled context is Canceled and starts nothing", needs: []need{appends}, run: func(t *T) {
			sb := t.create()
			_, err := sb.Exec(ended(t), t.exec(t.h.Commands.Append("started", "x")))
			t.wantCode(err, "Exec with a cancelled context", provider.Canceled)
			if provider.AppliedOf(err) == provider.AppliedYes {
				t.Errorf("Exec with a cancelled context says Applied yes")
			}
			if _, err := t.read(sb, "started"); err == nil {
				t.Errorf("Exec with a cancelled context started the command")
			}
		}},
		{name: "cancel/deadline", rule: "a deadline that has passed is DeadlineExceeded", run: func(t *T) {
			sb := t.create()
			ctx, cancel := context.WithDeadline(t.ctx, time.Now().Add(-time.Second))
			defer cancel()
			_, err := sb.Exec(ctx, t.exec(t.h.Commands.Exit(0)))
			t.wantCode(err, "Exec after its deadline", provider.DeadlineExceeded)
			if err != nil && !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("errors.Is(err, context.DeadlineExceeded) is false")
			}
		}},
		{name: "cancel/others", rule: "calls with a cancelled context return promptly with Canceled, or with their result", run: func(t *T) {
			sb := t.create()
			ctx := ended(t)
			for what, f := range map[string]func() error{
				"Open":   func() error { _, err := t.p.Open(ctx, sb.Ref()); return err },
				"List":   func() error { _, err := t.p.List(ctx, provider.Query{Owner: t.owner}); return err },
				"Status": func() error { _, err := sb.Status(ctx); return err },
				"Stat":   func() error { _, err := sb.Files().Stat(ctx, "."); return err },
				"Write":  func() error { return sb.Files().Write(ctx, "f", strings.NewReader("x"), provider.WriteOptions{}) },
			} {
				began := time.Now()
				err := f()
				if took := time.Since(began); took > t.soon() {
					t.Errorf("%s took %s with a cancelled context", what, took)
				}
				if err != nil && (what != "List" || !t.h.CannotList) {
					t.wantCode(err, what+" with a cancelled context", provider.Canceled)
				}
			}
		}},
		{name: "cancel/destroy", rule: "a cancelled Destroy says whether it may have happened, and can be repeated", run: func(t *T) {
			sb := t.create()
			if err := t.p.Destroy(ended(t), sb.Ref()); err != nil {
				t.wantCode(err, "Destroy with a cancelled context", provider.Canceled)
			}
			ctx, cancel := t.call()
			defer cancel()
			t.must(t.p.Destroy(ctx, sb.Ref()), "Destroy after a cancelled one")
		}},
	}
}

func optionalChecks() []check {
	return []check{
		{name: "port/declared", rule: "with Ports, a port of the manifest has an endpoint, another is NotFound", needs: []need{
			declared("features.ports", func(d provider.Description) bool { return d.Features.Ports != provider.SupportNone })}, run: func(t *T) {
			sb := t.create(func(r *provider.CreateRequest) { r.Ports = []int{8080} })
			p, ok := sb.(provider.Ports)
			if !ok {
				t.Fatalf("features.ports is declared, and the sandbox does not implement Ports")
			}
			ctx, cancel := t.call()
			defer cancel()
			e, err := p.Port(ctx, 8080)
			t.must(err, "Port of a declared port")
			if e.Address == "" {
				t.Errorf("the endpoint has no address")
			}
			_, err = p.Port(ctx, 8081)
			t.wantCode(err, "Port of another port", provider.NotFound)
		}},
		{name: "pause/cycle", rule: "Pause and Resume are idempotent; a resumed sandbox goes on with its files and processes", run: func(t *T) {
			sb := t.create()
			p, ok := sb.(provider.Pauser)
			if !ok {
				t.undeclared("the sandbox is no Pauser")
			}
			t.write(sb, "mark", "here")
			ctx, cancel := t.call()
			defer cancel()
			state := func(want provider.State) {
				st, err := sb.Status(ctx)
				t.must(err, "Status")
				if st.State != want {
					t.Errorf("the state is %q, it must be %q", st.State, want)
				}
			}
			t.must(p.Pause(ctx), "Pause")
			t.must(p.Pause(ctx), "the second Pause")
			state(provider.StatePaused)
			t.must(p.Resume(ctx), "Resume")
			t.must(p.Resume(ctx), "the second Resume")
			state(provider.StateRunning)
			got, err := t.read(sb, "mark")
			t.must(err, "reading after Resume")
			t.wantText("the file", got, "here")
			t.wantExit(t.run(sb, t.h.Commands.Exit(0)), "a command after Resume", 0)
			t.must(p.Pause(ctx), "Pause")
			t.must(t.p.Destroy(ctx, sb.Ref()), "Destroy of a paused sandbox")
		}},
		{name: "archive/move", rule: "Export and Import move the files under root: contents, modes, links, empty directories", needs: []need{
			probe("Commands.Symlink", func(h *Harness) bool { return h.Commands.Symlink != nil })}, run: func(t *T) {
			from, to := t.create(), t.create()
			a, ok := from.(provider.Archiver)
			b, ok2 := to.(provider.Archiver)
			if !ok || !ok2 {
				t.undeclared("the sandbox is no Archiver")
			}
			ctx, cancel := t.call()
			defer cancel()
			t.write(from, "d/file", "content\x00\xff")
			t.must(from.Files().Write(ctx, "tool", strings.NewReader("#!/bin/sh\n"), provider.WriteOptions{Mode: 0o755}), "Write")
			t.must(from.Files().Mkdir(ctx, "empty", 0o755), "Mkdir")
			t.wantExit(t.run(from, t.h.Commands.Symlink("d/file", "link")), "making a link", 0)
			t.write(to, "already", "there")
			var tarball bytes.Buffer
			t.must(a.Export(ctx, &tarball), "Export")
			t.must(b.Import(ctx, &tarball), "Import")
			for path, want := range map[string]string{"d/file": "content\x00\xff", "link": "content\x00\xff", "already": "there"} {
				got, err := t.read(to, path)
				t.must(err, "reading "+path+" after Import")
				t.wantText(path, got, want)
			}
			for path, mode := range map[string]string{"tool": "-rwxr-xr-x", "empty": "drwxr-xr-x", "link": "L"} {
				info, err := to.Files().Stat(ctx, path)
				t.must(err, "Stat of "+path+" after Import")
				if !strings.HasPrefix(info.Mode.String(), mode) {
					t.Errorf("%s has mode %s after Import, it must be %s", path, info.Mode, mode)
				}
			}
		}},
		{name: "archive/escape", rule: "an archive entry that would land outside root is refused before anything is written for it", run: func(t *T) {
			sb := t.create()
			a, ok := sb.(provider.Archiver)
			if !ok {
				t.undeclared("the sandbox is no Archiver")
			}
			for what, entries := range map[string][]tar.Header{
				"..":            {{Name: "../kit-outside", Typeflag: tar.TypeReg, Mode: 0o644}},
				"absolute":      {{Name: "/kit-outside", Typeflag: tar.TypeReg, Mode: 0o644}},
				"in the middle": {{Name: "d/../../kit-outside", Typeflag: tar.TypeReg, Mode: 0o644}},
				"through a link": {{Name: "l", Typeflag: tar.TypeSymlink, Linkname: "..", Mode: 0o777},
					{Name: "l/kit-outside", Typeflag: tar.TypeReg, Mode: 0o644}},
				"through an absolute link": {{Name: "m", Typeflag: tar.TypeSymlink, Linkname: "/tmp", Mode: 0o777},
					{Name: "m/kit-outside", Typeflag: tar.TypeReg, Mode: 0o644}},
			} {
				var b bytes.Buffer
				w := tar.NewWriter(&b)
				for _, h := range entries {
					t.must(w.WriteHeader(&h), "making the archive")
				}
				t.must(w.Close(), "making the archive")
				ctx, cancel := t.call()
				err := a.Import(ctx, &b)
				cancel()
				t.wantCode(err, "Import of an entry outside root ("+what+")", provider.PermissionDenied, provider.InvalidArgument)
			}
		}},
		{name: "archive/required", rule: "features.workspaceMove without shared storage needs an Archiver", needs: []need{
			declared("features.workspaceMove", func(d provider.Description) bool {
				return d.Features.WorkspaceMove != provider.SupportNone && !d.Features.SharedWorkspace
			})}, run: func(t *T) {
			if _, ok := t.create().(provider.Archiver); !ok {
				t.Errorf("the sandbox is no Archiver: its files cannot move")
			}
		}},
		{name: "logs/read", rule: "Logs copies the sandbox's own log and may be repeated", run: func(t *T) {
			sb := t.create()
			l, ok := sb.(provider.Logs)
			if !ok {
				t.undeclared("the sandbox has no Logs")
			}
			ctx, cancel := t.call()
			defer cancel()
			t.must(l.Logs(ctx, io.Discard), "Logs")
			t.must(l.Logs(ctx, io.Discard), "the second Logs")
		}},
	}
}

// labelKey is the pprof label that a check's goroutines inherit.
const labelKey = "providertest"

func leakChecks() []check {
	return []check{{name: "goroutines/none-left", rule: "no goroutine of the provider outlives what it was for", run: func(t *T) {
		round := func() {
			sb := t.create()
			t.run(sb, t.h.Commands.Exit(0))
			t.run(sb, t.h.Commands.Print("out", "err"))
			if t.h.Commands.PrintSleep != nil && t.d.Exec.Kill != provider.KillNone {
				r := t.started(sb, t.h.Commands.PrintSleep("on", 300*time.Second, marker()), "on")
				t.kill(r, 0, "Kill")
				r.wait(t.h.Slack)
			}
			t.write(sb, "f", "x")
			_, err := t.read(sb, "f")
			t.must(err, "reading a file")
			ctx, cancel := t.call()
			defer cancel()
			t.must(t.p.Destroy(ctx, sb.Ref()), "Destroy")
		}
		// What is made once, on first use, is no leak: it keeps the first round's label.
		pprof.Do(t.ctx, pprof.Labels(labelKey, t.label+"-warm-up"), func(context.Context) { round() })
		label := t.label + "-counted"
		pprof.Do(t.ctx, pprof.Labels(labelKey, label), func(context.Context) {
			for range 3 {
				round()
			}
		})
		t.recorder.clean() // what the rounds registered refers to sandboxes that are gone
		var left []string
		for deadline := time.Now().Add(t.h.Slack); ; time.Sleep(20 * time.Millisecond) {
			if t.h.Settle != nil {
				t.h.Settle()
			}
			if left = t.goroutines(label); len(left) == 0 {
				return
			}
			if time.Now().After(deadline) {
				break
			}
		}
		t.Errorf("%d kinds of goroutine are still there %s after the last sandbox was destroyed; the first:\n%s", len(left), t.h.Slack, left[0])
	}}}
}

// goroutines returns the stacks that carry the label, one for each kind.
func (t *T) goroutines(label string) []string {
	var b bytes.Buffer
	if err := pprof.Lookup("goroutine").WriteTo(&b, 1); err != nil {
		t.Fatalf("the goroutines cannot be listed: %v", err)
	}
	want := fmt.Sprintf("%q:%q", labelKey, label)
	var out []string
next:
	for block := range strings.SplitSeq(b.String(), "\n\n") {
		if !strings.Contains(block, want) {
			continue
		}
		for _, ok := range t.h.IgnoreGoroutines {
			if strings.Contains(block, ok) {
				continue next
			}
		}
		out = append(out, block)
	}
	return out
}
