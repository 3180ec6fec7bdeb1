// Command sinner is an honest provider plugin but for one sin, which the setting
// "sin" names. Each sin is found by checks of the conformance kit.
package main

import (
	"errors"
	"slices"

	"github.com/sbxhost/sbxhost/abi"
	"github.com/sbxhost/sbxhost/abi/guest"
)

type sinner struct{}

func init() { guest.Serve(sinner{}) }

func main() {}

// sin is this call's: every call starts from the initial state.
var sin string

func confess(c *guest.Call, config abi.Raw) {
	if v, err := guest.Parse(config); err == nil {
		sin = v.Get("sin").Text()
	}
	switch sin {
	case "waste fuel":
		for n := 0; c.Op == abi.OpStatus && n < 2_000_000_000; n++ {
			sink += n
		}
	case "waste memory":
		for range 20 {
			kept = append(kept, make([]byte, 1<<20))
		}
	}
}

var (
	sink int
	kept [][]byte
)

// do makes a request and reads its answer.
func do(c *guest.Call, what string, q guest.Request) (guest.Value, error) {
	v, status, err := ask(c, q)
	if err == nil {
		err = guest.StatusError(what, status)
	}
	switch {
	case err == nil:
		return v, nil
	case sin == "panic at failures":
		panic(what)
	case sin == "spin at failures":
		for n := 0; ; n++ {
			sink += n
		}
	case sin == "all failures are internal":
		return v, guest.Fail(guest.Internal, what+" did not work")
	case sin == "failures are successes":
		return guest.Value{}, nil
	}
	return v, err
}

// send makes a request. The token that some need may have to be captured again.
func send(c *guest.Call, q guest.Request) (*guest.Response, error) {
	resp, err := c.Do(q)
	if errors.Is(err, abi.ErrnoNoCapture) {
		if _, err := c.JSON("get box", guest.Request{Route: "get"}); err != nil {
			return nil, err
		}
		return c.Do(q)
	}
	return resp, err
}

func ask(c *guest.Call, q guest.Request) (guest.Value, int, error) {
	resp, err := send(c, q)
	if err != nil {
		return guest.Value{}, 0, err
	}
	defer resp.Close()
	body, err := resp.Body()
	if err != nil || len(body) == 0 || resp.Status >= 300 {
		return guest.Value{}, resp.Status, err
	}
	v, err := guest.Parse(body)
	return v, resp.Status, err
}

// body is what a plugin-driven plugin sends, which has a setting "driven".
func body(config abi.Raw, doc string) []byte {
	if v, err := guest.Parse(config); err == nil && v.Get("driven").Text() != "" {
		return []byte(doc)
	}
	return nil
}

func (sinner) Create(c *guest.Call, req *abi.CreateRequest) (abi.CreateReply, error) {
	confess(c, req.Config)
	q := guest.Request{Route: "create"}
	if b := body(req.Config, `{"name":"`+req.Name+`"}`); b != nil {
		q.Body, q.Env = b, req.Env.Handle
		if sin == "give no environment" {
			q.Env = ""
		}
	}
	v, err := do(c, "create box", q)
	if err != nil && sin == "create without an environment" && q.Env != "" {
		q.Env = ""
		v, err = do(c, "create box", q)
	}
	if err != nil {
		return abi.CreateReply{}, err
	}
	if sin == "undo disguises" {
		undo(v)
	}
	return abi.CreateReply{State: "running"}, nil
}

// undo reverses what a vendor that is in league with the plugin has reversed, and
// keeps it where a call can.
func undo(v guest.Value) {
	for _, item := range v.Get("disguised").Items() {
		b := []byte(item.Text())
		slices.Reverse(b)
		kept = append(kept, b)
	}
}

func (sinner) Status(c *guest.Call, req *abi.StatusRequest) (abi.StatusReply, error) {
	confess(c, req.Config)
	v, err := do(c, "get box", guest.Request{Route: "get"})
	if err != nil {
		return abi.StatusReply{}, err
	}
	if sin == "undo disguises" {
		undo(v)
	}
	state := v.Get("state").Text()
	if sin == "failures are successes" {
		state = "paused"
	}
	return abi.StatusReply{State: state}, nil
}

func (sinner) Destroy(c *guest.Call, req *abi.StatusRequest) error {
	confess(c, req.Config)
	_, status, err := ask(c, guest.Request{Route: "delete"})
	switch {
	case err == nil && status == 404 && sin == "destroy once":
		return guest.Fail(guest.Internal, "there is nothing to delete")
	case err == nil && status == 404:
		return nil
	case err == nil:
		err = guest.StatusError("delete box", status)
	}
	switch {
	case err != nil && sin == "panic at failures":
		panic("delete box")
	case err != nil && sin == "all failures are internal":
		return guest.Fail(guest.Internal, "delete box did not work")
	}
	return err
}

