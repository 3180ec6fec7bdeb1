package providertest

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"strings"
	"sync"
	"time"

	"github.com/sbxhost/sbxhost/provider"
)

func describeChecks() []check {
	return []check{
		{name: "describe/valid", rule: "Describe returns a description that ValidateDescription accepts", run: func(t *T) {
			if err := provider.ValidateDescription(t.p.Describe()); err != nil {
				t.Errorf("%v", err)
			}
		}},
		{name: "describe/stable", rule: "Describe always returns the same description", run: func(t *T) {
			want, err := json.Marshal(t.d)
			t.must(err, "encoding the description")
			for range 5 {
				got, err := json.Marshal(t.p.Describe())
				t.must(err, "encoding the description")
				if string(got) != string(want) {
					t.Fatalf("two calls of Describe differ:\n  %s\n  %s", want, got)
				}
			}
		}},
	}
}

func lifecycleChecks() []check {
	return []check{
		{name: "lifecycle/ready", rule: "Create returns when the sandbox can run commands, and Status then says running", run: func(t *T) {
			sb := t.create()
			t.wantExit(t.run(sb, t.h.Commands.Exit(0)), "the first command", 0)
			ctx, cancel := t.call()
			defer cancel()
			st, err := sb.Status(ctx)
			t.must(err, "Status")
			if st.State != provider.StateRunning {
				t.Errorf("Status says %q, it must be running", st.State)
			}
		}},
		{name: "lifecycle/ref", rule: "a Ref has an id, encodes to at most 64 KiB of JSON, and is different for each sandbox", run: func(t *T) {
			a, b := t.create(), t.create()
			for _, sb := range []provider.Sandbox{a, b} {
				if err := provider.ValidateRef(sb.Ref()); err != nil {
					t.Errorf("%v", err)
				}
			}
			if a.Ref().ID == b.Ref().ID {
				t.Errorf("two sandboxes have the same id")
			}
		}},
		{name: "lifecycle/open", rule: "Open attaches to the sandbox that a stored Ref names", run: func(t *T) {
			sb := t.create()
			t.write(sb, "mark", "here")
			data, err := provider.EncodeRef(sb.Ref())
			t.must(err, "EncodeRef")
			ref, err := provider.DecodeRef(data)
			t.must(err, "DecodeRef")
			ctx, cancel := t.call()
			defer cancel()
			again, err := t.p.Open(ctx, ref)
			t.must(err, "Open")
			got, err := t.read(again, "mark")
			t.must(err, "reading through the opened sandbox")
			t.wantText("the file", got, "here")
			if again.Ref().ID != sb.Ref().ID {
				t.Errorf("the opened sandbox has another id")
			}
			t.wantExit(t.run(again, t.h.Commands.Exit(5)), "a command through the opened sandbox", 5)
		}},
		{name: "lifecycle/open-gone", rule: "Open of a sandbox that is gone is NotFound", run: func(t *T) {
			sb := t.create()
			ctx, cancel := t.call()
			defer cancel()
			t.must(t.p.Destroy(ctx, sb.Ref()), "Destroy")
			_, err := t.p.Open(ctx, sb.Ref())
			t.wantCode(err, "Open after Destroy", provider.NotFound)
		}},
		{name: "lifecycle/gone-sandbox", rule: "what is called on a sandbox that is gone fails, Exec with Applied no", run: func(t *T) {
			sb := t.create()
			ctx, cancel := t.call()
			defer cancel()
			t.must(t.p.Destroy(ctx, sb.Ref()), "Destroy")
			_, err := sb.Exec(ctx, t.exec(t.h.Commands.Exit(0)))
			if t.wantCode(err, "Exec after Destroy", provider.NotFound, provider.FailedPrecondition) && provider.AppliedOf(err) != provider.AppliedNo {
				t.Errorf("Exec after Destroy says Applied %q, nothing was started: it must be no", provider.AppliedOf(err))
			}
			_, err = sb.Files().Stat(ctx, ".")
			t.wantCode(err, "Stat after Destroy", provider.NotFound, provider.FailedPrecondition)
			st, err := sb.Status(ctx)
			if err == nil && st.State != provider.StateGone {
				t.Errorf("Status after Destroy says %q, it must be gone or NotFound", st.State)
			} else if err != nil {
				t.wantCode(err, "Status after Destroy", provider.NotFound)
			}
		}},
	}
}

