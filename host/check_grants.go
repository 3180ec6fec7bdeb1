package host

import (
	"github.com/sbxhost/sbxhost/grants"
	"github.com/sbxhost/sbxhost/manifest"
)

// CheckRequest asks what would happen to the references of a manifest.
type CheckRequest struct {
	Manifest  manifest.Manifest
	Provider  string // "": no provider is considered
	Grants    *grants.Set
	Transport Transport
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
