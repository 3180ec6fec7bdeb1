//go:build unix

package fakevendor

import (
	"os/exec"
	"syscall"
)

func setGroup(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// Signal signals the command's process group.
func (c *Command) Signal(sig syscall.Signal) error { return syscall.Kill(-c.Cmd.Process.Pid, sig) }

func outcome(cmd *exec.Cmd) (int, string) {
	ws, ok := cmd.ProcessState.Sys().(syscall.WaitStatus)
	if ok && ws.Signaled() {
		return -1, signalName(ws.Signal())
	}
	return cmd.ProcessState.ExitCode(), ""
}

func signalName(s syscall.Signal) string {
	switch s {
	case syscall.SIGTERM:
		return "TERM"
	case syscall.SIGKILL:
		return "KILL"
	case syscall.SIGINT:
		return "INT"
	}
	return s.String()
}
