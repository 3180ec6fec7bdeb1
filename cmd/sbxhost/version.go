package main

import (
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/sbxhost/sbxhost/manifest"
)

// versionInfo is what `version --json` prints.
type versionInfo struct {
	Version         string `json:"version"`
	Revision        string `json:"revision,omitempty"`
	Modified        bool   `json:"modified,omitempty"`
	Go              string `json:"go"`
	OS              string `json:"os"`
	Arch            string `json:"arch"`
	ManifestVersion int    `json:"manifestVersion"`
}

func readVersion() versionInfo {
	v := versionInfo{Version: "(devel)", Go: runtime.Version(), OS: runtime.GOOS, Arch: runtime.GOARCH, ManifestVersion: manifest.Version}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	if info.Main.Version != "" {
		v.Version = info.Main.Version
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			v.Revision = s.Value
		case "vcs.modified":
			v.Modified = s.Value == "true"
		}
	}
	return v
}

func (a *app) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:               "version",
		Short:             "Print the version",
		Example:           "  sbxhost version --json",
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(*cobra.Command, []string) error {
			v := readVersion()
			if a.json {
				return a.printJSON(v)
			}
			a.printf("sbxhost %s %s %s/%s\n", v.Version, v.Go, v.OS, v.Arch)
			return nil
		},
	}
}
