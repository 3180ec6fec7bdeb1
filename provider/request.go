package provider

import (
	"fmt"
	"maps"
	"math"
	"path"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/sbxhost/sbxhost/secret"
)

// ValidEnvKey reports whether key is an identifier: [A-Za-z_][A-Za-z0-9_]*.
func ValidEnvKey(key string) bool {
	for i, c := range []byte(key) {
		switch {
		case c == '_', c >= 'A' && c <= 'Z', c >= 'a' && c <= 'z':
		case c >= '0' && c <= '9' && i > 0:
		default:
			return false
		}
	}
	return key != ""
}

// ValidateCreate checks everything about req that does not depend on the
// provider: ids, labels, paths, environment. Hosts call it before a provider;
// a provider calls it first thing in Create. The error is an InvalidArgument
// that lists every fault and never a value.
func ValidateCreate(req CreateRequest) error {
	c := checker{op: "create"}
	c.must(validSessionID(req.SessionID), "sessionID must be 32 lower-case hex digits")
	if req.Replaces == nil {
		c.must(req.Name == NamePrefix+req.SessionID, "name must be %q followed by the session id", NamePrefix)
	} else {
		c.must(req.Name == ReplacementName(req.SessionID, req.Labels[LabelAttempt]), "name must be the session's replacement name")
		c.must(ValidateRef(*req.Replaces) == nil, "replaces must be a valid ref")
	}
	c.must(req.Digest != "", "digest is missing")
	c.labels(req)
	c.text("image", req.Image)
	c.text("user", req.User)
	c.absolute("root", req.Root)
	c.must(req.Root != "/", "root must not be the file system's root")
	c.must(req.Network == "none" || req.Network == "default", "network must be none or default")
	c.must(req.Start == "idle" || req.Start == "image", "start must be idle or image")
	for i, p := range req.Ports {
		c.must(p >= 1 && p <= 65535, "ports[%d] must be 1 to 65535", i)
		c.must(!slices.Contains(req.Ports[:i], p), "ports[%d] is listed twice", i)
	}
	r := req.Resources
	c.must(r.CPUs >= 0 && !math.IsInf(r.CPUs, 0) && !math.IsNaN(r.CPUs), "resources.cpus must be a number from 0")
	c.must(r.MemoryMiB >= 0 && r.PIDs >= 0 && r.DiskMiB >= 0, "resources must not be negative")
	for i, m := range req.Mounts {
		c.absolute(fmt.Sprintf("mounts[%d].path", i), m.Path)
		c.must(m.HostPath != "" && !strings.ContainsRune(m.HostPath, 0), "mounts[%d].hostPath is missing or malformed", i)
	}
	c.must(req.TTL >= 0 && req.Idle >= 0, "ttl and idle must not be negative")
	c.literals("environment", req.Environment)
	switch req.Transport {
	case TransportNone:
		c.must(len(req.ProtectedNames) == 0, "protectedNames needs a transport")
	case TransportExec:
	case TransportCreate:
		c.must(slices.Equal(req.Protected.Names(), slices.Sorted(slices.Values(req.ProtectedNames))),
			"protected must hold exactly protectedNames with the create transport")
	default:
		c.fault("unknown transport")
	}
	c.must(req.Protected.Len() == 0 || req.Transport == TransportCreate, "protected values need the create transport")
	c.protected("protected", req.Protected)
	for i, n := range req.ProtectedNames {
		c.must(ValidEnvKey(n), "protectedNames[%d] is not an identifier", i)
		c.must(!slices.Contains(req.ProtectedNames[:i], n), "protectedNames[%d] is listed twice", i)
		_, both := req.Environment[n]
		c.must(!both, "protectedNames[%d] is also a literal", i)
	}
	return c.err()
}

func (c *checker) labels(req CreateRequest) {
	for k, v := range req.Labels {
		if k == "" || !utf8.ValidString(k) || strings.ContainsFunc(k, isControl) ||
			!utf8.ValidString(v) || strings.ContainsRune(v, 0) {
			c.fault("labels must be UTF-8 without NUL, and their keys printable")
			break
		}
	}
	known := []string{LabelOwner, LabelEpoch, LabelSession, LabelAttempt, LabelDigest, LabelProtected}
	for k := range req.Labels {
		if strings.HasPrefix(k, LabelPrefix) && !slices.Contains(known, k) {
			c.fault("labels with the prefix %q are reserved", LabelPrefix)
			break
		}
	}
	for _, k := range known {
		c.must(req.Labels[k] != "", "label %s is missing", k)
	}
	c.must(req.Labels[LabelSession] == req.SessionID, "label %s must be the session id", LabelSession)
	c.must(req.Labels[LabelDigest] == req.Digest, "label %s must be the digest", LabelDigest)
	protected := "0"
	if len(req.ProtectedNames) > 0 {
		protected = "1"
	}
	c.must(req.Labels[LabelProtected] == protected, "label %s must be 1 with protected names, else 0", LabelProtected)
}

