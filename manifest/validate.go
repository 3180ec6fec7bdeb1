package manifest

import (
	"maps"
	"math"
	"path"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Validate reports the first rule that the manifest breaks, as an *Error. A
// manifest from Parse is valid; one that was built or edited in Go is validated
// by everything that takes it.
func (m Manifest) Validate() error {
	if m.Version != Version {
		return errorAt([]string{"version"}, "must be %d; start from manifest.New", Version)
	}
	for _, check := range []func() *Error{
		m.checkPlace, m.checkEnvironment, m.checkFiles, m.checkPathGrants,
		m.checkPorts, m.checkChoices, m.checkResources, m.checkLabels,
	} {
		if err := check(); err != nil {
			return err
		}
	}
	if len(m.encode()) > MaxJSON {
		return errorAt(nil, "larger than the limit of 1 MiB of JSON (MaxJSON); give big files with hostPath or write them later")
	}
	return nil
}

func (m Manifest) checkPlace() *Error {
	if err := absolutePath(m.Root); err != "" {
		return errorAt([]string{"root"}, "%s", err)
	}
	if !plainText(m.Image) {
		return errorAt([]string{"image"}, "must be text without control characters")
	}
	if !plainText(m.User) {
		return errorAt([]string{"user"}, "must be text without control characters")
	}
	return nil
}

func plainText(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, notPrintable)
}

// absolutePath returns what is wrong with a path inside the sandbox, or "".
func absolutePath(p string) string {
	switch {
	case !strings.HasPrefix(p, "/"):
		return "must be an absolute path inside the sandbox"
	case !plainText(p):
		return "must be a path without control characters"
	case slices.Contains(strings.Split(p, "/"), ".."):
		return `must not contain ".."`
	case path.Clean(p) != p:
		return "must be a clean path, without . and doubled or trailing slashes"
	case p == "/":
		return "must not be the root of the file system"
	}
	return ""
}

func (m Manifest) checkEnvironment() *Error {
	at := func(name string) []string { return []string{"environment", name} }
	if len(m.Environment) > MaxEntries {
		return errorAt([]string{"environment"}, "more than the limit of %d environment entries (MaxEntries)", MaxEntries)
	}
	total := 0
	for _, name := range slices.Sorted(maps.Keys(m.Environment)) {
		e := m.Environment[name]
		if err := ValidEnvKey(name); err != nil {
			return errorAt(at(name), "%s", err)
		}
		if grantShaped(name) {
			return errorAt(at(name), "%s", errGrantShaped)
		}
		if err := checkEnvSize(name, len(e.Literal), &total); err != "" {
			return errorAt(at(name), "%s", err)
		}
		if e.Reference == nil {
			if err := checkEnvText(e.Literal); err != "" {
				return errorAt(at(name), "%s", err)
			}
			continue
		}
		if e.Literal != "" {
			return errorAt(at(name), "is either a literal or a reference, not both")
		}
		if ReservedDestination(name) {
			return errorAt(at(name), "is managed by shells or the loader and cannot be the destination of a reference; choose another name")
		}
		if e.Reference.Name != "" {
			if err := ValidName(e.Reference.Name); err != nil {
				return errorAt(append(at(name), "name"), "%s", err)
			}
		}
		if !utf8.ValidString(e.Reference.Description) {
			return errorAt(append(at(name), "description"), "must be valid UTF-8")
		}
	}
	return nil
}

// checkEnvSize adds one entry to total and returns which limit is exceeded, or
// "".
func checkEnvSize(name string, valueLen int, total *int) string {
	n := len(name) + 1 + valueLen + 1
	if n > MaxValue {
		return "larger than the limit of 128 KiB for one variable with its name (MaxValue)"
	}
	if *total += n; *total > MaxEnvironment {
		return "the environment is larger than the limit of 1 MiB in all (MaxEnvironment)"
	}
	return ""
}

func checkEnvText(value string) string {
	switch {
	case strings.Contains(value, "\x00"):
		return "the value contains NUL, which no environment can carry"
	case !utf8.ValidString(value):
		return "the value is not valid UTF-8"
	}
	return ""
}

// CheckEnvironment validates the literal environment of one command as Validate
// does that of a manifest: keys are identifiers, values carry no NUL, and the
// limits on entries, one value and the sum hold. Nil and empty are valid. The
// error is an *Error below the pointer /environment and holds no value.
func CheckEnvironment(env map[string]string) error {
	m := Manifest{Environment: make(map[string]Entry, len(env))}
	for k, v := range env {
		m.Environment[k] = Entry{Literal: v}
	}
	if err := m.checkEnvironment(); err != nil {
		return err
	}
	return nil
}

// checkFilePath returns what is wrong with a key of files, or "".
func checkFilePath(p string) string {
	switch {
	case p == "":
		return "a file's path must not be empty"
	case strings.HasPrefix(p, "/"):
		return "a file's path must be relative to root"
	case !plainText(p):
		return "a file's path must not contain control characters"
	case slices.Contains(strings.Split(p, "/"), ".."):
		return `a file's path must not contain ".."`
	case path.Clean(p) == ".":
		return "a file's path must name something below root"
	case grantShaped(p):
		return errGrantShaped.Error()
	}
	return ""
}

