package plugintest

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/sbxhost/sbxhost/abi"
	"github.com/sbxhost/sbxhost/plugin/plugintest/fakevendor"
	"github.com/sbxhost/sbxhost/provider"
)

// fault is one way for the vendor to misbehave, and what must come of it.
type fault struct {
	name   string
	inject fakevendor.Fault
	limit  time.Duration // of the operation; default opTimeout
	// ok says whether an error has a code that tells the caller what to do. nil:
	// any code will do.
	ok   func(provider.Code) bool
	want string
	// claims: the answer says success, and only its body shows that it is none.
	claims bool
}

func retryable(c provider.Code) bool { return c.Retryable() }

var faults = []fault{
	{name: "401", inject: fakevendor.Fault{Kind: fakevendor.FaultStatus, Arg: "401"}, want: "PermissionDenied", ok: func(c provider.Code) bool { return c == provider.PermissionDenied }},
	{name: "429", inject: fakevendor.Fault{Kind: fakevendor.FaultStatus, Arg: "429", Times: 1}, want: "one that may be retried", ok: retryable},
	{name: "500", inject: fakevendor.Fault{Kind: fakevendor.FaultStatus, Arg: "500"}, want: "one that may be retried", ok: retryable},
	{name: "503", inject: fakevendor.Fault{Kind: fakevendor.FaultStatus, Arg: "503"}, want: "one that may be retried", ok: retryable},
	{name: "reset", inject: fakevendor.Fault{Kind: fakevendor.FaultReset}},
	{name: "lost", inject: fakevendor.Fault{Kind: fakevendor.FaultLost, Times: 1}},
	{name: "truncated", inject: fakevendor.Fault{Kind: fakevendor.FaultTruncated, Times: 1}},
	{name: "oversized", inject: fakevendor.Fault{Kind: fakevendor.FaultOversized}, claims: true},
	{name: "redirect", inject: fakevendor.Fault{Kind: fakevendor.FaultRedirect, Arg: "http://127.0.0.1:1/elsewhere"}},
	{name: "gzip", inject: fakevendor.Fault{Kind: fakevendor.FaultGzip}},
	{name: "utf-16", inject: fakevendor.Fault{Kind: fakevendor.FaultUTF16}},
	{name: "hang", inject: fakevendor.Fault{Kind: fakevendor.FaultHang}, limit: time.Second, want: "DeadlineExceeded or Unavailable", ok: func(c provider.Code) bool {
		return c == provider.DeadlineExceeded || c == provider.Unavailable || c == provider.Lost
	}},
}

// faults lets the vendor misbehave from the first request of each operation on.
func (k *kit) faults(ctx context.Context) {
	for _, a := range k.actions() {
		for _, f := range faults {
			k.check(ctx, "http/"+a.op.String()+"/"+f.name, "whatever the vendor answers, the operation ends in time with an error that says what to do, or with what it claims; nothing is orphaned or done twice", 3*time.Minute, func(t *t) {
				k.fault(t, a, f)
			})
		}
	}
}

// fault tries again what ended too late: a busy machine is late now and then, a
// plugin or a host that is late always.
func (k *kit) fault(t *t, a action, f fault) {
	if k.fake == nil {
		t.leave(NotDeclared, "the plugin has no origins: it cannot reach a vendor")
	}
	for again := 2; ; again-- {
		late := k.misbehave(t, a, f)
		switch {
		case late == "":
			return
		case again == 0:
			t.fatalf("%s", late)
		}
	}
}

// misbehave exercises the operation once. late says that it ended too late, and how.
func (k *kit) misbehave(t *t, a action, f fault) (late string) {
	s := &spy{fail: -1}
	p := k.open(t, s.hooks())
	w := k.build(t, p, a)
	limit := f.limit
	if limit == 0 {
		limit = opTimeout
	}
	var (
		injected bool
		lie      string
		err      error
		took     time.Duration
	)
	for {
		var once sync.Once
		s.arm(a.op, -1, 0, func(name string) {
			if name == "http_open" {
				once.Do(func() {
					if err := k.fake.inject(t.ctx, f.inject); err != nil {
						t.errorf("%s", err)
					}
					injected = true
				})
			}
		})
		took = within(t.ctx, limit, func(ctx context.Context) { lie, err = a.run(ctx, k, w) })
		s.disarm()
		if injected || limit >= opTimeout || provider.CodeOf(err) != provider.DeadlineExceeded {
			break
		}
		// On a busy machine the time was over before the first request.
		limit *= 2
	}
	k.calm(t.ctx)
	defer k.tear(t, w)
	if !injected {
		t.leave(NotDeclared, "the operation makes no request")
	}
	if why := broke(err); why != "" && err != errLost {
		t.errorf("%s", why)
		return ""
	}
	switch {
	case took > limit+5*time.Second:
		return fmt.Sprintf("it took %s, with a deadline of %s", took.Round(time.Millisecond), limit)
	case f.limit == 0 && took >= limit:
		return fmt.Sprintf("it was still at it after %s, though the vendor answered at once", limit)
	}
	if err == nil {
		// Where nothing is read from the answer, its status is all there is.
		// What a file holds only the vendor knows.
		bodiless := a.op == abi.OpRead || a.op == abi.OpWrite || a.op == abi.OpMkdir || a.op == abi.OpRemove || a.op == abi.OpPause
		if lie != "" && !(f.claims && bodiless) {
			t.errorf("the plugin claims that %s, and it is not so", lie)
		}
	} else if f.ok != nil && err != errLost && !f.ok(provider.CodeOf(err)) {
		t.errorf("the error must be %s: %s", f.want, describeError(err))
	}
	k.doneOnce(t, a, w, err)
	k.healthy(t, p)
	return ""
}

// doneOnce checks what a command left behind: it ran at most once, and not at
// all when the error says that nothing happened.
func (k *kit) doneOnce(t *t, a action, w *world, err error) {
	if a.op != abi.OpExec {
		return
	}
	ctx, cancel := context.WithTimeout(t.ctx, opTimeout)
	defer cancel()
	o, rerr := sh(ctx, w.sb, "cat marks 2>/dev/null; :")
	if rerr != nil {
		t.errorf("the next command failed: %s", describeError(rerr))
		return
	}
	switch {
	case o.stdout != "" && o.stdout != "once":
		t.errorf("the command ran more than once")
	case o.stdout == "once" && err != nil && err != errLost && provider.AppliedOf(err) == provider.AppliedNo:
		t.errorf("the command ran, and the error says that nothing happened")
	}
}
