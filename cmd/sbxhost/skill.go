package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/sbxhost/sbxhost/grants"
	"github.com/sbxhost/sbxhost/internal/manifestyaml"
)

// requiredSecrets is the key of a skill's front matter that lists what it needs.
const requiredSecrets = "required-secrets"

// maxSkill bounds the file with it.
const maxSkill = 1 << 20

// readSkill returns what the YAML front matter of a Markdown file declares under
// required-secrets: a list of names, or of mappings {name, optional}. Everything
// else in the file is left alone.
func readSkill(file string) ([]grants.Requirement, error) {
	data, err := readSmall("--skill", file, maxSkill)
	if err != nil {
		return nil, err
	}
	front, ok := frontMatter(string(data))
	if !ok {
		return nil, nil
	}
	doc, err := manifestyaml.ToJSON([]byte(front))
	if err != nil {
		var ye *manifestyaml.Error
		if errors.As(err, &ye) && ye.Line > 0 {
			ye.Line++ // the opening "---"
			return nil, fmt.Errorf("%s:%w", file, ye)
		}
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	var keys map[string]json.RawMessage
	if err := json.Unmarshal(doc, &keys); err != nil {
		return nil, fmt.Errorf("%s: the front matter must be a mapping", file)
	}
	raw, ok := keys[requiredSecrets]
	if !ok {
		return nil, nil
	}
	reqs, err := grants.ParseRequirements(raw)
	if err != nil {
		return nil, fmt.Errorf("%s: %s: %w", file, requiredSecrets, err)
	}
	return reqs, nil
}

// frontMatter returns the text between a first line "---" and the next one.
func frontMatter(text string) (string, bool) {
	text = strings.TrimPrefix(text, "\ufeff")
	opening, rest, ok := strings.Cut(text, "\n")
	if !ok || strings.TrimRight(opening, " \t\r") != "---" {
		return "", false
	}
	var b strings.Builder
	for line := range strings.Lines(rest) {
		if strings.TrimRight(line, " \t\r\n") == "---" {
			return b.String(), true
		}
		b.WriteString(line)
	}
	return "", false
}
