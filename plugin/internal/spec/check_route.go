package spec

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
)

func checkRoute(m *Manifest, r *Route, at string, out *problems) {
	if !idPattern.MatchString(r.ID) {
		out.add(at+"/id", "must be a name of letters, digits, '_' and '-'")
	}
	oneOf(out, at+"/role", string(r.Role), string(RoleCreate), string(RoleExec), string(RoleFile), string(RoleControl))
	oneOf(out, at+"/method", r.Method, "GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")
	o, ok := m.Origins[r.Origin]
	if !ok {
		out.add(at+"/origin", "no origin is named %q", r.Origin)
	}
	checkPath(m, r, at, out)
	for _, name := range slices.Sorted(maps.Keys(r.Query)) {
		checkField(m, r, r.Query[name], at+"/query/"+escapeToken(name), out)
	}
	for i, h := range r.Headers {
		checkHeaderField(m, h, fmt.Sprintf("%s/headers/%d", at, i), out)
		if h.Credential != "" || h.Capture != "" {
			out.add(fmt.Sprintf("%s/headers/%d", at, i), "credentials and captures belong to the origin's headers")
		}
	}
	checkHeaderNames(slices.Concat(o.Headers, r.Headers), at+"/headers", out)
	checkRequest(m, r, at+"/request", out)
	checkResponse(m, r, at+"/response", out)
	if r.Retry.Max < 0 || r.Retry.Max > 10 {
		out.add(at+"/retry/max", "must be between 0 and 10")
	}
	for i, s := range r.Retry.Status {
		if s < 400 || s > 599 {
			out.add(fmt.Sprintf("%s/retry/status/%d", at, i), "must be a status between 400 and 599")
		}
	}
	if r.Idempotency != (Idempotency{}) {
		checkHeaderField(m, Header{Name: r.Idempotency.Header, Value: "x"}, at+"/idempotency", out)
		oneOf(out, at+"/idempotency/key", r.Idempotency.Key, "session", "exec")
	}
	if (r.Role == RoleExec || r.Role == RoleFile) && !namesSandbox(r, o) {
		out.add(at, "a route that runs commands or moves files must name the sandbox: put {sandbox} in the path or origin, or fill a slot, query or header from sandbox")
	}
	checkReach(m, r, o, at, out)
	if m.Kind == Sealed && r.Request.Body == BodyPlugin {
		out.add(at+"/request/body", "a sealed plugin's bodies are written by the host; %q is for plugin-driven ones", BodyPlugin)
	}
}

// checkReach keeps free text away from where it could choose what a request is
// about: another session's sandbox, an image, a command.
func checkReach(m *Manifest, r *Route, o Origin, at string, out *problems) {
	named, read := namesSandbox(r, o), r.Method == http.MethodGet || r.Method == http.MethodHead
	free := func(where string, fields map[string]Field, allowed bool) {
		for _, name := range slices.Sorted(maps.Keys(fields)) {
			f := fields[name].Free
			if f == nil || f.Type != "string" || len(f.Enum) > 0 {
				continue
			}
			fat := at + "/" + where + "/" + escapeToken(name) + "/free"
			if !allowed {
				out.add(fat, "a free text here could name another session's sandbox; the route must also name its own: {sandbox} in the path or origin, or a slot, query or header from sandbox")
			}
			if m.Kind == Sealed && (r.Role == RoleCreate || runs(r)) {
				out.add(fat, "a free text in a sealed plugin's request that creates or runs something must be an enum")
			}
		}
	}
	free("params", r.Params, named)
	free("query", r.Query, named || read)
	if read && r.Role == RoleControl && r.Response.Body == BodyJSON && !named && !lists(r) && len(r.Response.Capture) == 0 {
		out.add(at, "a reply that is about no sandbox in particular may be about anybody's: name the sandbox, or declare response.items (or a query from ownerLabels) so that the host can filter it")
	}
}

// runs reports whether a route's request starts a command.
func runs(r *Route) bool {
	return slices.ContainsFunc(r.Request.Slots, func(s Slot) bool {
		return slices.Contains([]string{"exec.argv0", "exec.args", "exec.argv", "exec.shell", "exec.line", "exec.environment"}, s.From)
	})
}

// lists reports whether a route's reply is a list that the host can filter.
func lists(r *Route) bool {
	if r.Response.Items != nil {
		return true
	}
	for _, f := range r.Query {
		if f.From == "ownerLabels" {
			return true
		}
	}
	return false
}

