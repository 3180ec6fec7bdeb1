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
// precedence among the request's parts.
func (s *sandbox) environment(req provider.ExecRequest, dir string) ([][]byte, error) {
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
		if err := checkEnv(k, strings.IndexByte(v, 0) >= 0); err != nil {
			return nil, err
		}
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
		if err := checkEnv(k, v.HasNUL()); err != nil {
			return nil, err
		}
		out = append(out, join(k, v.Reveal()))
	}
	for k, v := range req.Secrets.All() {
		if err := checkEnv(k, v.HasNUL()); err != nil {
			return nil, err
		}
		out = append(out, join(k, v.Reveal()))
	}
	return out, nil
}

// join builds one entry and wipes the revealed copy.
func join(k string, v []byte) []byte {
	b := make([]byte, 0, len(k)+1+len(v))
	b = append(append(append(b, k...), '='), v...)
	clear(v)
	return b
}

// checkEnv refuses what no process environment can carry. The value is not
// shown.
func checkEnv(name string, hasNUL bool) error {
	switch {
	case name == "" || strings.ContainsAny(name, "=\x00"):
		return problem(provider.InvalidArgument, "exec", "", "an environment name is empty or contains = or NUL")
	case hasNUL:
		return problem(provider.InvalidArgument, "exec", name, "the value of this environment variable contains a NUL byte")
	}
	return nil
}
