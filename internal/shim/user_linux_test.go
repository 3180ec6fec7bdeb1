package shim_test

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sbxhost/sbxhost/internal/shim"
	"github.com/sbxhost/sbxhost/internal/shim/wire"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Users are looked up in the container, as engines do it.
func TestWorkloadUser(t *testing.T) {
	t.Parallel()
	b, _ := startBox(t, boxOptions{})
	for user, want := range map[string]string{
		"":              "0 0 0 51 /root",
		"root":          "0 0 0 51 /root",
		"0":             "0 0 0 51 /root",
		"app":           "1000 1001 50 51 1001 /workspace",
		"1000":          "1000 1001 50 51 1001 /workspace",
		"app:staff":     "1000 50 50 /workspace",
		"app:77":        "1000 77 77 /workspace",
		"1000:wheel":    "1000 51 51 /workspace",
		"other":         "1002 1002 50 1002 /nowhere",
		"4242":          "4242 0 0 /",
		"4242:4343":     "4242 4343 4343 /",
		"4242:staff":    "4242 50 50 /",
		"2147483647":    "2147483647 0 0 /",
		"no-one":        "ENOENT user",
		"app:no-group":  "ENOENT group",
		"no-one:no-grp": "ENOENT user",
		"app:":          "EINVAL group",
		"app:a:b":       "EINVAL group",
		"2147483648":    "ENOENT user",
		"-1":            "ENOENT user",
		"broken line":   "ENOENT user",
	} {
		t.Run(user, func(t *testing.T) {
			x, out, _, err := b.tryExec("u", user, `echo $(id -u) $(id -g) $(id -G | tr ' ' '\n' | sort -n) $HOME`)
			if f := strings.Fields(want); strings.HasPrefix(f[0], "E") {
				var se *shim.StartError
				require.ErrorAs(t, err, &se)
				assert.Equal(t, wire.StageUser, se.Stage)
				assert.Equal(t, map[string]syscall.Errno{"ENOENT": syscall.ENOENT, "EINVAL": syscall.EINVAL}[f[0]], syscall.Errno(se.Errno))
				assert.Equal(t, f[1], se.Detail)
				return
			}
			require.NoError(t, err)
			wait(t, x)
			assert.Equal(t, want+"\n", out.String())
		})
	}
}

func TestWorkloadIsConfined(t *testing.T) {
	t.Parallel()
	b, _ := startBox(t, boxOptions{})
	for user, caps := range map[string]string{"app": "0000000000000000", "": "00000000000004fb"} {
		x, out, _ := b.exec("c", user, `grep -E '^(CapInh|CapPrm|CapEff|CapBnd|CapAmb|NoNewPrivs)' /proc/self/status; ulimit -c; ulimit -Hc; touch /x 2>&1; touch /tmp/ok.$$ && ls /proc/self/fd`)
		wait(t, x)
		assert.Contains(t, out.String(), "CapInh:\t0000000000000000\nCapPrm:\t"+caps+"\nCapEff:\t"+caps+"\n")
		assert.Contains(t, out.String(), "CapAmb:\t0000000000000000\nNoNewPrivs:\t1\n0\n0\n")
		assert.Contains(t, out.String(), "Read-only file system")
		assert.True(t, strings.HasSuffix(out.String(), "\n0\n1\n2\n3\n"), "descriptors beyond the standard streams and ls's own: %s", out)
	}
}

// A request's own HOME wins, a long environment arrives whole.
func TestWorkloadEnvironment(t *testing.T) {
	t.Parallel()
	b, _ := startBox(t, boxOptions{Env: []string{"IMAGE=image"}})
	value := strings.Repeat("ä\n\"'$`\\ ", 64<<10/10)
	for _, tty := range []bool{false, true} {
		x, out, _ := b.exec("e", "app", `printf '%s %s %s' "$HOME" "$IMAGE" $(printf %s "$BIG" | sha256sum | head -c 8)`, func(r *shim.Request) {
			r.Env = append(r.Env, []byte("HOME=/mine"), []byte("BIG="+value))
			r.TTY, r.Cols, r.Rows = tty, 80, 24
		})
		wait(t, x)
		y, sum, _ := b.exec("s", "app", `sha256sum | head -c 8`, func(r *shim.Request) { r.Input = strings.NewReader(value) })
		wait(t, y)
		assert.Equal(t, "/mine  "+sum.String(), out.String())
	}
}

