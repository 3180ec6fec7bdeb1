// Command e2b is a sealed provider plugin for E2B sandboxes.
//
// It decides when to create, poll, page and signal. Every request that creates a
// sandbox, runs a command or moves a file is rendered by the host from
// manifest.json, and output goes from the host to the caller: this code sees
// byte counts.
package main

import (
	"errors"
	"strconv"
	"strings"

	"github.com/sbxhost/sbxhost/abi"
	"github.com/sbxhost/sbxhost/abi/guest"
)

type e2b struct{}

func init() { guest.Serve(e2b{}) }

func main() {}

// Create posts the template; the host fills in template, environment, metadata
// and timeout, and keeps the access token of the reply.
func (e2b) Create(c *guest.Call, _ *abi.CreateRequest) (abi.CreateReply, error) {
	v, err := c.JSON("create sandbox", guest.Request{Route: "create"})
	if err != nil {
		return abi.CreateReply{}, err
	}
	ref := abi.AppendString(nil, v.Get("sandboxID").Text())
	if err := c.Checkpoint(ref); err != nil {
		return abi.CreateReply{}, err
	}
	return abi.CreateReply{State: "running", Ref: ref}, nil
}

func state(s string) string {
	switch s {
	case "running", "paused":
		return s
	}
	return "unknown"
}

// Status asks for the sandbox.
func (e2b) Status(c *guest.Call, _ *abi.StatusRequest) (abi.StatusReply, error) {
	v, err := c.JSON("get sandbox", guest.Request{Route: "get"})
	if err != nil {
		return abi.StatusReply{}, err
	}
	return abi.StatusReply{State: state(v.Get("state").Text())}, nil
}

// Destroy kills the sandbox; one that is gone is success.
func (e2b) Destroy(c *guest.Call, _ *abi.StatusRequest) error {
	resp, err := c.Do(guest.Request{Route: "kill"})
	if err != nil {
		return err
	}
	defer resp.Close()
	if resp.Status == 404 {
		return nil
	}
	return guest.StatusError("kill sandbox", resp.Status)
}

// List pages through the owner's sandboxes; the host adds the owner filter and
// drops what is not the owner's.
func (e2b) List(c *guest.Call, _ *abi.ListRequest) (abi.ListReply, error) {
	out := abi.ListReply{Items: []abi.Item{}}
	for token := ""; ; {
		q := guest.Request{Route: "list"}
		if token != "" {
			q.Query = map[string]string{"nextToken": token}
		}
		next, err := page(c, q, &out)
		if err != nil || next == "" {
			return out, err
		}
		token = next
	}
}

func page(c *guest.Call, q guest.Request, out *abi.ListReply) (next string, err error) {
	resp, err := c.Do(q)
	if err != nil {
		return "", err
	}
	defer resp.Close()
	if err := guest.StatusError("list sandboxes", resp.Status); err != nil {
		return "", err
	}
	body, err := resp.Body()
	if err != nil {
		return "", err
	}
	v, err := guest.Parse(body)
	if err != nil {
		return "", err
	}
	for _, item := range v.Items() {
		out.Items = append(out.Items, abi.Item{
			Sandbox: item.Get("sandboxID").Text(), Name: "sbxhost-" + item.Get("metadata", "sbxhost.session").Text(), State: state(item.Get("state").Text()),
			Labels: item.Get("metadata").StringMap(), CreatedAt: unix(item.Get("startedAt").Text()),
		})
	}
	return resp.Header("X-Next-Token"), nil
}

// Exec starts the process and follows its event stream. The access token may
// have to be captured again, in another host process for example.
func (e2b) Exec(c *guest.Call, req *abi.ExecRequest) (abi.ExecReply, error) {
	var reply abi.ExecReply
	err := withToken(c, func() error {
		resp, err := c.Do(guest.Request{Route: "start"})
		if err != nil {
			return err
		}
		defer resp.Close()
		if err := guest.StatusError("start process", resp.Status); err != nil {
			return err
		}
		reply, err = follow(c, resp, req.Exec.Stdin == "none")
		return err
	})
	return reply, err
}

// withToken runs f, fetching the sandbox's access token first when the host does
// not hold one.
func withToken(c *guest.Call, f func() error) error {
	err := f()
	if !errors.Is(err, abi.ErrnoNoCapture) {
		return err
	}
	if _, err := c.JSON("get sandbox", guest.Request{Route: "get"}); err != nil {
		return err
	}
	return f()
}

