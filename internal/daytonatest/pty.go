package daytonatest

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/coder/websocket"
	creack "github.com/creack/pty"
)

// pty is one terminal with a shell. Its fields are guarded by mu, but for those
// that never change.
type pty struct {
	id      string
	cwd     string
	envs    map[string]string
	lazy    bool
	created time.Time
	d       *daemon

	mu         sync.Mutex
	cols, rows uint16
	cmd        *exec.Cmd
	file       *os.File
	active     bool
	over       bool
	killed     bool
	code       int
	reason     string
	clients    map[*ptyClient]bool
	ended      chan struct{}
}

// ptyClient is one attached websocket: output that it does not take in time makes
// it be dropped.
type ptyClient struct {
	out chan []byte
}

// Bounds of the daemon.
const (
	ptyBacklog  = 256      // frames to a slow client
	ptyFrame    = 64 << 10 // input per frame
	ptyMax      = 1000     // columns and rows
	defaultCols = 80
	defaultRows = 24
)

func (p *pty) object() map[string]any {
	p.mu.Lock()
	defer p.mu.Unlock()
	return map[string]any{"id": p.id, "cwd": p.cwd, "envs": p.envs, "cols": p.cols, "rows": p.rows, "active": p.active, "lazyStart": p.lazy,
		"createdAt": p.created.UTC().Format(time.RFC3339Nano)}
}

func (d *daemon) pty(id string) *pty {
	d.mu.Lock()
	defer d.mu.Unlock()
	i := slices.IndexFunc(d.ptys, func(p *pty) bool { return p.id == id })
	if i < 0 {
		return nil
	}
	return d.ptys[i]
}

type ptyRequest struct {
	ID        string            `json:"id"`
	Cwd       string            `json:"cwd"`
	Envs      map[string]string `json:"envs"`
	Cols      int               `json:"cols"`
	Rows      int               `json:"rows"`
	LazyStart bool              `json:"lazyStart"`
}

// newPTY makes and starts a terminal; a status other than 0 is an error.
func (c *call) newPTY(d *daemon, in ptyRequest) (*pty, int, string) {
	if in.ID == "" {
		in.ID = randomUUID()
	}
	if in.Cols == 0 {
		in.Cols = defaultCols
	}
	if in.Rows == 0 {
		in.Rows = defaultRows
	}
	if in.Cols < 1 || in.Cols > ptyMax || in.Rows < 1 || in.Rows > ptyMax {
		return nil, http.StatusBadRequest, "invalid value for cols or rows - must be between 1 and " + strconv.Itoa(ptyMax)
	}
	for k := range in.Envs {
		if !envName.MatchString(k) {
			return nil, http.StatusBadRequest, "invalid environment variable name: " + k
		}
	}
	if in.Cwd == "" {
		in.Cwd = homeDir
	}
	if in.Envs == nil {
		in.Envs = map[string]string{}
	}
	p := &pty{id: in.ID, cwd: in.Cwd, envs: in.Envs, lazy: in.LazyStart, created: c.s.Now(), d: d, cols: uint16(in.Cols), rows: uint16(in.Rows),
		clients: map[*ptyClient]bool{}, ended: make(chan struct{}), code: -1}
	d.mu.Lock()
	if slices.ContainsFunc(d.ptys, func(o *pty) bool { return o.id == p.id }) {
		d.mu.Unlock()
		return nil, http.StatusConflict, "PTY session with ID '" + p.id + "' already exists"
	}
	d.ptys = append(d.ptys, p)
	d.mu.Unlock()
	d.record()
	if !p.lazy {
		if err := c.startPTY(p); err != nil {
			d.dropPTY(p)
			return nil, http.StatusInternalServerError, "failed to create PTY session: " + reasonOf(err)
		}
	}
	return p, 0, ""
}

func (d *daemon) dropPTY(p *pty) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ptys = slices.DeleteFunc(d.ptys, func(o *pty) bool { return o == p })
}

