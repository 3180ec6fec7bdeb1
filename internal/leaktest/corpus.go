package leaktest

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"sync"
)

// maxFile bounds how much of one file a tree scan reads.
const maxFile = 256 << 20

// Corpus gathers what is to be scanned. It is safe for concurrent use; the zero
// Corpus is empty.
type Corpus struct {
	mu       sync.Mutex
	items    []item
	problems []error // of trees that could not be read
}

type item struct {
	where string
	data  []byte
}

// Add adds bytes under a name that says where they came from. The bytes are
// copied.
func (c *Corpus) Add(where string, data []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.items = append(c.items, item{where, append([]byte(nil), data...)})
}

// AddError adds every way of printing err and whatever it wraps.
func (c *Corpus) AddError(where string, err error) {
	seen := 0
	var walk func(where string, err error)
	walk = func(where string, err error) {
		if err == nil || seen > 100 {
			return
		}
		seen++
		c.AddValue(where, err)
		c.Add(where+" Error()", []byte(err.Error()))
		if u, ok := err.(interface{ Unwrap() []error }); ok {
			for i, e := range u.Unwrap() {
				walk(fmt.Sprintf("%s unwrap %d", where, i), e)
			}
			return
		}
		walk(where+" unwrap", errors.Unwrap(err))
	}
	walk(where, err)
}

// AddValue adds every way of printing v, its JSON, and every string and byte
// slice that reflection reaches in it, unexported fields included. Use it for
// what callers get, not for objects that hold secrets on purpose.
func (c *Corpus) AddValue(where string, v any) {
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x"} {
		c.Add(where+" "+verb, fmt.Appendf(nil, verb, v))
	}
	if b, err := json.Marshal(v); err == nil {
		c.Add(where+" JSON", b)
	} else {
		c.Add(where+" JSON error", []byte(err.Error()))
	}
	c.reflect(where+" fields", reflect.ValueOf(v), map[uintptr]bool{}, 0)
}

// reflect walks v without calling any of its methods.
func (c *Corpus) reflect(where string, v reflect.Value, seen map[uintptr]bool, depth int) {
	if depth > 40 || !v.IsValid() {
		return
	}
	switch v.Kind() {
	case reflect.String:
		c.Add(where, []byte(v.String()))
	case reflect.Pointer:
		if v.IsNil() || seen[v.Pointer()] {
			return
		}
		seen[v.Pointer()] = true
		c.reflect(where, v.Elem(), seen, depth+1)
	case reflect.Interface:
		c.reflect(where, v.Elem(), seen, depth+1)
	case reflect.Struct:
		for i := range v.NumField() {
			c.reflect(where+"."+v.Type().Field(i).Name, v.Field(i), seen, depth+1)
		}
	case reflect.Slice, reflect.Array:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			b := make([]byte, v.Len())
			for i := range b {
				b[i] = byte(v.Index(i).Uint())
			}
			c.Add(where, b)
			return
		}
		for i := range v.Len() {
			c.reflect(fmt.Sprintf("%s[%d]", where, i), v.Index(i), seen, depth+1)
		}
	case reflect.Map:
		for it := v.MapRange(); it.Next(); {
			c.reflect(where+" key", it.Key(), seen, depth+1)
			c.reflect(where+" value", it.Value(), seen, depth+1)
		}
	}
}

// AddTree adds every file under dir as it is now: names, targets of symbolic
// links and contents. Sockets, FIFOs and devices count by name only. A file that
// vanishes meanwhile is left out; any other failure to read makes every later
// scan fail, because what was not read was not scanned.
func (c *Corpus) AddTree(where, dir string) {
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) && path != dir {
			return nil
		}
		if err != nil {
			return err
		}
		at := where + ": " + path
		c.Add(at+" (name)", []byte(path))
		switch {
		case d.Type()&fs.ModeSymlink != 0:
			if target, err := os.Readlink(path); err == nil {
				c.Add(at+" (link)", []byte(target))
			}
		case d.Type().IsRegular():
			data, err := readFile(path)
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			if err != nil {
				return err
			}
			c.Add(at, data)
		}
		return nil
	})
	if err != nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.problems = append(c.problems, fmt.Errorf("leaktest: %s was not read: %w", where, err))
	}
}

// Len returns the number of bytes gathered.
func (c *Corpus) Len() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := 0
	for _, it := range c.items {
		n += len(it.data)
	}
	return n
}

// each calls f for everything in the corpus and returns what is missing in it.
func (c *Corpus) each(f func(where string, data []byte)) error {
	c.mu.Lock()
	items, problems := c.items, c.problems
	c.mu.Unlock()
	for _, it := range items {
		f(it.where, it.data)
	}
	return errors.Join(problems...)
}

func readFile(path string) ([]byte, error) {
	st, err := os.Lstat(path)
	if err != nil {
		return nil, err
	}
	if st.Size() > maxFile {
		return nil, fmt.Errorf("%s has %d bytes, more than is scanned", path, st.Size())
	}
	return os.ReadFile(path)
}