func createChecks() []check {
	again := func(t *T, mod func(*provider.CreateRequest)) (provider.Sandbox, provider.Sandbox, error) {
		req := t.request()
		ctx, cancel := t.call()
		defer cancel()
		first, err := t.tryCreate(ctx, req)
		t.must(err, "Create")
		req.Labels = maps.Clone(req.Labels)
		mod(&req)
		second, err := t.tryCreate(ctx, req)
		return first, second, err
	}
	return []check{
		{name: "create/adopts", rule: "Create with the same SessionID and Digest adopts the sandbox that exists", run: func(t *T) {
			first, second, err := again(t, func(*provider.CreateRequest) {})
			t.must(err, "the second Create")
			if first.Ref().ID != second.Ref().ID {
				t.Errorf("the second Create made another sandbox")
			}
		}},
		{name: "create/adopts-once", rule: "Create with the same SessionID and Digest leaves one sandbox, from several goroutines too", needs: []need{canList}, run: func(t *T) {
			req := t.request()
			t.Cleanup(func() { t.destroySession(req.SessionID) })
			var wg sync.WaitGroup
			for range 4 {
				wg.Go(func() {
					ctx, cancel := t.call()
					defer cancel()
					r := req
					r.Labels = maps.Clone(req.Labels)
					// Losing the race is allowed, doubling is not.
					if _, err := t.p.Create(ctx, r); err != nil {
						t.Logf("a concurrent Create failed with %s", provider.CodeOf(err))
					}
				})
			}
			wg.Wait()
			if n := t.existing(req.SessionID); n != 1 {
				t.Errorf("4 concurrent calls of Create left %d sandboxes of the session, it must be 1", n)
			}
		}},
		{name: "create/replaces", rule: "with Replaces a second sandbox of the session is made beside the first; Create is then idempotent on the attempt", needs: []need{anyTransport, canList}, run: func(t *T) {
			req := t.request()
			ctx, cancel := t.call()
			defer cancel()
			first, err := t.tryCreate(ctx, req)
			t.must(err, "Create")
			t.write(first, "mark", "here")
			ref := first.Ref()
			req.Replaces = &ref
			attempt := random(16)
			req.Name = provider.ReplacementName(req.SessionID, attempt)
			req.Labels = maps.Clone(req.Labels)
			req.Labels[provider.LabelAttempt] = attempt
			second, err := t.tryCreate(ctx, req)
			t.must(err, "Create of a replacement")
			if second.Ref().ID == ref.ID {
				t.Fatalf("Create with Replaces returned the sandbox to be replaced")
			}
			if n := t.existing(req.SessionID); n != 2 {
				t.Errorf("%d sandboxes of the session are listed while it is being replaced, it must be 2", n)
			}
			again, err := t.tryCreate(ctx, req)
			t.must(err, "the same Create again")
			if again.Ref().ID != second.Ref().ID {
				t.Errorf("the same Create of a replacement made another sandbox")
			}
			t.must(t.p.Destroy(ctx, ref), "Destroy of the replaced sandbox")
			t.wantExit(t.run(second, t.h.Commands.Exit(0)), "a command in the replacement", 0)
			if t.d.Features.SharedWorkspace {
				got, err := t.read(second, "mark")
				t.must(err, "reading the shared workspace")
				t.wantText("the file of the replaced sandbox", got, "here")
			}
		}},
		{name: "create/checkpoint", rule: "Create hands the sandbox's ref to Checkpoint; when that fails, Create fails and nothing is left", run: func(t *T) {
			var seen []provider.Ref
			sb := t.create(func(r *provider.CreateRequest) {
				r.Checkpoint = func(ref provider.Ref) error { seen = append(seen, ref); return nil }
			})
			if len(seen) == 0 {
				t.Fatalf("Create never called Checkpoint")
			}
			for _, ref := range seen {
				if err := provider.ValidateRef(ref); err != nil {
					t.Errorf("Checkpoint got a bad ref: %v", err)
				}
			}
			if last := seen[len(seen)-1]; last.ID != sb.Ref().ID {
				t.Errorf("the last ref given to Checkpoint has another id than the sandbox")
			}
			req := t.request(func(r *provider.CreateRequest) {
				r.Checkpoint = func(provider.Ref) error { return errors.New("not durable, on purpose") }
			})
			ctx, cancel := t.call()
			defer cancel()
			if _, err := t.tryCreate(ctx, req); err == nil {
				t.Fatalf("Create succeeded though Checkpoint failed")
			} else if provider.AppliedOf(err) == provider.AppliedNo && !t.h.CannotList && t.existing(req.SessionID) != 0 {
				t.Errorf("Create says Applied no after a failed Checkpoint, and the sandbox exists")
			}
			t.destroySession(req.SessionID)
		}},
		{name: "create/conflict", rule: "Create with the same SessionID and another Digest is Conflict and leaves the first alone", run: func(t *T) {
			first, _, err := again(t, func(r *provider.CreateRequest) {
				r.Digest = "sha256:" + random(32)
				r.Labels[provider.LabelDigest] = r.Digest
			})
			t.wantCode(err, "Create with another digest", provider.Conflict)
			t.wantExit(t.run(first, t.h.Commands.Exit(0)), "a command in the first sandbox", 0)
		}},
		{name: "create/invalid", rule: "a request that ValidateCreate refuses is InvalidArgument, and nothing is made", run: func(t *T) {
			for what, mod := range map[string]func(*provider.CreateRequest){
				"a literal with a bad key": func(r *provider.CreateRequest) { r.Environment = map[string]string{"A-B": "x"} },
				"a literal with NUL":       func(r *provider.CreateRequest) { r.Environment = map[string]string{"A": "x\x00y"} },
				"a relative root":          func(r *provider.CreateRequest) { r.Root = "workspace" },
				"a missing session id":     func(r *provider.CreateRequest) { r.SessionID = "" },
			} {
				req := t.request(mod)
				ctx, cancel := t.call()
				_, err := t.tryCreate(ctx, req)
				cancel()
				t.wantCode(err, "Create with "+what, provider.InvalidArgument)
				if !t.h.CannotList && req.SessionID != "" && t.existing(req.SessionID) != 0 {
					t.Errorf("Create with %s made a sandbox", what)
				}
			}
		}},
		{name: "create/unsupported", rule: "a wish that Describe does not support is Unsupported, and nothing is made", run: func(t *T) {
			for what, mod := range map[string]func(*provider.CreateRequest){
				"user":                 func(r *provider.CreateRequest) { r.User = "nobody" },
				"network none":         func(r *provider.CreateRequest) { r.Network = "none" },
				"network default":      func(r *provider.CreateRequest) { r.Network = "default" },
				"ports":                func(r *provider.CreateRequest) { r.Ports = []int{8080} },
				"start image":          func(r *provider.CreateRequest) { r.Start = "image" },
				"cpus":                 func(r *provider.CreateRequest) { r.Resources.CPUs = 1 },
				"memory":               func(r *provider.CreateRequest) { r.Resources.MemoryMiB = 64 },
				"pids":                 func(r *provider.CreateRequest) { r.Resources.PIDs = 64 },
				"disk":                 func(r *provider.CreateRequest) { r.Resources.DiskMiB = 64 },
				"a path grant":         func(r *provider.CreateRequest) { r.Mounts = []provider.PathGrant{{Path: "/data", HostPath: "/srv"}} },
				"the create transport": func(r *provider.CreateRequest) { r.Transport = provider.TransportCreate },
				"the exec transport":   func(r *provider.CreateRequest) { r.Transport = provider.TransportExec },
			} {
				req := t.request(mod)
				if provider.CheckCreate(t.d, req) == nil {
					continue // declared
				}
				ctx, cancel := t.call()
				_, err := t.tryCreate(ctx, req)
				cancel()
				t.wantCode(err, "Create with "+what+", which Describe does not support,", provider.Unsupported)
				if !t.h.CannotList && t.existing(req.SessionID) != 0 {
					t.Errorf("Create with %s, which Describe does not support, made a sandbox", what)
				}
			}
		}},
		{name: "create/unenforced", rule: "a wish accepted but not enforced is listed in Status.Unenforced", run: func(t *T) {
			f := t.d.Features
			if f.CPUs != provider.SupportUnenforced && f.MemoryMiB != provider.SupportUnenforced && f.DiskMiB != provider.SupportUnenforced {
				t.undeclared("every limit is enforced or refused")
			}
			sb := t.create(func(r *provider.CreateRequest) {
				if f.CPUs == provider.SupportUnenforced {
					r.Resources.CPUs = 1
				}
				if f.MemoryMiB == provider.SupportUnenforced {
					r.Resources.MemoryMiB = 256
				}
				if f.DiskMiB == provider.SupportUnenforced {
					r.Resources.DiskMiB = 256
				}
			})
			ctx, cancel := t.call()
			defer cancel()
			st, err := sb.Status(ctx)
			t.must(err, "Status")
			if len(st.Unenforced) == 0 {
				t.Errorf("Status.Unenforced is empty, though the request asked for limits that are not enforced")
			}
		}},
		{name: "create/root", rule: "the root exists, is writable by the command, and is its working directory", needs: []need{
			probe("Commands.Dir", func(h *Harness) bool { return h.Commands.Dir != nil }), appends}, run: func(t *T) {
			var root string
			sb := t.create(func(r *provider.CreateRequest) { root = r.Root })
			t.wantText("the working directory", t.run(sb, t.h.Commands.Dir()).stdout, root+"\n")
			t.wantExit(t.run(sb, t.h.Commands.Append("made-by-command", "line")), "writing a file in the root", 0)
			got, err := t.read(sb, "made-by-command")
			t.must(err, "reading it back")
			t.wantText("the file", got, "line\n")
		}},
		{name: "create/ttl", rule: "with features.ttl enforced a sandbox is gone soon after its TTL", needs: []need{
			declared("features.ttl enforced", func(d provider.Description) bool { return d.Features.TTL == provider.SupportEnforced }), canList}, run: func(t *T) {
			var session string
			const ttl = 2 * time.Second
			began := time.Now()
			t.create(func(r *provider.CreateRequest) { r.TTL, session = ttl, r.SessionID })
			made := time.Now()
			if t.existing(session) != 1 && time.Since(began) < ttl {
				t.Fatalf("the sandbox is gone before its TTL")
			}
			for t.existing(session) != 0 {
				if time.Since(made) > ttl+t.soon() {
					t.Fatalf("the sandbox is still listed %s after its TTL of %s", t.soon(), ttl)
				}
				time.Sleep(100 * time.Millisecond)
			}
		}},
	}
}