// startPTY starts the shell; starting twice is success.
func (c *call) startPTY(p *pty) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd != nil {
		return nil
	}
	dir, err := p.d.jail.resolve(p.d.absolute(p.cwd), true)
	if err != nil {
		return err
	}
	env := map[string]string{"TERM": "xterm-256color"}
	for k, v := range p.envs {
		env[k] = v
	}
	if _, err := os.Stat(p.d.jail.root() + dir); err != nil {
		return err
	}
	// The shell makes the terminal its own from inside its namespaces.
	cmd := p.d.jail.command(dir, p.d.environ(env), "setsid", "--ctty", p.d.shell(), "-i", "-l")
	master, slave, err := creack.Open()
	if err != nil {
		return err
	}
	defer func() { _ = slave.Close() }()
	if err := creack.Setsize(master, &creack.Winsize{Cols: p.cols, Rows: p.rows}); err != nil {
		return errors.Join(err, master.Close())
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	if err := cmd.Start(); err != nil {
		return errors.Join(err, master.Close())
	}
	p.cmd, p.file, p.active = cmd, master, true
	c.started(p.d, "pty "+p.id, p.envs, cmd)
	c.s.jobs.Go(func() { p.read(c.s) })
	return nil
}

// read sends what the terminal prints to whoever is attached; nobody gets it
// later. It ends with the shell.
func (p *pty) read(s *Server) {
	done := make(chan struct{})
	s.jobs.Go(func() {
		defer close(done)
		err := p.cmd.Wait()
		p.mu.Lock()
		p.code, p.reason = ptyExit(err, p.killed)
		p.mu.Unlock()
	})
	stop := make(chan struct{})
	s.jobs.Go(func() {
		<-done
		defer func() { _ = p.file.Close() }()
		// What still holds the terminal must not delay the end of its shell. What
		// was printed before is read, unless there is no end of it.
		for range 50 {
			select {
			case <-stop:
				return
			case <-time.After(100 * time.Millisecond):
			}
			if unread(p.file) == 0 {
				return
			}
		}
	})
	buf := make([]byte, 4096)
	for {
		n, err := p.file.Read(buf)
		if n > 0 {
			p.mu.Lock()
			for k := range p.clients {
				select {
				case k.out <- slices.Clone(buf[:n]):
				default:
					delete(p.clients, k)
					close(k.out)
				}
			}
			p.mu.Unlock()
		}
		if err != nil {
			break
		}
	}
	close(stop)
	<-done
	p.mu.Lock()
	p.active, p.over = false, true
	for k := range p.clients {
		delete(p.clients, k)
		close(k.out)
	}
	p.mu.Unlock()
	p.d.dropPTY(p)
	close(p.ended)
}

// ptyExit is how the daemon reports a shell's end.
func ptyExit(err error, killed bool) (int, string) {
	var e *exec.ExitError
	if errors.As(err, &e) {
		if code, name := signalled(e); name != "" {
			return code, name
		}
		if killed {
			return 137, "SIGKILL"
		}
		return e.ExitCode(), "non-zero exit"
	}
	if err != nil {
		return -1, err.Error()
	}
	return 0, ""
}

// signalled returns 128 + n and the name of the signal that ended a process.
func signalled(e *exec.ExitError) (int, string) {
	st, ok := e.Sys().(syscall.WaitStatus)
	if !ok || !st.Signaled() {
		return 0, ""
	}
	names := map[syscall.Signal]string{syscall.SIGKILL: "SIGKILL", syscall.SIGTERM: "SIGTERM", syscall.SIGINT: "SIGINT", syscall.SIGHUP: "SIGHUP"}
	name := names[st.Signal()]
	if name == "" {
		name = "signal " + strconv.Itoa(int(st.Signal()))
	}
	return 128 + int(st.Signal()), name
}

