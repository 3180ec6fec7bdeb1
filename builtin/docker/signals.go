package docker

import "strings"

// signals of Linux on every architecture that we have a supervisor for, by
// number. The names are not this machine's: it may be another system.
var signals = []string{1: "HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2", "PIPE", "ALRM",
	"TERM", "STKFLT", "CHLD", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG", "XCPU", "XFSZ", "VTALRM", "PROF", "WINCH", "IO", "PWR", "SYS"}

func signalNumber(name string) byte {
	for n, s := range signals {
		if s != "" && s == strings.ToUpper(name) {
			return byte(n) //nolint:gosec // 31 at most
		}
	}
	return 0
}

func signalName(n byte) string {
	if int(n) < len(signals) {
		return signals[n]
	}
	return itoa(int(n))
}
