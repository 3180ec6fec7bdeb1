package daytona

import (
	"context"
	"net/url"
	"slices"
	"strconv"

	"github.com/sbxhost/sbxhost/provider"
)

// Port implements provider.Ports. The address is a signed URL, and a secret: it
// opens the sandbox, and not this port alone.
func (sb *sandbox) Port(ctx context.Context, port int) (provider.Endpoint, error) {
	subject := strconv.Itoa(port)
	if !slices.Contains(sb.ports, port) {
		return provider.Endpoint{}, problem(provider.NotFound, "port", subject, "the manifest does not name this port").remedy("add it to ports")
	}
	if ctx.Err() != nil {
		return provider.Endpoint{}, ctxProblem("port", subject, ctx.Err(), provider.AppliedNo)
	}
	address, err := sb.p.s.SignedPreviewURL(ctx, sb.id, port, sb.p.opts.PortTTL)
	if err != nil {
		return provider.Endpoint{}, serviceProblem(ctx, "port", subject, err, provider.AppliedNo)
	}
	u, err := url.Parse(address)
	if err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" {
		return provider.Endpoint{}, problem(provider.Unavailable, "port", subject, "the service's address of the port is malformed") // and not repeated
	}
	return provider.Endpoint{Address: address, Secret: true}, nil
}
