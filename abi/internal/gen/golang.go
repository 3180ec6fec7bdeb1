package main

import (
	"bytes"
	"fmt"
	"strings"
)

// exported returns the Go name of a schema name.
func exported(name string) string {
	parts := strings.FieldsFunc(name, func(r rune) bool { return r == '_' })
	for i, p := range parts {
		switch p {
		case "id", "tty", "ttl", "http", "eof":
			parts[i] = strings.ToUpper(p)
		default:
			parts[i] = strings.ToUpper(p[:1]) + p[1:]
		}
	}
	out := strings.Join(parts, "")
	return strings.NewReplacer("Cpus", "CPUs", "Ttl", "TTL").Replace(out)
}

// isStruct reports whether a schema type names another document.
func isStruct(t string) bool { return t[0] >= 'A' && t[0] <= 'Z' }

func goType(f field) string {
	switch t := f.Type; {
	case t == "int":
		return "int64"
	case t == "number":
		return "float64"
	case t == "json":
		return "Raw"
	case t == "map":
		return "map[string]string"
	case t == "[]int":
		return "[]int64"
	case isStruct(t) && f.Optional:
		return "*" + t
	default:
		return t
	}
}

func goCode(s schema) []byte {
	var b bytes.Buffer
	p := func(f string, a ...any) { fmt.Fprintf(&b, f, a...) }
	p("// Code generated from schema.json by abi/internal/gen. DO NOT EDIT.\n\npackage abi\n\nimport \"strconv\"\n\n")
	p("// Operations.\nconst (\n")
	for _, o := range s.Operations {
		p("Op%s Op = %d\n", exported(o.Name), o.Op)
	}
	p(")\n\nvar opNames = map[Op]string{\n")
	for _, o := range s.Operations {
		p("Op%s: %q,\n", exported(o.Name), o.Name)
	}
	p("}\n\n// Errnos.\nconst (\n")
	for _, e := range s.Errnos {
		p("// %s: %s\n%s Errno = %d\n", errnoName(e.Name), e.Doc, errnoName(e.Name), e.Value)
	}
	p(")\n\nvar errnoNames = map[Errno]string{\n")
	for _, e := range s.Errnos {
		p("%s: %q,\n", errnoName(e.Name), e.Name)
	}
	p("}\n\n// Limits.\nconst (\n")
	for _, l := range s.Limits {
		p("// %s: %s\n%s = %d\n", l.Name, l.Doc, l.Name, l.Value)
	}
	p(")\n\n// Import is one function of the import module.\ntype Import struct {\nName string\nParams, Results []string // value types\n}\n\n// Imports lists every function a plugin may import from Module.\nfunc Imports() []Import {\nreturn []Import{\n")
	for _, im := range s.Imports {
		p("{%q, %s, %s},\n", im.Name, stringList(im.Params), stringList(im.Results))
	}
	p("}\n}\n\n")
	for _, t := range s.Types {
		writeGoType(p, t)
	}
	return b.Bytes()
}

func errnoName(n string) string {
	parts := strings.Split(strings.ToLower(strings.TrimPrefix(n, "E_")), "_")
	for i, s := range parts {
		parts[i] = strings.ToUpper(s[:1]) + s[1:]
	}
	return "Errno" + strings.Join(parts, "")
}

func stringList(params []string) string {
	if len(params) == 0 {
		return "nil"
	}
	out := make([]string, len(params))
	for i, s := range params {
		if _, t, ok := strings.Cut(s, ":"); ok {
			s = t
		}
		out[i] = fmt.Sprintf("%q", s)
	}
	return "[]string{" + strings.Join(out, ", ") + "}"
}

