// Package scaffold writes the folder of a new provider plugin: a small sealed
// provider that works, its vendor's HTTP fake, and everything needed to build
// both without a network. It is what sbxhost plugin new does.
package scaffold

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"text/template"

	"github.com/sbxhost/sbxhost/abi"
	"github.com/sbxhost/sbxhost/plugin"
	"github.com/sbxhost/sbxhost/plugin/plugintest/fakevendor"
)

//go:embed all:templates
var templates embed.FS

// modulePath is the module whose sources the new folder gets a copy of.
const modulePath = "github.com/sbxhost/sbxhost"

// goVersion is the Go version of that copy.
const goVersion = "1.26.0"

// Options adjust what Write writes. The zero value is for a released binary on
// the PATH.
type Options struct {
	// Command is how the new Makefile calls sbxhost, as shell words. Default:
	// what Command returns.
	Command string
	// Source is a checkout of sbxhost that the new Makefile runs sbxhost from,
	// where Command is empty.
	Source string
}

// Languages returns the languages there are templates for.
func Languages() []string { return []string{"go", "c", "rust"} }

// Write makes dir and in it a plugin called name, in the language lang, and
// returns the names of its files. A folder that exists must be empty. On an error
// it removes nothing: it says that what it wrote so far is incomplete.
func Write(dir, name, lang string, o Options) ([]string, error) {
	if !slices.Contains(Languages(), lang) {
		return nil, fmt.Errorf("new plugin: unknown language %q; there are %s", lang, strings.Join(Languages(), ", "))
	}
	switch {
	case o.Command != "":
	case o.Source != "":
		src, err := filepath.Abs(o.Source)
		if err != nil {
			return nil, fmt.Errorf("new plugin: %w", err)
		}
		o.Command = fromSource(src)
	default:
		o.Command = Command()
	}
	data := map[string]string{
		"Name": name, "Crate": strings.ReplaceAll(name, "-", "_"), "Sbxhost": o.Command, "Module": modulePath, "Go": goVersion, "Lang": lang,
	}
	files := map[string][]byte{}
	for _, from := range []string{"common", lang} {
		if err := render(files, from, data); err != nil {
			return nil, err
		}
	}
	// The name is judged by what it is for.
	if _, err := plugin.ParseManifest(files["manifest.json"]); err != nil {
		return nil, fmt.Errorf("new plugin: %q cannot be a plugin's name: %w", name, err)
	}
	if err := addKit(files, lang); err != nil {
		return nil, err
	}
	if err := store(dir, files); err != nil {
		return nil, err
	}
	return slices.Sorted(maps.Keys(files)), nil
}

// render adds a folder of templates.
func render(files map[string][]byte, from string, data map[string]string) error {
	root := path.Join("templates", from)
	return fs.WalkDir(templates, root, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := templates.ReadFile(p)
		if err != nil {
			return err
		}
		t, err := template.New(p).Delims("<%", "%>").Option("missingkey=error").Parse(string(text))
		if err != nil {
			return err
		}
		var b bytes.Buffer
		if err := t.Execute(&b, data); err != nil {
			return err
		}
		name := strings.TrimSuffix(strings.TrimPrefix(p, root+"/"), ".tmpl")
		if name == "gitignore" {
			name = ".gitignore"
		}
		files[name] = b.Bytes()
		return nil
	})
}

// addKit adds the copy of the kit: what the language needs, and what the fake
// does.
func addKit(files map[string][]byte, lang string) error {
	files["kit/go.mod"] = []byte("module " + modulePath + "\n\ngo " + goVersion + "\n")
	if err := addTree(files, fakevendor.Source(), "kit/plugin/plugintest/fakevendor", func(string) bool { return true }); err != nil {
		return err
	}
	want := map[string]func(p string) bool{
		"go":   func(p string) bool { return !strings.HasPrefix(p, "include/") && !strings.HasPrefix(p, "rust/") },
		"c":    func(p string) bool { return strings.HasPrefix(p, "include/") },
		"rust": func(p string) bool { return strings.HasPrefix(p, "rust/") },
	}
	return addTree(files, abi.Kit(), "kit/abi", want[lang])
}

func addTree(files map[string][]byte, tree fs.FS, under string, want func(p string) bool) error {
	return fs.WalkDir(tree, ".", func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !want(p) {
			return err
		}
		// Tests have dependencies, and what embeds these sources cannot be
		// embedded again.
		if strings.HasSuffix(p, "_test.go") || p == "kit.go" || p == "source.go" {
			return nil
		}
		files[path.Join(under, p)], err = fs.ReadFile(tree, p)
		return err
	})
}

// store writes the files.
func store(dir string, files map[string][]byte) error {
	if list, err := os.ReadDir(dir); err == nil && len(list) > 0 {
		return fmt.Errorf("new plugin: the folder %s is not empty; choose another name or remove it", dir)
	} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("new plugin: %w", err)
	}
	for name, text := range files {
		p := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil { //nolint:gosec // sources to be read
			return fmt.Errorf("new plugin: %w", err)
		}
		if err := os.WriteFile(p, text, 0o644); err != nil { //nolint:gosec // as above
			return fmt.Errorf("new plugin: %w; the folder is incomplete, remove it", err)
		}
	}
	return nil
}