// namesSandbox reports whether the host puts this session's sandbox id into the
// request.
func namesSandbox(r *Route, o Origin) bool {
	if hasSandbox(r.Path) || o.PerSandbox() {
		return true
	}
	for _, f := range r.Query {
		if f.From == "sandbox" {
			return true
		}
	}
	for _, s := range r.Request.Slots {
		if s.From == "sandbox" {
			return true
		}
	}
	for _, h := range slices.Concat(o.Headers, r.Headers) {
		if h.From == "sandbox" {
			return true
		}
	}
	return false
}

func checkPath(m *Manifest, r *Route, at string, out *problems) {
	if !strings.HasPrefix(r.Path, "/") || strings.ContainsAny(r.Path, "?#\\ \r\n%") || strings.Contains(r.Path, "//") {
		out.add(at+"/path", "must start with '/' and hold no query, fragment, escape or blank")
	}
	for _, seg := range strings.Split(strings.TrimPrefix(r.Path, "/"), "/") {
		if seg == "." || seg == ".." {
			out.add(at+"/path", "must not hold '.' or '..' segments")
		}
	}
	used := map[string]bool{}
	for _, match := range paramPattern.FindAllStringSubmatch(r.Path, -1) {
		name := strings.TrimSuffix(match[1], "...")
		if used[name] {
			out.add(at+"/path", "{%s} is used twice", name)
		}
		used[name] = true
		if name == "sandbox" {
			continue
		}
		if _, ok := r.Params[name]; !ok {
			out.add(at+"/path", "{%s} is not declared in params", name)
		}
	}
	if rest := paramPattern.ReplaceAllString(r.Path, ""); strings.ContainsAny(rest, "{}") {
		out.add(at+"/path", "has an unbalanced brace")
	}
	for _, name := range slices.Sorted(maps.Keys(r.Params)) {
		pat := at + "/params/" + escapeToken(name)
		if !used[name] {
			out.add(pat, "is not in the path")
		}
		if name == "sandbox" {
			out.add(pat, "{sandbox} is always filled by the host")
		}
		checkField(m, r, r.Params[name], pat, out)
	}
}

func checkField(m *Manifest, r *Route, f Field, at string, out *problems) {
	set := 0
	for _, b := range []bool{f.From != "", f.Value != "", f.Free != nil} {
		if b {
			set++
		}
	}
	if set != 1 {
		out.add(at, "must have exactly one of from, value and free")
	}
	if f.From != "" {
		checkSource(m, r, f.From, at+"/from", out)
		if slices.Contains(envSources, f.From) || f.From == "exec.stdin" || f.From == "file.content" {
			out.add(at+"/from", "%s can only be put in a body: addresses end up in logs", f.From)
		}
	}
	if f.Free != nil {
		checkFree(*f.Free, at+"/free", out)
		if f.Free.Pointer != "" {
			out.add(at+"/free/pointer", "only body fields have a pointer")
		}
	}
}

func checkSource(m *Manifest, r *Route, from, at string, out *problems) {
	if !knownSource(m, from) {
		out.add(at, "unknown host value; known are %s", sourceNames())
		return
	}
	switch {
	case strings.HasPrefix(from, "exec.") && r.Role != RoleExec:
		out.add(at, "%s exists only in routes with the role exec", from)
	case strings.HasPrefix(from, "file.") && r.Role != RoleFile:
		out.add(at, "%s exists only in routes with the role file", from)
	case from == "environment" && r.Role != RoleCreate:
		out.add(at, "environment exists only in routes with the role create")
	}
}

func checkFree(f Free, at string, out *problems) {
	oneOf(out, at+"/type", f.Type, "string", "integer", "boolean")
	if f.Type == "string" && len(f.Enum) == 0 && (f.MaxLength < 1 || f.MaxLength > 4096) {
		out.add(at+"/maxLength", "must be between 1 and 4096")
	}
	if f.Type != "string" && len(f.Enum) > 0 {
		out.add(at+"/enum", "only strings are enumerated")
	}
	if f.Min != nil && f.Max != nil && *f.Min > *f.Max {
		out.add(at+"/min", "is above max")
	}
}

