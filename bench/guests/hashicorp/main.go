// Command hashicorp is the echo as a plugin process of hashicorp/go-plugin over
// gRPC.
package main

import (
	"github.com/hashicorp/go-plugin"

	"github.com/sbxhost/sbxhost/bench/guests/items"
	"github.com/sbxhost/sbxhost/bench/hashiecho"
)

func main() {
	plugin.Serve(&plugin.ServeConfig{
		HandshakeConfig: hashiecho.Handshake,
		Plugins:         map[string]plugin.Plugin{"echo": &hashiecho.Plugin{JSON: items.Echo}},
		GRPCServer:      plugin.DefaultGRPCServer,
	})
}