// follow reads the events of a process. One without input gets its end of file
// as soon as the process is known: E2B leaves inputs open.
func follow(c *guest.Call, resp *guest.Response, closeInput bool) (abi.ExecReply, error) {
	reply := abi.ExecReply{Status: "lost"}
	for {
		frame, err := resp.Next()
		if errors.Is(err, abi.ErrnoEnd) {
			return reply, nil
		}
		if err != nil {
			return reply, err
		}
		if e := frame.Get("end", "error"); e.Exists() {
			return reply, refusal(e)
		}
		event := frame.Get("event")
		if pid := event.Get("start", "pid"); pid.Exists() {
			if err := c.CheckpointExec(strconv.AppendInt(nil, pid.Int(), 10)); err != nil {
				return reply, err
			}
			if closeInput {
				if err := closeStdin(c, pid.Int()); err != nil {
					return reply, err
				}
			}
		}
		if end := event.Get("end"); end.Exists() {
			reply = ended(end)
		}
	}
}

// refusal maps the error with which a stream ends: E2B says that a process cannot
// be started in the stream, not in the status. All that is wrong with a command
// has one code; what it was stands in the message, as Go writes it.
func refusal(e guest.Value) error {
	code, why := guest.Unavailable, e.Get("message").Text()
	switch e.Get("code").Text() {
	case "not_found":
		code = guest.NotFound
	case "permission_denied":
		code = guest.PermissionDenied
	case "invalid_argument", "failed_precondition":
		switch {
		case strings.Contains(why, "executable file not found"), strings.Contains(why, "no such file or directory"):
			code = guest.NotFound
		case strings.Contains(why, "permission denied"):
			code = guest.PermissionDenied
		default:
			code = guest.FailedPrecondition
		}
	case "resource_exhausted":
		code = guest.ResourceExhausted
	}
	return guest.Fail(code, "start process: the vendor answered "+e.Get("code").Text())
}

// closeStdin ends a process's input; one that ended first has none to close.
func closeStdin(c *guest.Call, pid int64) error {
	resp, err := c.Do(guest.Request{Route: "closeinput", Free: guest.Free{}.Int("/process/selector/pid", pid)})
	if err != nil {
		return err
	}
	resp.Close()
	return nil
}

// ended maps the end event: a process that was signalled has "exited": false and
// a status such as "signal: killed".
func ended(end guest.Value) abi.ExecReply {
	if end.Get("exited").Bool() {
		return abi.ExecReply{Status: "exited", ExitCode: end.Get("exitCode").Int()}
	}
	switch end.Get("status").Text() {
	case "signal: killed":
		return abi.ExecReply{Status: "signaled", Signal: "KILL"}
	case "signal: terminated":
		return abi.ExecReply{Status: "signaled", Signal: "TERM"}
	case "signal: interrupt":
		return abi.ExecReply{Status: "signaled", Signal: "INT"}
	case "signal: hangup":
		return abi.ExecReply{Status: "signaled", Signal: "HUP"}
	case "signal: user defined signal 1":
		return abi.ExecReply{Status: "signaled", Signal: "USR1"}
	case "signal: user defined signal 2":
		return abi.ExecReply{Status: "signaled", Signal: "USR2"}
	case "signal: segmentation fault":
		return abi.ExecReply{Status: "signaled", Signal: "SEGV"}
	case "signal: aborted":
		return abi.ExecReply{Status: "signaled", Signal: "ABRT"}
	}
	return abi.ExecReply{Status: "signaled"}
}

func pid(ref abi.Raw) (int64, error) {
	n, err := strconv.ParseInt(string(ref), 10, 64)
	if err != nil {
		return 0, guest.Fail(guest.FailedPrecondition, "the process has not started yet")
	}
	return n, nil
}

// Input sends one chunk, which the host fills in, or closes the input.
func (e2b) Input(c *guest.Call, req *abi.InputRequest) error {
	if req.EOF {
		return act(c, "close input", "closeinput", req.Exec.Ref, guest.Free{})
	}
	return act(c, "send input", "input", req.Exec.Ref, guest.Free{})
}

// Signal maps TERM and KILL, the two E2B knows.
func (e2b) Signal(c *guest.Call, req *abi.SignalRequest) error {
	if req.Signal != "TERM" && req.Signal != "KILL" {
		return guest.Fail(guest.Unsupported, "E2B can send TERM and KILL only")
	}
	return act(c, "send signal", "signal", req.Exec.Ref, guest.Free{}.String("/signal", "SIGNAL_SIG"+req.Signal))
}

func act(c *guest.Call, what, route string, ref abi.Raw, free guest.Free) error {
	n, err := pid(ref)
	if err != nil {
		return err
	}
	return withToken(c, func() error {
		resp, err := c.Do(guest.Request{Route: route, Free: free.Int("/process/selector/pid", n)})
		if err != nil {
			return err
		}
		defer resp.Close()
		return guest.StatusError(what, resp.Status)
	})
}
