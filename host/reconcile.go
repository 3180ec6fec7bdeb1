package host

import (
	"context"
	"maps"
	"slices"

	"github.com/sbxhost/sbxhost/ledger"
	"github.com/sbxhost/sbxhost/provider"
)

const opReconcile = "reconcile"

// Report says what Reconcile found and did.
type Report struct {
	Providers []ProviderReport `json:"providers"`
}

// ProviderReport is the part of one provider. Sessions are named by their ids,
// sandboxes by the provider's.
type ProviderReport struct {
	Provider string `json:"provider"`
	// Code says why the provider could not be listed; nothing of it was touched
	// then. "" means that it was.
	Code provider.Code `json:"code,omitempty"`
	// Live sessions of this host, and those being made.
	Live []string `json:"live,omitempty"`
	// Waiting sessions exist and are nobody's; Resume takes them up.
	Waiting []string `json:"waiting,omitempty"`
	// Destroyed sandboxes: unfinished, retired, replaced, or past their lifetime.
	Destroyed []string `json:"destroyed,omitempty"`
	// Gone sessions are no longer at the provider; their record was closed.
	Gone []string `json:"gone,omitempty"`
	// Pending sessions could not be settled and will be tried again.
	Pending []string `json:"pending,omitempty"`
	// Unproven sandboxes carry this owner's label without a matching record.
	// They are left alone.
	Unproven []string `json:"unproven,omitempty"`
}

// Reconcile makes providers and ledger agree. It lists each provider's sandboxes
// of this owner and finishes what was left: sandboxes whose making was never
// finished, that were to be retired, or whose lifetime is over are destroyed,
// records of what is gone are closed. It destroys only what the labels and the
// ledger together prove to be this host's. A provider that cannot be listed is
// reported and left alone, and so is what is not proven. Live sessions are not
// disturbed. Running it again changes nothing.
//
// The error is the ledger's, or the context's; what a provider refuses is in the
// report.
func (h *Host) Reconcile(ctx context.Context) (Report, error) {
	ctx, end, err := h.begin(ctx, opReconcile)
	if err != nil {
		return Report{}, err
	}
	defer end()
	h.reconciling <- struct{}{}
	defer func() { <-h.reconciling }()
	records, err := h.ledger.List(ctx, h.id)
	if err != nil {
		return Report{}, ledgerFailed(opReconcile, provider.AppliedNo, err)
	}
	byProvider := map[string][]ledger.Record{}
	for _, rec := range records {
		byProvider[rec.Provider] = append(byProvider[rec.Provider], rec)
	}
	h.mu.RLock()
	regs := maps.Clone(h.providers)
	h.mu.RUnlock()

	out := Report{}
	for _, name := range slices.Sorted(maps.Keys(regs)) {
		out.Providers = append(out.Providers, h.reconcileProvider(ctx, regs[name], byProvider[name]))
		delete(byProvider, name)
	}
	for _, name := range slices.Sorted(maps.Keys(byProvider)) {
		// Nobody can be asked about these.
		p := ProviderReport{Provider: name, Code: provider.NotFound}
		for _, rec := range byProvider[name] {
			p.Pending = append(p.Pending, rec.Session)
		}
		out.Providers = append(out.Providers, p)
	}
	return out, ctx.Err()
}

func (h *Host) reconcileProvider(ctx context.Context, reg *registration, records []ledger.Record) ProviderReport {
	ctx, tr := h.trace(ctx, KindReconcile, opReconcile)
	tr.provider = reg.name
	r := reconciliation{h: h, reg: reg, report: ProviderReport{Provider: reg.name}}
	err := r.run(ctx, records)
	r.report.Code = codeOf(err)
	tr.record.Counts = map[string]int64{"live": int64(len(r.report.Live)), "waiting": int64(len(r.report.Waiting)),
		"destroyed": int64(len(r.report.Destroyed)), "gone": int64(len(r.report.Gone)),
		"pending": int64(len(r.report.Pending)), "unproven": int64(len(r.report.Unproven))}
	tr.end(err)
	return r.report
}

// reconciliation is the work on one provider.
type reconciliation struct {
	h      *Host
	reg    *registration
	listed []provider.Resource
	report ProviderReport
}

