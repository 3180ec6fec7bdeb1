//go:build wasip1

// Command create is a provider written with the kit that answers a create request
// with a reference made of the request's configuration, so that request and reply
// are of one size.
package main

import (
	"github.com/sbxhost/sbxhost/abi"
	"github.com/sbxhost/sbxhost/abi/guest"
)

type vendor struct{}

func (vendor) Create(_ *guest.Call, req *abi.CreateRequest) (abi.CreateReply, error) {
	return abi.CreateReply{State: "running", Ref: req.Config}, nil
}

func (vendor) Status(*guest.Call, *abi.StatusRequest) (abi.StatusReply, error) {
	return abi.StatusReply{State: "running"}, nil
}

func (vendor) Destroy(*guest.Call, *abi.StatusRequest) error { return nil }

func (vendor) List(*guest.Call, *abi.ListRequest) (abi.ListReply, error) {
	return abi.ListReply{}, nil
}

func init() { guest.Serve(vendor{}) }

func main() {}
