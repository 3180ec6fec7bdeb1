package host_test

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sbxhost/sbxhost/host"
	"github.com/sbxhost/sbxhost/ledger"
	"github.com/sbxhost/sbxhost/manifest"
	"github.com/sbxhost/sbxhost/provider"
	"github.com/sbxhost/sbxhost/provider/fake"
)

// early checkpoints refs during Create, then does what the test says.
type early struct {
	provider.Provider
	during func(q provider.CreateRequest) error
}

func (e early) Create(ctx context.Context, q provider.CreateRequest) (provider.Sandbox, error) {
	if err := e.during(q); err != nil {
		return nil, err
	}
	return e.Provider.Create(ctx, q)
}

// TestCheckpoints: what a provider has made is in the ledger before its create
// is over, and a ref that holds a value is not.
func TestCheckpoints(t *testing.T) {
	t.Parallel()
	led := newLedger()
	e := newEnv(t, granted, func(s *setup) { s.host.ID, s.host.Ledger = "owner", led })
	var seen []ledger.Record
	var refused error
	var late func(provider.Ref) error
	require.NoError(t, e.RegisterTrusted("early", early{e.fake, func(q provider.CreateRequest) error {
		if err := q.Checkpoint(provider.Ref{ID: "sb-1", Data: json.RawMessage(`{"step":1}`)}); err != nil {
			return err
		}
		seen, _ = led.Session(context.Background(), q.SessionID) //nolint:errcheck // an empty result fails below
		refused = q.Checkpoint(provider.Ref{ID: "sb-1", Data: json.RawMessage(`{"token":"` + tokenCanary + `"}`)})
		late = q.Checkpoint
		return nil
	}}))
	s, err := e.Create(t.Context(), host.CreateRequest{Provider: "early", Manifest: protected()})
	require.NoError(t, err)
	require.Len(t, seen, 1)
	assert.Equal(t, ledger.Intent, seen[0].Phase)
	assert.Equal(t, "sb-1", seen[0].Ref.ID)
	require.Error(t, refused)
	assert.NotContains(t, refused.Error(), tokenCanary)
	require.Error(t, late(provider.Ref{ID: "sb-2"}), "after the create is over")
	recs, err := led.Session(t.Context(), s.ID())
	require.NoError(t, err)
	require.Len(t, recs, 1)
	assert.NotEqual(t, "sb-2", recs[0].Ref.ID)
}

// TestCheckpointedRefSurvivesFailure: a create that fails after a checkpoint, at
// a provider whose list does not show the sandbox, leaves the ref in the ledger.
func TestCheckpointedRefSurvivesFailure(t *testing.T) {
	t.Parallel()
	led := newLedger()
	e := newEnv(t, granted, func(s *setup) { s.host.ID, s.host.Ledger = "owner", led })
	require.NoError(t, e.RegisterTrusted("early", early{e.fake, func(q provider.CreateRequest) error {
		if err := q.Checkpoint(provider.Ref{ID: "sb-1"}); err != nil {
			return err
		}
		return &provider.Error{Code: provider.PermissionDenied, Op: "create", Message: "no", Applied: provider.AppliedUnknown}
	}}))
	_, err := e.Create(t.Context(), host.CreateRequest{Provider: "early", Manifest: ordinary()})
	require.Error(t, err)
	recs, err := led.List(t.Context(), "owner")
	require.NoError(t, err)
	require.Len(t, recs, 1)
	assert.Equal(t, "sb-1", recs[0].Ref.ID)
	assert.Equal(t, ledger.Retiring, recs[0].Phase)
}

// TestRefIsDurableBeforeFiles: a provider that has no checkpoints returns a ref
// only when its create is over; it is in the ledger before anything is put into
// the sandbox, which may take its time.
func TestRefIsDurableBeforeFiles(t *testing.T) {
	t.Parallel()
	led := newLedger()
	e := newEnv(t, granted, func(s *setup) { s.host.ID, s.host.Ledger = "owner", led })
	require.NoError(t, e.RegisterTrusted("plain", uncheckpointed{e.fake}))
	var during []ledger.Record
	e.fake.SetHooks(beforeFirst(fake.MethodWrite, func() {
		during, _ = led.List(context.Background(), "owner") //nolint:errcheck // an empty result fails below
	}))
	m := ordinary()
	m.Files = map[string]manifest.File{"made": {Content: []byte("made")}}
	s, err := e.Create(t.Context(), host.CreateRequest{Provider: "plain", Manifest: m})
	require.NoError(t, err)
	require.Len(t, during, 1)
	assert.Equal(t, ledger.Intent, during[0].Phase)
	assert.Equal(t, s.Info().Sandbox, during[0].Ref.ID)
}

// uncheckpointed never calls CreateRequest.Checkpoint.
type uncheckpointed struct{ provider.Provider }

func (p uncheckpointed) Create(ctx context.Context, q provider.CreateRequest) (provider.Sandbox, error) {
	q.Checkpoint = nil
	return p.Provider.Create(ctx, q)
}
