package local_test

import (
	"os/exec"
	"testing"
	"time"

	"github.com/sbxhost/sbxhost/builtin/local"
	"github.com/sbxhost/sbxhost/provider"
	"github.com/sbxhost/sbxhost/provider/providertest"
	"github.com/stretchr/testify/require"
)

func harness(t *testing.T, opts local.Options) providertest.Harness {
	t.Helper()
	h := providertest.Harness{
		New: func(tb providertest.TB) provider.Provider {
			o := opts
			o.StateDir = t.TempDir()
			p, err := local.New(o)
			if err != nil {
				tb.Fatalf("%v", err)
			}
			return p
		},
		Commands:  providertest.ShellCommands("/bin/sh"),
		RealShell: true,
		Slack:     40 * time.Second, // the machine is busy
		HostArgv:  true,
		Survivors: providertest.CountHostProcesses,
	}
	for _, sh := range [][]string{{"bash"}, {"dash"}, {"busybox", "sh"}} {
		if path, err := exec.LookPath(sh[0]); err == nil {
			h.Shells = append(h.Shells, providertest.Shell{Name: sh[0], Args: append([]string{path}, sh[1:]...)})
		}
	}
	return h
}

func TestConformance(t *testing.T) {
	for _, level := range []local.Level{local.LevelNamespaces, local.LevelLandlock} {
		t.Run(string(level), func(t *testing.T) {
			h := harness(t, local.Options{Level: level})
			require.NotEmpty(t, h.Shells)
			if level == local.LevelLandlock {
				h.Skip = map[string]string{
					"create/root": "without a mount namespace the workspace is at its host path; OpenEnds says so",
					"exec/dir":    "without a mount namespace the workspace is at its host path; OpenEnds says so",
				}
			}
			providertest.Run(t, h)
		})
	}
}
