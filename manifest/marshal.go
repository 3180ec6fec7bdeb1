package manifest

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/sbxhost/sbxhost/internal/strictjson"
)

// MarshalJSON returns the canonical form: one spelling per manifest, fields in
// a fixed order, keys sorted, defaults written out, references with type
// process_env. Parse reads it back to an equal manifest. It validates first, so
// that nothing is written that could not be read.
func (m Manifest) MarshalJSON() ([]byte, error) {
	if err := m.Validate(); err != nil {
		return nil, err
	}
	return m.encode(), nil
}

// Digest returns "sha256:" and the hex digest of the canonical form. Equal
// manifests have equal digests however they were spelled. It means something
// for valid manifests only.
func (m Manifest) Digest() string { return digest(m.encode()) }

// ReferencesDigest returns "sha256:" and a hex digest of the sorted
// destination → source pairs alone: it changes exactly when a reference is
// added, removed, renamed or pointed at another source.
func (m Manifest) ReferencesDigest() string {
	var w writer
	w.open('[')
	for _, p := range m.Pairs() {
		w.item()
		w.open('[')
		w.item()
		w.text(p.Destination)
		w.item()
		w.text(p.Source)
		w.close(']')
	}
	w.close(']')
	return digest(w.buf)
}

func digest(b []byte) string {
	sum := sha256.Sum256(b)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// writer appends JSON.
type writer struct {
	buf   []byte
	first bool
}

func (w *writer) open(c byte)  { w.buf, w.first = append(w.buf, c), true }
func (w *writer) close(c byte) { w.buf, w.first = append(w.buf, c), false }

func (w *writer) item() {
	if !w.first {
		w.buf = append(w.buf, ',')
	}
	w.first = false
}

func (w *writer) key(k string) {
	w.item()
	w.text(k)
	w.buf = append(w.buf, ':')
}

func (w *writer) text(s string) { w.buf = strictjson.AppendString(w.buf, s) }
func (w *writer) raw(s string)  { w.buf = append(w.buf, s...) }

// field writes a string unless it is empty.
func (w *writer) field(k, s string) {
	if s != "" {
		w.key(k)
		w.text(s)
	}
}

func (w *writer) count(k string, n int64) {
	if n != 0 {
		w.key(k)
		w.raw(strconv.FormatInt(n, 10))
	}
}

// encode returns the canonical form without validating.
func (m Manifest) encode() []byte {
	var w writer
	w.open('{')
	w.key("version")
	w.raw(strconv.Itoa(m.Version))
	w.field("image", m.Image)
	w.field("root", m.Root)
	w.field("user", m.User)
	if len(m.Environment) > 0 {
		w.key("environment")
		w.open('{')
		for _, name := range slices.Sorted(maps.Keys(m.Environment)) {
			w.key(name)
			m.Environment[name].encode(&w)
		}
		w.close('}')
	}
	if len(m.Files) > 0 {
		w.key("files")
		w.open('{')
		for _, f := range sortedFiles(m.Files) {
			w.key(f.path)
			f.encode(&w)
		}
		w.close('}')
	}
	if len(m.PathGrants) > 0 {
		w.key("pathGrants")
		w.open('[')
		for _, g := range m.PathGrants {
			w.item()
			w.open('{')
			w.key("path")
			w.text(g.Path)
			w.key("hostPath")
			w.text(g.HostPath)
			if g.ReadOnly {
				w.key("readOnly")
				w.raw("true")
			}
			w.close('}')
		}
		w.close(']')
	}
	if len(m.Ports) > 0 {
		w.key("ports")
		w.open('[')
		for _, p := range m.Ports {
			w.item()
			w.raw(strconv.Itoa(p))
		}
		w.close(']')
	}
	w.field("start", string(m.Start))
	w.field("network", string(m.Network))
	if m.Resources != (Resources{}) {
		w.key("resources")
		w.open('{')
		if m.Resources.CPUs != 0 {
			w.key("cpus")
			w.raw(strconv.FormatFloat(m.Resources.CPUs, 'g', -1, 64))
		}
		w.count("memoryMiB", m.Resources.MemoryMiB)
		w.count("pids", m.Resources.PIDs)
		w.count("diskMiB", m.Resources.DiskMiB)
		w.close('}')
	}
	if m.Lifetime != (Lifetime{}) {
		w.key("lifetime")
		w.open('{')
		if m.Lifetime.TTL != 0 {
			w.key("ttl")
			w.text(shortDuration(m.Lifetime.TTL))
		}
		if m.Lifetime.Idle != 0 {
			w.key("idle")
			w.text(shortDuration(m.Lifetime.Idle))
		}
		w.close('}')
	}
	if len(m.Labels) > 0 {
		w.key("labels")
		w.open('{')
		for _, k := range slices.Sorted(maps.Keys(m.Labels)) {
			w.key(k)
			w.text(m.Labels[k])
		}
		w.close('}')
	}
	w.close('}')
	return w.buf
}

func (e Entry) encode(w *writer) {
	if e.Reference == nil {
		w.text(e.Literal)
		return
	}
	w.open('{')
	w.key("type")
	w.text(referenceType)
	w.field("name", e.Reference.Name)
	w.field("description", e.Reference.Description)
	w.close('}')
}

type namedFile struct {
	path string
	File
}

// sortedFiles returns the files by their cleaned paths.
func sortedFiles(files map[string]File) []namedFile {
	out := make([]namedFile, 0, len(files))
	for p, f := range files {
		out = append(out, namedFile{path.Clean(p), f})
	}
	slices.SortFunc(out, func(a, b namedFile) int { return strings.Compare(a.path, b.path) })
	return out
}

func (f File) encode(w *writer) {
	w.open('{')
	switch {
	case f.HostPath != "":
		w.field("hostPath", f.HostPath)
	case asText(f.Content):
		w.key("content")
		w.text(string(f.Content))
	default:
		w.key("contentBase64")
		w.text(base64.StdEncoding.EncodeToString(f.Content))
	}
	if f.Mode != 0 {
		w.field("mode", fmt.Sprintf("%04o", uint32(f.Mode)))
	}
	w.close('}')
}

// asText chooses the shorter of content and contentBase64, so that a manifest
// never grows past its size limit by being written back.
func asText(content []byte) bool {
	if !utf8.Valid(content) {
		return false
	}
	base64Len := len("Base64") + 2 + base64.StdEncoding.EncodedLen(len(content))
	return strictjson.StringLen(content) <= base64Len
}

// shortDuration is d.String without trailing zero units: "1h", not "1h0m0s".
func shortDuration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = s[:len(s)-2]
	}
	if strings.HasSuffix(s, "h0m") {
		s = s[:len(s)-2]
	}
	return s
}