func (m Manifest) checkFiles() *Error {
	if len(m.Files) > MaxFiles {
		return errorAt([]string{"files"}, "more than the limit of %d files (MaxFiles)", MaxFiles)
	}
	clean := make(map[string]bool, len(m.Files))
	for _, name := range slices.Sorted(maps.Keys(m.Files)) {
		at, f := []string{"files", name}, m.Files[name]
		if err := checkFilePath(name); err != "" {
			return errorAt(at, "%s", err)
		}
		if clean[path.Clean(name)] {
			return errorAt(at, "the same file is given twice, in two spellings")
		}
		clean[path.Clean(name)] = true
		switch {
		case f.HostPath != "" && len(f.Content) > 0:
			return errorAt(at, "a file has only one of content and hostPath")
		case f.HostPath != "" && f.Mode != 0:
			return errorAt(at, "mode goes with content; what is copied from hostPath keeps its own")
		case f.HostPath != "" && !plainText(f.HostPath):
			return errorAt(append(at, "hostPath"), "must be a path without control characters")
		case f.Mode&^0o777 != 0:
			return errorAt(append(at, "mode"), "has bits other than permissions")
		}
	}
	for _, p := range slices.Sorted(maps.Keys(clean)) {
		for dir := path.Dir(p); dir != "."; dir = path.Dir(dir) {
			if clean[dir] {
				return errorAt([]string{"files", p}, "lies below another entry of files, which is not a directory of this manifest")
			}
		}
	}
	return nil
}

func (m Manifest) checkPathGrants() *Error {
	if len(m.PathGrants) > MaxPathGrants {
		return errorAt([]string{"pathGrants"}, "more than the limit of %d path grants (MaxPathGrants)", MaxPathGrants)
	}
	seen := map[string]bool{}
	for i, g := range m.PathGrants {
		at := []string{"pathGrants", strconv.Itoa(i)}
		if err := absolutePath(g.Path); err != "" {
			return errorAt(append(at, "path"), "%s", err)
		}
		if g.HostPath == "" || !plainText(g.HostPath) {
			return errorAt(append(at, "hostPath"), "must be a path without control characters")
		}
		if seen[g.Path] {
			return errorAt(append(at, "path"), "is given twice")
		}
		seen[g.Path] = true
	}
	return nil
}

func (m Manifest) checkPorts() *Error {
	seen := map[int]bool{}
	for i, p := range m.Ports {
		at := []string{"ports", strconv.Itoa(i)}
		if p < 1 || p > 65535 {
			return errorAt(at, "must be a port from 1 to 65535")
		}
		if seen[p] {
			return errorAt(at, "is given twice")
		}
		seen[p] = true
	}
	return nil
}

func (m Manifest) checkChoices() *Error {
	switch m.Start {
	case StartIdle, StartImage:
	default:
		return errorAt([]string{"start"}, "must be %q or %q", StartIdle, StartImage)
	}
	switch m.Network {
	case NetworkUnset, NetworkNone, NetworkDefault:
	default:
		return errorAt([]string{"network"}, "must be %q or %q; leave it out for the provider's default", NetworkNone, NetworkDefault)
	}
	return nil
}

func (m Manifest) checkResources() *Error {
	r := m.Resources
	if math.IsNaN(r.CPUs) || r.CPUs < 0 || r.CPUs > maxCPUs {
		return errorAt([]string{"resources", "cpus"}, "must be from 0 to %d", maxCPUs)
	}
	for _, c := range []struct {
		name     string
		n, limit int64
	}{{"memoryMiB", r.MemoryMiB, maxMemoryMiB}, {"pids", r.PIDs, maxPIDs}, {"diskMiB", r.DiskMiB, maxMemoryMiB}} {
		if c.n < 0 || c.n > c.limit {
			return errorAt([]string{"resources", c.name}, "must be from 0 to %d", c.limit)
		}
	}
	if m.Lifetime.TTL < 0 {
		return errorAt([]string{"lifetime", "ttl"}, "must not be negative")
	}
	if m.Lifetime.Idle < 0 {
		return errorAt([]string{"lifetime", "idle"}, "must not be negative")
	}
	return nil
}

// labelPrefix starts the labels that are the host's own.
const labelPrefix = "sbxhost."

func (m Manifest) checkLabels() *Error {
	for _, k := range slices.Sorted(maps.Keys(m.Labels)) {
		at := []string{"labels", k}
		switch {
		case k == "" || len(k) > maxNameInLabels || !plainText(k) || strings.Contains(k, "="):
			return errorAt(at, `a label's key is text of 1 to %d bytes without "=" and control characters`, maxNameInLabels)
		case len(k) >= len(labelPrefix) && strings.EqualFold(k[:len(labelPrefix)], labelPrefix):
			return errorAt(at, "labels that start with %s are the host's own", labelPrefix)
		case grantShaped(k):
			return errorAt(at, "%s", errGrantShaped)
		case !plainText(m.Labels[k]):
			return errorAt(at, "a label's value must be text without control characters")
		}
	}
	return nil
}
