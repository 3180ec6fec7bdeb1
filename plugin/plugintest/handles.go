package plugintest

import (
	"context"
	"encoding/json"
	"strings"
	"sync"
	"time"

	"github.com/sbxhost/sbxhost/abi"
	"github.com/sbxhost/sbxhost/plugin/internal/hook"
)

// handles misuses environment handles in the plugin's name.
func (k *kit) handles(ctx context.Context) {
	const rule = "an environment handle that is wrong, or was used before, gives E_BADF, and nothing is sent"
	for _, mis := range []struct {
		name   string
		change func(h, former string) string
	}{
		{"altered", func(h, _ string) string { return h[:len(h)-1] + string(rune('0'+(h[len(h)-1]-'0'+1)%10)) }},
		{"replayed", func(_, former string) string { return former }},
	} {
		k.check(ctx, "handles/"+mis.name, rule, time.Minute, func(t *t) {
			driven := false
			for i := range k.m.Routes {
				driven = driven || k.m.Routes[i].Request.EnvPointer != ""
			}
			if !driven {
				t.leave(NotDeclared, "no route takes an environment handle: the host fills environments in by itself")
			}
			var mu sync.Mutex
			var former string
			misuse, used := false, false
			p := k.open(t, &hook.Hooks{Meta: func(_ abi.Op, meta []byte) []byte {
				var doc map[string]any
				if json.Unmarshal(meta, &doc) != nil {
					return meta
				}
				h, _ := doc["env"].(string)
				if h == "" {
					return meta
				}
				mu.Lock()
				defer mu.Unlock()
				if !misuse {
					former = h
					return meta
				}
				used = true
				return []byte(strings.ReplaceAll(string(meta), h, mis.change(h, former)))
			}})
			w := &world{p: p, req: k.createRequest()}
			sb, err := p.Create(t.ctx, w.req)
			t.must(err, "Create")
			w.sb = sb
			defer k.tear(t, w)
			before := 0
			if k.fake != nil {
				before, err = k.held(t.ctx)
				t.must(err, "asking the fake")
			}
			mu.Lock()
			misuse = true
			mu.Unlock()
			within(t.ctx, opTimeout, func(ctx context.Context) { _, err = p.Create(ctx, k.createRequest()) })
			mu.Lock()
			tried := used
			mu.Unlock()
			if !tried {
				t.leave(NotProved, "creating a sandbox used no handle")
			}
			if err == nil {
				t.errorf("Create succeeded")
			}
			if why := broke(err); why != "" {
				t.errorf("%s", why)
			}
			if after, err := k.held(t.ctx); err != nil || after != before {
				t.errorf("the vendor made a sandbox (%v)", err)
			}
		})
	}
}
