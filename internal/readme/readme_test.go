package readme_test

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sbxhost/sbxhost/internal/manifestyaml"
)

const root = "../.."

func readme(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "README.md"))
	require.NoError(t, err)
	return string(text)
}

// between returns the text after start and before end.
func between(t *testing.T, text, start, end string) string {
	t.Helper()
	_, rest, ok := strings.Cut(text, start)
	require.True(t, ok, "%q is not in the README", start)
	inner, _, ok := strings.Cut(rest, end)
	require.True(t, ok)
	return inner
}

// The command in the README, typed as it stands, prints what the README says.
func TestCommand(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("sandboxes run locally on Linux only")
	}
	block := between(t, readme(t), "```\nHOST_TOKEN=", "```")
	line, rest, _ := strings.Cut(block, "\n")
	want, _, _ := strings.Cut(rest, "\n")
	cmd := exec.Command("sh", "-c", "HOST_TOKEN="+line)
	cmd.Dir = root
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	require.NoError(t, err, stderr.String())
	assert.Equal(t, strings.TrimPrefix(want, "# "), strings.TrimSpace(string(out)))
	assert.Equal(t, "token is [redacted:SANDBOX_TOKEN], length 18", strings.TrimSpace(string(out)))
}

// The README's manifest, run as the README runs it, does what it says: refused
// without the grant, redacted with it.
func TestManifest(t *testing.T) {
	t.Parallel()
	text := between(t, readme(t), "```yaml\n# manifest.yaml\n", "```")
	m, err := manifestyaml.Parse([]byte(text))
	require.NoError(t, err)
	assert.Len(t, m.Pairs(), 1)
	if runtime.GOOS != "linux" {
		t.Skip("sandboxes run locally on Linux only")
	}
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "manifest.yaml"), []byte(text), 0o600))
	bin := filepath.Join(dir, "sbxhost")
	build := exec.Command("go", "build", "-o", bin, "./cmd/sbxhost")
	build.Dir = root
	out, err := build.CombinedOutput()
	require.NoError(t, err, string(out))
	for _, session := range []string{
		between(t, readme(t), "```\n$ sbxhost run", "$ echo"),
		between(t, readme(t), "```\n$ HOST_TOKEN=", "```"),
	} {
		line, want, _ := strings.Cut(session, "\n")
		if !strings.Contains(line, "sbxhost run") {
			line = "sbxhost run" + line
		} else {
			line = "HOST_TOKEN=" + line
		}
		cmd := exec.Command("sh", "-c", line)
		cmd.Dir = dir
		cmd.Env = []string{"PATH=" + dir + ":" + os.Getenv("PATH"), "HOME=" + dir}
		out, err := cmd.CombinedOutput()
		assert.Equal(t, want, string(out))
		if strings.Contains(want, "not granted") {
			var exit *exec.ExitError
			require.ErrorAs(t, err, &exit)
			assert.Equal(t, 125, exit.ExitCode())
		}
	}
}

// The README's Go code is the tested example's.
func TestExampleIsTheTestedOne(t *testing.T) {
	t.Parallel()
	const file = "example_linux_test.go"
	source, err := os.ReadFile(file)
	require.NoError(t, err)
	fset := token.NewFileSet()
	parsed, err := parser.ParseFile(fset, file, source, parser.SkipObjectResolution)
	require.NoError(t, err)
	var body string
	for _, d := range parsed.Decls {
		if fn, ok := d.(*ast.FuncDecl); ok && fn.Name.Name == "embed" {
			body = string(source[fset.Position(fn.Body.Lbrace).Offset+1 : fset.Position(fn.Body.Rbrace).Offset])
		}
	}
	body = strings.Trim(regexp.MustCompile(`(?m)^\t`).ReplaceAllString(body, ""), "\n")
	assert.Equal(t, body, strings.Trim(between(t, readme(t), "<!-- example -->\n```go\n", "```"), "\n"))
}

var link = regexp.MustCompile(`\]\(([^)#]+)\)`)

// Links to files of the repository lead somewhere.
func TestLinks(t *testing.T) {
	t.Parallel()
	pages, err := filepath.Glob(filepath.Join(root, "*.md"))
	require.NoError(t, err)
	docs, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	require.NoError(t, err)
	for _, page := range append(pages, docs...) {
		text, err := os.ReadFile(page)
		require.NoError(t, err)
		for _, m := range link.FindAllStringSubmatch(string(text), -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			_, err := os.Stat(filepath.Join(filepath.Dir(page), m[1]))
			assert.NoError(t, err, "%s links to %s", page, m[1])
		}
	}
}
