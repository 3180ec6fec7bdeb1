package spec

import (
	"github.com/sbxhost/sbxhost/abi"
)

// MaxBytes is the largest manifest that is read.
const MaxBytes = 256 << 10

// Parse reads and checks a manifest. The error is an *Error that lists
// everything wrong, each with its place.
func Parse(doc []byte) (*Manifest, error) {
	var out problems
	if len(doc) > MaxBytes {
		out.add("", "larger than %d bytes", MaxBytes)
		return nil, out.err()
	}
	v, err := abi.Parse(doc)
	if err != nil {
		out.add("", "%v", err)
		return nil, out.err()
	}
	m := read(v, &out)
	if err := out.err(); err != nil {
		return nil, err
	}
	check(m, &out)
	if err := out.err(); err != nil {
		return nil, err
	}
	return m, nil
}

func read(v abi.Value, out *problems) *Manifest {
	o := openObject(v, "", out)
	defer o.close()
	m := &Manifest{
		ABI: o.text("abi"), Name: o.text("name"), Version: o.text("version"), Description: o.text("description"),
		Kind: Kind(o.text("kind")), Operations: o.texts("operations"), NoSnapshot: false,
	}
	if v, at, ok := o.get("snapshot"); ok {
		if v.Kind() != abi.KindBool {
			out.add(at, "must be true or false")
		}
		m.NoSnapshot = !v.Bool()
	}
	o.child("exec", func(c *object) {
		m.Exec = Exec{Stream: c.flag("stream"), Stdin: c.text("stdin"), TTY: c.flag("tty"), Stderr: c.text("stderr"), Kill: c.text("kill"),
			PartialOnTimeout: c.flag("partialOnTimeout"), BackgroundSafe: c.flag("backgroundSafe"), MaxTimeoutMillis: c.duration("maxTimeout")}
	})
	m.Config = map[string]ConfigField{}
	o.entries("config", func(name string, c *object) {
		n, _ := c.number("maxLength")
		m.Config[name] = ConfigField{Type: c.text("type"), MaxLength: int(n), Enum: c.texts("enum"), Default: c.text("default"), Required: c.flag("required"), Description: c.text("description")}
	})
	o.each("credentials", func(c *object) {
		m.Credentials = append(m.Credentials, Credential{Name: c.text("name"), Description: c.text("description")})
	})
	m.Captures = map[string]Capture{}
	o.entries("captures", func(name string, c *object) { m.Captures[name] = Capture{Scope: c.text("scope")} })
	m.Origins = map[string]Origin{}
	o.entries("origins", func(name string, c *object) { m.Origins[name] = readOrigin(c) })
	o.each("routes", func(c *object) { m.Routes = append(m.Routes, readRoute(c)) })
	o.child("protectedTransport", func(c *object) {
		m.Protected = Protected{Create: c.texts("create"), Exec: c.texts("exec")}
	})
	o.child("limits", func(c *object) {
		m.Limits.MemoryMiB, _ = c.number("memoryMiB")
		m.Limits.WallMs, _ = c.number("wallMs")
	})
	return m
}

func readOrigin(c *object) Origin {
	var og Origin
	v, at, ok := c.get("url")
	switch {
	case !ok:
	case v.Kind() == abi.KindString:
		og.URL = v.Text()
	case v.Kind() == abi.KindObject:
		u := openObject(v, at, c.out)
		og.Capture = u.text("from")
		og.Allow = u.texts("allow")
		u.close()
	default:
		c.out.add(at, `must be a string or {"from": capture, "allow": [hosts]}`)
	}
	og.Configured = c.flag("configured")
	og.Headers = readHeaders(c)
	return og
}

func readHeaders(c *object) []Header {
	var hs []Header
	c.each("headers", func(h *object) {
		hs = append(hs, Header{Name: h.text("name"), Prefix: h.text("prefix"), Value: h.text("value"), Credential: h.text("credential"), Capture: h.text("capture"), Config: h.text("config"), From: h.text("from")})
	})
	return hs
}

