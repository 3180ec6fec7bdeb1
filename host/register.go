package host

import (
	"context"
	"maps"
	"regexp"
	"slices"

	"github.com/sbxhost/sbxhost/provider"
)

// ProviderInfo describes a registered provider.
type ProviderInfo struct {
	Name        string               `json:"name"`
	Trusted     bool                 `json:"trusted"`
	Description provider.Description `json:"description"`
}

// registration is what the host knows about a provider. Its name was given by
// the host, is unique and is never given again, so it serves as the identity
// that bindings are made for; what a provider says about itself has no weight.
type registration struct {
	name    string
	trusted bool
	plugin  bool // see RegisterPlugin
	desc    provider.Description
	// provider is what was registered, behind deadlines.
	provider provider.Provider
}

// RegisterTrusted registers a provider that may be given protected values. This
// call is what trust is; it lasts as long as the host. The provider's Describe
// is called once. AlreadyExists when the name is taken.
func (h *Host) RegisterTrusted(name string, p provider.Provider) error {
	return h.register(registration{name: name, trusted: true}, p)
}

// Register registers a provider that is never given protected values: a
// manifest with references is refused before the provider is touched, whatever
// transports it declares.
func (h *Host) Register(name string, p provider.Provider) error {
	return h.register(registration{name: name}, p)
}

var providerName = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,62}$`)

// register adds a registration, whose description and provider it fills in.
func (h *Host) register(r registration, p provider.Provider) error {
	const op = "register"
	name := r.name
	if !providerName.MatchString(name) {
		return invalid(op, "the provider's name must be 1 to 63 lower-case letters, digits, dots, dashes or underscores", "")
	}
	if p == nil {
		return invalid(op, "provider "+name+" is nil", "")
	}
	desc, err := bounded(context.Background(), h.limits.CallTimeout, op, nil, func(context.Context) (provider.Description, error) {
		return cloneDescription(p.Describe()), nil
	})
	if err != nil {
		return failure(op, name, err)
	}
	if err := provider.ValidateDescription(desc); err != nil {
		return failure(op, name, err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return refusal(provider.FailedPrecondition, op, "the host is closed", "")
	}
	if _, taken := h.providers[name]; taken {
		return refusal(provider.AlreadyExists, op, "provider "+name+" is registered", "use another name")
	}
	r.desc, r.provider = desc, deadlines{inner: p, create: h.limits.CreateTimeout, call: h.limits.CallTimeout}
	h.providers[name] = &r
	return nil
}

// Providers describes the registered providers, sorted by name. It does no I/O.
func (h *Host) Providers() []ProviderInfo {
	h.mu.RLock()
	defer h.mu.RUnlock()
	out := make([]ProviderInfo, 0, len(h.providers))
	for _, name := range slices.Sorted(maps.Keys(h.providers)) {
		r := h.providers[name]
		out = append(out, ProviderInfo{Name: name, Trusted: r.trusted, Description: cloneDescription(r.desc)})
	}
	return out
}

func (h *Host) registration(op, name string) (*registration, error) {
	h.mu.RLock()
	defer h.mu.RUnlock()
	if r, ok := h.providers[name]; ok {
		return r, nil
	}
	if name == "" {
		return nil, invalid(op, "no provider is named", "name one of those that are registered")
	}
	return nil, refusal(provider.NotFound, op, "no provider is registered as "+shown(name), "register it, or use another name")
}

func cloneDescription(d provider.Description) provider.Description {
	d.OpenEnds = slices.Clone(d.OpenEnds)
	d.Transports = slices.Clone(d.Transports)
	d.RefusedDestinations = slices.Clone(d.RefusedDestinations)
	return d
}

// shown repeats a caller's name only when it looks like one.
func shown(name string) string {
	if providerName.MatchString(name) {
		return name
	}
	return "<unusual name>"
}
