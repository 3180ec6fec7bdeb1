package daytonatest

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"
)

// MissingImage is a part of image names whose build fails because there is no
// such image.
const MissingImage = "no-such-image"

// field is the type of one field of a create request. The service checks types
// at the door, but not the values of env.
var createFields = map[string]string{
	"name": "string", "snapshot": "string", "user": "string", "env": "object", "labels": "strings", "public": "boolean",
	"networkBlockAll": "boolean", "networkAllowList": "string", "domainAllowList": "string", "target": "string",
	"cpu": "integer", "gpu": "integer", "memory": "integer", "disk": "integer", "autoStopInterval": "integer",
	"autoArchiveInterval": "integer", "autoDeleteInterval": "integer", "volumes": "array", "buildInfo": "object",
	"linkedSandbox": "string", "secrets": "array", "ttlMinutes": "integer", "autoPauseInterval": "integer",
	"outboundProxyUrl": "string", "otelEndpointOverride": "string", "spot": "boolean",
}

// wrongTypes returns the messages of the service's validator.
func wrongTypes(in map[string]any) []string {
	var out []string
	for name, v := range in {
		kind, known := createFields[name]
		if !known || v == nil {
			continue
		}
		ok := true
		switch kind {
		case "string":
			_, ok = v.(string)
		case "boolean":
			_, ok = v.(bool)
		case "integer":
			var f float64
			f, ok = v.(float64)
			ok = ok && f == math.Trunc(f) && math.Abs(f) < 1e9
		case "array":
			_, ok = v.([]any)
		case "object":
			_, ok = v.(map[string]any)
		case "strings":
			var m map[string]any
			m, ok = v.(map[string]any)
			for _, x := range m {
				_, isString := x.(string)
				ok = ok && isString
			}
			kind = "object"
		}
		if !ok {
			article := "a"
			if strings.ContainsRune("aeio", rune(kind[0])) {
				article = "an"
			}
			if kind == "integer" {
				kind = "integer number"
			}
			out = append(out, fmt.Sprintf("%s must be %s %s", name, article, kind))
		}
	}
	slices.Sort(out)
	return out
}

var envName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// badEnv returns why the runner cannot use an environment; the text holds the
// offending value, as the service's does.
func badEnv(env map[string]any) string {
	for k, v := range env {
		text, ok := v.(string)
		if !ok || !envName.MatchString(k) || strings.ContainsRune(text, 0) {
			return fmt.Sprintf("invalid environment variable: %s=%v", k, v)
		}
	}
	return ""
}

func (c *call) create() {
	var in map[string]any
	if !c.decode(&in) {
		return
	}
	if wrong := wrongTypes(in); len(wrong) > 0 {
		c.fail(http.StatusBadRequest, strings.Join(wrong, ", "))
		return
	}
	sb := c.newSandbox(in)
	if status, message := c.refuse(sb, in); status != 0 {
		c.fail(status, message)
		return
	}
	s := c.s
	s.mu.Lock()
	if s.closing() { // nobody would remove it
		s.mu.Unlock()
		c.empty(http.StatusBadGateway)
		return
	}
	if s.find(sb.name) != nil {
		s.mu.Unlock()
		c.fail(http.StatusConflict, "Sandbox with name "+sb.name+" already exists")
		return
	}
	if s.opts.MaxSandboxes > 0 && s.live() >= s.opts.MaxSandboxes {
		s.mu.Unlock()
		c.fail(http.StatusForbidden, "Total sandbox limit exceeded. Maximum allowed: "+fmt.Sprint(s.opts.MaxSandboxes))
		return
	}
	if err := os.MkdirAll(filepath.Join(sb.dir, "root"), 0o755); err != nil {
		s.mu.Unlock()
		c.fail(http.StatusInternalServerError, err.Error())
		return
	}
	s.sandboxes = append(s.sandboxes, sb)
	c.faultsOfLife(sb)
	c.s.rec.note(func() { c.log.Sandbox = sb.id })
	if sb.dockerfile != "" {
		c.build(sb, in)
		return
	}
	c.createFromSnapshot(sb)
}

