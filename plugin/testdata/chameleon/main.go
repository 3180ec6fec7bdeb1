// Command chameleon is a plugin whose behaviour is chosen by its settings, for
// tests of what the host does with hostile ones. "when" names an operation, "act"
// what to do in it before the ordinary work, "meta" the requests to make.
package main

import (
	"encoding/base64"
	"os"
	"strings"

	"github.com/sbxhost/sbxhost/abi"
	"github.com/sbxhost/sbxhost/abi/guest"
)

type chameleon struct{}

func init() { guest.Serve(chameleon{}) }

func main() {}

// kept would survive if a call could reach the next one.
var kept = "clean"

// seen is every byte the vendor's answers showed in this call.
var seen []byte

var sink [][]byte

func act(c *guest.Call, config abi.Raw, ref abi.Raw, handle string) error {
	v, err := guest.Parse(config)
	if err != nil || v.Get("when").Text() != c.Op.String() {
		return nil
	}
	switch v.Get("act").Text() {
	case "panic":
		panic("chameleon")
	case "exit":
		os.Exit(0)
	case "spin":
		for i := 0; ; i++ {
			sink = sink[:0]
		}
	case "recurse":
		return guest.Fail(guest.Internal, strings.Repeat("x", recurse(0)%2))
	case "allocate":
		for {
			sink = append(sink, make([]byte, 1<<20))
		}
	case "sleep":
		return c.Sleep(60_000)
	case "flood":
		for range 4096 {
			c.Info(strings.Repeat("f", 1024))
		}
	case "big":
		return guest.Fail(guest.Internal, strings.Repeat("b", 1<<20))
	case "dirty":
		was := kept
		kept = "dirty"
		return guest.Fail(guest.FailedPrecondition, "kept is "+was)
	case "emit":
		return c.Emit(guest.Stdout, []byte("forged output"))
	case "checkpoint":
		return c.Checkpoint([]byte(v.Get("meta").Text()))
	case "checkpoint twice":
		_ = c.Checkpoint([]byte(v.Get("meta").Text())) // goes on as if nothing had been
		return nil
	case "keep handle":
		return c.Checkpoint(abi.AppendString(nil, handle+"!"))
	case "open":
		return open(c, v, strings.TrimSuffix(text(ref), "!"), handle)
	case "open and go on":
		_ = open(c, v, text(ref), handle) // as above
		return nil
	case "smuggle":
		err := open(c, v, text(ref), handle)
		smuggle(c, err)
		return guest.Fail(guest.Internal, string(seen)+base64.StdEncoding.EncodeToString(seen))
	}
	return nil
}

func recurse(n int) int {
	if n < 0 {
		return n
	}
	return recurse(n+1) + 1
}

func text(ref abi.Raw) string {
	v, err := guest.Parse(ref)
	if err != nil {
		return ""
	}
	return v.Text()
}

// smuggle writes what was seen wherever something can be written.
func smuggle(c *guest.Call, err error) {
	if err != nil {
		seen = append(seen, err.Error()...)
	}
	c.Info(string(seen))
	c.Info(base64.StdEncoding.EncodeToString(seen))
	os.Stdout.Write(seen)
	os.Stderr.Write(seen)
	_ = c.Checkpoint(abi.AppendString(nil, string(seen)))
	_ = c.Emit(guest.Stdout, seen)
	_, _ = c.Do(guest.Request{Route: "note", Query: map[string]string{"q": string(seen)}})
}

// open makes the requests of the setting "meta". @H stands for this call's
// handle, @R for what the reference holds.
func open(c *guest.Call, v guest.Value, ref, handle string) error {
	doc := strings.ReplaceAll(strings.ReplaceAll(v.Get("meta").Text(), "@H", handle), "@R", ref)
	list, err := guest.Parse([]byte(doc))
	if err != nil {
		return err
	}
	for _, m := range list.Items() {
		q := guest.Request{Route: m.Get("route").Text(), Params: m.Get("params").StringMap(), Query: m.Get("query").StringMap(), Env: m.Get("env").Text()}
		for _, p := range m.Get("free").Keys() {
			f := m.Get("free").Get(p)
			if f.Kind() == abi.KindNumber {
				q.Free = q.Free.Int(p, f.Int())
			} else {
				q.Free = q.Free.String(p, f.Text())
			}
		}
		if b := m.Get("body"); b.Exists() {
			q.Body = []byte(b.Text())
		}
		times := int(m.Get("times").Int())
		for i := 0; i < max(times, 1); i++ {
			if err := look(c, q, m.Get("keep").Bool()); err != nil {
				return err
			}
		}
	}
	return nil
}

// look makes one request and remembers everything that can be seen of the
// answer.
func look(c *guest.Call, q guest.Request, keep bool) error {
	resp, err := c.Do(q)
	if err != nil {
		return err
	}
	if keep {
		return nil
	}
	defer resp.Close()
	seen = append(seen, resp.Header("X-Info")+resp.Header("Location")...)
	body, err := resp.Body()
	if err == abi.ErrnoState {
		for {
			f, err := resp.Next()
			if err == abi.ErrnoEnd {
				return nil
			}
			if err != nil {
				return err
			}
			seen = append(seen, f.Get("x").Text()...)
		}
	}
	seen = append(seen, body...)
	return err
}

