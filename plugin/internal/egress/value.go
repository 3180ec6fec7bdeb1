package egress

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sbxhost/sbxhost/plugin/internal/spec"
	"github.com/sbxhost/sbxhost/provider"
	"github.com/sbxhost/sbxhost/secret"
)

// hostValue returns what the host puts in for a source, and whether there is
// anything to put in.
func (c *Call) hostValue(from string) (any, bool) {
	if name, ok := strings.CutPrefix(from, "config."); ok {
		return c.b.setting(name)
	}
	if strings.HasPrefix(from, "exec.") {
		return c.execValue(from)
	}
	if f := c.cfg.File; f != nil {
		switch from {
		case "file.path":
			return f.Path, true
		case "file.mode":
			return "0" + strconv.FormatUint(uint64(f.Mode.Perm()), 8), true
		}
	}
	if from == "list.last" {
		return c.listLast, c.listLast != ""
	}
	s := c.cfg.Session
	if s == nil {
		if from == "ownerLabels" {
			return c.cfg.Owner, len(c.cfg.Owner) > 0
		}
		return nil, false
	}
	q := &s.req
	switch from {
	case "environment":
		return environment(q.Environment, q.Protected), true
	case "image":
		return q.Image, q.Image != ""
	case "name":
		return q.Name, q.Name != ""
	case "session":
		return q.SessionID, q.SessionID != ""
	case "attempt":
		return q.Labels[provider.LabelAttempt], true
	case "labels":
		return q.Labels, true
	case "ownerLabels":
		return s.owner, len(s.owner) > 0
	case "ttlSeconds":
		return int64(q.TTL.Seconds()), q.TTL > 0
	case "cpus":
		return q.Resources.CPUs, q.Resources.CPUs > 0
	case "memoryMiB":
		return q.Resources.MemoryMiB, q.Resources.MemoryMiB > 0
	case "diskMiB":
		return q.Resources.DiskMiB, q.Resources.DiskMiB > 0
	case "network":
		return q.Network, q.Network != ""
	case "ports":
		return q.Ports, len(q.Ports) > 0
	case "sandbox":
		id := s.Sandbox()
		return id, id != ""
	}
	return nil, false
}

func (c *Call) execValue(from string) (any, bool) {
	e := c.cfg.Exec
	if e == nil {
		return nil, false
	}
	argv := e.Args
	if e.Shell != "" {
		argv = []string{"/bin/sh", "-c", e.Shell}
	}
	switch from {
	case "exec.argv0":
		if len(argv) == 0 {
			return nil, false
		}
		return argv[0], true
	case "exec.args":
		if len(argv) == 0 {
			return []string{}, true
		}
		return argv[1:], true
	case "exec.argv":
		return argv, len(argv) > 0
	case "exec.shell":
		if e.Shell != "" {
			return e.Shell, true
		}
		return quoteArgs(argv), len(argv) > 0
	case "exec.line":
		return c.execLine(argv), len(argv) > 0
	case "exec.dir":
		return e.Dir, e.Dir != ""
	case "exec.user":
		return e.User, e.User != ""
	case "exec.timeoutSeconds":
		return (e.TimeoutMs + 999) / 1000, e.TimeoutMs > 0
	case "exec.timeoutMs":
		return e.TimeoutMs, e.TimeoutMs > 0
	case "exec.id":
		return e.ID, true
	case "exec.uuid":
		return c.execUUID(), true
	case "exec.environment":
		return environment(e.Env, e.Protected, e.Secrets), true
	}
	return nil, false
}

func (b *Broker) setting(name string) (any, bool) {
	f := b.m.Config[name]
	v, ok := b.settings[name]
	if !ok {
		v = f.Default
	}
	if v == "" {
		return nil, false
	}
	switch f.Type {
	case "integer":
		n, err := strconv.ParseInt(v, 10, 64)
		return n, err == nil
	case "boolean":
		return v == "true", true
	}
	return v, true
}

