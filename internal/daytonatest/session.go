package daytonatest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/coder/websocket"
)

// session is one shell that lives on between commands. Its fields are guarded by
// daemon.mu.
type session struct {
	id       string
	dir      string // in the sandbox
	cmd      *exec.Cmd
	stdin    io.WriteCloser
	ended    chan struct{}
	commands []*sessionCommand
}

type sessionCommand struct {
	id, text string
	async    bool
	echo     bool // of input, into the log
	dir      string
	in       *os.File // held open until the end; guarded by daemon.mu
}

// The markers that label lines of a command's log.
var (
	outMarker = []byte{1, 1, 1}
	errMarker = []byte{2, 2, 2}
)

// script is what the session's shell is given for each command: the command is
// sourced, so that cwd, exports and options stay; two loops label what it prints
// line by line. Its input is a pipe that the daemon holds open: a command that
// reads it waits for input that may never come. The loops are why a missing
// final newline is added, NULs are dropped, and the order of the two streams is
// lost.
const script = `{
__daytona_d='%[1]s'
mkfifo "$__daytona_d/out.pipe" "$__daytona_d/err.pipe"
( while IFS= read -r __daytona_l || [ -n "$__daytona_l" ]; do printf '\001\001\001%%s\n' "$__daytona_l"; done <"$__daytona_d/out.pipe" >>"$__daytona_d/output.log" ) 2>/dev/null &
__daytona_o=$!
( while IFS= read -r __daytona_l || [ -n "$__daytona_l" ]; do printf '\002\002\002%%s\n' "$__daytona_l"; done <"$__daytona_d/err.pipe" >>"$__daytona_d/output.log" ) 2>/dev/null &
__daytona_e=$!
. "$__daytona_d/cmd.sh" <"$__daytona_d/in.pipe" >"$__daytona_d/out.pipe" 2>"$__daytona_d/err.pipe"
printf '%%s\n' "$?" >"$__daytona_d/exit_code.part"
wait "$__daytona_o" "$__daytona_e"
mv "$__daytona_d/exit_code.part" "$__daytona_d/exit_code"
rm -f "$__daytona_d/out.pipe" "$__daytona_d/err.pipe" "$__daytona_d/in.pipe"
}
`

func (s *session) objectLocked() map[string]any {
	commands := []any{}
	for _, k := range s.commands {
		commands = append(commands, map[string]any{"id": k.id, "command": k.text})
	}
	return map[string]any{"sessionId": s.id, "commands": commands}
}

// closeInputs lets go of the inputs that are held open; daemon.mu is held.
func (s *session) closeInputs() {
	for _, k := range s.commands {
		_ = k.in.Close()
	}
}

func (d *daemon) session(id string) *session {
	d.mu.Lock()
	defer d.mu.Unlock()
	i := slices.IndexFunc(d.sessions, func(s *session) bool { return s.id == id })
	if i < 0 {
		return nil
	}
	return d.sessions[i]
}

func (c *call) createSession() {
	var in struct {
		SessionID string `json:"sessionId"`
	}
	d := c.daemon()
	if d == nil || !c.decode(&in) {
		return
	}
	if in.SessionID == "" || in.SessionID == "entrypoint" || strings.ContainsAny(in.SessionID, "/\x00'\n") || in.SessionID == ".." || in.SessionID == "." {
		c.fail(http.StatusBadRequest, "invalid session ID")
		return
	}
	s := &session{id: in.SessionID, dir: path.Join(sessionsDir, in.SessionID), ended: make(chan struct{})}
	d.mu.Lock()
	if slices.ContainsFunc(d.sessions, func(o *session) bool { return o.id == s.id }) {
		d.mu.Unlock()
		c.fail(http.StatusConflict, "session already exists")
		return
	}
	d.sessions = append(d.sessions, s)
	d.mu.Unlock()
	if err := c.openSession(d, s); err != nil {
		d.mu.Lock()
		d.sessions = slices.DeleteFunc(d.sessions, func(o *session) bool { return o == s })
		d.mu.Unlock()
		c.fail(http.StatusInternalServerError, "failed to create session: "+reasonOf(err))
		return
	}
	c.empty(http.StatusCreated)
}

func (c *call) openSession(d *daemon, s *session) error {
	if err := d.mkdirs(s.dir, 0o700); err != nil {
		return err
	}
	cmd := d.jail.command(homeDir, d.environ(nil), d.shell())
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	d.mu.Lock()
	s.cmd, s.stdin = cmd, in
	d.mu.Unlock()
	c.started(d, "session "+s.id, nil, cmd)
	c.s.jobs.Go(func() {
		_ = cmd.Wait()
		close(s.ended)
	})
	return nil
}

