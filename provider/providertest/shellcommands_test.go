package providertest_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sbxhost/sbxhost/provider/providertest"
)

// shells of this machine; at least sh is there.
func shells() [][]string {
	out := [][]string{{"/bin/sh"}}
	for _, s := range [][]string{{"bash"}, {"dash"}, {"busybox", "sh"}} {
		if path, err := exec.LookPath(s[0]); err == nil {
			out = append(out, append([]string{path}, s[1:]...))
		}
	}
	return out
}

// The probes print exactly what the kit compares with.
func TestShellCommands(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat("/proc/self/environ"); err != nil {
		t.Skip("the probes are for Linux sandboxes")
	}
	const awkward = "  $X 'q' \"d\" `id` \\n é\n\n"
	for _, sh := range shells() {
		t.Run(strings.Join(sh, "_"), func(t *testing.T) {
			t.Parallel()
			c, dir := providertest.ShellCommands(sh...), t.TempDir()
			large := strings.Repeat(awkward, 4000)[:64<<10]
			run := func(cmd providertest.Command, stdin string) (string, string, int) {
				t.Helper()
				x := exec.CommandContext(t.Context(), cmd.Args[0], cmd.Args[1:]...)
				var out, errs bytes.Buffer
				x.Dir, x.Stdin, x.Stdout, x.Stderr = dir, strings.NewReader(stdin), &out, &errs
				x.Env = []string{"PATH=" + os.Getenv("PATH"), "AWKWARD=" + awkward, "LARGE=" + large, "EMPTY="}
				err := x.Run()
				if x.ProcessState == nil {
					require.NoError(t, err)
				}
				return out.String(), errs.String(), x.ProcessState.ExitCode()
			}
			want := func(cmd providertest.Command, stdout, stderr string, code int) {
				t.Helper()
				o, e, n := run(cmd, "input")
				require.Equal(t, code, n, e)
				require.Equal(t, stdout, o)
				require.Equal(t, stderr, e)
			}
			want(c.Exit(7), "", "", 7)
			want(c.Print(awkward, "err\n"), awkward, "err\n", 0)
			want(c.PrintArgs("a b", "", awkward, "-n"), "a b\x00\x00"+awkward+"\x00-n\x00", "", 0)
			want(c.PrintEnv("AWKWARD"), awkward, "", 0)
			want(c.PrintEnv("LARGE"), large, "", 0)
			want(c.PrintEnv("EMPTY"), "", "", 0)
			want(c.PrintEnv("MISSING"), "", "", 3)
			want(c.Cat(), "input", "", 0)
			want(c.Dir(), dir+"\n", "", 0)
			want(c.Append("f", awkward), "", "", 0)
			want(c.ReadFile("f"), awkward+"\n", "", 0)
			want(c.Symlink("f", "l"), "", "", 0)
			target, err := os.Readlink(filepath.Join(dir, "l"))
			require.NoError(t, err)
			require.Equal(t, "f", target)
			want(c.PrintSleep("text", time.Millisecond, "marker"), "text", "", 0)
			want(c.TTYSize(), "", "", 1)
			out, _, _ := run(c.Environ(), "")
			require.Contains(t, "\x00"+out, "\x00AWKWARD="+awkward+"\x00")
			out, _, _ = run(c.Spam(1<<20), "")
			require.Len(t, out, 1<<20)
			_, _, code := run(c.Raise("USR1"), "")
			require.Equal(t, -1, code, "it must die by the signal")
		})
	}
}