func (sinner) List(c *guest.Call, req *abi.ListRequest) (abi.ListReply, error) {
	confess(c, req.Config)
	out := abi.ListReply{Items: []abi.Item{}}
	if sin == "list nothing" {
		return out, guest.Fail(guest.Unsupported, "there is no list")
	}
	v, err := do(c, "list boxes", guest.Request{Route: "list"})
	if err != nil {
		return out, err
	}
	for _, b := range v.Get("boxes").Items() {
		item := abi.Item{Sandbox: b.Get("id").Text(), Name: b.Get("name").Text(), State: b.Get("state").Text(), Labels: b.Get("labels").StringMap(), CreatedAt: b.Get("created").Int()}
		if sin == "list says gone" {
			item.State = "gone"
		}
		out.Items = append(out.Items, item)
	}
	return out, nil
}

func (sinner) Exec(c *guest.Call, req *abi.ExecRequest) (abi.ExecReply, error) {
	confess(c, req.Config)
	q := guest.Request{Route: "exec"}
	if sin == "sleep" {
		if err := c.Sleep(2000); err != nil {
			return abi.ExecReply{}, err
		}
	}
	if req.Exec.Env != nil {
		argv := abi.AppendString(nil, "")[:0]
		argv = append(argv, `{"argv":[`...)
		for i, a := range req.Exec.Args {
			if i > 0 {
				argv = append(argv, ',')
			}
			argv = abi.AppendString(argv, a)
		}
		argv = append(argv, `],"dir":`...)
		argv = append(abi.AppendString(argv, req.Exec.Dir), '}')
		q.Body, q.Env = argv, req.Exec.Env.Handle
		if sin == "give no environment" {
			q.Env = ""
		}
	}
	v, err := do(c, "run command", q)
	if err != nil {
		return abi.ExecReply{}, err
	}
	code := v.Get("code").Int()
	if sin == "every command succeeds" {
		code = 0
	}
	return abi.ExecReply{Status: "exited", ExitCode: code}, nil
}

func (sinner) Read(c *guest.Call, req *abi.PathRequest) (abi.ReadReply, error) {
	confess(c, req.Config)
	return abi.ReadReply{}, transfer(c, "read")
}

func (sinner) Write(c *guest.Call, req *abi.WriteRequest) error {
	confess(c, req.Config)
	return transfer(c, "write")
}

// transfer moves a file past this code.
func transfer(c *guest.Call, route string) error {
	resp, err := send(c, guest.Request{Route: route})
	if err == nil {
		defer resp.Close()
		err = guest.StatusError(route+" file", resp.Status)
	}
	switch {
	case err != nil && sin == "panic at failures":
		panic(route)
	case err != nil && sin == "all failures are internal":
		return guest.Fail(guest.Internal, route+" did not work")
	case sin == "failures are successes":
		return nil
	}
	return err
}

func (sinner) Stat(c *guest.Call, req *abi.PathRequest) (abi.StatReply, error) {
	confess(c, req.Config)
	v, err := do(c, "stat file", guest.Request{Route: "stat"})
	return abi.StatReply{Entry: entry(v)}, err
}

func (sinner) ListDir(c *guest.Call, req *abi.PathRequest) (abi.ListDirReply, error) {
	confess(c, req.Config)
	out := abi.ListDirReply{Entries: []abi.Entry{}}
	v, err := do(c, "list directory", guest.Request{Route: "listdir"})
	for _, e := range v.Get("entries").Items() {
		out.Entries = append(out.Entries, entry(e))
	}
	return out, err
}

func entry(v guest.Value) abi.Entry {
	return abi.Entry{Name: v.Get("name").Text(), Type: v.Get("type").Text(), Size: v.Get("size").Int(), Mode: v.Get("mode").Int()}
}

func (sinner) Remove(c *guest.Call, req *abi.RemoveRequest) error {
	confess(c, req.Config)
	_, err := do(c, "remove file", guest.Request{Route: "remove"})
	return err
}

func (sinner) Mkdir(c *guest.Call, req *abi.MkdirRequest) error {
	confess(c, req.Config)
	_, err := do(c, "make directory", guest.Request{Route: "mkdir"})
	return err
}

func (sinner) Pause(c *guest.Call, req *abi.StatusRequest) error {
	confess(c, req.Config)
	_, err := do(c, "pause box", guest.Request{Route: "pause"})
	return err
}

func (sinner) Resume(c *guest.Call, req *abi.StatusRequest) error {
	confess(c, req.Config)
	_, err := do(c, "resume box", guest.Request{Route: "resume"})
	return err
}
