package config

import "github.com/sbxhost/sbxhost/grants"

// DefaultDaytonaKey is the variable with the API key when the configuration names
// none.
const DefaultDaytonaKey = "DAYTONA_API_KEY"

// KeyName returns the variable with the API key.
func (d Daytona) KeyName() string {
	if d.APIKey.Name == "" {
		return DefaultDaytonaKey
	}
	return d.APIKey.Name
}

func (c Config) validateDaytona(fail func(pointer, format string, args ...any) error) error {
	k := c.Daytona.APIKey
	switch {
	case k == Source{}:
	case k.Type != SourceProcessEnv:
		return fail("/daytona/apiKey/type", "must be %s", SourceProcessEnv)
	case k.Name == "":
		return fail("/daytona/apiKey", "must name a variable of sbxhost's environment: {type: %s, name: NAME}", SourceProcessEnv)
	case grants.DisplaySource(k.Name) != k.Name:
		// It may be a pasted key.
		return fail("/daytona/apiKey/name", "must be the name of a variable, never a value")
	}
	return nil
}