func (c *call) listSessions() {
	d := c.daemon()
	if d == nil {
		return
	}
	d.mu.Lock()
	list := slices.Clone(d.sessions)
	d.mu.Unlock()
	out := []any{}
	for _, s := range list {
		out = append(out, d.sessionObject(s))
	}
	c.json(http.StatusOK, out)
}

func (d *daemon) sessionObject(s *session) map[string]any {
	d.mu.Lock()
	commands := slices.Clone(s.commands)
	d.mu.Unlock()
	out := []any{}
	for _, k := range commands {
		out = append(out, d.commandObject(k))
	}
	return map[string]any{"sessionId": s.id, "commands": out}
}

func (d *daemon) commandObject(k *sessionCommand) map[string]any {
	o := map[string]any{"id": k.id, "command": k.text}
	if code, ok := d.exitCodeOf(k); ok {
		o["exitCode"] = code
	}
	return o
}

func (d *daemon) exitCodeOf(k *sessionCommand) (int, bool) {
	data, err := os.ReadFile(d.jail.root() + k.dir + "/exit_code")
	if err != nil || !bytes.HasSuffix(data, []byte("\n")) {
		return 0, false
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(data)))
	return n, err == nil
}

// missing answers for a session that is not there: the status differs by
// operation and release.
func (c *call) missingSession(measured int) {
	status := http.StatusNotFound
	message := "session not found"
	if !c.s.current() {
		status = measured
		if status == http.StatusInternalServerError {
			message = "failed to execute command: not found: session not found"
		}
	}
	c.failCode(status, "PROCESS_NOT_FOUND", message)
}

func (c *call) getSession() {
	d := c.daemon()
	if d == nil {
		return
	}
	s := d.session(c.params["session"])
	if s == nil {
		c.missingSession(http.StatusNotFound)
		return
	}
	c.json(http.StatusOK, d.sessionObject(s))
}

// sessionGrace is how long a deleted session's processes have between TERM and
// KILL.
const sessionGrace = 5 * time.Second

func (c *call) deleteSession() {
	d := c.daemon()
	if d == nil {
		return
	}
	s := d.session(c.params["session"])
	if s == nil {
		c.missingSession(http.StatusNotFound)
		return
	}
	d.record() // what it held stays on the record
	c.s.rec.files(c.sb)
	termGroup(s.cmd)
	_ = s.stdin.Close()
	select {
	case <-s.ended:
	case <-time.After(sessionGrace):
	case <-d.gone:
	}
	killGroup(s.cmd)
	d.mu.Lock()
	s.closeInputs()
	d.sessions = slices.DeleteFunc(d.sessions, func(o *session) bool { return o == s })
	d.mu.Unlock()
	_ = os.RemoveAll(d.jail.root() + s.dir)
	c.empty(http.StatusNoContent)
}

func (c *call) sessionExec() {
	var in struct {
		Command           string `json:"command"`
		RunAsync          bool   `json:"runAsync"`
		Async             bool   `json:"async"`
		SuppressInputEcho bool   `json:"suppressInputEcho"`
	}
	d := c.daemon()
	if d == nil || !c.decode(&in) {
		return
	}
	if in.Command == "" {
		c.fail(http.StatusBadRequest, "command cannot be empty")
		return
	}
	s := d.session(c.params["session"])
	if s == nil {
		c.missingSession(http.StatusInternalServerError)
		return
	}
	k := &sessionCommand{id: randomUUID(), text: in.Command, async: in.RunAsync || in.Async, echo: !in.SuppressInputEcho}
	k.dir = path.Join(s.dir, k.id)
	err := d.mkdirs(k.dir, 0o700)
	if err == nil {
		file := d.jail.root() + k.dir + "/cmd.sh"
		err = os.WriteFile(file, []byte(in.Command+"\n"), 0o600)
		d.own(file)
	}
	if err == nil {
		file := d.jail.root() + k.dir + "/output.log"
		err = os.WriteFile(file, nil, 0o600)
		d.own(file)
	}
	if err == nil {
		// Held open from before the command starts, so that no input is lost.
		k.in, err = makePipe(d.jail.root() + k.dir + "/in.pipe")
		d.own(d.jail.root() + k.dir + "/in.pipe")
	}
	if err != nil {
		c.fail(http.StatusInternalServerError, "failed to execute command: "+reasonOf(err))
		return
	}
	d.mu.Lock()
	s.commands = append(s.commands, k)
	d.mu.Unlock()
	ended := false
	select {
	case <-s.ended:
		ended = true
	default:
		_, err = io.WriteString(s.stdin, fmt.Sprintf(script, k.dir))
	}
	if ended || err != nil {
		if c.s.current() {
			c.failCode(http.StatusConflict, "SESSION_ENDED", "session has ended")
			return
		}
		c.fail(http.StatusInternalServerError, "failed to execute command: write |1: broken pipe")
		return
	}
	c.s.rec.ran(Execution{Time: c.s.Now(), Op: c.op, Sandbox: d.sb.id, Command: in.Command})
	d.record()
	if k.async {
		c.json(http.StatusAccepted, map[string]any{"cmdId": k.id, "output": nil, "stdout": nil, "stderr": nil, "exitCode": nil})
		return
	}
	c.waitForCommand(d, s, k)
}