func (c *call) createPTY() {
	var in ptyRequest
	d := c.daemon()
	if d == nil {
		return
	}
	if err := json.Unmarshal(c.body, &in); err != nil {
		c.failPTY(http.StatusBadRequest, "invalid request body")
		return
	}
	p, status, message := c.newPTY(d, in)
	if status != 0 {
		c.failPTY(status, message)
		return
	}
	c.json(http.StatusCreated, map[string]any{"sessionId": p.id})
}

func (c *call) listPTYs() {
	d := c.daemon()
	if d == nil {
		return
	}
	d.mu.Lock()
	list := slices.Clone(d.ptys)
	d.mu.Unlock()
	out := []any{}
	for _, p := range list {
		out = append(out, p.object())
	}
	c.json(http.StatusOK, map[string]any{"sessions": out})
}

// thePTY finds the call's terminal, or answers.
func (c *call) thePTY() *pty {
	d := c.daemon()
	if d == nil {
		return nil
	}
	p := d.pty(c.params["pty"])
	if p == nil {
		c.failPTY(http.StatusNotFound, "PTY session not found")
	}
	return p
}

func (c *call) getPTY() {
	if p := c.thePTY(); p != nil {
		c.json(http.StatusOK, p.object())
	}
}

func (c *call) deletePTY() {
	p := c.thePTY()
	if p == nil {
		return
	}
	p.kill()
	c.json(http.StatusOK, map[string]any{"message": "PTY session deleted"})
}

// kill kills the shell; a terminal that never started just goes.
func (p *pty) kill() {
	p.mu.Lock()
	cmd := p.cmd
	p.killed = true
	p.mu.Unlock()
	if cmd == nil {
		p.d.dropPTY(p)
		return
	}
	for _, pid := range inside(cmd) {
		killProcess(pid)
	}
	select {
	case <-p.ended:
	case <-time.After(2 * time.Second):
		killGroup(cmd)
	}
}

func (c *call) resizePTY() {
	var in struct{ Cols, Rows int }
	d := c.daemon()
	if d == nil {
		return
	}
	p := d.pty(c.params["pty"])
	if p == nil {
		c.failPTY(http.StatusGone, "PTY session is not active")
		return
	}
	if json.Unmarshal(c.body, &in) != nil || in.Cols < 1 || in.Cols > ptyMax || in.Rows < 1 || in.Rows > ptyMax {
		c.failPTY(http.StatusBadRequest, "invalid value for cols or rows - must be between 1 and "+strconv.Itoa(ptyMax))
		return
	}
	p.mu.Lock()
	p.cols, p.rows = uint16(in.Cols), uint16(in.Rows)
	file := p.file
	over := p.over
	p.mu.Unlock()
	if over {
		c.failPTY(http.StatusGone, "PTY session is not active")
		return
	}
	if file != nil {
		if err := creack.Setsize(file, &creack.Winsize{Cols: uint16(in.Cols), Rows: uint16(in.Rows)}); err != nil {
			c.failPTY(http.StatusGone, "PTY session is not active")
			return
		}
	}
	c.json(http.StatusOK, p.object())
}

func (c *call) connectPTY() {
	d := c.daemon()
	if d == nil {
		return
	}
	c.attach(d, d.pty(c.params["pty"]), "PTY session not found", false)
}

// openPTY creates and connects with one websocket, the variables in a header.
func (c *call) openPTY() {
	d := c.daemon()
	if d == nil {
		return
	}
	q := c.r.URL.Query()
	in := ptyRequest{ID: q.Get("id"), Cwd: q.Get("cwd")}
	var err1, err2 error
	if t := q.Get("cols"); t != "" {
		in.Cols, err1 = strconv.Atoi(t)
	}
	if t := q.Get("rows"); t != "" {
		in.Rows, err2 = strconv.Atoi(t)
	}
	control := false
	for _, p := range subprotocols(c.r) {
		if enc, ok := strings.CutPrefix(p, "X-Daytona-Pty-Envs~"); ok {
			data, err := base64.RawURLEncoding.DecodeString(strings.TrimRight(enc, "="))
			if err != nil || json.Unmarshal(data, &in.Envs) != nil {
				err1 = errors.New("envs are not base64url JSON")
			}
		}
		control = control || p == "X-Daytona-Pty-Exit-Control"
	}
	if err := errors.Join(err1, err2); err != nil {
		c.failPTY(http.StatusBadRequest, "invalid value for cols, rows or envs")
		return
	}
	p, status, message := c.newPTY(d, in)
	if status != 0 {
		c.failPTY(status, message)
		return
	}
	c.attach(d, p, "", control)
}

