package host

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/sbxhost/sbxhost/internal/jsonobject"
	"github.com/sbxhost/sbxhost/manifest"
	"github.com/sbxhost/sbxhost/provider"
)

const (
	stateVersion = 1
	// maxState bounds a state: a manifest, a ref, and names.
	maxState = 2 << 20
)

// stateDoc is a session's state as it is written: references and ids only.
type stateDoc struct {
	Version   int               `json:"version"`
	SessionID string            `json:"sessionId"`
	Provider  string            `json:"provider"`
	Manifest  manifest.Manifest `json:"manifest"`
	Protected []string          `json:"protected"`
	Sandbox   json.RawMessage   `json:"sandbox"`
	CreatedAt time.Time         `json:"createdAt"`
}

// State returns what Resume needs to go on with the session later: JSON with
// references and ids, never a value. It fails when any reference of the
// session's manifest is not covered by a valid binding (listing all of them),
// and when the provider's ref holds a value. It changes nothing.
func (s *Session) State(ctx context.Context) ([]byte, error) {
	const op = "state"
	if s.adopted {
		return nil, refusal(provider.FailedPrecondition, op, "an adopted sandbox has no state", "keep its ref, and adopt it again")
	}
	_, done, err := s.use(ctx, op)
	if err != nil {
		return nil, err
	}
	defer done()
	ref, err := provider.EncodeRef(s.ref)
	if err != nil {
		return nil, s.boundary.err(op, err)
	}
	if names := s.redactor.Contains(ref); len(names) > 0 {
		return nil, s.boundary.err(op, refusal(provider.Internal, op, "the provider's ref holds a protected value", ""))
	}
	return writeState(s.id, s.reg.name, s.manifest, ref, s.createdAt)
}

func writeState(session, providerName string, m manifest.Manifest, ref []byte, created time.Time) ([]byte, error) {
	return json.Marshal(stateDoc{Version: stateVersion, SessionID: session, Provider: providerName,
		Manifest: m, Protected: orEmpty(destinations(m.Pairs())), Sandbox: ref, CreatedAt: created.UTC()})
}

// savedState is a state that was read. It is hostile input: the session id says
// whose it claims to be, all else is only compared.
type savedState struct {
	session   string
	provider  string
	manifest  manifest.Manifest
	protected []string
	ref       provider.Ref
}

// parseState reads a state strictly. Errors are InvalidArgument and do not
// repeat the input.
func parseState(data []byte) (savedState, error) {
	var out savedState
	bad := func(what string) (savedState, error) {
		return savedState{}, invalid("resume", "the state is malformed: "+what, "use the state that Session.State returned, unchanged")
	}
	if len(data) > maxState {
		return bad("it is larger than 2 MiB")
	}
	if err := manifest.CheckGrantShapedKeys(data); err != nil {
		return savedState{}, failure("resume", "", err)
	}
	fields, err := jsonobject.Split(data, "version", "sessionId", "provider", "manifest", "protected", "sandbox", "createdAt")
	if err != nil {
		return bad(err.Error())
	}
	var version int
	if json.Unmarshal(fields["version"], &version) != nil || version != stateVersion {
		return bad("its version is not 1")
	}
	if json.Unmarshal(fields["sessionId"], &out.session) != nil || !validSessionID(out.session) {
		return bad("its sessionId is not 32 hex digits")
	}
	if json.Unmarshal(fields["provider"], &out.provider) != nil || !providerName.MatchString(out.provider) {
		return bad("its provider is not a provider's name")
	}
	if out.manifest, err = parsePersisted(fields["manifest"]); err != nil {
		return savedState{}, failure("resume", "", err)
	}
	if json.Unmarshal(fields["protected"], &out.protected) != nil || out.protected == nil {
		return bad("protected is not a list of names")
	}
	if !slices.Equal(out.protected, slices.Sorted(slices.Values(out.protected))) {
		return bad("protected is not sorted")
	}
	for _, n := range out.protected {
		if manifest.ValidEnvKey(n) != nil {
			return bad("protected holds something that is no name")
		}
	}
	if out.ref, err = provider.DecodeRef(fields["sandbox"]); err != nil {
		return bad("its sandbox is not a ref")
	}
	var created time.Time
	if raw, ok := fields["createdAt"]; ok && json.Unmarshal(raw, &created) != nil {
		return bad("createdAt is not a time")
	}
	return out, nil
}

// parsePersisted reads the manifest of a state. A missing, null or array
// environment counts as one without entries, as older versions wrote it.
func parsePersisted(raw json.RawMessage) (manifest.Manifest, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(raw, &fields); err == nil {
		env := bytes.TrimSpace(fields["environment"])
		if bytes.Equal(env, []byte("null")) || bytes.HasPrefix(env, []byte("[")) {
			delete(fields, "environment")
			if raw, err = json.Marshal(fields); err != nil {
				return manifest.Manifest{}, err
			}
		}
	}
	return manifest.Parse(raw)
}