func (r *reconciliation) run(ctx context.Context, records []ledger.Record) error {
	// The records were read before the list: what is made in between is listed
	// without a record that we know, and left alone.
	listed, err := r.reg.provider.List(ctx, provider.Query{Owner: r.h.id})
	if err != nil {
		for _, rec := range records {
			r.note(&r.report.Pending, rec.Session)
		}
		return err
	}
	r.listed = slices.DeleteFunc(listed, func(x provider.Resource) bool {
		return x.Labels[provider.LabelOwner] != r.h.id || x.State == provider.StateGone
	})
	newest := map[string]string{}
	for _, rec := range records { // oldest first
		if rec.Phase == ledger.Created {
			newest[rec.Session] = rec.Attempt
		}
	}
	for _, rec := range records {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		r.settle(ctx, rec, newest[rec.Session])
	}
	r.unproven(records)
	return nil
}

func (r *reconciliation) note(list *[]string, what string) {
	if !slices.Contains(*list, what) {
		*list = append(*list, what)
	}
}

// settle brings one record and its sandbox together.
func (r *reconciliation) settle(ctx context.Context, rec ledger.Record, newest string) {
	if !r.claim(rec) {
		r.note(&r.report.Live, rec.Session)
		return
	}
	defer r.h.setBusy(rec.Attempt, false)
	// What was settled since the records were read is not touched again.
	now, err := r.h.ledger.Get(ctx, rec.Attempt)
	if err != nil {
		return
	}
	rec = now
	there := slices.ContainsFunc(r.listed, func(x provider.Resource) bool { return proven(x, rec) })
	keep := rec.Phase == ledger.Created && rec.Attempt == newest && !expired(rec, r.h.clock())
	if keep && there {
		r.note(&r.report.Waiting, rec.Session)
		return
	}
	if keep {
		r.missing(ctx, rec)
		return
	}
	if err := r.h.retire(ctx, r.reg, rec, "reconciled"); err != nil {
		r.h.keepDeferred(ctx, rec.Attempt)
		r.note(&r.report.Pending, rec.Session)
		return
	}
	if there {
		r.note(&r.report.Destroyed, name(rec))
		return
	}
	r.note(&r.report.Gone, rec.Session)
}

// missing closes the record of a sandbox that is not listed, if the provider
// says that it is gone. A list alone may be stale.
func (r *reconciliation) missing(ctx context.Context, rec ledger.Record) {
	if _, err := r.reg.provider.Open(ctx, rec.Ref); codeOf(err) != provider.NotFound {
		r.note(&r.report.Pending, rec.Session)
		return
	}
	if err := r.h.ledger.Delete(ctx, rec.Attempt); err != nil {
		r.note(&r.report.Pending, rec.Session)
		return
	}
	r.note(&r.report.Gone, rec.Session)
}

// claim takes a record that nothing else works on.
func (r *reconciliation) claim(rec ledger.Record) bool {
	r.h.mu.Lock()
	defer r.h.mu.Unlock()
	if r.h.busy[rec.Attempt] || r.h.resumes[rec.Session] != nil {
		return false
	}
	if s := r.h.sessions[rec.Session]; s != nil && s.ledger != nil && s.ledger.record.Attempt == rec.Attempt {
		return false
	}
	r.h.busy[rec.Attempt] = true
	return true
}

// unproven names what carries our label and no record.
func (r *reconciliation) unproven(records []ledger.Record) {
	for _, x := range r.listed {
		if slices.ContainsFunc(records, func(rec ledger.Record) bool { return proven(x, rec) }) {
			continue
		}
		r.h.mu.RLock()
		ours := r.h.busy[x.Labels[provider.LabelAttempt]]
		if s := r.h.sessions[x.Labels[provider.LabelSession]]; s != nil && s.ledger != nil && s.ledger.record.Attempt == x.Labels[provider.LabelAttempt] {
			ours = true
		}
		r.h.mu.RUnlock()
		if !ours {
			r.note(&r.report.Unproven, x.Ref.ID)
		}
	}
}

// name of a record's sandbox: the provider's, or the one that was planned.
func name(rec ledger.Record) string {
	if rec.Ref.ID != "" {
		return rec.Ref.ID
	}
	return rec.Name
}
