package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sbxhost/sbxhost/grants"
	"github.com/sbxhost/sbxhost/internal/manifestyaml"
	"github.com/sbxhost/sbxhost/manifest"
)

// manifestFlags are the flags that make a manifest: -f and what is laid over it.
type manifestFlags struct {
	manifest string
	env      []string
	envFiles []string
	secrets  []string
	image    string
	network  string
}

func (f *manifestFlags) add(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.StringVarP(&f.manifest, "manifest", "f", "", "manifest `FILE`, YAML or JSON; - is standard input")
	fl.StringVar(&f.image, "image", "", "`IMAGE` to start from, where the provider has images")
	fl.StringVar(&f.network, "network", "", "none or default (default: the manifest's, else the provider's)")
	fl.StringArrayVarP(&f.env, "env", "e", nil, "literal variable `K=V` (repeatable)")
	fl.StringArrayVar(&f.envFiles, "env-file", nil, "`FILE` of lines K=V (literal), K or K<-SOURCE (reference) (repeatable)")
	fl.StringArrayVar(&f.secrets, "secret", nil, "reference and grant in one: `DEST[=SOURCE]` (repeatable)")
	must(cmd.RegisterFlagCompletionFunc("manifest", files("yaml", "yml", "json")))
	must(cmd.RegisterFlagCompletionFunc("network", fixed("none", "default")))
	must(cmd.RegisterFlagCompletionFunc("secret", completeVariables))
}

// readManifest builds the manifest: the file, then --env-file, then -e and
// --secret, later ones winning. It also returns the pairs of --secret, which are
// granted by being typed.
func (a *app) readManifest(f manifestFlags) (manifest.Manifest, []manifest.Pair, error) {
	m := manifest.New()
	if f.manifest != "" {
		var err error
		if m, err = a.parseManifest(f.manifest); err != nil {
			return m, nil, err
		}
		a.declared = append(a.declared, m.Pairs()...)
	}
	if m.Environment == nil {
		m.Environment = map[string]manifest.Entry{}
	}
	for _, file := range f.envFiles {
		err := readEnvFile(file, m.Environment)
		if a.declared = append(a.declared, m.Pairs()...); err != nil {
			return m, nil, err
		}
	}
	secrets, err := parsePairs("--secret", f.secrets)
	if err != nil {
		return m, nil, err
	}
	for _, kv := range f.env {
		name, value, ok := strings.Cut(kv, "=")
		if err := manifest.ValidEnvKey(name); err != nil || !ok {
			return m, nil, usageError("-e takes NAME=VALUE; to pass a variable of the host, use --secret NAME")
		}
		for _, s := range secrets {
			if s.Destination == name {
				return m, nil, usageError("-e and --secret both set %s", grants.DisplaySource(name))
			}
		}
		m.Environment[name] = manifest.Entry{Literal: value}
	}
	for _, s := range secrets {
		m.Environment[s.Destination] = manifest.Entry{Reference: &manifest.Reference{Name: s.Source}}
	}
	if f.image != "" {
		m.Image = f.image
	}
	switch n := manifest.Network(f.network); n {
	case manifest.NetworkUnset:
	case manifest.NetworkNone, manifest.NetworkDefault:
		m.Network = n
	default:
		return m, nil, usageError("--network must be none or default")
	}
	if err := m.Validate(); err != nil {
		return m, nil, err
	}
	return m, secrets, nil
}

func (a *app) parseManifest(name string) (manifest.Manifest, error) {
	data, shown, dir, err := a.readInput(name)
	if err != nil {
		return manifest.Manifest{}, err
	}
	parse := manifestyaml.Parse
	if strings.EqualFold(filepath.Ext(name), ".json") || (name == "-" && bytes.HasPrefix(bytes.TrimSpace(data), []byte("{"))) {
		parse = manifest.Parse
	}
	m, err := parse(data)
	if err != nil {
		var ye *manifestyaml.Error
		if errors.As(err, &ye) && ye.Line > 0 {
			return m, fmt.Errorf("%s:%w", shown, err) // file:line:column: …
		}
		return m, fmt.Errorf("%s: %w", shown, err)
	}
	// A manifest's relative host paths are relative to it, wherever it is run
	// from.
	for p, file := range m.Files {
		if file.HostPath != "" && !filepath.IsAbs(file.HostPath) {
			file.HostPath = filepath.Join(dir, file.HostPath)
			m.Files[p] = file
		}
	}
	for i, g := range m.PathGrants {
		if g.HostPath != "" && !filepath.IsAbs(g.HostPath) {
			m.PathGrants[i].HostPath = filepath.Join(dir, g.HostPath)
		}
	}
	return m, nil
}

// readInput reads a file, or standard input for "-".
func (a *app) readInput(name string) (data []byte, shown, dir string, err error) {
	in, shown := a.stdin, name
	if name == "-" {
		shown = "standard input"
	} else {
		f, err := os.Open(name)
		if err != nil {
			return nil, "", "", fmt.Errorf("read manifest: %w", err)
		}
		defer f.Close()
		in, dir = f, filepath.Dir(name)
	}
	data, err = io.ReadAll(io.LimitReader(in, manifest.MaxJSON+1))
	if err != nil {
		return nil, "", "", fmt.Errorf("read manifest: %w", err)
	}
	return data, shown, dir, nil
}