// poll is how often files of the daemon are looked at.
const poll = 5 * time.Millisecond

// waitForCommand answers when the command has ended. When its shell ended under
// it, it never does: the call hangs until the client gives up, or, in the current
// release, ends with an error.
func (c *call) waitForCommand(d *daemon, s *session, k *sessionCommand) {
	tick := time.NewTicker(poll)
	defer tick.Stop()
	shell := s.ended
	for {
		if code, ok := d.exitCodeOf(k); ok {
			raw, _ := os.ReadFile(d.jail.root() + k.dir + "/output.log")
			out, errs := demux(raw)
			c.json(http.StatusOK, map[string]any{"cmdId": k.id, "output": string(plain(raw)), "stdout": string(out), "stderr": string(errs), "exitCode": code})
			return
		}
		select {
		case <-tick.C:
		case <-shell:
			if c.s.current() {
				c.failCode(http.StatusConflict, "SESSION_ENDED", "session has ended")
				return
			}
			shell = nil
		case <-d.gone:
			c.empty(http.StatusBadGateway)
			return
		case <-c.r.Context().Done():
			return
		case <-c.s.done:
			return
		}
	}
}

// demux splits a log by its markers. Output that contains a marker is taken for
// one.
func demux(raw []byte) (out, errs []byte) {
	to := &out
	for len(raw) > 0 {
		switch {
		case bytes.HasPrefix(raw, outMarker):
			to, raw = &out, raw[3:]
		case bytes.HasPrefix(raw, errMarker):
			to, raw = &errs, raw[3:]
		default:
			*to, raw = append(*to, raw[0]), raw[1:]
		}
	}
	return out, errs
}

// plain takes the markers out of a log.
func plain(raw []byte) []byte {
	return bytes.ReplaceAll(bytes.ReplaceAll(raw, outMarker, nil), errMarker, nil)
}

// command finds the call's session and command, or answers.
func (c *call) command() (*daemon, *session, *sessionCommand) {
	d := c.daemon()
	if d == nil {
		return nil, nil, nil
	}
	s := d.session(c.params["session"])
	if s == nil {
		c.missingSession(http.StatusNotFound)
		return nil, nil, nil
	}
	d.mu.Lock()
	i := slices.IndexFunc(s.commands, func(k *sessionCommand) bool { return k.id == c.params["command"] })
	var k *sessionCommand
	if i >= 0 {
		k = s.commands[i]
	}
	d.mu.Unlock()
	if k == nil {
		c.failCode(http.StatusNotFound, "PROCESS_NOT_FOUND", "command not found")
		return nil, nil, nil
	}
	return d, s, k
}

func (c *call) sessionCommand() {
	if d, _, k := c.command(); k != nil {
		c.json(http.StatusOK, d.commandObject(k))
	}
}

func (c *call) sessionInput() {
	var in struct {
		Data string `json:"data"`
	}
	d, s, k := c.command()
	if k == nil || !c.decode(&in) {
		return
	}
	if !k.async {
		c.fail(http.StatusBadRequest, "input is only supported for async commands")
		return
	}
	select {
	case <-s.ended:
		c.failCode(http.StatusGone, "SESSION_ENDED", "session has ended")
		return
	default:
	}
	if _, over := d.exitCodeOf(k); over {
		c.failCode(http.StatusGone, "COMMAND_ALREADY_COMPLETED", "command has already completed")
		return
	}
	if !strings.HasSuffix(in.Data, "\n") {
		in.Data += "\n"
	}
	_ = k.in.SetWriteDeadline(time.Now().Add(5 * time.Second)) // a command that never reads must not hold the call
	if _, err := io.WriteString(k.in, in.Data); err != nil {
		c.fail(http.StatusInternalServerError, "failed to write input: "+reasonOf(err))
		return
	}
	if k.echo {
		d.append(k, append(bytes.Clone(outMarker), in.Data...))
	}
	c.empty(http.StatusNoContent)
}

