// Command bad is a plugin that does what a plugin must not do. Each sin is found
// by a check of the conformance kit.
package main

import (
	"github.com/sbxhost/sbxhost/abi"
	"github.com/sbxhost/sbxhost/abi/guest"
)

type bad struct{}

func init() { guest.Serve(bad{}) }

func main() {}

// Create claims success whatever happened: errno/create.
func (bad) Create(c *guest.Call, _ *abi.CreateRequest) (abi.CreateReply, error) {
	resp, err := c.Do(guest.Request{Route: "create"})
	if err == nil {
		resp.Close()
	}
	return abi.CreateReply{State: "running"}, nil
}

// Status never ends when the vendor fails: http/status/500.
func (bad) Status(c *guest.Call, _ *abi.StatusRequest) (abi.StatusReply, error) {
	resp, err := c.Do(guest.Request{Route: "get"})
	if err != nil {
		return abi.StatusReply{}, err
	}
	defer resp.Close()
	for n := 0; resp.Status == 500; n++ {
		sink += n
	}
	if err := guest.StatusError("get sandbox", resp.Status); err != nil {
		return abi.StatusReply{}, err
	}
	return abi.StatusReply{State: "running"}, nil
}

var sink int

// List panics when it cannot reach the vendor: errno/list.
func (bad) List(c *guest.Call, _ *abi.ListRequest) (abi.ListReply, error) {
	resp, err := c.Do(guest.Request{Route: "list"})
	if err != nil {
		panic(err)
	}
	defer resp.Close()
	body, err := resp.Body()
	if err != nil {
		return abi.ListReply{}, err
	}
	v, err := guest.Parse(body)
	if err != nil {
		return abi.ListReply{}, err
	}
	out := abi.ListReply{Items: []abi.Item{}}
	for _, item := range v.Items() {
		out.Items = append(out.Items, abi.Item{Sandbox: item.Get("sandboxID").Text(), State: "running", Labels: item.Get("metadata").StringMap()})
	}
	return out, nil
}

// Destroy takes a sandbox that is gone for a failure: lifecycle/destroy-twice.
// Every refusal of the vendor is an internal error: http/destroy/401.
func (bad) Destroy(c *guest.Call, _ *abi.StatusRequest) error {
	resp, err := c.Do(guest.Request{Route: "kill"})
	if err != nil {
		return err
	}
	defer resp.Close()
	if resp.Status >= 300 {
		return guest.Fail(guest.Internal, "it did not work")
	}
	return nil
}
