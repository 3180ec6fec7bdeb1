package archtest_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sbxhost/sbxhost/internal/archtest"
)

const root = "../.."

func load(t *testing.T, dir string) *archtest.Module {
	t.Helper()
	m, err := archtest.Load(dir)
	require.NoError(t, err)
	return m
}

func TestThisModule(t *testing.T) {
	t.Parallel()
	m := load(t, root)
	require.Contains(t, m.Packages, "secret", "the module was not found")
	for _, check := range []struct {
		name string
		run  func() []archtest.Violation
	}{
		{"imports go one way and core stays lean", m.Imports},
		{"only approved code reveals values", m.Reveals},
		{"names say what is inside", m.Names},
		{"exported symbols are documented", m.Docs},
		{"what has a lock is not printed field by field", m.Printing},
		{"no machine paths and no unfinished work", func() []archtest.Violation {
			v, err := archtest.Tree(root)
			require.NoError(t, err)
			return v
		}},
	} {
		t.Run(check.name, func(t *testing.T) {
			for _, v := range check.run() {
				t.Error(v)
			}
		})
	}
}

// The module in testdata breaks every rule once. A line with "// want: words"
// must be reported with these words, and nothing else may be.
func TestViolationsAreFound(t *testing.T) {
	t.Parallel()
	const dir = "testdata/broken"
	m := load(t, dir)
	var got []string
	for _, v := range m.Reveals() {
		got = append(got, v.String())
	}
	for _, v := range m.Docs() {
		got = append(got, v.String())
	}
	for _, v := range m.Printing() {
		got = append(got, v.String())
	}
	assert.Equal(t, wanted(t, dir), lines(got))

	assert.ElementsMatch(t, []string{
		"builtin/local: imports host: imports go one way: host is above or beside builtin",
		"builtin/local: imports host/sub (through internal/bridge): imports go one way: host is above or beside builtin",
		"grants: imports provider: imports go one way: provider is above or beside grants",
		"grants: imports redact: imports go one way: redact is above or beside grants",
		"host: imports github.com/spf13/cobra: a core package depends on the standard library, wazero, the OpenTelemetry API and golang.org/x/sys only",
		"host: imports go.opentelemetry.io/otel/sdk/trace: a core package depends on the standard library, wazero, the OpenTelemetry API and golang.org/x/sys only",
		"redact: imports manifest: redact may import only [secret]",
		"cellar: a new room: give it a layer in internal/archtest",
	}, texts(m.Imports()))

	assert.ElementsMatch(t, []string{
		"internal/helpers: package helpers: name it for what it does",
		"host/types.go: name the file for its subject",
	}, texts(m.Names()))
}

func TestTreeViolationsAreFound(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"good.md":     "a manifest's root is /workspace, like /homework/x or a/work/b is not\n",
		"path.md":     "fine\nsee /wo" + "rk/main\n",
		"left.go":     "package x // TO" + "DO: later\n",
		"binary.wasm": "\x00/wo" + "rk/main",
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	v, err := archtest.Tree(dir)
	require.NoError(t, err)
	assert.ElementsMatch(t, []string{"path.md:2: a machine's path", "left.go:1: unfinished work"}, texts(v))
}

func texts(vs []archtest.Violation) []string {
	out := make([]string, 0, len(vs))
	for _, v := range vs {
		out = append(out, v.String())
	}
	return out
}

// lines maps each "file:line" to the number of reports for it.
func lines(got []string) map[string]int {
	out := map[string]int{}
	for _, g := range got {
		parts := strings.SplitN(g, ":", 3)
		where := parts[0]
		if len(parts) == 3 {
			where += ":" + parts[1]
		}
		out[where]++
	}
	return out
}

func wanted(t *testing.T, dir string) map[string]int {
	t.Helper()
	out := map[string]int{}
	err := filepath.WalkDir(dir, func(p string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(p, ".go") {
			return err
		}
		text, err := os.ReadFile(p)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(dir, p)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		for i, line := range strings.Split(string(text), "\n") {
			if strings.Contains(line, "// want file") {
				out[rel]++
			} else if n := strings.Count(line, "// want"); n > 0 {
				out[fmt.Sprintf("%s:%d", rel, i+1)] += n
			}
		}
		return nil
	})
	require.NoError(t, err)
	return out
}
