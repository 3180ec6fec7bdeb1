package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/sbxhost/sbxhost/internal/config"
	"github.com/sbxhost/sbxhost/plugin"
	"github.com/sbxhost/sbxhost/plugin/scaffold"
)

func (a *app) pluginCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "plugin",
		Short: "Write, judge, approve and test provider plugins",
		Long: `A provider plugin is one WebAssembly module that tells sbxhost when to send which
approved request to a vendor of sandboxes. It is never trusted and never sees a
value. It is used only after an operator has approved exactly this file.`,
		Example: `  sbxhost plugin inspect e2b.wasm
  sbxhost plugin approve e2b.wasm
  sbxhost plugin ls`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(a.pluginNewCommand(), a.pluginPackCommand(), a.pluginInspectCommand(), a.pluginApproveCommand(), a.pluginListCommand(), a.pluginTestCommand())
	return cmd
}

// maxModule is the largest file read as a module; the runtime's own limit is
// lower.
const maxModule = 64 << 20

// readModule reads a .wasm file.
func readModule(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read the plugin: %w", err)
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxModule+1))
	if err != nil {
		return nil, fmt.Errorf("read the plugin: %w", err)
	}
	if len(b) > maxModule {
		return nil, fmt.Errorf("read the plugin: %s is larger than %d MiB", path, maxModule>>20)
	}
	return b, nil
}

// lockPath is the file with the approvals: a flag, the configuration, or
// plugins.lock beside the configuration.
func lockPath(cfg config.Loaded, flag string) string {
	switch {
	case flag != "":
		return flag
	case cfg.PluginsLock != "":
		return cfg.PluginsLock
	case cfg.Path != "":
		return filepath.Join(filepath.Dir(cfg.Path), "plugins.lock")
	}
	return "plugins.lock"
}

// clean makes text of a plugin's author fit for a terminal: nothing in it can
// move the cursor, hide, or reverse what a person is to judge.
func clean(s string) string {
	return strings.Map(func(r rune) rune {
		if r == ' ' || unicode.IsPrint(r) {
			return r
		}
		return '\ufffd'
	}, strings.ToValidUTF8(s, "\ufffd"))
}

func (a *app) pluginPackCommand() *cobra.Command {
	var manifest, out string
	cmd := &cobra.Command{
		Use:   "pack MODULE --manifest FILE [-o OUT]",
		Short: "Put a manifest into a module",
		Long: `Checks the module and the manifest and writes the module with the manifest in its
custom section sbxhost.plugin. Without -o the module itself is replaced.`,
		Example: `  GOOS=wasip1 GOARCH=wasm go build -buildmode=c-shared -o demo.raw.wasm .
  sbxhost plugin pack demo.raw.wasm --manifest manifest.json -o demo.wasm`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: files("wasm"),
		RunE: func(_ *cobra.Command, args []string) error {
			if manifest == "" {
				return usageError("name the manifest with --manifest")
			}
			module, err := readModule(args[0])
			if err != nil {
				return err
			}
			doc, err := os.ReadFile(manifest)
			if err != nil {
				return fmt.Errorf("read the manifest: %w", err)
			}
			packed, err := plugin.Pack(module, doc)
			if err != nil {
				return err
			}
			if out == "" {
				out = args[0]
			}
			if err := replaceFile(out, packed); err != nil {
				return fmt.Errorf("write the packed module: %w", err)
			}
			in, err := plugin.Inspect(packed)
			if err != nil {
				return err
			}
			if a.json {
				return a.printJSON(map[string]any{"path": out, "name": in.Name, "version": in.Version, "digest": in.Digest, "size": in.Size})
			}
			a.printf("%s: %s %s, %s\n", out, in.Name, clean(in.Version), in.Digest)
			return nil
		},
	}
	cmd.Flags().StringVar(&manifest, "manifest", "", "the plugin manifest, a JSON `FILE`")
	cmd.Flags().StringVarP(&out, "output", "o", "", "write to `FILE` (default: the module itself)")
	must(cmd.RegisterFlagCompletionFunc("manifest", files("json")))
	must(cmd.RegisterFlagCompletionFunc("output", files("wasm")))
	return cmd
}

// replaceFile writes a file completely or not at all.
func replaceFile(path string, data []byte) error {
	tmp, err := os.CreateTemp(filepath.Dir(path), ".sbxhost-*")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(tmp.Name()) }() // gone after a successful rename
	_, err = tmp.Write(data)
	if cerr := tmp.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Chmod(tmp.Name(), 0o644) //nolint:gosec // a module is no secret
	}
	if err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	return err
}

