package manifest

import (
	"io/fs"
	"maps"
	"math"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"encoding/base64"

	"github.com/sbxhost/sbxhost/internal/strictjson"
)

// New returns an empty manifest of the current version with the defaults filled
// in.
func New() Manifest {
	return Manifest{Version: Version, Root: DefaultRoot, Start: StartIdle}
}

// Parse reads a manifest from JSON and validates it. Reading is strict: an
// unknown field, a key in another case or given twice, a wrong type, trailing
// data, invalid UTF-8 and every exceeded limit is an *Error with the JSON
// pointer. What is left out gets New's defaults. The result shares no memory
// with data.
func Parse(data []byte) (Manifest, error) {
	if len(data) > MaxJSON {
		return Manifest{}, &Error{Message: "larger than the limit of 1 MiB of JSON (MaxJSON); give big files with hostPath or write them later"}
	}
	d := strictjson.New(data)
	d.OnKey = refuseGrantShaped
	m := New()
	if err := readManifest(d, &m); err != nil {
		return Manifest{}, fromDecoder(err)
	}
	if err := d.End(); err != nil {
		return Manifest{}, fromDecoder(err)
	}
	if err := m.Validate(); err != nil {
		return Manifest{}, err
	}
	return m, nil
}

// UnmarshalJSON is Parse. On error m is unchanged.
func (m *Manifest) UnmarshalJSON(data []byte) error {
	parsed, err := Parse(data)
	if err != nil {
		return err
	}
	*m = parsed
	return nil
}

// field reads one field's value.
type field func(d *strictjson.Decoder) error

// readFields reads an object with a fixed set of fields.
func readFields(d *strictjson.Decoder, fields map[string]field) error {
	return d.Object(func(key string) error {
		if read, ok := fields[key]; ok {
			return read(d)
		}
		for known := range fields {
			if strings.EqualFold(known, key) {
				return d.Errorf("unknown field; it is spelled %q", known)
			}
		}
		known := slices.Sorted(maps.Keys(fields))
		return d.Errorf("unknown field; known here are %s", strings.Join(known, ", "))
	})
}

func readManifest(d *strictjson.Decoder, m *Manifest) error {
	return readFields(d, map[string]field{
		"version": func(d *strictjson.Decoder) error {
			n, err := d.Int()
			if err == nil && n != Version {
				err = d.Errorf("unknown version; this program reads version %d", Version)
			}
			m.Version = int(n)
			return err
		},
		"image":       text(&m.Image),
		"root":        text(&m.Root),
		"user":        text(&m.User),
		"environment": func(d *strictjson.Decoder) error { return readEnvironment(d, m) },
		"files":       func(d *strictjson.Decoder) error { return readFiles(d, m) },
		"pathGrants":  func(d *strictjson.Decoder) error { return readPathGrants(d, m) },
		"ports":       func(d *strictjson.Decoder) error { return readPorts(d, m) },
		"start":       text((*string)(&m.Start)),
		"network": func(d *strictjson.Decoder) error {
			err := text((*string)(&m.Network))(d)
			if err == nil && m.Network == NetworkUnset {
				err = d.Errorf("must be %q or %q; leave it out for the provider's default", NetworkNone, NetworkDefault)
			}
			return err
		},
		"resources": func(d *strictjson.Decoder) error {
			return readFields(d, map[string]field{
				"cpus":      number(&m.Resources.CPUs),
				"memoryMiB": positive(&m.Resources.MemoryMiB),
				"pids":      positive(&m.Resources.PIDs),
				"diskMiB":   positive(&m.Resources.DiskMiB),
			})
		},
		"lifetime": func(d *strictjson.Decoder) error {
			return readFields(d, map[string]field{
				"ttl":  duration(&m.Lifetime.TTL),
				"idle": duration(&m.Lifetime.Idle),
			})
		},
		"labels": func(d *strictjson.Decoder) error {
			return d.Object(func(key string) error {
				v, err := d.Text()
				put(&m.Labels, key, v)
				return err
			})
		},
	})
}

