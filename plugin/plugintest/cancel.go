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

// cancels lets the caller give up at the three places where a plugin can be.
func (k *kit) cancels(ctx context.Context) {
	const rule = "when the caller gives up, the operation ends within a second as Canceled, and the next one works"
	run := func(t *t, a action, trigger func(cancel func()) func(string), after func(cancel func())) (fired bool) {
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
		if after != nil {
			after(stop)
		}
		_, err := a.run(ctx, k, w)
		ended := time.Now()
		s.disarm()
		k.calm(t.ctx)
		mu.Lock()
		defer mu.Unlock()
		if at.IsZero() {
			return false
		}
		if late := ended.Sub(at); late > cancelSlack {
			t.errorf("%s ended %s after it was cancelled", a.op, late.Round(time.Millisecond))
		}
		if err != nil && err != errLost && provider.CodeOf(err) != provider.Canceled {
			t.errorf("%s ended with %s, it must be Canceled", a.op, describeError(err))
		}
		if err == nil {
			t.notef("%s had ended", a.op)
		}
		k.healthy(t, p)
		return true
	}
	k.check(ctx, "cancel/http", rule, time.Minute, func(t *t) {
		if k.fake == nil {
			t.leave(NotDeclared, "the plugin has no origins")
		}
		for _, a := range k.actions() {
			run(t, a, func(stop func()) func(string) {
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
			}, nil)
		}
	})
	k.check(ctx, "cancel/sleep", rule, time.Minute, func(t *t) {
		slept := false
		for _, a := range k.actions() {
			if a.op == abi.OpExec && k.opts.Words == nil {
				a.run = func(ctx context.Context, _ *kit, w *world) (string, error) {
					_, err := sh(ctx, w.sb, "sleep 1")
					return "", err
				}
			}
			slept = run(t, a, func(stop func()) func(string) {
				return func(name string) {
					if name == "sleep_ms" {
						time.AfterFunc(20*time.Millisecond, stop)
					}
				}
			}, nil) || slept
		}
		if !slept {
			t.leave(NotDeclared, "the plugin sleeps in none of these operations")
		}
	})
	k.check(ctx, "cancel/loop", "cancelled while it computes, the plugin is stopped within a second", time.Minute, func(t *t) {
		for _, a := range k.actions() {
			if !run(t, a, func(stop func()) func(string) {
				return func(name string) {
					if name == "in_read" || name == "in_len" {
						stop()
					}
				}
			}, nil) {
				t.notef("%s reads no request", a.op)
			}
		}
	})
}
