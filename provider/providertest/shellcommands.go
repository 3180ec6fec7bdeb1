package providertest

import (
	"strconv"
	"strings"
	"time"
)

// ShellCommands returns Commands for a sandbox with a POSIX shell and the usual
// tools (cat, head, ln, sleep, setsid, stty) on its PATH. shell is the shell's
// command line in the sandbox; default /bin/sh.
func ShellCommands(shell ...string) Commands {
	if len(shell) == 0 {
		shell = []string{"/bin/sh"}
	}
	// What follows the script is $0, $1 …: no quoting is needed.
	run := func(script string, args ...string) Command {
		return Command{Args: append(append(append([]string{}, shell...), "-c", script), args...)}
	}
	seconds := func(d time.Duration) string {
		return strconv.Itoa(int((d + time.Second - 1) / time.Second))
	}
	var quoted strings.Builder
	for _, s := range shell {
		quoted.WriteString("'" + strings.ReplaceAll(s, "'", `'\''`) + "' ")
	}
	// "; :" keeps the shell, and the marker in its command line, alive.
	child := func(session bool) string {
		prefix := ""
		if session {
			prefix = "setsid "
		}
		return prefix + quoted.String() + `-c 'sleep "$1"; :' "$0" "$1" & `
	}
	return Commands{
		Exit:      func(code int) Command { return run(`exit "$1"`, "sh", strconv.Itoa(code)) },
		Print:     func(o, e string) Command { return run(`printf %s "$1"; printf %s "$2" >&2`, "sh", o, e) },
		PrintArgs: func(args ...string) Command { return run(`printf '%s\0' "$@"`, append([]string{"sh"}, args...)...) },
		PrintEnv: func(name string) Command {
			return run(`eval "test \"\${$1+x}\" && printf %s \"\$$1\"" || exit 3`, "sh", name)
		},
		Environ:  func() Command { return run(`cat /proc/self/environ`) },
		Cat:      func() Command { return run(`exec cat`) },
		Dir:      func() Command { return run(`pwd`) },
		User:     func() Command { return run(`id -un 2>/dev/null || id -u`) },
		ReadFile: func(name string) Command { return run(`exec cat "$1"`, "sh", name) },
		Append:   func(file, line string) Command { return run(`printf '%s\n' "$2" >> "$1"`, "sh", file, line) },
		Symlink:  func(target, name string) Command { return run(`exec ln -s "$1" "$2"`, "sh", target, name) },
		PrintSleep: func(text string, d time.Duration, marker string) Command {
			return run(`printf %s "$2"; sleep "$1"; :`, marker, seconds(d), text)
		},
		IgnoreTerm: func(d time.Duration, marker string) Command {
			return run(`trap '' TERM; echo ready; sleep "$1"; :`, marker, seconds(d))
		},
		Background: func(d time.Duration, marker string, session bool) Command {
			return run(child(session)+`echo started`, marker, seconds(d))
		},
		Foreground: func(d time.Duration, marker string, session bool) Command {
			return run(child(session)+`echo started; wait`, marker, seconds(d))
		},
		Raise: func(signal string) Command { return run(`kill -s "$1" $$; sleep 5`, "sh", signal) },
		Spam:  func(n int64) Command { return run(`exec head -c "$1" /dev/zero`, "sh", strconv.FormatInt(n, 10)) },
		TTYSize: func() Command {
			return run(`test -t 1 || exit 1; set -- $(stty size); echo "$2x$1"`)
		},
		TTYResize: func() Command {
			return run(`test -t 1 || exit 1
size() { set -- $(stty size); echo "$2x$1"; }
was=$(size); echo "$was"
while [ "$(size)" = "$was" ]; do sleep 1; done
size`)
		},
		Script: func(script string) Command { return run(script) },
	}
}
