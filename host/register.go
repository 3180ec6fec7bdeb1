package host

import "github.com/sbxhost/sbxhost/provider"

// ProviderInfo describes a registered provider.
type ProviderInfo struct {
	Name        string               `json:"name"`
	Trusted     bool                 `json:"trusted"`
	Description provider.Description `json:"description"`
}
