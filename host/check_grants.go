package host

import (
	"context"
	"slices"

	"github.com/sbxhost/sbxhost/grants"
	"github.com/sbxhost/sbxhost/manifest"
	"github.com/sbxhost/sbxhost/provider"
)

// CheckRequest asks what would happen to the references of a manifest.
type CheckRequest struct {
	Manifest  manifest.Manifest
	Provider  string      // "": no provider is considered
	Grants    *grants.Set // as in CreateRequest
	Transport Transport   // as in CreateRequest
}

// GrantReport explains every reference of a manifest.
type GrantReport struct {
	Provider   string            `json:"provider,omitempty"`
	Trusted    bool              `json:"trusted"`
	Transport  string            `json:"transport,omitempty"` // that would be used
	Exposure   string            `json:"exposure,omitempty"`  // who else would see the values
	References []ReferenceReport `json:"references"`
	OK         bool              `json:"ok"` // every reference would resolve
	Reason     string            `json:"reason,omitempty"`
}

// ReferenceReport explains one reference.
type ReferenceReport struct {
	Destination string   `json:"destination"`
	Source      string   `json:"source"` // as grants.DisplaySource shows it
	Granted     bool     `json:"granted"`
	Set         Presence `json:"set"`
	OK          bool     `json:"ok"`
	Reason      string   `json:"reason,omitempty"`
}

// Presence says whether a source is set.
type Presence string

// The answers of a source.
const (
	Present         Presence = "yes"
	Absent          Presence = "no"
	PresenceUnknown Presence = "unknown"
)

// CheckGrants explains what Create would do with each reference. It reads no
// value, touches no provider, and asks the source only about what is granted.
// Errors are those of an invalid manifest, grant set, transport or an unknown
// provider; what would be refused is in the report.
func (h *Host) CheckGrants(ctx context.Context, req CheckRequest) (GrantReport, error) {
	const op = "check grants"
	if err := req.Manifest.Validate(); err != nil {
		return GrantReport{}, failure(op, "", err)
	}
	want, err := req.Transport.normal(op)
	if err != nil {
		return GrantReport{}, err
	}
	set, err := h.effective(req.Grants)
	if err != nil {
		return GrantReport{}, failure(op, "", err)
	}
	pairs := req.Manifest.Pairs()
	out := GrantReport{Provider: req.Provider, OK: true, References: []ReferenceReport{}}
	var refused []string
	if req.Provider != "" {
		reg, err := h.registration(op, req.Provider)
		if err != nil {
			return GrantReport{}, err
		}
		out.Trusted, refused = reg.trusted, reg.desc.RefusedDestinations
		if len(pairs) > 0 {
			out.transport(reg, op, want)
		}
	}
	for _, p := range pairs {
		ref := h.checkReference(ctx, p, set, refused)
		out.OK = out.OK && ref.OK
		out.References = append(out.References, ref)
	}
	return out, ctx.Err()
}

func (g *GrantReport) transport(reg *registration, op string, want Transport) {
	info, err := reg.choose(op, want)
	if err != nil {
		g.OK = false
		if pe, ok := err.(*provider.Error); ok { //nolint:errorlint // choose returns nothing else
			g.Reason = pe.Message
		}
		return
	}
	g.Transport, g.Exposure = info.String(), info.Exposure
}

func (h *Host) checkReference(ctx context.Context, p manifest.Pair, set grants.Set, refused []string) ReferenceReport {
	out := ReferenceReport{Destination: grants.DisplaySource(p.Destination), Source: grants.DisplaySource(p.Source), Set: PresenceUnknown}
	switch {
	case manifest.ReservedDestination(p.Destination):
		out.Reason = "the destination is managed by shells or the loader"
		return out
	case slices.Contains(refused, p.Destination):
		out.Reason = "the destination is managed by the provider"
		return out
	case !set.Allows(p):
		out.Reason = "not granted; add " + out.Destination + ": " + out.Source + " to processEnvironmentBindings, or pass --grant " + out.Destination + "=" + out.Source
		return out
	}
	out.Granted = true
	set1, err := h.present(ctx, p.Source)
	switch {
	case err != nil:
		out.Reason = "the source could not be asked"
	case set1:
		out.Set, out.OK = Present, true
	default:
		out.Set, out.Reason = Absent, "the host variable "+out.Source+" is not set"
	}
	return out
}

// present asks the source, whose panics and errors may quote a value.
func (h *Host) present(ctx context.Context, source string) (ok bool, err error) {
	defer func() {
		if recover() != nil {
			ok, err = false, provider.ErrUnavailable
		}
	}()
	return h.source.Present(ctx, source)
}
