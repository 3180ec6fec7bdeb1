package host

import (
	"context"
	"fmt"

	"github.com/sbxhost/sbxhost/provider"
	"github.com/sbxhost/sbxhost/redact"
)

// Port returns where a port of the manifest can be reached. An address that
// grants access by itself (Endpoint.Secret) is redacted wherever else it
// appears. It may be retried. NotFound for a port that the manifest does not
// name, Unsupported when the provider cannot.
func (s *Session) Port(ctx context.Context, port int) (provider.Endpoint, error) {
	const op = "port"
	none := provider.Endpoint{}
	p, ok := optional[provider.Ports](s.sandbox)
	if !ok {
		return none, refusal(provider.Unsupported, op, "provider "+s.reg.name+" has no ports", "")
	}
	ctx, done, err := s.use(ctx, op)
	if err != nil {
		return none, err
	}
	defer done()
	ep, err := bounded(ctx, s.h.limits.CallTimeout, op, nil, func(ctx context.Context) (provider.Endpoint, error) {
		return p.Port(ctx, port)
	})
	if err != nil {
		return none, s.boundary.err(op, err)
	}
	if names := s.redactor.Contains([]byte(ep.Address)); !ep.Secret && len(names) > 0 {
		return none, s.boundary.err(op, &provider.Error{Code: provider.Internal, Op: op, Provider: s.reg.name,
			Message: "the provider returned an address that holds a protected value", Applied: provider.AppliedNo})
	}
	if ep.Secret {
		s.redactor.Add(redact.Secret{Name: fmt.Sprintf("PORT_%d", port), Value: []byte(ep.Address)})
		s.boundary.armed.Store(true)
	}
	return ep, nil
}
