package daytonatest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync/atomic"
	"time"
)

// maxEnvValue is the kernel's bound on one NAME=VALUE.
const maxEnvValue = 128 << 10

// executeRequest is the body of execute and, with Code, of code-run.
type executeRequest struct {
	Command  string            `json:"command"`
	Cwd      string            `json:"cwd"`
	Envs     map[string]string `json:"envs"`
	Timeout  json.RawMessage   `json:"timeout"`
	Code     string            `json:"code"`
	Language string            `json:"language"`
	Argv     []string          `json:"argv"`
}

func (c *call) execute() {
	var in executeRequest
	if !c.decode(&in) {
		return
	}
	if strings.TrimSpace(in.Command) == "" {
		c.fail(http.StatusBadRequest, "empty command")
		return
	}
	d := c.daemon()
	if d == nil {
		return
	}
	// The script is the shell's input.
	c.runCommand(d, in, strings.NewReader(in.Command), d.shell())
}

// codeRun runs a program text; only shell scripts, and Python where it is there.
func (c *call) codeRun() {
	var in executeRequest
	if !c.decode(&in) {
		return
	}
	d := c.daemon()
	if d == nil {
		return
	}
	in.Command = in.Code
	switch in.Language {
	case "python", "":
		c.runCommand(d, in, strings.NewReader(""), "python3", append([]string{"-c", in.Code}, in.Argv...)...)
	case "bash", "sh", "shell":
		c.runCommand(d, in, strings.NewReader(""), "/bin/sh", append([]string{"-c", in.Code, "sh"}, in.Argv...)...)
	default:
		c.fail(http.StatusBadRequest, "unsupported language: "+in.Language)
	}
}

func (c *call) runCommand(d *daemon, in executeRequest, stdin *strings.Reader, program string, args ...string) {
	timeout, ok := c.timeout(in.Timeout)
	if !ok {
		return
	}
	for k := range in.Envs {
		if !envName.MatchString(k) {
			c.fail(http.StatusBadRequest, "invalid environment variable name: "+k)
			return
		}
	}
	c.s.mu.Lock()
	knows := c.sb.knowsEnvs()
	c.s.mu.Unlock()
	if _, forget := c.s.faults.is(IgnoreEnvs, c.op, c.sb); forget || !knows {
		in.Envs = nil
	}
	for k, v := range in.Envs {
		if strings.ContainsRune(v, 0) {
			c.ran(-1, "fork/exec "+program+": invalid argument")
			return
		}
		if len(k)+1+len(v) >= maxEnvValue {
			c.ran(-1, "fork/exec "+program+": argument list too long")
			return
		}
	}
	dir := homeDir
	if in.Cwd != "" {
		dir = d.absolute(in.Cwd)
	}
	dir, err := d.jail.resolve(dir, true)
	if err == nil {
		var info os.FileInfo
		if info, err = os.Stat(d.jail.root() + dir); err == nil && !info.IsDir() {
			err = errors.New("not a directory")
		}
	}
	if err != nil {
		c.ran(-1, "fork/exec "+program+": "+reasonOf(err))
		return
	}
	cmd := d.jail.command(dir, d.environ(in.Envs), program, args...)
	cmd.Stdin = stdin
	var output bytes.Buffer
	cmd.Stdout = &output
	cmd.Stderr = &output
	if err := cmd.Start(); err != nil {
		c.ran(-1, "fork/exec "+program+": "+reasonOf(err))
		return
	}
	c.started(d, in.Command, in.Envs, cmd)
	if _, ignore := c.s.faults.is(IgnoreTimeout, c.op, c.sb); ignore || !knows {
		timeout = 0
	}
	c.answerWhenDone(d, cmd, &output, timeout)
}

// reasonOf is an error's own text, without the path of the machine.
func reasonOf(err error) string {
	var p *os.PathError
	if errors.As(err, &p) {
		return p.Err.Error()
	}
	return err.Error()
}

// started puts a command on the record.
func (c *call) started(d *daemon, command string, envs map[string]string, cmd *exec.Cmd) {
	names := make([]string, 0, len(envs))
	for k := range envs {
		names = append(names, k)
	}
	slices.Sort(names)
	c.s.rec.ran(Execution{Time: c.s.Now(), Op: c.op, Sandbox: d.sb.id, Command: command, Envs: names})
	c.s.rec.add(Record{Kind: RecordArgv, Sandbox: d.sb.id, Name: string(c.op), Data: []byte(strings.Join(cmd.Args, "\x00"))})
}

// answerWhenDone waits for the command and for everybody who holds its output.
// The command goes on when the client goes away.
func (c *call) answerWhenDone(d *daemon, cmd *exec.Cmd, output *bytes.Buffer, timeout time.Duration) {
	var late atomic.Bool
	done := make(chan error, 1)
	c.s.jobs.Go(func() {
		if timeout > 0 {
			killer := time.AfterFunc(timeout, func() {
				late.Store(true)
				killGroup(cmd)
			})
			defer killer.Stop()
		}
		done <- cmd.Wait()
	})
	var expired <-chan time.Time
	if timeout > 0 {
		// What left the process group may hold the output on.
		t := time.NewTimer(timeout + 200*time.Millisecond)
		defer t.Stop()
		expired = t.C
	}
	select {
	case err := <-done:
		switch {
		case late.Load():
			c.timedOut()
		case c.sb.running() != d:
			c.empty(http.StatusBadGateway) // the sandbox was stopped under it
		default:
			c.ran(exitCode(err), output.String())
		}
	case <-expired:
		c.timedOut()
	case <-d.gone:
		c.empty(http.StatusBadGateway)
	case <-c.r.Context().Done():
	case <-c.s.done:
	}
}

func (c *call) timedOut() {
	c.failCode(http.StatusRequestTimeout, "PROCESS_EXECUTION_TIMEOUT", "command execution timeout")
}

func (c *call) ran(code int, output string) {
	body := map[string]any{"exitCode": code, "result": output}
	if _, ok := c.s.faults.is(NoExitCode, c.op, c.sb); ok {
		delete(body, "exitCode")
	}
	c.json(http.StatusOK, body)
}

func exitCode(err error) int {
	var e *exec.ExitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &e):
		return e.ExitCode() // -1 for a signal
	}
	return -1
}

// timeout reads a number of whole seconds; absent and 0 mean none.
func (c *call) timeout(raw json.RawMessage) (time.Duration, bool) {
	if len(raw) == 0 || string(raw) == "null" {
		return 0, true
	}
	var n uint32
	if err := json.Unmarshal(raw, &n); err != nil {
		c.failCode(http.StatusBadRequest, "INVALID_REQUEST_BODY",
			fmt.Sprintf("json: cannot unmarshal number %s into Go struct field ExecuteRequest.timeout of type uint32", raw))
		return 0, false
	}
	return min(time.Duration(n)*time.Second, math.MaxInt64), true
}
