// Command runloop is a sealed provider plugin for Runloop devboxes.
//
// A devbox starts slowly, so Create answers "pending" and the host polls. A
// command is started with one request and followed with others. Each answer
// repeats the whole output, as far as it has any: Runloop promises it for the
// last one only. The host works out what is new and gives it to the caller. This
// code sees ids, states and exit codes.
package main

import (
	"errors"

	"github.com/sbxhost/sbxhost/abi"
	"github.com/sbxhost/sbxhost/abi/guest"
)

type runloop struct{}

func init() { guest.Serve(runloop{}) }

func main() {}

// pollMs is how long the host waits between looks at a devbox that starts.
const pollMs = 250

// Create asks for a devbox. The session's id is its idempotency key, so that a
// repetition after a lost answer gets the same devbox.
func (runloop) Create(c *guest.Call, _ *abi.CreateRequest) (abi.CreateReply, error) {
	v, err := c.JSON("create devbox", guest.Request{Route: "create"})
	if err != nil {
		return abi.CreateReply{}, err
	}
	reply := abi.CreateReply{State: "pending", PollMs: pollMs}
	if state(v.Get("status").Text()) == "running" {
		reply.State = "running"
	}
	return reply, nil
}

// state maps Runloop's states. One that is not known is not terminal.
func state(s string) string {
	switch s {
	case "running":
		return "running"
	case "scheduled", "queued", "provisioning", "initializing", "resuming":
		return "pending"
	case "suspending", "suspended":
		return "paused"
	case "failure":
		return "stopped"
	case "shutdown":
		return "gone"
	}
	return "unknown"
}

// Status asks for the devbox.
func (runloop) Status(c *guest.Call, _ *abi.StatusRequest) (abi.StatusReply, error) {
	v, err := c.JSON("get devbox", guest.Request{Route: "get"})
	if err != nil {
		return abi.StatusReply{}, err
	}
	return abi.StatusReply{State: state(v.Get("status").Text()), PollMs: pollMs}, nil
}

// Destroy shuts the devbox down; one that is gone is success.
func (runloop) Destroy(c *guest.Call, _ *abi.StatusRequest) error {
	resp, err := c.Do(guest.Request{Route: "shutdown"})
	if err != nil {
		return err
	}
	defer resp.Close()
	if resp.Status == 404 {
		return nil
	}
	return guest.StatusError("shut devbox down", resp.Status)
}

// Pause suspends the devbox and waits until it is.
func (runloop) Pause(c *guest.Call, _ *abi.StatusRequest) error {
	return change(c, "suspend", "suspended")
}

// Resume resumes it and waits until it runs.
func (runloop) Resume(c *guest.Call, _ *abi.StatusRequest) error {
	return change(c, "resume", "running")
}

func change(c *guest.Call, route, until string) error {
	if _, err := c.JSON(route+" devbox", guest.Request{Route: route}); err != nil {
		return err
	}
	return c.Poll(pollMs, func() (bool, error) {
		v, err := c.JSON("get devbox", guest.Request{Route: "get"})
		if s := v.Get("status").Text(); s == "failure" || s == "shutdown" {
			return false, guest.Fail(guest.FailedPrecondition, "the devbox is "+s)
		}
		return v.Get("status").Text() == until, err
	})
}

// List pages through all devboxes. Runloop cannot filter by metadata and pages
// by the last id, which may be somebody else's: the host fills that in, and
// shows only what is the owner's.
func (runloop) List(c *guest.Call, _ *abi.ListRequest) (abi.ListReply, error) {
	out := abi.ListReply{Items: []abi.Item{}}
	for {
		v, err := c.JSON("list devboxes", guest.Request{Route: "list"})
		if err != nil {
			return out, err
		}
		for _, d := range v.Get("devboxes").Items() {
			if s := state(d.Get("status").Text()); s != "gone" {
				out.Items = append(out.Items, abi.Item{
					Sandbox: d.Get("id").Text(), Name: d.Get("name").Text(), State: s, Labels: d.Get("metadata").StringMap(), CreatedAt: d.Get("create_time_ms").Int() / 1000,
				})
			}
		}
		if !v.Get("has_more").Bool() {
			return out, nil
		}
	}
}

