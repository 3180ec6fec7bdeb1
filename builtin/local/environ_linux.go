package local

import (
	"path/filepath"
	"strings"

	"github.com/sbxhost/sbxhost/builtin/local/envpolicy"
	"github.com/sbxhost/sbxhost/provider"
)

// defaultPath is used when the host has no PATH to inherit.
const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// environment builds a command's environment: the few inherited names, what the
// sandbox itself says, and over that the request's. The host has resolved
// precedence among the request's parts, and provider.ValidateExec has refused what
// no environment can carry.
func (s *sandbox) environment(req provider.ExecRequest, dir string) [][]byte {
	base := map[string]string{"PATH": defaultPath}
	kept, _ := envpolicy.Filter(s.p.opts.Environ(), s.p.opts.InheritEnv)
	for _, kv := range kept {
		if k, v, ok := strings.Cut(kv, "="); ok {
			base[k] = v
		}
	}
	base["HOME"], base["PWD"] = s.home(), dir
	if s.p.level != LevelNamespaces {
		base["TMPDIR"] = filepath.Join(s.work, tmpDir)
	}
	if req.TTY && base["TERM"] == "" {
		base["TERM"] = "xterm"
	}
	for k, v := range req.Env {
		base[k] = v
	}
	for _, e := range []interface {
		Names() []string
	}{req.Protected, req.Secrets} {
		for _, k := range e.Names() {
			delete(base, k)
		}
	}
	var out [][]byte
	for k, v := range base {
		out = append(out, []byte(k+"="+v))
	}
	for k, v := range req.Protected.All() {
		out = append(out, join(k, v.Reveal()))
	}
	for k, v := range req.Secrets.All() {
		out = append(out, join(k, v.Reveal()))
	}
	return out
}

// join builds one entry and wipes the revealed copy.
func join(k string, v []byte) []byte {
	b := make([]byte, 0, len(k)+1+len(v))
	b = append(append(append(b, k...), '='), v...)
	clear(v)
	return b
}