func writeGoType(p func(string, ...any), t document) {
	doc := t.Doc
	if doc == "" {
		doc = "Document of the wire contract."
	}
	p("// %s: %s\ntype %s struct {\n", t.Name, doc, t.Name)
	for _, f := range t.Fields {
		c := f.Doc
		if f.Optional {
			c = strings.TrimSpace("optional. " + c)
		}
		if c != "" {
			c = " // " + c
		}
		p("%s %s%s\n", exported(f.Name), goType(f), c)
	}
	p("}\n\n")
	p("// AppendJSON appends the document to b.\nfunc (v *%s) AppendJSON(b []byte) []byte {\nb = append(b, '{')\n", t.Name)
	// A leading required field needs no comma logic; otherwise track it.
	sep := "first"
	if len(t.Fields) > 0 {
		p("%s := true\n", sep)
	}
	for _, f := range t.Fields {
		name := "v." + exported(f.Name)
		if f.Optional {
			p("if %s {\n", present(f, name))
		}
		p("if !first { b = append(b, ',') }\nfirst = false\nb = append(b, `%q:`...)\n", f.Name)
		p("%s\n", appendExpr(f, name))
		if f.Optional {
			p("}\n")
		}
	}
	if len(t.Fields) > 0 {
		p("_ = first\n")
	}
	p("return append(b, '}')\n}\n\n")
	p("// DecodeJSON replaces v by the document in data. With strict set, unknown and\n// missing fields are refused; duplicates of declared fields and trailing data\n// always are. The error is a *SyntaxError.\nfunc (v *%s) DecodeJSON(data []byte, strict bool) error {\nd := newDecoder(data, strict)\n*v = %s{}\nif err := v.decode(&d); err != nil { return err }\nreturn d.end()\n}\n\n", t.Name, t.Name)
	p("func (v *%s) decode(d *decoder) error {\n", t.Name)
	p("var seen uint32\nmore, err := d.begin('{', '}')\nfor ; more && err == nil; more, err = d.next('}') {\nvar key []byte\nif key, err = d.key(); err != nil { return err }\nvar bit uint32\nswitch string(key) {\n")
	for i, f := range t.Fields {
		p("case %q:\nbit = 1<<%d\n%s\n", f.Name, i, decodeStmt(f))
	}
	p("default:\nerr = d.unknown()\n}\nif err != nil { return err }\nif bit != 0 && seen&bit != 0 { return d.fail(\"duplicate field\") }\nseen |= bit\n}\nif err != nil { return err }\n")
	required := uint32(0)
	for i, f := range t.Fields {
		if !f.Optional {
			required |= 1 << i
		}
	}
	if required != 0 {
		p("if d.strict && seen&%d != %d {\n", required, required)
		for i, f := range t.Fields {
			if !f.Optional {
				p("if seen&(1<<%d) == 0 { return in(d.fail(\"missing field\"), %q) }\n", i, f.Name)
			}
		}
		p("}\n")
	}
	p("return nil\n}\n\n")
}

func present(f field, name string) string {
	switch t := f.Type; {
	case t == "string":
		return name + ` != ""`
	case t == "int" || t == "number":
		return name + " != 0"
	case t == "bool":
		return name
	case isStruct(t):
		return name + " != nil"
	default:
		return "len(" + name + ") > 0"
	}
}

func appendExpr(f field, name string) string {
	switch t := f.Type; {
	case t == "string":
		return "b = AppendString(b, " + name + ")"
	case t == "int":
		return "b = strconv.AppendInt(b, " + name + ", 10)"
	case t == "number":
		return "b = appendFloat(b, " + name + ")"
	case t == "bool":
		return "b = strconv.AppendBool(b, " + name + ")"
	case t == "json":
		return "b = appendRaw(b, " + name + ")"
	case t == "map":
		return "b = appendStringMap(b, " + name + ")"
	case t == "[]string":
		return "b = appendStrings(b, " + name + ")"
	case t == "[]int":
		return "b = appendInts(b, " + name + ")"
	case strings.HasPrefix(t, "[]"):
		return "b = append(b, '[')\nfor i := range " + name + " {\nif i > 0 { b = append(b, ',') }\nb = " + name + "[i].AppendJSON(b)\n}\nb = append(b, ']')"
	default:
		return "b = " + name + ".AppendJSON(b)"
	}
}

func decodeStmt(f field) string {
	name := "v." + exported(f.Name)
	call := func(fn string) string {
		return fmt.Sprintf("if %s, err = d.%s(); err != nil { return in(err, %q) }", name, fn, f.Name)
	}
	opt := ""
	if f.Optional {
		opt = "if d.null() { break }\n"
	}
	switch t := f.Type; {
	case t == "string", t == "bool", t == "int":
		return opt + call(t)
	case t == "number":
		return opt + call("float")
	case t == "json":
		return opt + call("raw")
	case t == "map":
		return opt + call("stringMap")
	case t == "[]string":
		return opt + call("strings")
	case t == "[]int":
		return opt + call("ints")
	case strings.HasPrefix(t, "[]"):
		return opt + fmt.Sprintf("%s = %s{}\nmoreItems, ierr := d.begin('[', ']')\nfor ; moreItems && ierr == nil; moreItems, ierr = d.next(']') {\nvar item %s\nif ierr = item.decode(d); ierr != nil { return in(inIndex(ierr, len(%s)), %q) }\n%s = append(%s, item)\n}\nif err = ierr; err != nil { return in(err, %q) }", name, t, t[2:], name, f.Name, name, name, f.Name)
	case f.Optional:
		return opt + fmt.Sprintf("%s = &%s{}\nif err = %s.decode(d); err != nil { return in(err, %q) }", name, t, name, f.Name)
	default:
		return fmt.Sprintf("if err = %s.decode(d); err != nil { return in(err, %q) }", name, f.Name)
	}
}