// destroySession destroys what the session left, whatever Create answered.
func (t *T) destroySession(session string) {
	ctx, cancel := context.WithTimeout(context.Background(), t.h.CallTimeout)
	defer cancel()
	found, err := t.p.List(ctx, provider.Query{Owner: t.owner, Session: session})
	if err != nil {
		return
	}
	for _, r := range found {
		t.cleanUp(r.Ref)
	}
}

func listChecks() []check {
	return []check{
		{name: "list/session", rule: "List by owner and session returns the sandbox with its ref, name and all labels", needs: []need{canList}, run: func(t *T) {
			var req provider.CreateRequest
			before := time.Now()
			sb := t.create(func(r *provider.CreateRequest) { r.Labels["team"] = "core"; req = *r })
			got := t.list(provider.Query{Owner: t.owner, Session: req.SessionID})
			if len(got) != 1 {
				t.Fatalf("List by session returned %d sandboxes, it must be 1", len(got))
			}
			r := got[0]
			if r.Ref.ID != sb.Ref().ID {
				t.Errorf("the listed ref has another id than the sandbox")
			}
			t.wantText("the listed name", r.Name, req.Name)
			if r.State != provider.StateRunning {
				t.Errorf("the listed state is %q, it must be running", r.State)
			}
			for k, v := range req.Labels {
				if r.Labels[k] != v {
					t.Errorf("label %s is missing or different in the list", k)
				}
			}
			if r.CreatedAt.IsZero() {
				t.Errorf("CreatedAt is not set: the list must say when the sandbox was made")
			} else if d := r.CreatedAt.Sub(before); d < -time.Hour || d > time.Hour {
				t.Errorf("CreatedAt is %s away from now", d)
			}
		}},
		{name: "list/owner", rule: "List by owner returns all of that owner's sandboxes and no other's", needs: []need{canList}, run: func(t *T) {
			mine, other := t.owner+"-a", t.owner+"-b"
			owned := func(owner string) func(*provider.CreateRequest) {
				return func(r *provider.CreateRequest) { r.Labels[provider.LabelOwner] = owner }
			}
			want := map[string]bool{t.create(owned(mine)).Ref().ID: true, t.create(owned(mine)).Ref().ID: true}
			t.create(owned(other))
			got := t.list(provider.Query{Owner: mine})
			for _, r := range got {
				if !want[r.Ref.ID] {
					t.Errorf("List by owner returned a sandbox of owner %q", r.Labels[provider.LabelOwner])
				}
				delete(want, r.Ref.ID)
			}
			if len(want) > 0 {
				t.Errorf("List by owner left out %d of the owner's sandboxes", len(want))
			}
			if n := len(t.list(provider.Query{Owner: t.owner + "-nobody"})); n != 0 {
				t.Errorf("List by an owner without sandboxes returned %d", n)
			}
		}},
		{name: "list/gone", rule: "a destroyed sandbox is not listed", needs: []need{canList}, run: func(t *T) {
			var session string
			sb := t.create(func(r *provider.CreateRequest) { session = r.SessionID })
			ctx, cancel := t.call()
			defer cancel()
			t.must(t.p.Destroy(ctx, sb.Ref()), "Destroy")
			if n := t.existing(session); n != 0 {
				t.Errorf("List still returns the sandbox after Destroy returned nil")
			}
		}},
		{name: "list/paused", rule: "List returns sandboxes in any state, paused ones too", needs: []need{canList}, run: func(t *T) {
			var session string
			sb := t.create(func(r *provider.CreateRequest) { session = r.SessionID })
			p, ok := sb.(provider.Pauser)
			if !ok {
				t.undeclared("the sandbox is no Pauser: only running ones can be listed")
			}
			ctx, cancel := t.call()
			defer cancel()
			t.must(p.Pause(ctx), "Pause")
			got := t.list(provider.Query{Owner: t.owner, Session: session})
			if len(got) != 1 {
				t.Fatalf("List returned %d sandboxes of the session while it is paused, it must be 1", len(got))
			}
			if got[0].State != provider.StatePaused {
				t.Errorf("the listed state is %q, it must be paused", got[0].State)
			}
		}},
		{name: "list/cannot", rule: "not being able to list is an error, never an empty list", needs: []need{
			func(s *suite) (Status, string) {
				if !s.h.CannotList {
					return Undeclared, "nothing to refuse: the provider can list"
				}
				return "", ""
			}}, run: func(t *T) {
			ctx, cancel := t.call()
			defer cancel()
			_, err := t.p.List(ctx, provider.Query{Owner: t.owner})
			t.wantCode(err, "List", provider.Unsupported, provider.Unavailable, provider.PermissionDenied)
		}},
	}
}

