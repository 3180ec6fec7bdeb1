package fakevendor

import (
	"os/exec"
	"syscall"
)

func setGroup(*exec.Cmd) {}

// Signal ends the command: there are no signals here.
func (c *Command) Signal(syscall.Signal) error { return c.Cmd.Process.Kill() }

func outcome(cmd *exec.Cmd) (int, string) { return cmd.ProcessState.ExitCode(), "" }