func TestWorkloadDirectory(t *testing.T) {
	t.Parallel()
	b, _ := startBox(t, boxOptions{Root: "/workspace", User: "app"})
	dir := func(d string) func(*shim.Request) { return func(r *shim.Request) { r.Dir = d } }
	x, out, _ := b.exec("d", "app", `pwd; mkdir -m 0 shut`, dir("/workspace"))
	wait(t, x)
	assert.Equal(t, "/workspace\n", out.String())
	for d, errno := range map[string]syscall.Errno{"/not/there": syscall.ENOENT, "/etc/passwd": syscall.ENOTDIR, "/workspace/shut": syscall.EACCES} {
		_, _, _, err := b.tryExec("d", "app", `echo started >&2`, dir(d))
		var se *shim.StartError
		require.ErrorAs(t, err, &se, d)
		assert.Equal(t, wire.StageDir, se.Stage)
		assert.Equal(t, errno, syscall.Errno(se.Errno), d)
	}
}

// Traps 1 and 6: the supervisor makes the terminal; it belongs to the user.
func TestTrap01TerminalInAContainer(t *testing.T) {
	t.Parallel()
	b, _ := startBox(t, boxOptions{})
	for _, user := range []string{"app", ""} {
		x, out, _ := b.exec("t", user, `stty size; tty; stat -c %u $(tty); : <$(tty) && : </dev/tty && echo opened; read l; echo "got $l"`, live(),
			func(r *shim.Request) { r.TTY, r.Cols, r.Rows = true, 132, 44 })
		out.waitFor(t, "opened\r\n") // with what its end becomes: nothing may come between
		_, err := x.Stdin().Write([]byte("line\n"))
		require.NoError(t, err)
		wait(t, x)
		uid := map[string]string{"app": "1000", "": "0"}[user]
		text := strings.ReplaceAll(out.String(), "\r", "")
		assert.True(t, strings.HasPrefix(text, "44 132\n/dev/pts/"), "%q", text)
		assert.Contains(t, text, "\n"+uid+"\nopened\n")
		assert.Contains(t, text, "got line")
		assert.NotContains(t, text, "canary")
	}
}

// A kill by control frame is answered within 100 ms, and exactly one exit frame comes.
func TestKillIsQuick(t *testing.T) {
	t.Parallel()
	b, _ := startBox(t, boxOptions{})
	m := marker(t)
	best := time.Hour
	// A busy machine delays some; one that waits for a look by the clock delays all.
	for first := time.Now(); best >= 100*time.Millisecond && time.Since(first) < time.Minute; {
		x, out, _ := b.exec("q", "app", `trap '' TERM; setsid sh -c 'trap "" TERM; sleep `+m+`' & echo up; sleep `+m)
		out.waitFor(t, "up")
		began := time.Now()
		require.NoError(t, x.Kill(soon(t), 0))
		best = min(best, time.Since(began))
		assert.True(t, wait(t, x).TreeDead)
		assert.Empty(t, b.inside(m))
	}
	assert.Less(t, best, 100*time.Millisecond)
}

// The end of the transport before the exit frame kills the tree, also one that has
// changed users' sessions and is not the supervisor's user.
func TestTrap02TransportEndInAContainer(t *testing.T) {
	t.Parallel()
	b, _ := startBox(t, boxOptions{})
	m := marker(t)
	x, out, e := b.exec("q", "app", `trap '' TERM; setsid sleep `+m+` & echo up; sleep `+m)
	out.waitFor(t, "up")
	require.NoError(t, e.in.Close())
	b.gone("the tree", func() []int { return b.everything() })
	_ = wait(t, x)
}
