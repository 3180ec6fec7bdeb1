// Package shimbin holds the in-sandbox supervisor's programs. They are built by
//
//	CGO_ENABLED=0 GOOS=linux GOARCH=$ARCH go build -trimpath -buildvcs=false -ldflags="-s -w -buildid=" -o internal/shim/shimbin/sbx-shim_linux_$ARCH ./internal/shim/cmd/shim
//
// for amd64 and arm64 (make shims); a test rebuilds them and compares every
// byte, with the Go whose version go.version records. They are committed because `go install` runs no generators.
package shimbin

import (
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"strings"
	"sync"
)

//go:embed sbx-shim_linux_amd64
var amd64 []byte

//go:embed sbx-shim_linux_arm64
var arm64 []byte

//go:embed go.version
var goVersion string

// GoVersion returns the version of Go that built the programs, such as "go1.26.8".
func GoVersion() string { return strings.TrimSpace(goVersion) }

// Linux returns the program for a Linux architecture in Go's spelling, and
// whether there is one. The bytes must not be changed.
func Linux(arch string) ([]byte, bool) {
	switch arch {
	case "amd64":
		return amd64, true
	case "arm64":
		return arm64, true
	}
	return nil, false
}

var digests sync.Map

// Digest returns the SHA-256 of the program for arch in hexadecimal, "" when
// there is none.
func Digest(arch string) string {
	if d, ok := digests.Load(arch); ok {
		return d.(string)
	}
	b, ok := Linux(arch)
	if !ok {
		return ""
	}
	sum := sha256.Sum256(b)
	d := hex.EncodeToString(sum[:])
	digests.Store(arch, d)
	return d
}