// ValidateExec checks everything about req that does not depend on the provider:
// exactly one of Args and Shell, environment keys, no NUL, no name in two of
// Env, Protected and Secrets, writers present. Hosts call it before a provider;
// a provider calls it first thing in Exec. An empty Stdin is read as StdinNone.
// The error is an InvalidArgument that lists every fault and never a value.
func ValidateExec(req ExecRequest) error {
	c := checker{op: "exec"}
	c.must(req.ID != "" && len(req.ID) <= 128 && !strings.ContainsFunc(req.ID, func(r rune) bool {
		return r > unicode.MaxASCII || !unicode.IsPrint(r) || r == ' ' || r == '/'
	}), "id must be 1 to 128 printable ASCII characters without space or slash")
	switch {
	case len(req.Args) > 0 && req.Shell != "":
		c.fault("args and shell exclude each other")
	case len(req.Args) > 0:
		c.must(req.Args[0] != "", "args[0] is empty")
		for i, a := range req.Args {
			c.must(!strings.ContainsRune(a, 0), "args[%d] holds a NUL", i)
		}
	default:
		c.must(req.Shell != "", "one of args and shell must be given")
		c.must(!strings.ContainsRune(req.Shell, 0), "shell holds a NUL")
	}
	c.text("dir", req.Dir)
	c.text("user", req.User)
	c.literals("env", req.Env)
	c.protected("protected", req.Protected)
	c.protected("secrets", req.Secrets)
	for _, n := range req.Protected.Names() {
		_, literal := req.Env[n]
		c.must(!literal, "%s is in both env and protected", shownName(n))
		c.must(!req.Secrets.Has(n), "%s is in both secrets and protected", shownName(n))
	}
	for _, n := range req.Secrets.Names() {
		_, literal := req.Env[n]
		c.must(!literal, "%s is in both env and secrets", shownName(n))
	}
	switch req.Stdin {
	case "", StdinNone, StdinLive:
		c.must(req.Input == nil, "input needs stdin upfront")
	case StdinUpfront:
		c.must(req.Input != nil, "stdin upfront needs input")
	default:
		c.fault("stdin must be none, upfront or live")
	}
	c.must(req.Timeout >= 0 && req.Grace >= 0, "timeout and grace must not be negative")
	c.must(req.Stdout != nil && req.Stderr != nil, "stdout and stderr must be given; use io.Discard")
	return c.err()
}

// checker collects faults, so that a caller sees all of them at once.
type checker struct {
	op     string
	faults []string
}

func (c *checker) fault(format string, args ...any) {
	c.faults = append(c.faults, fmt.Sprintf(format, args...))
}

func (c *checker) must(ok bool, format string, args ...any) {
	if !ok {
		c.fault(format, args...)
	}
}

func (c *checker) text(field, s string) {
	c.must(!strings.ContainsRune(s, 0), "%s holds a NUL", field)
}

func (c *checker) absolute(field, p string) {
	c.text(field, p)
	c.must(path.IsAbs(p) && path.Clean(p) == p, "%s must be an absolute, clean POSIX path", field)
}

func (c *checker) literals(field string, env map[string]string) {
	for _, k := range slices.Sorted(maps.Keys(env)) {
		if !ValidEnvKey(k) {
			// The key is not repeated: a value pasted as a key must not be echoed.
			c.fault("%s has a key that is not an identifier", field)
			continue
		}
		c.must(!strings.ContainsRune(env[k], 0), "%s: the value of %s holds a NUL", field, shownName(k))
	}
}

func (c *checker) protected(field string, env secret.Env) {
	for k, v := range env.All() {
		if !ValidEnvKey(k) {
			c.fault("%s has a key that is not an identifier", field)
			continue
		}
		c.must(!v.HasNUL(), "%s: the value of %s holds a NUL", field, shownName(k))
	}
}

func (c *checker) err() error {
	if len(c.faults) == 0 {
		return nil
	}
	return &Error{Code: InvalidArgument, Op: c.op, Message: strings.Join(c.faults, "; "), Applied: AppliedNo}
}

// shownName hides a name that does not look like one: it may be a pasted value.
func shownName(name string) string {
	if len(name) > 64 || !ValidEnvKey(name) {
		return "<unusual name>"
	}
	return name
}

func validSessionID(id string) bool {
	if len(id) != 32 {
		return false
	}
	for _, c := range []byte(id) {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

func isControl(r rune) bool { return unicode.IsControl(r) || r == utf8.RuneError }
