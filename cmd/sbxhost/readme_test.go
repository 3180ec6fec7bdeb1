package main

import (
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sbxhost/sbxhost/internal/manifestyaml"
)

// The command in the README, typed as it stands, prints what the README says.
func TestReadmeCommand(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("sandboxes run locally on Linux only")
	}
	readme, err := os.ReadFile("../../README.md")
	require.NoError(t, err)
	_, rest, ok := strings.Cut(string(readme), "```\nHOST_TOKEN=")
	require.True(t, ok)
	line, rest, _ := strings.Cut(rest, "\n")
	want, _, _ := strings.Cut(rest, "\n")
	cmd := exec.Command("sh", "-c", "HOST_TOKEN="+line)
	cmd.Dir = "../.."
	out, err := cmd.Output()
	require.NoError(t, err)
	assert.Equal(t, strings.TrimPrefix(want, "# "), strings.TrimSpace(string(out)))
}

// The README's manifest is one.
func TestReadmeManifest(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile("../../README.md")
	require.NoError(t, err)
	_, rest, ok := strings.Cut(string(readme), "```yaml\n# manifest.yaml\n")
	require.True(t, ok)
	text, _, _ := strings.Cut(rest, "```")
	m, err := manifestyaml.Parse([]byte(text))
	require.NoError(t, err)
	assert.Len(t, m.Pairs(), 1)
}
