package host

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

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
	// Waiting sessions exist and are nobody's. StoredState and Resume take them
	// up, Discard ends them.
	Waiting []string `json:"waiting,omitempty"`
	// Stopped sessions wait too, but their sandbox does not run any more: what
	// ran in it is lost, as after the end of a host whose provider's sandboxes
	// do not outlive it. Their files are there.
	Stopped []string `json:"stopped,omitempty"`
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
	select {
	case h.reconciling <- struct{}{}:
		defer func() { <-h.reconciling }()
	case <-ctx.Done():
		return Report{}, refusal(provider.CodeOf(ctx.Err()), opReconcile, "gave up waiting for another reconcile", "")
	}
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
		slices.Sort(p.Pending)
		p.Pending = slices.Compact(p.Pending)
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
	r.report.sort()
	tr.record.Counts = map[string]int64{"live": int64(len(r.report.Live)), "waiting": int64(len(r.report.Waiting)),
		"stopped":   int64(len(r.report.Stopped)),
		"destroyed": int64(len(r.report.Destroyed)), "gone": int64(len(r.report.Gone)),
		"pending": int64(len(r.report.Pending)), "unproven": int64(len(r.report.Unproven))}
	tr.end(err)
	return r.report
}

// sort makes equal reports equal, and names each session once per list.
func (r *ProviderReport) sort() {
	for _, list := range []*[]string{&r.Live, &r.Waiting, &r.Stopped, &r.Destroyed, &r.Gone, &r.Pending, &r.Unproven} {
		slices.Sort(*list)
		*list = slices.Compact(*list)
	}
}

// reconcileWidth is how many sessions of a provider are settled at once.
const reconcileWidth = 8

// reconciliation is the work on one provider.
type reconciliation struct {
	h      *Host
	reg    *registration
	listed map[string][]provider.Resource // by attempt label

	mu     sync.Mutex
	report ProviderReport
}

func (r *reconciliation) run(ctx context.Context, records []ledger.Record) error {
	listed, err := r.reg.provider.List(ctx, provider.Query{Owner: r.h.id})
	if err != nil {
		for _, rec := range records {
			r.note(&r.report.Pending, rec.Session)
		}
		return err
	}
	r.listed = map[string][]provider.Resource{}
	for _, x := range listed {
		if x.Labels[provider.LabelOwner] == r.h.id && x.State != provider.StateGone {
			a := x.Labels[provider.LabelAttempt]
			r.listed[a] = append(r.listed[a], x)
		}
	}
	known := map[string]bool{}
	var sessions []string
	for _, rec := range records {
		if !known[rec.Session] {
			known[rec.Session] = true
			sessions = append(sessions, rec.Session)
		}
	}
	inParallel(len(sessions), reconcileWidth, func(i int) {
		if ctx.Err() == nil {
			r.settle(ctx, sessions[i])
		}
	})
	if ctx.Err() == nil {
		r.unproven(ctx)
	}
	return ctx.Err()
}

func (r *reconciliation) note(list *[]string, what string) {
	r.mu.Lock()
	*list = append(*list, what)
	r.mu.Unlock()
}

// settle brings the records of one session and its sandboxes together. The live
// sandbox is kept, else the one that was made last and is there; an older one goes
// only when that one is known to be there.
func (r *reconciliation) settle(ctx context.Context, session string) {
	records, err := r.records(ctx, session)
	if err != nil {
		r.note(&r.report.Pending, session)
		return
	}
	taken, live, ok := r.h.takeSession(session, records)
	if !ok || len(taken) < len(records) {
		r.note(&r.report.Live, session)
	}
	defer func() {
		for attempt := range taken {
			r.h.setBusy(attempt, false)
		}
	}()
	// Read again, now that nothing can change them: what was settled meanwhile is
	// not touched again.
	if records, err = r.records(ctx, session); err != nil {
		r.note(&r.report.Pending, session)
		return
	}
	kept := live != ""
	certain := kept
	for _, rec := range slices.Backward(records) {
		if !taken[rec.Attempt] {
			continue
		}
		there := r.find(rec)
		switch {
		case rec.Phase != ledger.Created || expired(rec, r.h.clock()):
			r.retire(ctx, rec, there)
		case !kept && there != nil:
			kept, certain = true, true
			r.waits(session, *there)
		case !kept:
			kept = !r.missing(ctx, rec)
		case certain:
			r.retire(ctx, rec, there)
		default:
			r.note(&r.report.Pending, session)
		}
	}
}