// Exec starts the command and waits until it has completed.
func (runloop) Exec(c *guest.Call, _ *abi.ExecRequest) (abi.ExecReply, error) {
	v, err := c.JSON("execute command", guest.Request{Route: "execute"})
	if err != nil {
		return abi.ExecReply{}, err
	}
	id := v.Get("execution_id").Text()
	if id == "" {
		return abi.ExecReply{Status: "lost"}, nil
	}
	if err := c.CheckpointExec(abi.AppendString(nil, id)); err != nil {
		return abi.ExecReply{}, err
	}
	for failures := 0; v.Get("status").Text() != "completed"; {
		next, err := wait(c, id)
		if err == nil {
			v, failures = next, 0
			continue
		}
		// Asking again repeats nothing, so a passing failure is no reason to lose
		// the command. A devbox that is gone will not come back.
		var e *guest.Error
		gone := errors.As(err, &e) && e.Code == guest.NotFound
		if failures++; gone || failures > 5 || c.Canceled() {
			return abi.ExecReply{}, err
		}
		if err := c.Sleep(200 << failures); err != nil {
			return abi.ExecReply{}, err
		}
	}
	if v.Get("stdout_truncated").Bool() || v.Get("stderr_truncated").Bool() {
		// Its output is not what it wrote.
		return abi.ExecReply{Status: "lost"}, nil
	}
	return ended(v.Get("exit_status")), nil
}

func wait(c *guest.Call, id string) (guest.Value, error) {
	resp, err := c.Do(guest.Request{Route: "wait", Params: map[string]string{"execution": id}})
	if err != nil {
		return guest.Value{}, err
	}
	defer resp.Close()
	if resp.Status == 408 { // not completed within the request's own time
		return guest.Value{}, nil
	}
	if err := guest.StatusError("wait for command", resp.Status); err != nil {
		return guest.Value{}, err
	}
	body, err := resp.Body()
	if err != nil {
		return guest.Value{}, err
	}
	return guest.Parse(body)
}

// ended maps an exit status: a shell reports a signal as 128 and its number.
func ended(status guest.Value) abi.ExecReply {
	n := status.Int()
	switch {
	case !status.Exists():
		return abi.ExecReply{Status: "lost"}
	case n == 128+9:
		return abi.ExecReply{Status: "signaled", Signal: "KILL"}
	case n == 128+15:
		return abi.ExecReply{Status: "signaled", Signal: "TERM"}
	}
	return abi.ExecReply{Status: "exited", ExitCode: n}
}

// Signal kills the command's process group, which is all that Runloop can do.
func (runloop) Signal(c *guest.Call, req *abi.SignalRequest) error {
	if req.Signal != "TERM" && req.Signal != "KILL" {
		return guest.Fail(guest.Unsupported, "Runloop can only kill a command")
	}
	ref, err := guest.Parse(req.Exec.Ref)
	if err != nil || ref.Text() == "" {
		return guest.Fail(guest.FailedPrecondition, "the command has not started yet")
	}
	resp, err := c.Do(guest.Request{Route: "kill", Params: map[string]string{"execution": ref.Text()}})
	if err != nil {
		return err
	}
	defer resp.Close()
	return guest.StatusError("kill command", resp.Status)
}

// Read fetches a file; its content goes to the caller.
func (runloop) Read(c *guest.Call, _ *abi.PathRequest) (abi.ReadReply, error) {
	return abi.ReadReply{}, transfer(c, "read file", "download")
}

// Write sends a file; the host fills in its content.
func (runloop) Write(c *guest.Call, _ *abi.WriteRequest) error {
	return transfer(c, "write file", "upload")
}

func transfer(c *guest.Call, what, route string) error {
	resp, err := c.Do(guest.Request{Route: route})
	if err != nil {
		return err
	}
	defer resp.Close()
	return guest.StatusError(what, resp.Status)
}
