package provider_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sbxhost/sbxhost/provider"
)

// A refusal says how the operator can get what is refused here.
func TestRefusalNamesTheProvidersRemedy(t *testing.T) {
	t.Parallel()
	d := provider.Description{Remedies: map[string]string{"network: default": "set local.allowNetwork: true"}}
	err := provider.CheckCreate(d, provider.CreateRequest{Network: "default"})
	require.ErrorIs(t, err, provider.ErrUnsupported)
	assert.ErrorContains(t, err, "; set local.allowNetwork: true; or leave it out")
	err = provider.CheckCreate(d, provider.CreateRequest{Image: "x"})
	require.ErrorIs(t, err, provider.ErrUnsupported)
	assert.NotContains(t, err.Error(), "allowNetwork")
}
