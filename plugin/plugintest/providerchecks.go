package plugintest

import (
	"context"
	"net/http"
	"regexp"
	"strings"
	"time"

	"github.com/sbxhost/sbxhost/plugin"
	"github.com/sbxhost/sbxhost/provider"
	"github.com/sbxhost/sbxhost/provider/providertest"
)

// beyondFake are checks of providertest that need a real machine: the fake runs
// commands in a folder of this one.
var beyondFake = map[string]string{
	"create/root": "the fake's commands see this machine's file system, not a sandbox's",
}

var lacksOperation = regexp.MustCompile(`the plugin (?:does not offer|cannot) (list_dir|stat|mkdir|remove|read|write|port|exec|signal|input)\b`)

// provider runs the checks of providertest against the plugin and the fake.
func (k *kit) provider(ctx context.Context) {
	if !k.wanted("provider/") && len(k.opts.Only) > 0 && !k.wantsProvider() {
		return
	}
	var only []string
	for _, o := range k.opts.Only {
		if rest, ok := strings.CutPrefix(o, "provider/"); ok {
			only = append(only, rest)
		}
	}
	skip := map[string]string{}
	for name, why := range beyondFake {
		skip[name] = why
	}
	if k.fake != nil {
		for name, why := range k.fake.hello.Unproven {
			skip[name] = why
		}
	}
	rules := map[string]string{}
	for _, i := range providertest.Checks() {
		rules[i.Name] = i.Rule
	}
	rep := providertest.Check(providertest.Harness{
		New: func(tb providertest.TB) provider.Provider {
			p, err := k.load(ctx, nil, nil, nil)
			if err != nil {
				tb.Fatalf("load: %v", err)
			}
			tb.Cleanup(func() { _ = p.Close() })
			return named{p}
		},
		Commands:         providertest.ShellCommands("/bin/sh"),
		CannotList:       !k.m.Has("list"),
		NoRequestSecrets: len(k.m.Protected.Exec) == 0,
		Skip:             skip,
		Only:             only,
		CallTimeout:      20 * time.Second,
		Volume:           k.opts.Volume,
		Settle:           http.DefaultClient.CloseIdleConnections,
	})
	for _, r := range rep.Results {
		c := Check{Name: "provider/" + r.Check, Rule: rules[r.Check], Status: Status(r.Status), Reasons: r.Messages, Duration: r.Duration}
		switch r.Status {
		case providertest.Passed:
			c.Reasons = nil
		case providertest.Skipped:
			if _, ours := skip[r.Check]; !ours {
				continue
			}
			c.Status = NotProved
		case providertest.Failed:
			// A check may use an operation that the manifest does not claim; that it
			// was refused is then what the check found.
			if m := lacksOperation.FindStringSubmatch(strings.Join(r.Messages, "\n")); m != nil && !k.m.Has(m[1]) && len(r.Messages) == 1 {
				c.Status, c.Reasons = NotDeclared, []string{"the check needs the operation " + m[1] + ", which the manifest does not declare"}
			}
		}
		k.add(c)
	}
}

func (k *kit) wantsProvider() bool {
	for _, o := range k.opts.Only {
		if strings.HasPrefix(o, "provider/") {
			return true
		}
	}
	return false
}

// named is the plugin under test; providertest must see exactly its methods.
type named struct{ *plugin.Plugin }
