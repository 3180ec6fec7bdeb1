package host

import "github.com/sbxhost/sbxhost/provider"

// Report says what Reconcile found and did.
type Report struct {
	Providers []ProviderReport `json:"providers"`
}

// ProviderReport is the part of one provider.
type ProviderReport struct {
	Provider string `json:"provider"`
	// Code says why the provider could not be listed; nothing of it was touched
	// then. "" means that it was.
	Code provider.Code `json:"code,omitempty"`
	// Live sessions of this host, found as recorded.
	Live []string `json:"live,omitempty"`
	// Waiting sessions exist and are nobody's; Resume takes them up.
	Waiting []string `json:"waiting,omitempty"`
	// Destroyed sandboxes: unfinished, retired, or past their lifetime.
	Destroyed []string `json:"destroyed,omitempty"`
	// Gone sessions are no longer at the provider; their record was closed.
	Gone []string `json:"gone,omitempty"`
	// Pending records could not be settled yet and will be tried again.
	Pending []string `json:"pending,omitempty"`
	// Unproven sandboxes carry this owner's label without a matching record.
	// They are left alone.
	Unproven []string `json:"unproven,omitempty"`
}
