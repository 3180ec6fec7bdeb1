package plugintest

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sbxhost/sbxhost/abi"
	"github.com/sbxhost/sbxhost/provider"
)

// Matrix returns the capability matrix in Markdown: what the manifest declares,
// and how the checks that exercise it went.
func (r *Report) Matrix() string {
	var b strings.Builder
	fmt.Fprintf(&b, "# %s %s\n\n%s plugin, `%s`\n\n", r.Plugin, r.Version, r.Kind, r.Digest)
	b.WriteString("| capability | declared | proved |\n|---|---|---|\n")
	row := func(name, declared string, prefixes ...string) {
		fmt.Fprintf(&b, "| %s | %s | %s |\n", name, declared, r.proved(declared != "no", prefixes))
	}
	for op := abi.OpCreate; op.String() != "unknown"; op++ {
		name := op.String()
		declared := "no"
		if slices.Contains(r.Operations, name) {
			declared = "yes"
		}
		row("operation "+name, declared, append([]string{"errno/" + name, "http/" + name + "/"}, operationChecks[name]...)...)
	}
	d := r.Description
	for _, t := range []provider.Transport{provider.TransportExec, provider.TransportCreate} {
		declared := "no"
		if d.Offers(t) {
			declared = "yes"
		}
		row("references by "+string(t), declared, "provider/env/", "taint/values")
	}
	row("exec.stream", yesNo(d.Exec.Stream), "provider/exec/stream")
	row("exec.stdin", none(string(d.Exec.Stdin)), "provider/stdin/")
	row("exec.tty", yesNo(d.Exec.TTY), "provider/tty/")
	row("exec.stderr", none(string(d.Exec.Stderr)), "provider/exec/streams")
	row("exec.kill", none(string(d.Exec.Kill)), "provider/kill/")
	row("exec.partialOnTimeout", yesNo(d.Exec.PartialOnTimeout), "provider/timeout/partial")
	row("exec.backgroundSafe", yesNo(d.Exec.BackgroundSafe), "provider/background/")
	for _, f := range []struct {
		name string
		s    provider.Support
	}{
		{"image", d.Features.Image}, {"user", d.Features.User}, {"network none", d.Features.NetworkNone}, {"ports", d.Features.Ports},
		{"cpus", d.Features.CPUs}, {"memoryMiB", d.Features.MemoryMiB}, {"diskMiB", d.Features.DiskMiB}, {"ttl", d.Features.TTL},
	} {
		fmt.Fprintf(&b, "| wish %s | %s | |\n", f.name, none(string(f.s)))
	}
	return b.String()
}

// operationChecks names further checks that exercise an operation.
var operationChecks = map[string][]string{
	"create": {"provider/create/", "lifecycle/duplicate-create"}, "destroy": {"provider/destroy/", "lifecycle/destroy-twice"},
	"list": {"provider/list/"}, "exec": {"provider/exec/"}, "input": {"provider/stdin/live"}, "signal": {"provider/signal/", "provider/kill/"},
	"read": {"provider/files/exact"}, "write": {"provider/files/exact"}, "list_dir": {"provider/files/list"}, "stat": {"provider/files/stat"},
	"remove": {"provider/files/remove"}, "mkdir": {"provider/files/mkdir"}, "pause": {"provider/pause/"}, "resume": {"provider/pause/"},
	"resize": {"provider/tty/"}, "port": {"provider/port/"}, "status": {"provider/lifecycle/"},
}

// proved sums up the checks whose names start with one of the prefixes.
func (r *Report) proved(declared bool, prefixes []string) string {
	if !declared {
		return ""
	}
	var passed, failed int
	var names []string
	for _, c := range r.Checks {
		if !slices.ContainsFunc(prefixes, func(p string) bool {
			return c.Name == p || strings.HasSuffix(p, "/") && strings.HasPrefix(c.Name, p)
		}) {
			continue
		}
		switch c.Status {
		case Passed:
			passed++
		case Failed:
			failed++
			names = append(names, "`"+c.Name+"`")
		}
	}
	switch {
	case failed > 0:
		return "**failed**: " + strings.Join(names, ", ")
	case passed > 0:
		return fmt.Sprintf("yes, %d checks", passed)
	}
	return "not proved"
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

func none(s string) string {
	if s == "" || s == "none" {
		return "no"
	}
	return s
}
