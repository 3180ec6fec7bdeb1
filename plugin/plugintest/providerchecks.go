package plugintest

import (
	"context"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/sbxhost/sbxhost/provider"
	"github.com/sbxhost/sbxhost/provider/providertest"
)

// beyondFake are checks of providertest that need a real machine: the fake runs
// commands in a folder of this one.
var beyondFake = map[string]string{
	"files/escape-link": "where links of a vendor's sandbox lead is the vendor's matter: nothing of the host's is behind them",
}

// unprovenHere says plainly what the kit has not got.
var unprovenHere = map[string]string{
	"the harness does not give Break":   "the kit cannot break the connection to one running command",
	"the harness does not give Records": "what the fake stores cannot be searched",
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
	volume := k.opts.Volume
	if k.fake != nil {
		if most := k.fake.hello.MaxOutput; most > 0 {
			volume = min(volume, most)
		}
		for name, why := range beyondFake {
			skip[name] = why
		}
		for name, why := range k.fake.hello.Unproven {
			skip[name] = why
		}
	}
	rules := map[string]string{}
	for _, i := range providertest.Checks() {
		rules[i.Name] = i.Rule
	}
	h := providertest.Harness{
		New: func(tb providertest.TB) provider.Provider {
			p, err := k.load(ctx, nil, nil, nil)
			if err != nil {
				tb.Fatalf("load: %v", err)
			}
			tb.Cleanup(func() { _ = p.Close() })
			return p
		},
		Commands:         shell(k.fake != nil),
		RealShell:        k.opts.Words == nil,
		CannotList:       !k.lists,
		NoRequestSecrets: len(k.m.Protected.Exec) == 0,
		Skip:             skip,
		Only:             only,
		CallTimeout:      12 * time.Second,
		Slack:            10 * time.Second, // the machine may be busy
		Volume:           volume,
		Settle:           http.DefaultClient.CloseIdleConnections,
	}
	if k.opts.Words != nil {
		h.Commands = k.opts.Words.commands()
	}
	if k.m.Has("exec") && !k.desc.Exec.Stream && k.desc.Exec.Kill == provider.KillNone {
		// Such a vendor answers when the command has ended, and only then Exec
		// returns: nothing can be looked at, or done, while it runs.
		h.Commands.PrintSleep = nil
	}
	if _, err := os.Stat("/proc/self/cmdline"); err == nil && k.fake != nil {
		// A fake runs commands on this machine.
		h.Survivors, h.HostArgv = providertest.CountHostProcesses, true
	}
	for _, r := range providertest.Check(h).Results {
		c := Check{Name: "provider/" + r.Check, Rule: rules[r.Check], Status: Status(r.Status), Reasons: r.Messages, Duration: r.Duration}
		switch r.Status {
		case providertest.Passed:
			c.Reasons = nil
		case providertest.Skipped:
			if _, ours := skip[r.Check]; !ours {
				continue
			}
			c.Status = NotProved
		case providertest.Unproven:
			c.Reasons = slices.Clone(r.Messages)
			for i, why := range c.Reasons {
				if plain, ok := unprovenHere[why]; ok {
					c.Reasons[i] = plain
				}
			}
			switch {
			case strings.Contains(r.Messages[0], "Commands.PrintSleep") && k.opts.Words == nil:
				c.Reasons = []string{"the vendor answers when a command has ended: nothing can be looked at, or done, while it runs"}
			case strings.HasPrefix(r.Check, "files/") && !k.m.Has("read") && !k.m.Has("write"):
				c.Status, c.Reasons = NotDeclared, []string{"the manifest declares no file operations"}
			case strings.HasPrefix(r.Check, "secrets/") && r.Check != "secrets/refused" && len(k.m.Protected.Exec) == 0:
				c.Status, c.Reasons = NotDeclared, []string{"the manifest gives commands no secrets of their own"}
			}
		case providertest.Failed:
			// A check may use an operation that the manifest does not claim; that it
			// was refused is then what the check found.
			if op := k.lacking(r.Messages); op != "" {
				c.Status, c.Reasons = NotDeclared, []string{"the check needs the operation " + op + ", which the manifest does not declare"}
			} else if r.Check == "volume/output" && k.fake != nil {
				c.Reasons = append(c.Reasons, "if the vendor's answers cannot hold that much, let the fake say how much they can: MaxOutput in its Hello")
			}
		}
		k.add(c)
	}
}

// lacking returns the operation for want of which a check failed, "" when it
// failed for any other reason too.
func (k *kit) lacking(messages []string) (op string) {
	for _, text := range messages {
		m := lacksOperation.FindStringSubmatch(text)
		switch {
		case m != nil && !k.m.Has(m[1]):
			op = m[1]
		case !strings.HasPrefix(text, "transport "): // which transport it was is no failure
			return ""
		}
	}
	return op
}

func (k *kit) wantsProvider() bool {
	for _, o := range k.opts.Only {
		if strings.HasPrefix(o, "provider/") {
			return true
		}
	}
	return false
}