func destroyChecks() []check {
	destroy := func(t *T, ref provider.Ref, what string) {
		ctx, cancel := t.call()
		defer cancel()
		if err := t.p.Destroy(ctx, ref); err != nil {
			t.Errorf("%s failed: %v", what, err)
		}
	}
	return []check{
		{name: "destroy/verified", rule: "when Destroy returns nil the sandbox is gone", run: func(t *T) {
			sb := t.create()
			destroy(t, sb.Ref(), "Destroy")
			ctx, cancel := t.call()
			defer cancel()
			if _, err := t.p.Open(ctx, sb.Ref()); err == nil {
				t.Errorf("Open succeeds after Destroy returned nil")
			}
		}},
		{name: "destroy/twice", rule: "Destroy is idempotent", run: func(t *T) {
			sb := t.create()
			destroy(t, sb.Ref(), "Destroy")
			destroy(t, sb.Ref(), "the second Destroy")
		}},
		{name: "destroy/absent", rule: "destroying a sandbox that is not there is success", run: func(t *T) {
			sb := t.create()
			destroy(t, sb.Ref(), "Destroy")
			destroy(t, sb.Ref(), "Destroy of a sandbox that is gone")
			// One that never was: an id of the provider's own form.
			ref := sb.Ref()
			last := ref.ID[len(ref.ID)-1]
			repl := byte('0')
			if last == '0' {
				repl = '1'
			}
			ref.ID = strings.TrimSuffix(ref.ID, string(last)) + string(repl)
			ctx, cancel := t.call()
			defer cancel()
			if sb2, err := t.p.Open(ctx, ref); err == nil && sb2 != nil {
				t.Logf("the made-up id exists: not tried")
				return
			}
			destroy(t, ref, "Destroy of a sandbox that never was")
		}},
		{name: "destroy/concurrent", rule: "Destroy may be called from several goroutines", run: func(t *T) {
			sb := t.create()
			var wg sync.WaitGroup
			for range 4 {
				wg.Go(func() { destroy(t, sb.Ref(), "a concurrent Destroy") })
			}
			wg.Wait()
		}},
		{name: "destroy/others", rule: "Destroy touches no other sandbox", run: func(t *T) {
			a, b := t.create(), t.create()
			t.write(b, "mark", "here")
			destroy(t, a.Ref(), "Destroy")
			got, err := t.read(b, "mark")
			t.must(err, "reading in the other sandbox")
			t.wantText("the other sandbox's file", got, "here")
			t.wantExit(t.run(b, t.h.Commands.Exit(0)), "a command in the other sandbox", 0)
		}},
		{name: "destroy/in-use", rule: "Destroy ends what runs: Wait returns, and never says that the command exited with 0", needs: []need{printSleep}, run: func(t *T) {
			sb := t.create()
			m := marker()
			r := t.begin(sb, t.h.Commands.PrintSleep("on", 300*time.Second, m))
			if t.d.Exec.Stream && !r.out.reached("on", t.h.CallTimeout) {
				t.Fatalf("the command did not start")
			}
			destroy(t, sb.Ref(), "Destroy")
			ctx, cancel := context.WithTimeout(t.ctx, t.soon())
			defer cancel()
			exit, err := r.proc.Wait(ctx)
			switch {
			case err != nil && ctx.Err() != nil:
				t.Errorf("Wait still blocks %s after Destroy", t.soon())
			case err != nil:
				t.wantCode(err, "Wait after Destroy", provider.Lost, provider.NotFound, provider.Unavailable)
			case exit.Kind == provider.ExitExited && exit.Code == 0:
				t.Errorf("Wait says exited with code 0 for a command that Destroy ended; a broken stream is lost, never success")
			}
			t.survivors(sb, "after Destroy", m, false)
		}},
	}
}