// attach serves a websocket of a terminal. Failures come after the upgrade, as a
// control frame.
func (c *call) attach(d *daemon, p *pty, missing string, exitControl bool) {
	// Attached before the shell can print anything.
	client := &ptyClient{out: make(chan []byte, ptyBacklog)}
	var problem string
	if p == nil {
		problem = missing
	} else {
		p.mu.Lock()
		if p.over {
			close(client.out)
		} else {
			p.clients[client] = true
		}
		p.mu.Unlock()
		if err := c.startPTY(p); err != nil {
			problem = reasonOf(err)
		}
	}
	if _, refused := c.s.faults.is(PTYRefused, c.op, c.sb); refused {
		problem = "failed to connect to PTY session"
	}
	ws := c.accept()
	if ws == nil {
		return
	}
	defer func() { _ = ws.CloseNow() }()
	ws.SetReadLimit(ptyFrame)
	ctx, cancel := c.socketContext(d)
	defer cancel()
	if problem != "" {
		sendControl(ctx, ws, map[string]any{"type": "control", "status": "error", "error": problem})
		return
	}
	sendControl(ctx, ws, map[string]any{"type": "control", "status": "connected"})
	input := make(chan struct{})
	c.s.jobs.Go(func() {
		defer close(input)
		for {
			_, data, err := ws.Read(ctx)
			if err != nil {
				return
			}
			if _, err := p.file.Write(data); err != nil {
				return
			}
		}
	})
	dropped := c.deliver(ctx, ws, p, client, input)
	if dropped {
		return
	}
	p.mu.Lock()
	code, reason := p.code, p.reason
	p.mu.Unlock()
	if _, abnormal := c.s.faults.is(PTYAbnormal, c.op, c.sb); abnormal {
		return
	}
	end := map[string]any{"exitCode": code}
	if reason != "" {
		end["exitReason"] = reason
	}
	if exitControl {
		sendControl(ctx, ws, map[string]any{"type": "control", "status": "exited", "exitCode": code, "exitReason": reason})
	}
	status := websocket.StatusNormalClosure
	if code != 0 {
		status = websocket.StatusInternalError
	}
	data, _ := json.Marshal(end)
	_ = ws.Close(status, string(data))
}

// deliver sends output until the shell has ended; true when the client is gone
// or was too slow.
func (c *call) deliver(ctx context.Context, ws *websocket.Conn, p *pty, client *ptyClient, input <-chan struct{}) bool {
	defer func() {
		p.mu.Lock()
		delete(p.clients, client)
		p.mu.Unlock()
	}()
	for {
		select {
		case data, ok := <-client.out:
			if !ok {
				select {
				case <-p.ended:
					return false
				case <-time.After(time.Second):
					return true // too slow
				}
			}
			if ws.Write(ctx, websocket.MessageBinary, data) != nil {
				return true
			}
		case <-input:
			// The client hung up; or the shell ended and its terminal closed,
			// and the rest is still to be sent.
			select {
			case <-p.ended:
				input = nil
			case <-time.After(time.Second):
				return true
			}
		case <-ctx.Done():
			return true
		}
	}
}

func sendControl(ctx context.Context, ws *websocket.Conn, v any) {
	data, err := json.Marshal(v)
	if err == nil {
		_ = ws.Write(ctx, websocket.MessageText, data)
	}
}
