package daytona

import (
	"strconv"
	"strings"

	"github.com/sbxhost/sbxhost/provider"
)

// signals are Linux's, by number.
var signals = []string{"", "HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2", "PIPE", "ALRM", "TERM",
	"STKFLT", "CHLD", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG", "XCPU", "XFSZ", "VTALRM", "PROF", "WINCH", "IO", "PWR", "SYS"}

func signalNumber(name string) (int, bool) {
	for n, s := range signals {
		if n > 0 && s == name {
			return n, true
		}
	}
	return 0, false
}

// signalOf returns the signal that a shell's exit code stands for, or "".
func signalOf(code int) string {
	if n := code - 128; n > 0 && n < len(signals) {
		return signals[n]
	}
	return ""
}

// exitOf reads the runner's account of how a command ended. ok is false when it
// is no account.
func exitOf(code, flags string) (exit provider.Exit, ok bool) {
	n, err := strconv.Atoi(code)
	if err != nil || n < 0 || n > 255 {
		return exit, false
	}
	exit = provider.Exit{Kind: provider.ExitExited, Code: n, LeftRunning: -1}
	if name := signalOf(n); name != "" && strings.Contains(flags, "s") {
		exit.Kind, exit.Code, exit.Signal = provider.ExitSignaled, -1, name
	}
	return exit, true
}
