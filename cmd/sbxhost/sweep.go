package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"log/slog"
	"strings"
	"time"

	"github.com/sbxhost/sbxhost/provider"
)

// runOwner starts the host id of every one-shot run, and with it the owner label
// of its sandbox.
const runOwner = "sbxhost-run-"

// sweepTime bounds how long a run looks after what others left.
const sweepTime = 2 * time.Second

// newRunID returns a host id for one run.
func newRunID() (string, error) {
	var b [8]byte
	if _, err := rand.Read(b[:]); err != nil {
		return "", err
	}
	return runOwner + hex.EncodeToString(b[:]), nil
}

// sweepRuns removes what earlier runs of this user left because they were killed
// and could not clean up. A sandbox counts as left only when its owner label is a
// run's and its provider says that no process holds it any more. Nothing here
// fails the run in hand.
func sweepRuns(ctx context.Context, p provider.Provider, logger *slog.Logger) {
	ctx, cancel := context.WithTimeout(ctx, sweepTime)
	defer cancel()
	list, err := p.List(ctx, provider.Query{})
	if err != nil {
		logger.Debug("what earlier runs left cannot be listed", "code", string(provider.CodeOf(err)))
		return
	}
	for _, r := range list {
		if r.State != provider.StateStopped || !strings.HasPrefix(r.Labels[provider.LabelOwner], runOwner) {
			continue
		}
		if err := p.Destroy(ctx, r.Ref); err != nil {
			logger.Debug("what an earlier run left cannot be removed", "sandbox", r.Ref.ID, "code", string(provider.CodeOf(err)))
			continue
		}
		logger.Info("removed what an earlier run left when it was killed", "sandbox", r.Ref.ID)
	}
}
