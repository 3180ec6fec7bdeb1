// Package hashiecho is the echo service that host and plugin process of
// hashicorp/go-plugin share: bytes in, bytes out, over gRPC.
package hashiecho

import (
	"context"

	"github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// Handshake is what both sides agree on.
var Handshake = plugin.HandshakeConfig{ProtocolVersion: 1, MagicCookieKey: "SBXHOST_BENCH", MagicCookieValue: "echo"}

// Plugin serves the echo, or is a client of it. JSON is the work of the JSON
// method; the host leaves it nil.
type Plugin struct {
	plugin.NetRPCUnsupportedPlugin
	JSON func([]byte) ([]byte, error)
}

type server struct{ json func([]byte) ([]byte, error) }

func (s *server) handle(dec func(any) error, work func([]byte) ([]byte, error)) (any, error) {
	in := &wrapperspb.BytesValue{}
	if err := dec(in); err != nil {
		return nil, err
	}
	out, err := work(in.GetValue())
	return wrapperspb.Bytes(out), err
}

var service = grpc.ServiceDesc{
	ServiceName: "bench.Echo",
	HandlerType: (*any)(nil),
	Methods: []grpc.MethodDesc{
		{MethodName: "JSON", Handler: func(srv any, _ context.Context, dec func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
			s := srv.(*server)
			return s.handle(dec, s.json)
		}},
		{MethodName: "Raw", Handler: func(srv any, _ context.Context, dec func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
			return srv.(*server).handle(dec, func(b []byte) ([]byte, error) { return b, nil })
		}},
	},
}

// GRPCServer registers the service in the plugin process.
func (p *Plugin) GRPCServer(_ *plugin.GRPCBroker, s *grpc.Server) error {
	s.RegisterService(&service, &server{json: p.JSON})
	return nil
}

// Client calls the service.
type Client struct{ conn *grpc.ClientConn }

// GRPCClient returns a *Client in the host.
func (p *Plugin) GRPCClient(_ context.Context, _ *plugin.GRPCBroker, conn *grpc.ClientConn) (any, error) {
	return &Client{conn: conn}, nil
}

// Call runs method "JSON" or "Raw".
func (c *Client) Call(ctx context.Context, method string, in []byte) ([]byte, error) {
	out := &wrapperspb.BytesValue{}
	err := c.conn.Invoke(ctx, "/bench.Echo/"+method, wrapperspb.Bytes(in), out)
	return out.GetValue(), err
}
