package host

import "github.com/sbxhost/sbxhost/provider"

// Transport is how a caller wants protected values delivered.
type Transport string

const (
	// TransportAuto takes the least exposing transport that the provider
	// supports: exec before create. The zero value means the same.
	TransportAuto Transport = "auto"
	// TransportExec requires delivery to each workload process.
	TransportExec Transport = "exec"
	// TransportCreate requires delivery in the creation environment, which the
	// provider's own record shows.
	TransportCreate Transport = "create"
)

// choose returns the transport for a manifest with references, from least to
// most exposing. It never takes another one than was asked for.
func (r *registration) choose(op string, want Transport) (provider.TransportInfo, error) {
	none := provider.TransportInfo{}
	if !r.trusted && !r.plugin {
		return none, refusal(provider.Unsupported, op,
			"provider "+r.name+" is registered as untrusted and cannot be given references", "use a trusted provider, or leave the references out")
	}
	for _, t := range r.desc.Transports {
		if want == TransportAuto || Transport(t.Transport) == want {
			return t, nil
		}
	}
	if len(r.desc.Transports) == 0 {
		return none, refusal(provider.Unsupported, op,
			"provider "+r.name+" has no transport for protected values and cannot be given references", "use another provider, or leave the references out")
	}
	return none, refusal(provider.Unsupported, op,
		"provider "+r.name+" has no "+string(want)+" transport; a transport is never exchanged for a more exposing one silently", "ask for another transport, or for auto")
}

func (t Transport) normal(op string) (Transport, error) {
	switch t {
	case "", TransportAuto:
		return TransportAuto, nil
	case TransportExec, TransportCreate:
		return t, nil
	}
	return "", invalid(op, "unknown transport", "use auto, exec or create")
}
