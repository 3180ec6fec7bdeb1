package host

import (
	"errors"

	"github.com/sbxhost/sbxhost/grants"
	"github.com/sbxhost/sbxhost/manifest"
	"github.com/sbxhost/sbxhost/redact"
)

// Disclosure says that a value was, or was not, handed on.
type Disclosure struct {
	// Action is "resolve" when a source was to be read, "hand-over" when the
	// value was given to the provider.
	Action      string `json:"action"`
	Allowed     bool   `json:"allowed"`
	Destination string `json:"destination"`
	// Source as grants.DisplaySource shows it; "" for a request-scoped value.
	Source   string `json:"source,omitempty"`
	Exposure string `json:"exposure,omitempty"` // who else can see it
	Reason   string `json:"reason"`
}

// disclosure writes disclosure records: one per value and decision.
type disclosure struct {
	events   *emitter
	clean    *redact.Redactor
	record   Record // what all of them have in common
	exposure string
}

func (d disclosure) emit(operation string, g Disclosure) {
	if d.events.idle() {
		return
	}
	r := d.record
	r.Kind, r.Operation, r.Grant = KindGrant, operation, &g
	d.events.emit(r, d.clean)
}

// resolved reports the outcome of bind for every pair. Binding is
// all-or-nothing: one refused pair denies all.
func (d disclosure) resolved(pairs []manifest.Pair, err error) {
	reason := "granted"
	if err != nil {
		reason = "denied"
		var ge *grants.Error
		if errors.As(err, &ge) {
			reason = string(ge.Kind)
		}
	}
	for _, p := range pairs {
		d.emit("resolve", Disclosure{Action: "resolve", Allowed: err == nil, Destination: p.Destination,
			Source: grants.DisplaySource(p.Source), Exposure: d.exposure, Reason: reason})
	}
}

// handedOver reports that the provider is being given the values.
func (d disclosure) handedOver(pairs []manifest.Pair, operation string) {
	for _, p := range pairs {
		d.emit(operation, Disclosure{Action: "hand-over", Allowed: true, Destination: p.Destination,
			Source: grants.DisplaySource(p.Source), Exposure: d.exposure, Reason: "granted"})
	}
}

// request reports request-scoped values, by name.
func (d disclosure) request(names []string, operation, reason string, allowed bool) {
	for _, n := range names {
		d.emit(operation, Disclosure{Action: "hand-over", Allowed: allowed, Destination: grants.DisplaySource(n), Reason: reason})
	}
}