func setting(config abi.Raw, name string) string {
	v, err := guest.Parse(config)
	if err != nil {
		return ""
	}
	return v.Get(name).Text()
}

func (chameleon) Create(c *guest.Call, req *abi.CreateRequest) (abi.CreateReply, error) {
	if err := act(c, req.Config, req.Ref, req.Env.Handle); err != nil {
		return abi.CreateReply{}, err
	}
	switch setting(req.Config, "act") {
	case "create nothing":
		return abi.CreateReply{State: "running"}, nil
	case "strange state":
		_, err := c.JSON("create", guest.Request{Route: "create"})
		return abi.CreateReply{State: "superb"}, err
	}
	if setting(req.Config, "driven") == "yes" {
		_, err := c.JSON("create", guest.Request{Route: "create", Body: []byte(`{"image":"x"}`), Env: req.Env.Handle})
		return abi.CreateReply{State: "running"}, err
	}
	if _, err := c.JSON("create", guest.Request{Route: "create"}); err != nil {
		return abi.CreateReply{}, err
	}
	return abi.CreateReply{State: "running"}, nil
}

func (chameleon) Status(c *guest.Call, req *abi.StatusRequest) (abi.StatusReply, error) {
	if err := act(c, req.Config, req.Ref, ""); err != nil {
		return abi.StatusReply{}, err
	}
	v, err := c.JSON("get", guest.Request{Route: "get"})
	if err != nil {
		return abi.StatusReply{}, err
	}
	return abi.StatusReply{State: v.Get("state").Text(), Reason: v.Get("reason").Text()}, nil
}

func (chameleon) Destroy(c *guest.Call, req *abi.StatusRequest) error {
	if err := act(c, req.Config, req.Ref, ""); err != nil {
		return err
	}
	if setting(req.Config, "act") == "keep alive" {
		return nil
	}
	resp, err := c.Do(guest.Request{Route: "kill"})
	if err != nil {
		return err
	}
	defer resp.Close()
	if resp.Status == 404 {
		return nil
	}
	return guest.StatusError("kill", resp.Status)
}

func (chameleon) List(c *guest.Call, req *abi.ListRequest) (abi.ListReply, error) {
	out := abi.ListReply{Items: []abi.Item{}}
	if err := act(c, req.Config, nil, ""); err != nil {
		return out, err
	}
	lie := setting(req.Config, "act")
	if lie == "list without asking" {
		return out, nil
	}
	v, err := c.JSON("list", guest.Request{Route: "list"})
	if err != nil || lie == "list leaves out" {
		return out, err
	}
	for _, item := range v.Get("items").Items() {
		out.Items = append(out.Items, abi.Item{Sandbox: item.Get("id").Text(), State: "running", Labels: item.Get("labels").StringMap()})
	}
	if lie == "list invents" {
		out.Items = append(out.Items, abi.Item{Sandbox: setting(req.Config, "meta"), State: "running", Labels: map[string]string{"sbxhost.owner": req.Owner}})
	}
	return out, nil
}

func (chameleon) Exec(c *guest.Call, req *abi.ExecRequest) (abi.ExecReply, error) {
	handle := ""
	if req.Exec.Env != nil {
		handle = req.Exec.Env.Handle
	}
	if err := act(c, req.Config, req.Ref, handle); err != nil {
		return abi.ExecReply{}, err
	}
	switch setting(req.Config, "act") {
	case "exec nothing":
		return abi.ExecReply{Status: "exited"}, nil
	case "exec half":
		_, err := c.Do(guest.Request{Route: "start"})
		return abi.ExecReply{Status: "exited"}, err
	case "exec strange":
		_, err := follow(c, "")
		return abi.ExecReply{Status: "exited", ExitCode: 4711}, err
	}
	return follow(c, handle)
}

// follow starts the command, with a body of its own where it has a handle.
func follow(c *guest.Call, handle string) (abi.ExecReply, error) {
	reply := abi.ExecReply{Status: "lost"}
	q := guest.Request{Route: "start", Env: handle}
	if handle != "" {
		q.Body = []byte(`{"argv":["printenv","TOKEN"]}`)
	}
	resp, err := c.Do(q)
	if err != nil {
		return reply, err
	}
	defer resp.Close()
	if err := guest.StatusError("start", resp.Status); err != nil {
		return reply, err
	}
	for {
		f, err := resp.Next()
		if err == abi.ErrnoEnd {
			return reply, nil
		}
		if err != nil {
			return reply, err
		}
		if code := f.Get("exit"); code.Exists() {
			reply = abi.ExecReply{Status: "exited", ExitCode: code.Int()}
		}
	}
}

func (chameleon) Input(c *guest.Call, req *abi.InputRequest) error {
	return act(c, req.Config, req.Ref, "")
}

func (chameleon) Read(c *guest.Call, req *abi.PathRequest) (abi.ReadReply, error) {
	if err := act(c, req.Config, req.Ref, ""); err != nil {
		return abi.ReadReply{}, err
	}
	resp, err := c.Do(guest.Request{Route: "read"})
	if err != nil {
		return abi.ReadReply{}, err
	}
	defer resp.Close()
	return abi.ReadReply{}, guest.StatusError("read", resp.Status)
}
