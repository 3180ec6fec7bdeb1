package plugin

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sbxhost/sbxhost/abi"
	"github.com/sbxhost/sbxhost/provider"
)

// LockVersion is the format version of plugins.lock.
const LockVersion = 1

// MaxLockBytes is the largest lock file that is read.
const MaxLockBytes = 16 << 20

// Lock is what an operator approved: plugins by name, each with the exact module
// and manifest. The zero Lock approves nothing.
type Lock struct {
	Version int            `json:"version"`
	Plugins []LockedPlugin `json:"plugins"`
}

// LockedPlugin is one approval.
type LockedPlugin struct {
	Name     string          `json:"name"`
	Digest   string          `json:"digest"` // "sha256:" and 64 hex digits, of the whole file
	Manifest json.RawMessage `json:"manifest"`
}

// ParseLock reads a lock file strictly.
func ParseLock(doc []byte) (*Lock, error) {
	bad := func(format string, args ...any) error {
		return &provider.Error{Code: provider.InvalidArgument, Op: "read plugins.lock", Message: fmt.Sprintf(format, args...), Remedy: "approve the plugins again with sbxhost plugin approve", Applied: provider.AppliedNo}
	}
	if len(doc) > MaxLockBytes {
		return nil, bad("larger than %d bytes", MaxLockBytes)
	}
	if _, err := abi.Parse(doc); err != nil {
		return nil, bad("%v", err)
	}
	dec := json.NewDecoder(bytes.NewReader(doc))
	dec.DisallowUnknownFields()
	var l Lock
	if err := dec.Decode(&l); err != nil {
		return nil, bad("%v", err)
	}
	if l.Version != LockVersion {
		return nil, bad("version %d is not supported; this is version %d", l.Version, LockVersion)
	}
	seen := map[string]bool{}
	for i, p := range l.Plugins {
		if seen[p.Name] {
			return nil, bad("plugins[%d]: %q is approved twice", i, p.Name)
		}
		seen[p.Name] = true
		hexPart, ok := strings.CutPrefix(p.Digest, "sha256:")
		if raw, err := hex.DecodeString(hexPart); !ok || err != nil || len(raw) != sha256.Size {
			return nil, bad("plugins[%d]: the digest is malformed", i)
		}
		m, err := ParseManifest(p.Manifest)
		if err != nil {
			return nil, bad("plugins[%d]: %v", i, err)
		}
		if m.Name != p.Name {
			return nil, bad("plugins[%d]: the manifest names another plugin", i)
		}
	}
	return &l, nil
}

// ReadLock reads a lock file. A file that does not exist is an empty lock.
func ReadLock(path string) (*Lock, error) {
	doc, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return &Lock{Version: LockVersion}, nil
	}
	if err != nil {
		return nil, &provider.Error{Code: provider.PermissionDenied, Op: "read plugins.lock", Message: "cannot be read", Applied: provider.AppliedNo, Err: err}
	}
	return ParseLock(doc)
}

// Approve adds or replaces the approval of a module.
func (l *Lock) Approve(module []byte) (LockedPlugin, error) {
	mod, m, err := inspectModule(module)
	if err != nil {
		return LockedPlugin{}, err
	}
	doc, err := compact(manifestSection(module))
	if err != nil {
		return LockedPlugin{}, invalidModule("approve plugin", err)
	}
	entry := LockedPlugin{Name: m.Name, Digest: mod.Digest(), Manifest: doc}
	l.Version = LockVersion
	l.Plugins = slices.DeleteFunc(l.Plugins, func(p LockedPlugin) bool { return p.Name == m.Name })
	l.Plugins = append(l.Plugins, entry)
	slices.SortFunc(l.Plugins, func(a, b LockedPlugin) int { return strings.Compare(a.Name, b.Name) })
	return entry, nil
}

// Write stores the lock: a temporary file in the same folder, then a rename.
func (l *Lock) Write(path string) error {
	doc, err := json.MarshalIndent(l, "", "  ")
	if err != nil {
		return err
	}
	tmp, err := os.CreateTemp(filepath.Dir(path), ".plugins.lock-*")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(tmp.Name()) }() // gone after a successful rename
	if _, err = tmp.Write(append(doc, '\n')); err == nil {
		err = tmp.Sync()
	}
	if cerr := tmp.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Chmod(tmp.Name(), 0o644) //nolint:gosec // approvals are no secret
	}
	if err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	return err
}

// check refuses a module that is not exactly the approved one.
func (l *Lock) check(name, digest string, manifest []byte) error {
	deny := func(msg string) error {
		return &provider.Error{Code: provider.PermissionDenied, Op: "load plugin", Subject: name, Message: msg, Remedy: "inspect it and run sbxhost plugin approve", Applied: provider.AppliedNo}
	}
	i := slices.IndexFunc(l.Plugins, func(p LockedPlugin) bool { return p.Name == name })
	if i < 0 {
		return deny("the plugin is not approved")
	}
	if l.Plugins[i].Digest != digest {
		return deny("the module is not the approved one: its digest is " + digest)
	}
	want, err := compact(l.Plugins[i].Manifest)
	if err != nil {
		return deny("the approved manifest is malformed")
	}
	if got, err := compact(manifest); err != nil || !bytes.Equal(got, want) {
		return deny("the module's manifest is not the approved one")
	}
	return nil
}

func compact(doc []byte) (json.RawMessage, error) {
	var b bytes.Buffer
	err := json.Compact(&b, doc)
	return b.Bytes(), err
}
