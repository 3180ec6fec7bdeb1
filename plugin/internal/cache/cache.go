// Package cache keeps compiled plugins on disk, authenticated. Compiled code is
// machine code: whoever can put a file into an engine's cache runs code in the
// host. So every entry carries an HMAC under a key that is not in the cache
// directory, over everything that decides what the code is; an entry is read,
// checked in memory, and only then handed to the compiler's own cache through a
// private directory that exists for this process alone. An entry that does not
// check is as good as none: the module is compiled again and the entry replaced.
package cache

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"runtime/debug"
	"sort"
	"strings"
	"sync/atomic"

	"golang.org/x/sys/cpu"
)

const (
	magic     = "sbxhost-plugin-cache-v1\n"
	suffix    = ".sbxc"
	macSize   = sha256.Size
	keySize   = 32
	maxEntry  = 512 << 20
	tmpPrefix = ".tmp-"
)

// Cache is a directory of entries. It is safe for concurrent use, by several
// processes too.
type Cache struct {
	dir      string
	key      []byte
	maxBytes int64
	hits     atomic.Int64
	misses   atomic.Int64
	rejected atomic.Int64
}

// Options configure a cache.
type Options struct {
	// Dir holds the entries; made with mode 0700 if it does not exist.
	Dir string
	// KeyFile holds the key; made with mode 0600 if it does not exist. It must
	// not lie in Dir.
	KeyFile string
	// MaxBytes bounds the entries; the oldest go first. Default 512 MiB.
	MaxBytes int64
}

// Open opens a cache. It fails if the key is, or could be, somebody else's.
func Open(o Options) (*Cache, error) {
	if o.MaxBytes <= 0 {
		o.MaxBytes = 512 << 20
	}
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("make plugin cache directory: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(o.KeyFile), 0o700); err != nil {
		return nil, fmt.Errorf("make the directory of the plugin cache key: %w", err)
	}
	dir, err := filepath.EvalSymlinks(o.Dir)
	if err != nil {
		return nil, fmt.Errorf("open plugin cache directory: %w", err)
	}
	keyDir, err := filepath.EvalSymlinks(filepath.Dir(o.KeyFile))
	if err != nil {
		return nil, fmt.Errorf("open the directory of the plugin cache key: %w", err)
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return nil, fmt.Errorf("open plugin cache directory: %w", err)
	}
	if keyDir, err = filepath.Abs(keyDir); err != nil {
		return nil, fmt.Errorf("open the directory of the plugin cache key: %w", err)
	}
	if rel, err := filepath.Rel(dir, keyDir); err == nil && rel != ".." && !strings.HasPrefix(rel, ".."+string(filepath.Separator)) {
		return nil, errors.New("the plugin cache key must not lie in the cache directory: who can write entries could read it; put it elsewhere")
	}
	key, err := loadKey(filepath.Join(keyDir, filepath.Base(o.KeyFile)))
	if err != nil {
		return nil, err
	}
	return &Cache{dir: dir, key: key, maxBytes: o.MaxBytes}, nil
}

// loadKey reads the key, or makes it. Two processes that make it at once end up
// with the same one: a link is made once.
func loadKey(path string) ([]byte, error) {
	key, err := readKey(path)
	if !errors.Is(err, os.ErrNotExist) {
		return key, err
	}
	tmp, err := os.CreateTemp(filepath.Dir(path), tmpPrefix+"key-") // 0600
	if err != nil {
		return nil, fmt.Errorf("make plugin cache key: %w", err)
	}
	defer func() { _ = os.Remove(tmp.Name()) }()
	key = make([]byte, keySize)
	if _, err := rand.Read(key); err != nil {
		return nil, fmt.Errorf("make plugin cache key: %w", err)
	}
	_, werr := tmp.Write(key)
	if err := errors.Join(werr, tmp.Sync(), tmp.Close()); err != nil {
		return nil, fmt.Errorf("write plugin cache key: %w", err)
	}
	if err := os.Link(tmp.Name(), path); err != nil && !errors.Is(err, os.ErrExist) {
		return nil, fmt.Errorf("place plugin cache key: %w", err)
	}
	return readKey(path)
}

func readKey(path string) ([]byte, error) {
	f, err := openNoFollow(path)
	if err != nil {
		return nil, fmt.Errorf("open plugin cache key: %w", err)
	}
	defer func() { _ = f.Close() }()
	st, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("check plugin cache key: %w", err)
	}
	if err := private(st); err != nil {
		return nil, fmt.Errorf("plugin cache key %s: %w; remove it to have a new one made", path, err)
	}
	key, err := io.ReadAll(io.LimitReader(f, keySize+1))
	if err != nil {
		return nil, fmt.Errorf("read plugin cache key: %w", err)
	}
	if len(key) != keySize {
		return nil, fmt.Errorf("plugin cache key %s is damaged; remove it to have a new one made", path)
	}
	return key, nil
}

// Stats counts what the cache did since it was opened: entries used, modules
// compiled, and entries that were there but did not check.
type Stats struct{ Hits, Misses, Rejected int64 }

// Stats returns the counts.
func (c *Cache) Stats() Stats {
	return Stats{c.hits.Load(), c.misses.Load(), c.rejected.Load()}
}