// put stores into a map that is made on first use, so that an empty object and
// a missing one read the same.
func put[V any](m *map[string]V, key string, v V) {
	if *m == nil {
		*m = map[string]V{}
	}
	(*m)[key] = v
}

func text(dst *string) field {
	return func(d *strictjson.Decoder) (err error) {
		*dst, err = d.Text()
		return err
	}
}

func boolean(dst *bool) field {
	return func(d *strictjson.Decoder) (err error) {
		*dst, err = d.Bool()
		return err
	}
}

func positive(dst *int64) field {
	return func(d *strictjson.Decoder) error {
		n, err := d.Int()
		if err == nil && n <= 0 {
			err = d.Errorf("must be positive; leave it out for the provider's default")
		}
		*dst = n
		return err
	}
}

func number(dst *float64) field {
	return func(d *strictjson.Decoder) error {
		s, err := d.Number()
		if err != nil {
			return err
		}
		f, err := strconv.ParseFloat(s, 64)
		if err != nil || math.IsInf(f, 0) {
			return d.Errorf("must be a number in range")
		}
		if f <= 0 {
			return d.Errorf("must be positive; leave it out for the provider's default")
		}
		*dst = f
		return nil
	}
}

func duration(dst *time.Duration) field {
	return func(d *strictjson.Decoder) error {
		s, err := d.Text()
		if err != nil {
			return err
		}
		v, err := time.ParseDuration(s)
		if err != nil {
			return d.Errorf(`must be a duration with a unit, such as "90s", "15m" or "1h30m"`)
		}
		if v <= 0 {
			return d.Errorf("must be positive; leave it out for no limit")
		}
		*dst = v
		return nil
	}
}

func readEnvironment(d *strictjson.Decoder, m *Manifest) error {
	return d.Object(func(key string) error {
		if len(m.Environment) >= MaxEntries {
			return d.Errorf("more than the limit of %d environment entries (MaxEntries)", MaxEntries)
		}
		if err := ValidEnvKey(key); err != nil {
			return d.Errorf("%s", err)
		}
		kind, err := d.Kind()
		if err != nil {
			return err
		}
		var e Entry
		switch kind {
		case strictjson.String:
			e.Literal, err = d.Text()
		case strictjson.Object:
			e.Reference, err = readReference(d)
		case strictjson.Number, strictjson.Bool, strictjson.Null:
			err = d.Errorf("must be a string or a reference, not %s; quote the value", kind)
		default:
			err = d.Errorf("must be a string or a reference, not %s", kind)
		}
		if err != nil {
			return err
		}
		put(&m.Environment, key, e)
		return nil
	})
}

// referenceType is the type references are written with.
const referenceType = "process_env"

// referenceTypes are the types accepted when reading.
var referenceTypes = []string{referenceType, "openai.agents.process_env", "temporal.worker_env_value"}

func readReference(d *strictjson.Decoder) (*Reference, error) {
	r := &Reference{}
	typed := false
	err := d.Object(func(key string) error {
		switch key {
		case "type":
			t, err := d.Text()
			if err != nil {
				return err
			}
			for _, known := range referenceTypes {
				typed = typed || t == known
			}
			if !typed {
				return d.Errorf("unknown type of reference; known are %s", strings.Join(referenceTypes, ", "))
			}
			return nil
		case "name":
			name, err := d.Text()
			if err != nil {
				return err
			}
			if err := ValidName(name); err != nil {
				return d.Errorf("%s; leave name out when source and destination are the same", err)
			}
			r.Name = name
			return nil
		case "description":
			return text(&r.Description)(d)
		}
		return d.Errorf("a reference has only type, name and description; it names a variable of the host and never holds a value")
	})
	if err == nil && !typed {
		err = d.Errorf("a reference needs type: %s", referenceType)
	}
	return r, err
}