func (d *daemon) append(k *sessionCommand, data []byte) {
	f, err := os.OpenFile(d.jail.root()+k.dir+"/output.log", os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return
	}
	_, _ = f.Write(data)
	_ = f.Close()
}

// sdkVersion returns the version that a request says its SDK has.
func (c *call) sdkVersion() string {
	if v := c.r.Header.Get("X-Daytona-SDK-Version"); v != "" {
		return v
	}
	for _, p := range subprotocols(c.r) {
		if v, ok := strings.CutPrefix(p, "X-Daytona-SDK-Version~"); ok {
			return v
		}
	}
	return ""
}

func subprotocols(r *http.Request) []string {
	var out []string
	for _, h := range r.Header.Values("Sec-WebSocket-Protocol") {
		for p := range strings.SplitSeq(h, ",") {
			out = append(out, strings.TrimSpace(p))
		}
	}
	return out
}

// logForm is the shape of a log that a request gets.
type logForm int

const (
	stripped logForm = iota // combined, no markers
	labelled                // the file as it is
	apart                   // JSON
)

func (c *call) logForm() logForm {
	switch v := c.sdkVersion(); {
	case c.r.Header.Get("X-Daytona-Split-Output") == "true":
		return labelled
	case v != "" && compareVersions(v, minDaemonEnvs) >= 0:
		return apart
	}
	return stripped
}

func (c *call) sessionLogs() {
	d, _, k := c.command()
	if k == nil {
		return
	}
	file := d.jail.root() + k.dir + "/output.log"
	if c.query("follow") == "true" && strings.EqualFold(c.r.Header.Get("Upgrade"), "websocket") {
		c.followLog(d, k, file)
		return
	}
	raw, err := os.ReadFile(file)
	if err != nil {
		c.fail(http.StatusNotFound, "log not found")
		return
	}
	switch c.logForm() {
	case apart:
		out, errs := demux(raw)
		c.json(http.StatusOK, map[string]any{"output": string(raw), "stdout": string(out), "stderr": string(errs)})
		return
	case stripped:
		raw = plain(raw)
	}
	c.w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	c.w.WriteHeader(http.StatusOK)
	_, _ = c.w.Write(raw)
}

// followTail is how long a followed log stays open after its command has ended.
const followTail = time.Second

// followLog sends a log as it grows, in binary frames, and closes with 1000 a
// moment after the end.
func (c *call) followLog(d *daemon, k *sessionCommand, file string) {
	form := c.logForm()
	ws := c.accept()
	if ws == nil {
		return
	}
	defer func() { _ = ws.CloseNow() }()
	ctx, cancel := c.socketContext(d)
	defer cancel()
	ctx = ws.CloseRead(ctx)
	f, err := os.Open(file)
	if err != nil {
		_ = ws.Close(websocket.StatusInternalError, "log not found")
		return
	}
	defer func() { _ = f.Close() }()
	var end time.Time
	buf := make([]byte, 32<<10)
	for {
		n, err := f.Read(buf)
		if n > 0 {
			data := buf[:n]
			if form == stripped {
				data = plain(data)
			}
			if ws.Write(ctx, websocket.MessageBinary, data) != nil {
				return
			}
			continue
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return
		}
		if _, over := d.exitCodeOf(k); over && end.IsZero() {
			end = time.Now().Add(followTail)
		}
		if !end.IsZero() && time.Now().After(end) {
			_ = ws.Close(websocket.StatusNormalClosure, "")
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(poll):
		}
	}
}

// accept turns the call into a websocket, echoing one of the subprotocols that
// were offered, the version first; nil when it could not, which is answered.
func (c *call) accept() *websocket.Conn {
	opts := &websocket.AcceptOptions{InsecureSkipVerify: true}
	offered := subprotocols(c.r)
	for _, prefix := range []string{"X-Daytona-SDK-Version~", "X-Daytona-Pty-Exit-Control", "X-Daytona-"} {
		i := slices.IndexFunc(offered, func(p string) bool { return strings.HasPrefix(p, prefix) })
		if i >= 0 && opts.Subprotocols == nil {
			opts.Subprotocols = []string{offered[i]}
		}
	}
	ws, err := websocket.Accept(c.w, c.r, opts)
	if err != nil {
		return nil
	}
	return ws
}

// socketContext ends with the sandbox or the server.
func (c *call) socketContext(d *daemon) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(c.r.Context()))
	c.s.jobs.Go(func() {
		select {
		case <-d.gone:
		case <-c.s.done:
		case <-ctx.Done():
		}
		cancel()
	})
	return ctx, cancel
}