// live counts what exists, failed ones included; s.mu is held.
func (s *Server) live() int {
	n := 0
	for _, sb := range s.sandboxes {
		if !sb.destroyed {
			n++
		}
	}
	return n
}

// newSandbox makes the sandbox of a request whose types were checked.
func (c *call) newSandbox(in map[string]any) *sandbox {
	s := c.s
	text := func(k string) string { v, _ := in[k].(string); return v }
	number := func(k string, otherwise int) int {
		if v, ok := in[k].(float64); ok {
			return int(v)
		}
		return otherwise
	}
	truth := func(k string) bool { v, _ := in[k].(bool); return v }
	now := s.Now()
	sb := &sandbox{s: s, id: randomUUID(), name: text("name"), snapshot: text("snapshot"), user: text("user"), target: text("target"),
		env: map[string]string{}, labels: map[string]string{}, public: truth("public"), blockAll: truth("networkBlockAll"),
		allow: in["networkAllowList"], domains: in["domainAllowList"], cpu: number("cpu", 1), gpu: number("gpu", 0),
		memory: number("memory", 1), disk: number("disk", 3), autoStop: number("autoStopInterval", defaultStop),
		autoArchive: number("autoArchiveInterval", defaultArchive), autoDelete: number("autoDeleteInterval", -1),
		autoPause: number("autoPauseInterval", 0), ttl: number("ttlMinutes", 0), volumes: []any{}, backup: "None", created: now, updated: now,
		activity: now, visible: now.Add(s.opts.Timing.Visible), daemonVersion: s.opts.DaemonVersion,
		signed: map[string]*signedURL{}, bakedEnv: map[string]string{}, cookies: map[string]time.Time{}}
	if sb.name == "" {
		sb.name = sb.id
	}
	if sb.user == "" {
		sb.user = s.opts.User
	}
	if sb.target == "" {
		sb.target = defaultTarget
	}
	if sb.autoArchive == 0 {
		sb.autoArchive = 30 * 24 * 60
	}
	if v, ok := in["volumes"].([]any); ok {
		sb.volumes = v
	}
	sb.secrets, _ = in["secrets"].([]any)
	sb.rawEnv, _ = in["env"].(map[string]any)
	for k, v := range sb.rawEnv {
		if t, ok := v.(string); ok {
			sb.env[k] = t
		} else {
			data, _ := json.Marshal(v)
			sb.env[k] = string(data)
		}
	}
	if m, ok := in["labels"].(map[string]any); ok {
		for k, v := range m {
			sb.labels[k], _ = v.(string)
		}
	}
	if b, ok := in["buildInfo"].(map[string]any); ok {
		sb.dockerfile, _ = b["dockerfileContent"].(string)
		sb.snapshotRef = "daytona-" + randomHex(32) + ":daytona"
		sb.contexts = []string{}
	} else if sb.snapshot == "" {
		sb.snapshot = defaultSnap
	}
	sb.given, sb.dir = sb.name, filepath.Join(s.dir, sb.id)
	return sb
}

// refuse judges a request at the door.
func (c *call) refuse(sb *sandbox, in map[string]any) (int, string) {
	if sb.target != defaultTarget && sb.target != "eu" {
		return http.StatusNotFound, "Region not found"
	}
	if in["buildInfo"] != nil {
		if in["snapshot"] != nil {
			return http.StatusBadRequest, "Cannot specify both a snapshot and build information"
		}
		if sb.dockerfile == "" {
			return http.StatusBadRequest, "buildInfo.dockerfileContent should not be empty"
		}
	} else if in["cpu"] != nil || in["memory"] != nil || in["disk"] != nil || in["gpu"] != nil {
		return http.StatusBadRequest, "Cannot specify Sandbox resources when using a snapshot"
	}
	if sb.cpu < 1 || sb.memory < 1 || sb.disk < 1 {
		return http.StatusBadRequest, "Sandbox resources must be positive"
	}
	if sb.autoStop < 0 || sb.autoArchive < 0 || sb.ttl < 0 {
		return http.StatusBadRequest, "Auto-stop and auto-archive intervals must be non-negative"
	}
	if strings.ContainsAny(sb.name, "<>&") || strings.Contains(sb.name, "://") || strings.ContainsFunc(sb.name, unicode.IsControl) {
		return http.StatusBadRequest, "name contains characters that are not allowed"
	}
	if sb.dockerfile == "" {
		snap := c.s.snapshotByName(sb.snapshot)
		if snap == nil {
			return http.StatusBadRequest, "Snapshot " + sb.snapshot + " not found. Did you add it through the Daytona Dashboard?"
		}
		sb.snapshot = snap.name
		for k, v := range snap.env { // what is baked in, is there although env does not show it
			if _, own := sb.rawEnv[k]; !own {
				sb.bakedEnv[k] = v
			}
		}
	}
	return 0, ""
}

