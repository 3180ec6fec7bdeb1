package plugintest

import (
	"context"
	"sync"
	"time"

	"github.com/sbxhost/sbxhost/abi"
	"github.com/sbxhost/sbxhost/plugin/plugintest/fakevendor"
	"github.com/sbxhost/sbxhost/provider"
)

// cancelSlack is how long a cancelled operation may take to end.
const cancelSlack = time.Second

// cancelTries is how often, in one check, an operation that ended too late is tried
// again: a busy machine is late now and then, a host that is late always.
const cancelTries = 5

// cancels lets the caller give up at the three places where a plugin can be.
func (k *kit) cancels(ctx context.Context) {
	const rule = "when the caller gives up, the operation ends within a second as Canceled, and the next one works"
	once := func(t *t, a action, trigger func(cancel func()) func(string)) (fired bool, late time.Duration) {
		s := &spy{fail: -1}
		p := k.openUnhurried(t, s.hooks())
		w := k.build(t, k.open(t, nil), a)
		if w.sb != nil { // made in a hurry, used without
			again, err := p.Open(t.ctx, w.sb.Ref())
			t.must(err, "Open")
			w.sb = again
		}
		w.p = p
		defer k.tear(t, w)
		ctx, cancel := context.WithTimeout(t.ctx, 2*opTimeout)
		defer cancel()
		var mu sync.Mutex
		var at time.Time
		stop := func() {
			mu.Lock()
			if at.IsZero() {
				at = time.Now()
			}
			mu.Unlock()
			cancel()
		}
		s.arm(a.op, -1, 0, trigger(stop))
		_, err := a.run(ctx, k, w)
		ended := time.Now()
		s.disarm()
		k.calm(t.ctx)
		mu.Lock()
		defer mu.Unlock()
		if at.IsZero() {
			return false, 0
		}
		if err != nil && err != errLost && provider.CodeOf(err) != provider.Canceled {
			t.errorf("%s ended with %s, it must be Canceled", a.op, describeError(err))
		}
		if err == nil {
			t.notef("%s had ended", a.op)
		}
		k.healthy(t, p)
		return true, ended.Sub(at)
	}
	run := func(t *t, again *int, a action, trigger func(cancel func()) func(string)) (fired bool) {
		for {
			fired, late := once(t, a, trigger)
			if late <= cancelSlack {
				return fired
			}
			if *again--; *again < 0 {
				t.errorf("%s ended %s after it was cancelled", a.op, late.Round(time.Millisecond))
				return fired
			}
		}
	}
	k.check(ctx, "cancel/http", rule, 3*time.Minute, func(t *t) {
		if k.fake == nil {
			t.leave(NotDeclared, "the plugin has no origins")
		}
		again := cancelTries
		for _, a := range k.actions() {
			run(t, &again, a, func(stop func()) func(string) {
				var once sync.Once
				return func(name string) {
					if name == "http_open" {
						once.Do(func() {
							if err := k.fake.inject(t.ctx, fakevendor.Fault{Kind: fakevendor.FaultHang}); err != nil {
								t.errorf("%s", err)
							}
							time.AfterFunc(100*time.Millisecond, stop)
						})
					}
				}
			})
		}
	})
	k.check(ctx, "cancel/sleep", rule, 3*time.Minute, func(t *t) {
		slept, again := false, cancelTries
		for _, a := range k.actions() {
			if a.op == abi.OpExec && k.opts.Words == nil {
				a.run = func(ctx context.Context, _ *kit, w *world) (string, error) {
					_, err := sh(ctx, w.sb, "sleep 1")
					return "", err
				}
			}
			slept = run(t, &again, a, func(stop func()) func(string) {
				return func(name string) {
					if name == "sleep_ms" {
						time.AfterFunc(20*time.Millisecond, stop)
					}
				}
			}) || slept
		}
		if !slept {
			t.leave(NotDeclared, "the plugin sleeps in none of these operations")
		}
	})
	k.check(ctx, "cancel/loop", "cancelled while it computes, the plugin is stopped within a second", 3*time.Minute, func(t *t) {
		again := cancelTries
		for _, a := range k.actions() {
			if !run(t, &again, a, func(stop func()) func(string) {
				return func(name string) {
					if name == "in_read" || name == "in_len" {
						stop()
					}
				}
			}) {
				t.notef("%s reads no request", a.op)
			}
		}
	})
}