// identity is everything but the module that decides what compiled code is.
func identity(rewriter, inner string) string {
	return strings.Join([]string{
		"rewriter " + rewriter, "engine " + engineVersion(), "platform " + runtime.GOOS + "/" + runtime.GOARCH,
		"go " + runtime.Version(), "cpu " + cpuFeatures(), "file " + inner,
	}, "\n")
}

func engineVersion() string {
	if bi, ok := debug.ReadBuildInfo(); ok {
		for _, d := range bi.Deps {
			if d.Path == "github.com/tetratelabs/wazero" {
				if d.Replace != nil {
					return d.Replace.Path + " " + d.Replace.Version + " " + d.Replace.Sum
				}
				return d.Version + " " + d.Sum
			}
		}
	}
	return "unknown"
}

// cpuFeatures names the processor features that are on.
func cpuFeatures() string {
	var on []string
	for _, set := range []any{&cpu.X86, &cpu.ARM64} {
		v := reflect.ValueOf(set).Elem()
		for i := range v.NumField() {
			if f := v.Field(i); f.Kind() == reflect.Bool && f.Bool() {
				on = append(on, v.Type().Field(i).Name)
			}
		}
	}
	sort.Strings(on)
	return strings.Join(on, ",")
}

// mac binds content to its entry's file name, to the module and to identity.
// Every part goes in with its length, so that no two inputs look the same.
func (c *Cache) mac(entry string, module [sha256.Size]byte, id string, content []byte) []byte {
	h := hmac.New(sha256.New, c.key)
	for _, part := range [][]byte{[]byte(magic), []byte(entry), module[:], []byte(id), content} {
		var n [8]byte
		binary.LittleEndian.PutUint64(n[:], uint64(len(part)))
		h.Write(n[:])
		h.Write(part)
	}
	return h.Sum(nil)
}

// entryName is the file name of a module's entry.
func entryName(rewriter string, module [sha256.Size]byte) string {
	h := sha256.New()
	h.Write(module[:])
	h.Write([]byte(identity(rewriter, "")))
	return hex.EncodeToString(h.Sum(nil)) + suffix
}

// load returns an entry's content and the name the compiler wants it under, if
// there is one that checks.
func (c *Cache) load(rewriter string, module [sha256.Size]byte) (inner string, content []byte, ok bool) {
	name := entryName(rewriter, module)
	f, err := openNoFollow(filepath.Join(c.dir, name))
	if err != nil {
		return "", nil, false
	}
	defer func() { _ = f.Close() }()
	b, err := io.ReadAll(io.LimitReader(f, maxEntry+1))
	if err != nil || len(b) > maxEntry {
		c.rejected.Add(1)
		return "", nil, false
	}
	inner, content, ok = c.open(name, rewriter, module, b)
	if !ok {
		c.rejected.Add(1)
	}
	return inner, content, ok
}

func (c *Cache) open(name, rewriter string, module [sha256.Size]byte, b []byte) (string, []byte, bool) {
	rest, ok := strings.CutPrefix(string(b[:min(len(b), len(magic))]), magic)
	if !ok || rest != "" || len(b) < len(magic)+2+macSize {
		return "", nil, false
	}
	body, sum := b[len(magic):len(b)-macSize], b[len(b)-macSize:]
	n := int(binary.LittleEndian.Uint16(body))
	if n > len(body)-2 {
		return "", nil, false
	}
	inner, content := string(body[2:2+n]), body[2+n:]
	want := c.mac(name, module, identity(rewriter, inner), content)
	if subtle.ConstantTimeCompare(want, sum) != 1 {
		return "", nil, false
	}
	return inner, content, true
}

// store writes an entry: complete under its name, or not at all.
func (c *Cache) store(rewriter string, module [sha256.Size]byte, inner string, content []byte) error {
	name := entryName(rewriter, module)
	b := []byte(magic)
	b = binary.LittleEndian.AppendUint16(b, uint16(len(inner)))
	b = append(append(b, inner...), content...)
	b = append(b, c.mac(name, module, identity(rewriter, inner), content)...)
	tmp, err := os.CreateTemp(c.dir, tmpPrefix)
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(tmp.Name()) }()
	_, werr := tmp.Write(b)
	if err := errors.Join(werr, tmp.Sync(), tmp.Close()); err != nil {
		return err
	}
	if err := os.Rename(tmp.Name(), filepath.Join(c.dir, name)); err != nil {
		return err
	}
	syncDir(c.dir)
	c.evict(name)
	return nil
}

// evict removes the oldest entries beyond the bound, and what crashed processes
// left. Failing to is harmless.
func (c *Cache) evict(keep string) {
	list, err := os.ReadDir(c.dir)
	if err != nil {
		return
	}
	type entry struct {
		name string
		size int64
		time int64
	}
	var all []entry
	total := int64(0)
	for _, d := range list {
		st, err := d.Info()
		if err != nil || !st.Mode().IsRegular() || !strings.HasSuffix(d.Name(), suffix) {
			continue
		}
		total += st.Size()
		if d.Name() != keep {
			all = append(all, entry{d.Name(), st.Size(), st.ModTime().UnixNano()})
		}
	}
	sort.Slice(all, func(i, j int) bool { return all[i].time < all[j].time })
	for _, e := range all {
		if total <= c.maxBytes {
			return
		}
		if os.Remove(filepath.Join(c.dir, e.name)) == nil {
			total -= e.size
		}
	}
}
