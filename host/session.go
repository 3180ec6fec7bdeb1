package host

import "time"

// Info describes a session. It holds names, never values.
type Info struct {
	ID        string            `json:"id"`
	Provider  string            `json:"provider"`
	Transport string            `json:"transport"`
	Sandbox   string            `json:"sandbox"` // the provider's id of it
	Image     string            `json:"image,omitempty"`
	Root      string            `json:"root"`
	Network   string            `json:"network"`
	Protected []string          `json:"protected,omitempty"` // destinations
	Labels    map[string]string `json:"labels,omitempty"`
	CreatedAt time.Time         `json:"createdAt"`
	ExpiresAt time.Time         `json:"expiresAt,omitzero"`
	// Isolation is the boundary in force and OpenEnds what it leaves open.
	Isolation string   `json:"isolation,omitempty"`
	OpenEnds  []string `json:"openEnds,omitempty"`
	// Unenforced lists wishes of the manifest that are not enforced.
	Unenforced []string `json:"unenforced,omitempty"`
	// Adopted sessions are of a sandbox that somebody else made.
	Adopted bool `json:"adopted,omitempty"`
}