// records returns a session's records of this host on this provider, oldest first.
func (r *reconciliation) records(ctx context.Context, session string) ([]ledger.Record, error) {
	records, err := r.h.ledger.Session(ctx, session)
	return slices.DeleteFunc(records, func(rec ledger.Record) bool {
		return rec.Owner != r.h.id || rec.Provider != r.reg.name
	}), err
}

// find returns the listed sandbox of a record.
func (r *reconciliation) find(rec ledger.Record) *provider.Resource {
	for _, x := range r.listed[rec.Attempt] {
		if proven(x, rec) {
			return &x
		}
	}
	return nil
}

func (r *reconciliation) waits(session string, x provider.Resource) {
	if x.State == provider.StateStopped {
		r.note(&r.report.Stopped, session)
		return
	}
	r.note(&r.report.Waiting, session)
}

func (r *reconciliation) retire(ctx context.Context, rec ledger.Record, there *provider.Resource) {
	if err := r.h.retireListed(ctx, r.reg, rec, "reconciled", r.listed[rec.Attempt], nil); err != nil {
		r.h.keepDeferred(ctx, rec.Attempt)
		r.note(&r.report.Pending, rec.Session)
		return
	}
	if there != nil {
		r.note(&r.report.Destroyed, name(rec))
		return
	}
	r.note(&r.report.Gone, rec.Session)
}

// missing closes the record of a sandbox that is not listed, if the provider
// says that it is gone. A list alone may be stale.
func (r *reconciliation) missing(ctx context.Context, rec ledger.Record) bool {
	if _, err := r.reg.provider.Open(ctx, rec.Ref); codeOf(err) != provider.NotFound {
		r.note(&r.report.Pending, rec.Session)
		return false
	}
	if err := r.h.ledger.Delete(ctx, rec.Attempt); err != nil {
		r.note(&r.report.Pending, rec.Session)
		return false
	}
	r.note(&r.report.Gone, rec.Session)
	return true
}

// unproven names what carries our label and no record. It is only listed, never
// opened: to open is to touch.
func (r *reconciliation) unproven(ctx context.Context) {
	var found []provider.Resource
	for attempt, resources := range r.listed {
		r.h.mu.RLock()
		ours := r.h.inUseLocked(resources[0].Labels[provider.LabelSession], attempt)
		r.h.mu.RUnlock()
		rec, err := ledger.Record{}, error(nil)
		if attempt != "" {
			rec, err = r.h.ledger.Get(ctx, attempt)
		}
		if err != nil && provider.CodeOf(err) != provider.NotFound {
			continue // nobody can tell
		}
		for _, x := range resources {
			if proven(x, rec) || ours && x.Labels[provider.LabelEpoch] == r.h.epoch {
				continue
			}
			found = append(found, x)
		}
	}
	if len(found) == 0 {
		return
	}
	// It may have been closed since it was listed; its record went after it.
	now, err := r.reg.provider.List(ctx, provider.Query{Owner: r.h.id})
	for _, x := range found {
		if err != nil || slices.ContainsFunc(now, func(n provider.Resource) bool { return n.Ref.ID == x.Ref.ID }) {
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

// ReconcileEvery reconciles at once and then at every interval, until ctx ends or
// the host is closed; it returns then, with the context's error or nil. A daemon
// runs it in a goroutine of its own once its providers are registered. done, which
// may be nil, gets the result of each.
//
// What another process or the provider itself does to sandboxes, and what became
// due while nobody asked for anything, is noticed this way.
func (h *Host) ReconcileEvery(ctx context.Context, interval time.Duration, done func(Report, error)) error {
	if interval <= 0 {
		return invalid(opReconcile, "the interval must be positive", "a minute is a good one")
	}
	t := time.NewTicker(interval)
	defer t.Stop()
	for {
		rep, err := h.Reconcile(ctx)
		if h.isClosed() {
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if done != nil {
			done(rep, err)
		}
		select {
		case <-t.C:
		case <-h.creating.Done():
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (h *Host) isClosed() bool {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return h.closed
}