// environment joins literals and values. This is where a value becomes part of a
// request.
func environment(literals map[string]string, envs ...secret.Env) map[string]string {
	out := maps.Clone(literals)
	if out == nil {
		out = map[string]string{}
	}
	for _, env := range envs {
		for name, v := range env.All() {
			out[name] = string(v.Reveal())
		}
	}
	return out
}

// shaped renders a map as a JSON value of the given shape.
func shaped(m map[string]string, s spec.Slot) any {
	keys := slices.Sorted(maps.Keys(m))
	switch s.Shape {
	case "kv":
		out := make([]any, 0, len(m))
		for _, k := range keys {
			out = append(out, k+"="+m[k])
		}
		return out
	case "nv":
		nameKey, valueKey := s.NameKey, s.ValueKey
		if nameKey == "" {
			nameKey = "name"
		}
		if valueKey == "" {
			valueKey = "value"
		}
		out := make([]any, 0, len(m))
		for _, k := range keys {
			entry := map[string]any{}
			if s.Extra != "" {
				if extra, err := decodeJSON([]byte(s.Extra)); err == nil {
					maps.Copy(entry, extra.(map[string]any))
				}
			}
			entry[nameKey], entry[valueKey] = k, m[k]
			out = append(out, entry)
		}
		return out
	}
	out := make(map[string]any, len(m))
	for k, v := range m {
		out[k] = v
	}
	return out
}

// quoteArgs writes an argument list as one POSIX shell command.
func quoteArgs(args []string) string {
	out := make([]string, len(args))
	for i, a := range args {
		if a != "" && strings.Trim(a, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:=@%+,") == "" {
			out[i] = a
			continue
		}
		out[i] = quote(a)
	}
	return strings.Join(out, " ")
}

// execLine writes the command as one line that a shell, or a vendor that splits
// words as one does, reads as a single /bin/sh process: it enters the working
// directory, sets the command's literals, and becomes the command. It is for
// vendors whose exec call has no fields for either. Protected values are never
// part of it.
func (c *Call) execLine(argv []string) string {
	e := c.cfg.Exec
	var b strings.Builder
	if e.Dir != "" {
		if s := c.cfg.Session; s != nil && s.req.Root != "" {
			b.WriteString("mkdir -p " + quote(s.req.Root) + " 2>/dev/null; ")
		}
		b.WriteString("cd " + quote(e.Dir) + " || exit 126; ")
	}
	for _, k := range slices.Sorted(maps.Keys(e.Env)) {
		b.WriteString("export " + k + "=" + quote(e.Env[k]) + "; ")
	}
	b.WriteString("exec " + quoteArgs(argv))
	return quoteArgs([]string{"/bin/sh", "-c", b.String()})
}

// execUUID returns a version 7 UUID (RFC 9562) for this exec, the same in every
// request of the operation.
func (c *Call) execUUID() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.uuid == "" {
		var u [16]byte
		_, _ = rand.Read(u[:])                                                                             // never fails
		binary.BigEndian.PutUint64(u[:8], uint64(time.Now().UnixMilli())<<16|uint64(u[6])<<8|uint64(u[7])) //nolint:gosec // after 1970
		u[6], u[8] = u[6]&0x0f|0x70, u[8]&0x3f|0x80
		c.uuid = fmt.Sprintf("%x-%x-%x-%x-%x", u[:4], u[4:6], u[6:8], u[8:10], u[10:])
	}
	return c.uuid
}

// quote writes one word so that no shell changes it.
func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// text renders a host value for a path, query or header.
func text(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case int64:
		return strconv.FormatInt(v, 10)
	case float64:
		return strconv.FormatFloat(v, 'g', -1, 64)
	case bool:
		return strconv.FormatBool(v)
	case []int:
		out := make([]string, len(v))
		for i, n := range v {
			out[i] = strconv.Itoa(n)
		}
		return strings.Join(out, ",")
	case []string:
		return strings.Join(v, ",")
	}
	return ""
}

// baseName of a file, for multipart.
func baseName(p string) string { return path.Base(p) }
