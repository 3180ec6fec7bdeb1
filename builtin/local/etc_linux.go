package local

import (
	"os"
	"strings"
	"sync"

	"github.com/sbxhost/sbxhost/internal/shim/wire"
)

// etcPaths is what programs need of /etc and what is no secret.
var etcPaths = []string{
	"alternatives", "ca-certificates", "ca-certificates.conf", "crypto-policies", "debian_version", "fonts",
	"ld.so.cache", "ld.so.conf", "ld.so.conf.d", "localtime", "magic", "mime.types", "os-release", "pki/ca-trust", "pki/tls",
	"protocols", "rpc", "services", "ssl/certs", "ssl/openssl.cnf", "terminfo", "timezone",
}

// etcFiles is the part of /etc that jails show, read once: files are copied, for
// that costs less than a mount; directories are mounted, links of the system are
// made again.
type etcFiles struct {
	once   sync.Once
	files  []wire.File
	links  []wire.Link
	mounts []wire.Mount
}

// maxEtcFile bounds what is copied into each jail; larger files are mounted.
const maxEtcFile = 128 << 10

func (e *etcFiles) get(root bool) ([]wire.File, []wire.Link, []wire.Mount) {
	e.once.Do(func() {
		for _, name := range etcPaths {
			e.add("/etc/"+name, root)
		}
	})
	return e.files, e.links, e.mounts
}

func (e *etcFiles) add(path string, root bool) {
	st, err := os.Lstat(path)
	if err != nil {
		return
	}
	if st.Mode()&os.ModeSymlink != 0 {
		if target, err := os.Readlink(path); err == nil && underUsr(target) {
			e.links = append(e.links, wire.Link{Path: path, Target: target})
			return
		}
		if st, err = os.Stat(path); err != nil {
			return
		}
	}
	switch {
	case st.IsDir():
	case !st.Mode().IsRegular(), root && st.Mode()&0o004 == 0:
		return // what only root may read is not handed on
	case st.Size() <= maxEtcFile:
		if b, err := os.ReadFile(path); err == nil && len(b) <= maxEtcFile {
			e.files = append(e.files, wire.File{Path: path, Content: string(b)})
			return
		}
	}
	e.mounts = append(e.mounts, wire.Mount{Source: path, Target: path, ReadOnly: true, NoDev: true, Optional: true})
}

func underUsr(target string) bool {
	return strings.HasPrefix(target, "/usr/") || strings.HasPrefix(target, "../usr/")
}