func checkRequest(m *Manifest, r *Route, at string, out *problems) {
	q := &r.Request
	oneOf(out, at+"/body", q.Body, BodyNone, BodyJSON, BodyRaw, BodyConnect, BodyMultipart, BodyPlugin)
	if q.Body != BodyNone && (r.Method == http.MethodGet || r.Method == http.MethodHead) {
		out.add(at+"/body", "%s requests have no body", r.Method)
	}
	structured := q.Body == BodyJSON || q.Body == BodyConnect
	if !structured && q.Body != BodyRaw && len(q.Slots) > 0 {
		out.add(at+"/slots", "only json, connect and raw bodies have slots")
	}
	if !structured && len(q.Free) > 0 {
		out.add(at+"/free", "only json and connect bodies have free fields")
	}
	if q.Body == BodyRaw && (len(q.Slots) != 1 || q.Slots[0].Pointer != "") {
		out.add(at+"/slots", "a raw body is exactly one slot without a pointer")
	}
	if q.Body != BodyMultipart && len(q.Parts) > 0 {
		out.add(at+"/parts", "only multipart bodies have parts")
	}
	if q.Body == BodyMultipart && len(q.Parts) == 0 {
		out.add(at+"/parts", "must list the parts")
	}
	var taken []string
	take := func(pointer, pat string) {
		if !validPointer(pointer) {
			out.add(pat, "must be a JSON pointer to a member")
			return
		}
		for _, t := range taken {
			if overlaps(t, pointer) {
				out.add(pat, "%s collides with %s", pointer, t)
			}
		}
		taken = append(taken, pointer)
	}
	for i, s := range q.Slots {
		sat := fmt.Sprintf("%s/slots/%d", at, i)
		checkSlot(m, r, s, sat, out)
		if structured {
			take(s.Pointer, sat+"/pointer")
		}
	}
	for i, f := range q.Free {
		fat := fmt.Sprintf("%s/free/%d", at, i)
		checkFree(f, fat, out)
		take(f.Pointer, fat+"/pointer")
		if m.Kind == Sealed && f.Type == "string" && len(f.Enum) == 0 {
			out.add(fat, "a free text in a sealed plugin's body must be an enum: with any text the plugin could choose what runs")
		}
	}
	for i, p := range q.Parts {
		pat := fmt.Sprintf("%s/parts/%d", at, i)
		if p.Name == "" || strings.ContainsAny(p.Name+p.Filename, "\"\r\n") {
			out.add(pat+"/name", "must be a name without quotes or line breaks")
		}
		if (p.From == "") == (p.Value == "") {
			out.add(pat, "must have exactly one of from and value")
		}
		if p.From != "" {
			checkSource(m, r, p.From, pat+"/from", out)
			if slices.Contains(envSources, p.From) {
				out.add(pat+"/from", "an environment can only be put in a json or connect body")
			}
		}
	}
	if q.Body == BodyPlugin {
		if q.EnvPointer != "" {
			if !validPointer(q.EnvPointer) {
				out.add(at+"/environment/pointer", "must be a JSON pointer to a member")
			}
			oneOf(out, at+"/environment/shape", q.EnvShape, "map", "nv", "kv")
		}
	} else if q.EnvPointer != "" {
		out.add(at+"/environment", "is for plugin-built bodies; use a slot")
	}
}

func checkSlot(m *Manifest, r *Route, s Slot, at string, out *problems) {
	if (s.From == "") == (s.Value == "") {
		out.add(at, "must have exactly one of from and value")
	}
	if s.From != "" {
		checkSource(m, r, s.From, at+"/from", out)
	}
	if s.Default != "" {
		checkSource(m, r, s.Default, at+"/default", out)
		if slices.Contains(envSources, s.Default) || s.Default == "exec.stdin" || s.Default == "file.content" {
			out.add(at+"/default", "%s cannot stand in for something else", s.Default)
		}
	}
	isMap := slices.Contains(envSources, s.From) || slices.Contains(mapSources, s.From)
	switch {
	case isMap && s.Shape != "":
		oneOf(out, at+"/shape", s.Shape, "map", "nv", "kv")
	case !isMap && s.Shape != "":
		out.add(at+"/shape", "only environments and labels have a shape")
	}
	if (s.NameKey != "" || s.ValueKey != "" || s.Extra != "") && s.Shape != "nv" {
		out.add(at, "nameKey, valueKey and extra belong to the shape nv")
	}
	if s.Encoding != "" {
		oneOf(out, at+"/encoding", s.Encoding, "base64")
		if s.From != "exec.stdin" && s.From != "file.content" {
			out.add(at+"/encoding", "only exec.stdin and file.content are encoded")
		}
	}
}