// faultsOfLife applies what a fault does to a new sandbox; s.mu is held.
func (c *call) faultsOfLife(sb *sandbox) {
	if f, ok := c.s.faults.is(OldDaemon, c.op, sb); ok {
		sb.daemonVersion = f.textOr("0.150.0")
	}
	if _, ok := c.s.faults.is(NoDaemonVersion, c.op, sb); ok {
		sb.daemonVersion = nil
	}
	if f, ok := c.s.faults.is(InvisibleCreate, c.op, sb); ok {
		sb.visible = c.s.Now().Add(f.delay(2 * time.Second))
	}
}

func (f Fault) textOr(otherwise string) string {
	if f.Text != "" {
		return f.Text
	}
	return otherwise
}

// createFromSnapshot starts the sandbox and answers when it has started, with
// what it was before. s.mu is held, and released.
func (c *call) createFromSnapshot(sb *sandbox) {
	s := c.s
	sb.set(creating, started)
	body := sb.shown(c.op, false)
	s.mu.Unlock()
	s.toStarted(c.op, sb, s.opts.Timing.Create)
	var state string
	var reason any
	s.wait(c.r.Context(), s.opts.Timing.Wait, func() bool {
		state, reason = sb.state, sb.reason
		return state != creating
	})
	if state == failed {
		c.fail(http.StatusBadRequest, fmt.Sprintf("Sandbox failed to start: %v", reason))
		return
	}
	c.json(http.StatusOK, body)
}

// build answers at once; s.mu is held, and released.
func (c *call) build(sb *sandbox, in map[string]any) {
	s := c.s
	if b, ok := in["buildInfo"].(map[string]any); ok {
		if hashes, ok := b["contextHashes"].([]any); ok {
			for _, h := range hashes {
				t, _ := h.(string)
				sb.contexts = append(sb.contexts, t)
			}
		}
	}
	_, fails := s.faults.is(BuildFails, c.op, sb)
	fails = fails || strings.Contains(sb.dockerfile, MissingImage)
	sb.set(pendingBuild, started)
	body := sb.shown(c.op, false)
	s.mu.Unlock()
	s.clock.after(s.opts.Timing.Build, func() {
		s.mu.Lock()
		if sb.state != pendingBuild {
			s.mu.Unlock()
			return
		}
		sb.buildLog = append(sb.buildLog, "Building image...")
		for line := range strings.Lines(sb.dockerfile) {
			sb.buildLog = append(sb.buildLog, fmt.Sprintf("Step %d : %s", len(sb.buildLog), strings.TrimSpace(line)))
		}
		sb.set(building, started)
		s.mu.Unlock()
		s.clock.after(s.opts.Timing.Build, func() { s.built(c.op, sb, fails) })
	})
	c.json(http.StatusOK, body)
}

// built ends a build.
func (s *Server) built(op Op, sb *sandbox, fails bool) {
	s.mu.Lock()
	if sb.state != building {
		s.mu.Unlock()
		return
	}
	if fails {
		image := strings.TrimSpace(strings.TrimPrefix(strings.SplitN(sb.dockerfile, "\n", 2)[0], "FROM "))
		sb.reason = "failed to build image: manifest for " + image + " not found: manifest unknown"
		sb.buildLog = append(sb.buildLog, fmt.Sprint(sb.reason))
		sb.set(buildFailed, started)
		s.mu.Unlock()
		return
	}
	sb.buildLog = append(sb.buildLog, "Successfully built "+sb.snapshotRef)
	sb.set(creating, started)
	s.mu.Unlock()
	s.toStarted(op, sb, s.opts.Timing.Create)
}
