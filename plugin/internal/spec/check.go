package spec

import (
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/sbxhost/sbxhost/abi"
)

var (
	namePattern   = regexp.MustCompile(`^[a-z][a-z0-9-]{0,62}$`)
	idPattern     = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_-]{0,62}$`)
	headerPattern = regexp.MustCompile("^[!#$%&'*+.^_`|~0-9A-Za-z-]{1,64}$")
	labelPattern  = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?$`)
	paramPattern  = regexp.MustCompile(`\{([^{}]*)\}`)
)

// reservedNames belong to the built-in providers.
var reservedNames = []string{"docker", "daytona", "local", "auto", "fake"}

// forbiddenHeaders are set by the transport, or would change where a request
// goes or what is in it.
var forbiddenHeaders = []string{"host", "content-length", "content-type", "transfer-encoding", "connection", "keep-alive", "te", "trailer",
	"upgrade", "proxy-authorization", "proxy-connection", "cookie", "accept-encoding", "expect", "forwarded", "x-forwarded-for", "x-forwarded-host"}

// Host values of slots, and where each may be used.
var (
	envSources   = []string{"environment", "exec.environment"}
	plainSources = []string{"image", "name", "session", "attempt", "ttlSeconds", "cpus", "memoryMiB", "diskMiB", "network", "ports", "sandbox",
		"exec.argv0", "exec.args", "exec.argv", "exec.shell", "exec.line", "exec.dir", "exec.user", "exec.timeoutSeconds", "exec.timeoutMs", "exec.id", "exec.uuid", "exec.stdin",
		"file.path", "file.content", "file.mode", "list.last"}
	mapSources = []string{"labels", "ownerLabels"}
)

func knownSource(m *Manifest, from string) bool {
	if name, ok := strings.CutPrefix(from, "config."); ok {
		_, ok := m.Config[name]
		return ok
	}
	return slices.Contains(envSources, from) || slices.Contains(plainSources, from) || slices.Contains(mapSources, from)
}

func sourceNames() string {
	all := slices.Concat(envSources, plainSources, mapSources, []string{"config.NAME"})
	slices.Sort(all)
	return strings.Join(all, ", ")
}

// check reports everything about a well-formed manifest that must not be.
func check(m *Manifest, out *problems) {
	checkHeader(m, out)
	checkConfig(m, out)
	for _, name := range slices.Sorted(maps.Keys(m.Origins)) {
		checkOrigin(m, name, out)
	}
	ids := map[string]bool{}
	for i := range m.Routes {
		r := &m.Routes[i]
		at := fmt.Sprintf("/routes/%d", i)
		if ids[r.ID] {
			out.add(at+"/id", "%q is used twice", r.ID)
		}
		ids[r.ID] = true
		checkRoute(m, r, at, out)
	}
	checkProtected(m, out)
}

func oneOf(out *problems, at, got string, allowed ...string) {
	if !slices.Contains(allowed, got) {
		out.add(at, "must be one of %s", strings.Join(allowed, ", "))
	}
}

func checkHeader(m *Manifest, out *problems) {
	if m.ABI != abi.Module {
		out.add("/abi", "must be %q; this host speaks no other version", abi.Module)
	}
	switch {
	case !namePattern.MatchString(m.Name):
		out.add("/name", "must be lower-case letters, digits and '-', starting with a letter, 63 at most")
	case slices.Contains(reservedNames, m.Name):
		out.add("/name", "%q is the name of a built-in; choose another", m.Name)
	}
	if m.Version == "" || len(m.Version) > 64 {
		out.add("/version", "must be set, 64 characters at most")
	}
	oneOf(out, "/kind", string(m.Kind), string(Sealed), string(PluginDriven))
	seen := map[string]bool{}
	for i, op := range m.Operations {
		if _, ok := abi.OpByName(op); !ok {
			out.add(fmt.Sprintf("/operations/%d", i), "unknown operation")
		}
		if seen[op] {
			out.add(fmt.Sprintf("/operations/%d", i), "listed twice")
		}
		seen[op] = true
	}
	for _, must := range []string{"create", "status", "destroy", "list"} {
		if !m.Has(must) {
			out.add("/operations", "%s is missing: without it a sandbox could be lost", must)
		}
	}
	if m.Has("exec") {
		oneOf(out, "/exec/stdin", m.Exec.Stdin, "none", "upfront", "live")
		oneOf(out, "/exec/stderr", m.Exec.Stderr, "separate", "merged")
		oneOf(out, "/exec/kill", m.Exec.Kill, "tree", "group", "process", "none")
		if m.Exec.Stdin == "live" && !m.Has("input") {
			out.add("/exec/stdin", "live input needs the operation input")
		}
		if m.Exec.TTY && !m.Has("resize") {
			out.add("/exec/tty", "a terminal needs the operation resize")
		}
		if m.Exec.Kill != "none" && !m.Has("signal") {
			out.add("/exec/kill", "killing needs the operation signal")
		}
	}
	if m.Limits.MemoryMiB < 0 || m.Limits.MemoryMiB > 1024 {
		out.add("/limits/memoryMiB", "must be between 0 and 1024")
	}
	if m.Limits.WallMs < 0 || m.Limits.WallMs > 600_000 {
		out.add("/limits/wallMs", "must be between 0 and 600000")
	}
}

func checkConfig(m *Manifest, out *problems) {
	for _, name := range slices.Sorted(maps.Keys(m.Config)) {
		f, at := m.Config[name], "/config/"+escapeToken(name)
		if !idPattern.MatchString(name) {
			out.add(at, "must be a name of letters, digits, '_' and '-'")
		}
		oneOf(out, at+"/type", f.Type, "string", "integer", "boolean")
		if f.Type == "string" && len(f.Enum) == 0 && (f.MaxLength < 1 || f.MaxLength > 4096) {
			out.add(at+"/maxLength", "must be between 1 and 4096")
		}
	}
	seen := map[string]bool{}
	for i, c := range m.Credentials {
		at := fmt.Sprintf("/credentials/%d/name", i)
		if !idPattern.MatchString(c.Name) {
			out.add(at, "must be a name of letters, digits, '_' and '-'")
		}
		if seen[c.Name] {
			out.add(at, "%q is declared twice", c.Name)
		}
		seen[c.Name] = true
	}
	for _, name := range slices.Sorted(maps.Keys(m.Captures)) {
		if !idPattern.MatchString(name) {
			out.add("/captures/"+escapeToken(name), "must be a name of letters, digits, '_' and '-'")
		}
		oneOf(out, "/captures/"+escapeToken(name)+"/scope", m.Captures[name].Scope, "session", "plugin")
	}
}

func hasSandbox(u string) bool { return strings.Contains(u, "{sandbox}") }

func checkOrigin(m *Manifest, name string, out *problems) {
	o, at := m.Origins[name], "/origins/"+escapeToken(name)
	if !idPattern.MatchString(name) {
		out.add(at, "must be a name of letters, digits, '_' and '-'")
	}
	set := 0
	for _, b := range []bool{o.URL != "", o.Configured, o.Capture != ""} {
		if b {
			set++
		}
	}
	if set != 1 {
		out.add(at, `must have exactly one of a url, {"from": capture} as url, and "configured": true`)
	}
	if o.URL != "" {
		checkOriginURL(o.URL, at+"/url", out)
	}
	if o.Capture != "" {
		if _, ok := m.Captures[o.Capture]; !ok {
			out.add(at+"/url/from", "no capture is named %q", o.Capture)
		}
		if len(o.Allow) == 0 {
			out.add(at+"/url/allow", "must list the host names that the captured address may have")
		}
		for i, h := range o.Allow {
			if !validHostPattern(h) {
				out.add(fmt.Sprintf("%s/url/allow/%d", at, i), `must be a host name of two labels at least, or "*." and one`)
			}
		}
	}
	for i, h := range o.Headers {
		hat := fmt.Sprintf("%s/headers/%d", at, i)
		checkHeaderField(m, h, hat, out)
		if h.Credential != "" && o.PerSandbox() {
			out.add(hat+"/credential", "credentials go only to fixed or configured origins; this one differs from sandbox to sandbox")
		}
		switch scope := m.Captures[h.Capture].Scope; {
		case h.Capture == "":
		case scope == "session" && o.Configured:
			out.add(hat+"/capture", "a session's capture goes only to a fixed host name, or to the one derived for its session")
		case scope == "plugin" && o.PerSandbox():
			out.add(hat+"/capture", "a plugin's capture goes only to fixed or configured origins; this one differs from sandbox to sandbox")
		}
	}
	checkHeaderNames(o.Headers, at+"/headers", out)
}

func checkOriginURL(raw, at string, out *problems) {
	// The placeholder is not a valid host character: check with a label in its
	// place.
	u, err := url.Parse(strings.Replace(raw, "{sandbox}", "sandbox0", 1))
	switch {
	case err != nil || u.Host == "" || strings.ContainsAny(u.Host, "{}"):
		out.add(at, "must be an absolute URL with {sandbox} once at most")
		return
	case u.Scheme != "https":
		out.add(at, `must start with "https://"; an origin that needs anything else is "configured": true`)
	case u.User != nil || u.RawQuery != "" || u.Fragment != "" || u.Opaque != "":
		out.add(at, "must not hold user information, a query or a fragment")
	case strings.Contains(u.Path, "..") || strings.HasSuffix(u.Path, "/"):
		out.add(at, "must not end in '/' or hold '..'")
	case u.Hostname() != strings.ToLower(u.Hostname()):
		out.add(at, "must be lower case")
	}
	if !hasSandbox(raw) {
		return
	}
	host := strings.SplitN(strings.TrimPrefix(raw, "https://"), "/", 2)[0]
	labels := strings.Split(host, ".")
	if !strings.Contains(labels[0], "{sandbox}") || len(labels) < 3 {
		out.add(at, "{sandbox} must be in the first label of a host name that has three at least")
	}
}

func validHostPattern(h string) bool {
	h = strings.TrimPrefix(h, "*.")
	labels := strings.Split(h, ".")
	if len(labels) < 2 {
		return false
	}
	for _, l := range labels {
		if !labelPattern.MatchString(l) {
			return false
		}
	}
	return true
}

func checkHeaderField(m *Manifest, h Header, at string, out *problems) {
	if !headerPattern.MatchString(h.Name) {
		out.add(at+"/name", "is not a header name")
	} else if slices.Contains(forbiddenHeaders, strings.ToLower(h.Name)) {
		out.add(at+"/name", "%s is the transport's; it cannot be set", h.Name)
	}
	set := 0
	for _, s := range []string{h.Value, h.Credential, h.Capture, h.Config, h.From} {
		if s != "" {
			set++
		}
	}
	if set != 1 {
		out.add(at, "must have exactly one of value, credential, capture, config and from")
	}
	if h.Credential != "" && !m.Credential(h.Credential) {
		out.add(at+"/credential", "no credential is named %q", h.Credential)
	}
	if _, ok := m.Captures[h.Capture]; h.Capture != "" && !ok {
		out.add(at+"/capture", "no capture is named %q", h.Capture)
	}
	if _, ok := m.Config[h.Config]; h.Config != "" && !ok {
		out.add(at+"/config", "no setting is named %q", h.Config)
	}
	if h.From != "" && h.From != "sandbox" {
		out.add(at+"/from", `only "sandbox" can be put in a header`)
	}
	for _, s := range []string{h.Value, h.Prefix} {
		if strings.ContainsAny(s, "\r\n\x00") {
			out.add(at, "header values cannot hold line breaks")
		}
	}
}

func checkHeaderNames(hs []Header, at string, out *problems) {
	seen := map[string]bool{}
	for i, h := range hs {
		if k := strings.ToLower(h.Name); seen[k] {
			out.add(fmt.Sprintf("%s/%d/name", at, i), "%s is set twice", h.Name)
		} else {
			seen[k] = true
		}
	}
}

func checkProtected(m *Manifest, out *problems) {
	if !m.Protected.Any() {
		return
	}
	list := func(kind string, ids []string, role Role, source string) {
		for i, id := range ids {
			at := fmt.Sprintf("/protectedTransport/%s/%d", kind, i)
			r, ok := m.Route(id)
			switch {
			case !ok:
				out.add(at, "no route has the id %q", id)
			case r.Role != role:
				out.add(at, "route %q has the role %s, not %s", id, r.Role, role)
			case !carries(r, source):
				out.add(at, "route %q has no slot filled from %s", id, source)
			}
		}
	}
	list("create", m.Protected.Create, RoleCreate, "environment")
	list("exec", m.Protected.Exec, RoleExec, "exec.environment")
	named := slices.ContainsFunc(m.Routes, func(r Route) bool { return r.Role == RoleCreate && r.Response.Sandbox != "" })
	if !named {
		out.add("/protectedTransport", "no create route says where its reply names the sandbox (response.sandbox): the host takes it from nowhere else")
	}
	if !slices.ContainsFunc(m.Routes, func(r Route) bool { return lists(&r) }) {
		out.add("/protectedTransport", "no route lists sandboxes by owner (a query from ownerLabels, or response.items): one that was created could not be found again")
	}
}

// carries reports whether a route's request has the environment in it.
func carries(r *Route, source string) bool {
	if r.Request.Body == BodyPlugin {
		return r.Request.EnvPointer != ""
	}
	for _, s := range r.Request.Slots {
		if s.From == source {
			return true
		}
	}
	return false
}