func validPointer(p string) bool {
	if !strings.HasPrefix(p, "/") || len(p) > 256 {
		return false
	}
	for _, tok := range strings.Split(p[1:], "/") {
		if tok == "" {
			return false
		}
		for i := range len(tok) {
			if tok[i] == '~' && (i+1 == len(tok) || (tok[i+1] != '0' && tok[i+1] != '1')) {
				return false
			}
		}
	}
	return true
}

// overlaps reports whether one pointer is the other or lies above it, also when
// they differ in case only: a vendor that ignores case would see one member.
func overlaps(a, b string) bool {
	a, b = strings.ToLower(a), strings.ToLower(b)
	return a == b || strings.HasPrefix(a, b+"/") || strings.HasPrefix(b, a+"/")
}

func checkResponse(m *Manifest, r *Route, at string, out *problems) {
	p := &r.Response
	oneOf(out, at+"/body", p.Body, BodyNone, BodyJSON, BodyRaw, BodyConnect, BodySSE, BodyNDJSON)
	switch {
	case p.Sandbox != "" && r.Role != RoleCreate:
		out.add(at+"/sandbox", "only a create reply names the sandbox")
	case p.Sandbox != "" && !validPointer(p.Sandbox):
		out.add(at+"/sandbox", "must be a JSON pointer to a member")
	}
	if (p.Sandbox != "" || len(p.Capture) > 0 || p.Items != nil) && p.Body != BodyJSON {
		out.add(at+"/body", "must be json for sandbox, capture and items")
	}
	for i, c := range p.Capture {
		cat := fmt.Sprintf("%s/capture/%d", at, i)
		if !validPointer(c.Pointer) {
			out.add(cat+"/pointer", "must be a JSON pointer to a member")
		}
		if _, ok := m.Captures[c.Name]; !ok {
			out.add(cat+"/name", "no capture is named %q", c.Name)
		}
	}
	for i, h := range p.Headers {
		if !headerPattern.MatchString(h) || slices.Contains([]string{"set-cookie", "authorization", "www-authenticate", "location"}, strings.ToLower(h)) {
			out.add(fmt.Sprintf("%s/headers/%d", at, i), "cannot be shown to a plugin")
		}
	}
	for i, l := range p.Payload {
		checkPayload(r, l, fmt.Sprintf("%s/payload/%d", at, i), out)
	}
	if it := p.Items; it != nil {
		if it.Pointer != "" && !validPointer(it.Pointer) {
			out.add(at+"/items/pointer", "must be a JSON pointer, or empty for the document itself")
		}
		if !validPointer(it.Sandbox) {
			out.add(at+"/items/sandbox", "must be a JSON pointer in an element")
		}
		if !validPointer(it.Labels) {
			out.add(at+"/items/labels", "must be a JSON pointer in an element")
		}
	}
	if r.Role == RoleExec && m.Kind == Sealed && len(p.Payload) == 0 && p.Body != BodyNone {
		out.add(at+"/payload", "a reply about a command must say where its output is, or the plugin would see it; one that is not needed has the body none")
	}
}

func checkPayload(r *Route, l Payload, at string, out *problems) {
	switch r.Role {
	case RoleExec:
		oneOf(out, at+"/to", l.To, "stdout", "stderr")
	case RoleFile:
		oneOf(out, at+"/to", l.To, "content")
	default:
		out.add(at, "only exec and file routes have payloads")
	}
	if l.Encoding != "" {
		oneOf(out, at+"/encoding", l.Encoding, "base64")
	}
	if l.Mode != "" {
		oneOf(out, at+"/mode", l.Mode, "delta", "cumulative")
	}
	if pointer, _, _ := strings.Cut(l.When, "="); l.When != "" && !validPointer(pointer) {
		out.add(at+"/when", "must be a JSON pointer, or a pointer, '=' and a text")
	}
	if r.Response.Body == BodyRaw {
		if l.Pointer != "" || len(r.Response.Payload) != 1 {
			out.add(at+"/pointer", "a raw body is one payload without a pointer")
		}
	} else if !validPointer(l.Pointer) {
		out.add(at+"/pointer", "must be a JSON pointer to a member")
	}
}