func (a *app) pluginInspectCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "inspect MODULE",
		Short: "Show everything a plugin could do, for a person to judge",
		Long: `Reads the module's manifest and imports and says where its requests would go, what
the host fills into them, what the plugin itself chooses, what of the answers it
gets to see, and whether it can be given references. Nothing of the module runs or
is compiled.`,
		Example: `  sbxhost plugin inspect e2b.wasm
  sbxhost plugin inspect e2b.wasm --json | jq .origins`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: files("wasm"),
		RunE: func(_ *cobra.Command, args []string) error {
			module, err := readModule(args[0])
			if err != nil {
				return err
			}
			in, err := plugin.Inspect(module)
			if err != nil {
				return err
			}
			if a.json {
				return a.printJSON(in)
			}
			a.printf("%s", inspection(in))
			return nil
		},
	}
}

// inspection is what a person is shown.
func inspection(in *plugin.Inspection) string {
	var b strings.Builder
	line := func(name, format string, args ...any) {
		fmt.Fprintf(&b, "%-12s %s\n", name, clean(fmt.Sprintf(format, args...)))
	}
	line("plugin", "%s %s", in.Name, in.Version)
	line("digest", "%s (%d bytes)", in.Digest, in.Size)
	line("kind", "%s", in.Kind)
	line("references", "%s", in.ReceivesReferences)
	list := func(name string, items []string) {
		if len(items) == 0 {
			items = []string{"none"}
		}
		line(name, "%s", strings.Join(items, ", "))
	}
	list("transports", in.ProtectedTransports)
	for _, t := range in.Description.Transports {
		line("exposure", "%s: %s", t.Transport, t.Exposure)
	}
	list("operations", in.Operations)
	list("credentials", in.Credentials)
	list("captures", in.Captures)
	list("settings", in.Settings)
	b.WriteString("\norigins: where its requests can go\n")
	if len(in.Origins) == 0 {
		b.WriteString("  none: it has no network\n")
	}
	for _, o := range in.Origins {
		fmt.Fprintf(&b, "  %-10s %s\n", clean(o.Name), clean(o.Address))
		for _, h := range o.Headers {
			fmt.Fprintf(&b, "  %-10s %s\n", "", clean(h))
		}
	}
	b.WriteString("\nroutes: what it can ask the host to send\n")
	if len(in.Routes) == 0 {
		b.WriteString("  none\n")
	}
	for _, r := range in.Routes {
		fmt.Fprintf(&b, "  %-10s %s (%s)\n", clean(r.ID), clean(r.Request), clean(r.Role))
		for _, part := range []struct {
			title string
			items []string
		}{{"host", r.Host}, {"plugin", r.Plugin}, {"answer", r.Reply}} {
			for i, item := range part.items {
				title := part.title
				if i > 0 {
					title = ""
				}
				fmt.Fprintf(&b, "    %-8s %s\n", title, clean(item))
			}
		}
	}
	b.WriteString("\nimports: what it calls of the host\n")
	for _, im := range in.Imports {
		fmt.Fprintf(&b, "  %s\n", clean(im))
	}
	return b.String()
}

func (a *app) pluginNewCommand() *cobra.Command {
	var lang, source string
	cmd := &cobra.Command{
		Use:   "new NAME --lang go|c|rust",
		Short: "Begin a plugin",
		Long: `Makes a folder NAME with a working sealed plugin for a small JSON API, an executable
fake of that API, a copy of the kit for authors, and a Makefile: make builds and packs
NAME.wasm, make test runs the conformance kit. Nothing is downloaded.`,
		Example: `  sbxhost plugin new demo --lang go
  cd demo && make && make test`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(_ *cobra.Command, args []string) error {
			made, err := newPlugin(args[0], lang, source)
			if err != nil {
				return err
			}
			if a.json {
				return a.printJSON(map[string]any{"path": args[0], "language": lang, "files": made})
			}
			a.printf("made %s; next: cd %s && make && make test\n", strconv.Quote(args[0]), args[0])
			return nil
		},
	}
	cmd.Flags().StringVar(&lang, "lang", "go", "`LANGUAGE`: go, c or rust")
	cmd.Flags().StringVar(&source, "source", "", "let the new Makefile run sbxhost from its source in `DIR`")
	must(cmd.RegisterFlagCompletionFunc("lang", fixed(scaffold.Languages()...)))
	return cmd
}
