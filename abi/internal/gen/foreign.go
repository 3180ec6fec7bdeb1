package main

import (
	"bytes"
	"fmt"
	"strings"
)

// split returns the name and value type of a parameter.
func split(param string) (string, string) {
	name, typ, ok := strings.Cut(param, ":")
	if !ok {
		return "", param
	}
	return name, typ
}

func cHeader(s schema) []byte {
	var b bytes.Buffer
	p := func(f string, a ...any) { fmt.Fprintf(&b, f, a...) }
	p("/* Generated from schema.json by abi/internal/gen. DO NOT EDIT. */\n#ifndef SBX_ABI_H\n#define SBX_ABI_H\n\n#include <stdint.h>\n\n")
	for _, o := range s.Operations {
		p("#define SBX_OP_%s %d\n", strings.ToUpper(o.Name), o.Op)
	}
	p("\n")
	for _, e := range s.Errnos {
		p("#define SBX_%s (%d) /* %s */\n", e.Name, e.Value, e.Doc)
	}
	p("\n")
	for _, l := range s.Limits {
		p("#define SBX_%s %d /* %s */\n", strings.ToUpper(snake(l.Name)), l.Value, l.Doc)
	}
	p("\n#define SBX_IMPORT(name) __attribute__((import_module(\"%s\"), import_name(#name)))\n\n", s.ABI)
	ctype := map[string]string{"i32": "int32_t", "i64": "int64_t"}
	for _, im := range s.Imports {
		var params []string
		for _, q := range im.Params {
			n, t := split(q)
			c := ctype[t]
			switch n {
			case "dst":
				c, n = "void *", "dst"
			case "src", "meta", "body", "name":
				c = "const void *"
			}
			params = append(params, strings.TrimSpace(c)+" "+n)
		}
		if len(params) == 0 {
			params = []string{"void"}
		}
		ret := "void"
		if len(im.Results) > 0 {
			ret = ctype[im.Results[0]]
		}
		p("/* %s */\nSBX_IMPORT(%s) %s sbx_%s(%s);\n\n", im.Doc, im.Name, ret, im.Name, strings.Join(params, ", "))
	}
	p("#endif\n")
	return b.Bytes()
}

func rustCode(s schema) []byte {
	var b bytes.Buffer
	p := func(f string, a ...any) { fmt.Fprintf(&b, f, a...) }
	p("// Generated from schema.json by abi/internal/gen. DO NOT EDIT.\n\n//! Constants and imports of the wire contract.\n\n")
	for _, o := range s.Operations {
		p("pub const OP_%s: i32 = %d;\n", strings.ToUpper(o.Name), o.Op)
	}
	p("\n")
	for _, e := range s.Errnos {
		p("/// %s\npub const %s: i32 = %d;\n", e.Doc, e.Name, e.Value)
	}
	p("\n")
	for _, l := range s.Limits {
		p("/// %s\npub const %s: usize = %d;\n", l.Doc, strings.ToUpper(snake(l.Name)), l.Value)
	}
	p("\n#[cfg(target_arch = \"wasm32\")]\n#[link(wasm_import_module = %q)]\nextern \"C\" {\n", s.ABI)
	for _, im := range s.Imports {
		var params []string
		for _, q := range im.Params {
			n, t := split(q)
			switch n {
			case "dst":
				t = "*mut u8"
			case "src", "meta", "body", "name":
				t = "*const u8"
			}
			params = append(params, n+": "+t)
		}
		ret := ""
		if len(im.Results) > 0 {
			ret = " -> " + im.Results[0]
		}
		p("    /// %s\n    pub fn %s(%s)%s;\n", im.Doc, im.Name, strings.Join(params, ", "), ret)
	}
	p("}\n")
	return b.Bytes()
}

// snake returns the snake_case form of a CamelCase name.
func snake(n string) string {
	n = strings.ReplaceAll(n, "HTTP", "Http")
	var b strings.Builder
	for i, r := range n {
		if r >= 'A' && r <= 'Z' && i > 0 {
			b.WriteByte('_')
		}
		b.WriteRune(r)
	}
	return b.String()
}

func reference(s schema) []byte {
	var b bytes.Buffer
	p := func(f string, a ...any) { fmt.Fprintf(&b, f, a...) }
	p("<!-- Generated from abi/schema.json by abi/internal/gen. DO NOT EDIT. -->\n\n# Plugin ABI `%s`\n\n%s\n\n## Operations\n\n| number | name | request | reply |\n|---|---|---|---|\n", s.ABI, s.Description)
	for _, o := range s.Operations {
		p("| %d | `%s` | [%s](#%s) | [%s](#%s) |\n", o.Op, o.Name, o.Request, strings.ToLower(o.Request), o.Reply, strings.ToLower(o.Reply))
	}
	p("\n## Exports\n\n| name | type | what |\n|---|---|---|\n")
	for _, e := range s.Exports {
		t := e.Kind
		if e.Kind == "func" {
			t = "(" + strings.Join(e.Params, ", ") + ") → (" + strings.Join(e.Results, ", ") + ")"
		}
		if e.Optional {
			t += ", optional"
		}
		p("| `%s` | %s | %s |\n", e.Name, t, e.Doc)
	}
	p("\n## Imports from `%s`\n\n| function | returns | what |\n|---|---|---|\n", s.ABI)
	for _, im := range s.Imports {
		p("| `%s(%s)` | %s | %s |\n", im.Name, strings.Join(im.Params, ", "), strings.Join(im.Results, ", "), im.Doc)
	}
	p("\n## Errnos\n\n| name | value | meaning |\n|---|---|---|\n")
	for _, e := range s.Errnos {
		p("| `%s` | %d | %s |\n", e.Name, e.Value, e.Doc)
	}
	p("\n## Limits\n\n| name | value | meaning |\n|---|---|---|\n")
	for _, l := range s.Limits {
		p("| `%s` | %d | %s |\n", l.Name, l.Value, l.Doc)
	}
	p("\n## Documents\n")
	for _, t := range s.Types {
		p("\n### %s\n\n", t.Name)
		if t.Doc != "" {
			p("%s\n\n", t.Doc)
		}
		if len(t.Fields) == 0 {
			p("No fields.\n")
			continue
		}
		p("| field | type | |\n|---|---|---|\n")
		for _, f := range t.Fields {
			note := f.Doc
			if f.Optional {
				note = strings.TrimSpace("optional. " + note)
			}
			p("| `%s` | %s | %s |\n", f.Name, f.Type, note)
		}
	}
	return b.Bytes()
}
