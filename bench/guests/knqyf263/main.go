//go:build wasip1

// Command knqyf263 is the echo as a plugin of knqyf263/go-plugin, over the service
// of that project's own example: one string in, one string out. A document that
// does not start with a bracket is given back as it is.
package main

import (
	"context"

	"github.com/knqyf263/go-plugin/examples/helloworld/greeting"

	"github.com/sbxhost/sbxhost/bench/guests/items"
)

type echo struct{}

func (echo) Greet(_ context.Context, req *greeting.GreetRequest) (*greeting.GreetReply, error) {
	text := req.GetName()
	if len(text) > 0 && text[0] == '[' {
		out, err := items.Echo([]byte(text))
		if err != nil {
			return nil, err
		}
		text = string(out)
	}
	return &greeting.GreetReply{Message: text}, nil
}

func init() { greeting.RegisterGreeter(echo{}) }

func main() {}