func readRoute(c *object) Route {
	r := Route{ID: c.text("id"), Role: Role(c.text("role")), Origin: c.text("origin"), Method: c.text("method"), Path: c.text("path"),
		Params: map[string]Field{}, Query: map[string]Field{}, Headers: readHeaders(c)}
	c.entries("params", func(name string, f *object) { r.Params[name] = readField(f) })
	c.entries("query", func(name string, f *object) { r.Query[name] = readField(f) })
	r.Request.Body, r.Response.Body = BodyNone, BodyNone
	c.child("request", func(q *object) { r.Request = readRequest(q) })
	c.child("response", func(p *object) { r.Response = readResponse(p) })
	c.child("retry", func(t *object) {
		t.get("status")
		v, at, _ := t.get("status")
		for i, s := range v.Items() {
			if s.Kind() != abi.KindNumber {
				c.out.add(at, "element %d must be a status code", i)
			}
			r.Retry.Status = append(r.Retry.Status, int(s.Int()))
		}
		n, _ := t.number("max")
		r.Retry.Max = int(n)
	})
	c.child("idempotency", func(t *object) { r.Idempotency = Idempotency{Header: t.text("header"), Key: t.text("key")} })
	return r
}

func readField(f *object) Field {
	out := Field{From: f.text("from"), Value: f.text("value")}
	f.child("free", func(c *object) {
		free := readFree(c)
		out.Free = &free
	})
	return out
}

func readFree(c *object) Free {
	n, _ := c.number("maxLength")
	f := Free{Pointer: c.text("pointer"), Type: c.text("type"), MaxLength: int(n), Enum: c.texts("enum"), Optional: c.flag("optional")}
	if v, ok := c.number("min"); ok {
		f.Min = &v
	}
	if v, ok := c.number("max"); ok {
		f.Max = &v
	}
	return f
}

func readRequest(q *object) Request {
	out := Request{Body: q.text("body")}
	q.each("slots", func(s *object) {
		slot := Slot{Pointer: s.text("pointer"), From: s.text("from"), Shape: s.text("shape"), NameKey: s.text("nameKey"), ValueKey: s.text("valueKey"),
			Default: s.text("default"), Encoding: s.text("encoding"), OmitZero: s.flag("omitEmpty")}
		slot.Value, _ = s.constant("value")
		if v, at, ok := s.get("extra"); ok {
			slot.Extra = readExtra(v, at, s.out)
		}
		out.Slots = append(out.Slots, slot)
	})
	q.each("free", func(f *object) { out.Free = append(out.Free, readFree(f)) })
	q.each("parts", func(p *object) {
		out.Parts = append(out.Parts, Part{Name: p.text("name"), From: p.text("from"), Value: p.text("value"), Filename: p.text("filename")})
	})
	q.child("environment", func(e *object) { out.EnvPointer, out.EnvShape = e.text("pointer"), e.text("shape") })
	return out
}

// readExtra returns an object of text, number and boolean constants as JSON.
func readExtra(v abi.Value, at string, out *problems) string {
	o := openObject(v, at, out)
	doc := []byte{'{'}
	for i, k := range v.Keys() {
		c, _ := o.constant(k)
		if i > 0 {
			doc = append(doc, ',')
		}
		doc = abi.AppendString(doc, k)
		doc = append(doc, ':')
		doc = append(doc, c...)
	}
	return string(append(doc, '}'))
}

func readResponse(p *object) Response {
	out := Response{Body: p.text("body"), Sandbox: p.text("sandbox"), Headers: p.texts("headers")}
	p.each("capture", func(c *object) {
		out.Capture = append(out.Capture, CapturePointer{Pointer: c.text("pointer"), Name: c.text("name")})
	})
	p.each("payload", func(c *object) {
		out.Payload = append(out.Payload, Payload{Pointer: c.text("pointer"), Encoding: c.text("encoding"), To: c.text("to"), Mode: c.text("mode"), When: c.text("when")})
	})
	p.child("items", func(c *object) {
		out.Items = &Items{Pointer: c.text("pointer"), Sandbox: c.text("sandbox"), Labels: c.text("labels")}
	})
	return out
}