func readFiles(d *strictjson.Decoder, m *Manifest) error {
	raw := map[string]bool{}
	return d.Object(func(key string) error {
		if len(raw) >= MaxFiles {
			return d.Errorf("more than the limit of %d files (MaxFiles)", MaxFiles)
		}
		raw[key] = true
		if err := checkFilePath(key); err != "" {
			return d.Errorf("%s", err)
		}
		f, err := readFile(d)
		if err != nil {
			return err
		}
		if f.HostPath == "" && strings.HasSuffix(key, "/") {
			return d.Errorf("a file's path must not end in a slash")
		}
		clean := path.Clean(key)
		if _, dup := m.Files[clean]; dup {
			return d.Errorf("the same file is given twice, in two spellings")
		}
		put(&m.Files, clean, f)
		return nil
	})
}

func readFile(d *strictjson.Decoder) (File, error) {
	var f File
	var sources []string
	err := d.Object(func(key string) error {
		switch key {
		case "content":
			sources = append(sources, key)
			s, err := d.Text()
			f.Content = bytesOf(s)
			return err
		case "contentBase64":
			sources = append(sources, key)
			s, err := d.Text()
			if err != nil {
				return err
			}
			b, err := base64.StdEncoding.Strict().DecodeString(s)
			if err != nil || strings.ContainsAny(s, "\r\n") {
				return d.Errorf("must be standard base64 with padding, in one piece")
			}
			f.Content = bytesOf(string(b))
			return nil
		case "hostPath":
			sources = append(sources, key)
			s, err := d.Text()
			if err == nil && s == "" {
				err = d.Errorf("must not be empty")
			}
			f.HostPath = s
			return err
		case "mode":
			s, err := d.Text()
			if err != nil {
				return err
			}
			mode, ok := parseMode(s)
			if !ok {
				return d.Errorf(`must be permission bits in octal, quoted, from "0001" to "0777", such as "0755"`)
			}
			f.Mode = mode
			return nil
		}
		return d.Errorf("unknown field; a file has content, contentBase64 or hostPath, and mode")
	})
	if err != nil {
		return File{}, err
	}
	switch {
	case len(sources) == 0:
		return File{}, d.Errorf("a file needs one of content, contentBase64 and hostPath")
	case len(sources) > 1:
		return File{}, d.Errorf("a file has only one of content, contentBase64 and hostPath; this one has %s", strings.Join(sources, " and "))
	}
	return f, nil
}

// bytesOf returns nil for an empty string, so that every empty file reads the
// same.
func bytesOf(s string) []byte {
	if s == "" {
		return nil
	}
	return []byte(s)
}

// parseMode reads "755" or "0755".
func parseMode(s string) (fs.FileMode, bool) {
	if len(s) != 3 && (len(s) != 4 || s[0] != '0') {
		return 0, false
	}
	n, err := strconv.ParseUint(s, 8, 32)
	if err != nil || n == 0 {
		return 0, false
	}
	return fs.FileMode(n), true
}

func readPathGrants(d *strictjson.Decoder, m *Manifest) error {
	return d.Array(func(i int) error {
		if i >= MaxPathGrants {
			return d.Errorf("more than the limit of %d path grants (MaxPathGrants)", MaxPathGrants)
		}
		var g PathGrant
		err := readFields(d, map[string]field{
			"path":     text(&g.Path),
			"hostPath": text(&g.HostPath),
			"readOnly": boolean(&g.ReadOnly),
		})
		m.PathGrants = append(m.PathGrants, g)
		return err
	})
}

func readPorts(d *strictjson.Decoder, m *Manifest) error {
	return d.Array(func(int) error {
		n, err := d.Int()
		if err != nil {
			return err
		}
		if n < 1 || n > 65535 {
			return d.Errorf("must be a port from 1 to 65535")
		}
		m.Ports = append(m.Ports, int(n))
		return nil
	})
}
