package daytona_test

import (
	"crypto/rand"
	"encoding/hex"

	"github.com/sbxhost/sbxhost/provider"
)

func hexID(n int) string {
	b := make([]byte, n)
	_, _ = rand.Read(b)
	return hex.EncodeToString(b)
}

// request is a create request of one owner.
func request(mods ...func(*provider.CreateRequest)) provider.CreateRequest {
	id := hexID(16)
	req := provider.CreateRequest{SessionID: id, Name: provider.NamePrefix + id, Digest: "sha256:" + hexID(32), Root: "/workspace", Network: "default", Start: "idle",
		Labels: map[string]string{provider.LabelOwner: "owner-a", provider.LabelEpoch: "1", provider.LabelSession: id, provider.LabelAttempt: hexID(16), provider.LabelProtected: "0"}}
	req.Labels[provider.LabelDigest] = req.Digest
	for _, m := range mods {
		m(&req)
	}
	if len(req.ProtectedNames) > 0 {
		req.Labels[provider.LabelProtected] = "1"
	}
	return req
}
