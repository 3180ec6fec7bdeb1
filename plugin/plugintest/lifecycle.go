package plugintest

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"sync"
	"time"

	"github.com/sbxhost/sbxhost/provider"
)

// parallelSessions run at once.
const parallelSessions = 6

func (k *kit) lifecycle(ctx context.Context) {
	k.check(ctx, "lifecycle/duplicate-create", "creating a session twice gives one sandbox; with another digest it is a Conflict", time.Minute, func(t *t) {
		p := k.open(t, nil)
		w := &world{p: p, req: k.createRequest()}
		sb, err := p.Create(t.ctx, w.req)
		t.must(err, "Create")
		w.sb = sb
		defer k.tear(t, w)
		again, err := p.Create(t.ctx, w.req)
		t.must(err, "Create again")
		if again.Ref().ID != sb.Ref().ID {
			t.errorf("the second Create gave another sandbox")
		}
		if k.lists {
			fresh := k.fresh(t, nil, nil, nil)
			adopted, err := fresh.Create(t.ctx, w.req)
			t.must(err, "Create from another process")
			if adopted.Ref().ID != sb.Ref().ID {
				t.errorf("Create from another process gave another sandbox")
			}
		}
		if n, err := k.held(t.ctx); err != nil || n > 1 {
			t.errorf("the vendor holds %d sandboxes (%v)", n, err)
		}
		other := w.req
		other.Digest = "sha256:other"
		other.Labels = maps.Clone(other.Labels)
		other.Labels[provider.LabelDigest] = other.Digest
		if _, err := p.Create(t.ctx, other); provider.CodeOf(err) != provider.Conflict {
			t.errorf("Create with another digest ended with %q, it must be Conflict", provider.CodeOf(err))
		}
	})
	k.check(ctx, "lifecycle/destroy-twice", "destroying twice, also from another process, is success", time.Minute, func(t *t) {
		if !k.m.Has("destroy") {
			t.leave(NotDeclared, "the manifest does not declare destroy")
		}
		p := k.open(t, nil)
		sb, err := p.Create(t.ctx, k.createRequest())
		t.must(err, "Create")
		t.must(p.Destroy(t.ctx, sb.Ref()), "Destroy")
		t.must(p.Destroy(t.ctx, sb.Ref()), "Destroy again")
		t.must(k.fresh(t, nil, nil, nil).Destroy(t.ctx, sb.Ref()), "Destroy from another process")
		if n, err := k.held(t.ctx); err != nil || n > 0 {
			t.errorf("the vendor holds %d sandboxes (%v)", n, err)
		}
	})
	k.check(ctx, "lifecycle/parallel", "sessions that run at once do not see each other", 2*time.Minute, func(t *t) {
		p := k.open(t, nil)
		var wg sync.WaitGroup
		ids := make([]string, parallelSessions)
		for i := range ids {
			wg.Go(func() {
				t.guard(func() { k.session(t, p, i, ids) })
			})
		}
		wg.Wait()
		seen := map[string]bool{}
		for _, id := range ids {
			if id != "" && seen[id] {
				t.errorf("two sessions have the sandbox %s", id)
			}
			seen[id] = true
		}
		k.tear(t, &world{p: p})
		k.healthy(t, p)
	})
}

// session is one life of a sandbox beside others.
func (k *kit) session(t *t, p provider.Provider, i int, ids []string) {
	ctx, cancel := context.WithTimeout(t.ctx, time.Minute)
	defer cancel()
	q := k.createRequest()
	mine := fmt.Sprintf("session-%d-%s", i, q.SessionID)
	if k.takesEnvironment() {
		q.Environment = map[string]string{"MINE": mine}
	}
	sb, err := p.Create(ctx, q)
	t.must(err, "Create")
	ids[i] = sb.Ref().ID
	if k.m.Has("exec") {
		var o execOut
		if k.opts.Words != nil || !k.takesEnvironment() {
			o, err = k.say(ctx, sb, mine)
		} else {
			o, err = sh(ctx, sb, `printf %s "$MINE"`, func(r *provider.ExecRequest) { r.Env = q.Environment })
		}
		t.must(err, "a command")
		if o.stdout != mine {
			t.errorf("a command printed %q, not its own session's %q", o.stdout, mine)
		}
	}
	if k.m.Has("write") && k.m.Has("read") {
		t.must(sb.Files().Write(ctx, "mine", strings.NewReader(q.SessionID), provider.WriteOptions{}), "Write")
		got, err := readFile(ctx, sb, "mine")
		t.must(err, "Read")
		if got != q.SessionID {
			t.errorf("a file holds another session's content")
		}
	}
	if k.m.Has("destroy") {
		t.must(p.Destroy(ctx, sb.Ref()), "Destroy")
	}
}
