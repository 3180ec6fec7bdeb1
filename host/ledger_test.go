package host_test

import (
	"context"
	"errors"

	"github.com/sbxhost/sbxhost/ledger"
)

func newLedger() ledger.Ledger { return ledger.Memory() }

// putHook calls f before every Put.
type putHook struct {
	ledger.Ledger
	f func()
}

func (p putHook) Put(ctx context.Context, r ledger.Record) error {
	p.f()
	return p.Ledger.Put(ctx, r)
}

// brokenLedger cannot write.
type brokenLedger struct{ ledger.Ledger }

func (brokenLedger) Put(context.Context, ledger.Record) error { return errors.New("disk full") }
