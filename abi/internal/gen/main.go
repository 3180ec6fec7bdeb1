// Command gen writes everything that follows from abi/schema.json: the Go
// codecs, the C header, the Rust constants and the reference page. Run it in the
// abi folder with go generate.
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"go/format"
	"os"
	"strings"
)

type schema struct {
	ABI         string `json:"abi"`
	Description string `json:"description"`
	Operations  []struct {
		Name    string `json:"name"`
		Op      int    `json:"op"`
		Request string `json:"request"`
		Reply   string `json:"reply"`
	} `json:"operations"`
	Exports []signature `json:"exports"`
	Imports []signature `json:"imports"`
	Errnos  []constant  `json:"errnos"`
	Limits  []constant  `json:"limits"`
	Types   []document  `json:"types"`
}

type signature struct {
	Name     string   `json:"name"`
	Kind     string   `json:"kind"`
	Params   []string `json:"params"`
	Results  []string `json:"results"`
	Optional bool     `json:"optional"`
	Doc      string   `json:"doc"`
}

type constant struct {
	Name  string `json:"name"`
	Value int64  `json:"value"`
	Doc   string `json:"doc"`
}

type document struct {
	Name   string  `json:"name"`
	Side   string  `json:"side"`
	Doc    string  `json:"doc"`
	Fields []field `json:"fields"`
}

type field struct {
	Name     string `json:"name"`
	Type     string `json:"type"`
	Optional bool   `json:"optional"`
	Doc      string `json:"doc"`
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "gen:", err)
		os.Exit(1)
	}
}

func run() error {
	raw, err := os.ReadFile("schema.json")
	if err != nil {
		return err
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.DisallowUnknownFields()
	var s schema
	if err := dec.Decode(&s); err != nil {
		return fmt.Errorf("schema.json: %w", err)
	}
	src, err := format.Source(goCode(s))
	if err != nil {
		return err
	}
	for path, content := range map[string][]byte{
		"zz_generated.go":       src,
		"include/sbx_abi.h":     cHeader(s),
		"rust/src/generated.rs": rustCode(s),
		"../docs/abi.md":        reference(s),
	} {
		if i := strings.LastIndexByte(path, '/'); i > 0 {
			if err := os.MkdirAll(path[:i], 0o755); err != nil {
				return err
			}
		}
		if err := os.WriteFile(path, content, 0o644); err != nil {
			return err
		}
	}
	return nil
}
