package host

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/sbxhost/sbxhost/grants"
	"github.com/sbxhost/sbxhost/ledger"
	"github.com/sbxhost/sbxhost/manifest"
	"github.com/sbxhost/sbxhost/provider"
	"github.com/sbxhost/sbxhost/redact"
	"github.com/sbxhost/sbxhost/secret"
)

// plan is everything decided about a sandbox before its provider is touched. Its
// methods are called in the order check, bind, build.
type plan struct {
	h  *Host
	op string

	providerName string
	manifest     manifest.Manifest
	run          *grants.Set // run-scoped
	want         Transport
	key          string
	sharedTrust  bool
	principal    string
	progress     func(provider.Stage)

	attach    bool // to a sandbox that exists: the manifest's host paths are not used
	keepFiles bool // the workspace's files are there already, or will be

	// after is when the sandbox was made that this one replaces: of two, the one
	// that was made later counts, whatever a clock says.
	after time.Time

	id, attempt string
	reg         *registration
	pairs       []manifest.Pair
	transport   provider.TransportInfo
	grants      grants.Set // in force when the plan was made
	mounts      []provider.PathGrant
	files       []plannedFile
	request     provider.CreateRequest
	unenforced  []string

	binding  *grants.Binding
	values   secret.Env
	redactor *redact.Redactor
	boundary *boundary
}

// check validates manifest and request and decides how values would travel. It
// touches neither the provider nor any source.
func (p *plan) check() error {
	p.manifest = p.manifest.Clone()
	if err := p.manifest.Validate(); err != nil {
		return failure(p.op, "", err)
	}
	var err error
	if p.want, err = p.want.normal(p.op); err != nil {
		return err
	}
	if p.reg, err = p.h.registration(p.op, p.providerName); err != nil {
		return err
	}
	if len(p.key) > 256 || strings.ContainsFunc(p.key, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		return invalid(p.op, "the key must be at most 256 printable characters", "")
	}
	if p.pairs = p.manifest.Pairs(); len(p.pairs) > 0 {
		if p.transport, err = p.reg.choose(p.op, p.want); err != nil {
			return err
		}
	}
	if p.run != nil {
		run := p.run.Clone()
		p.run = &run
	}
	if p.grants, err = p.h.effective(p.run); err != nil {
		return failure(p.op, p.providerName, err)
	}
	if err := p.hostPaths(); err != nil {
		return err
	}
	p.prepare()
	early := p.request
	if early.Transport == provider.TransportCreate {
		early.Transport = provider.TransportExec // the values are not there yet; build validates again
	}
	if err := provider.ValidateCreate(early); err != nil {
		return err
	}
	return provider.CheckCreate(p.reg.desc, p.request)
}

// hostPaths checks what the manifest names on the host, as far as it is used.
func (p *plan) hostPaths() (err error) {
	if p.attach {
		return nil
	}
	if p.mounts, err = p.h.roots.mounts(p.op, p.manifest); err != nil || p.keepFiles {
		return err
	}
	p.files, err = p.h.roots.files(p.op, p.manifest)
	return err
}

// prepare makes the provider's request, all but the values.
func (p *plan) prepare() {
	m := p.manifest
	network := string(m.Network)
	if network == "" {
		network = p.reg.desc.DefaultNetwork
	}
	start := string(m.Start)
	if start == "" {
		start = string(manifest.StartIdle)
	}
	names := destinations(p.pairs)
	digest := p.digest()
	protected := "0"
	if len(names) > 0 {
		protected = "1"
	}
	labels := maps.Clone(m.Labels)
	if labels == nil {
		labels = map[string]string{}
	}
	maps.Copy(labels, map[string]string{
		provider.LabelOwner:     p.h.id,
		provider.LabelEpoch:     p.h.epoch,
		provider.LabelSession:   p.id,
		provider.LabelAttempt:   p.attempt,
		provider.LabelDigest:    digest,
		provider.LabelProtected: protected,
	})
	p.request = provider.CreateRequest{
		SessionID: p.id, Name: provider.NamePrefix + p.id, Digest: digest, Labels: labels,
		Image: m.Image, Root: m.Root, User: m.User, Network: network, Start: start,
		Ports: slices.Clone(m.Ports), Mounts: p.mounts,
		Resources:   provider.Resources(m.Resources),
		TTL:         m.Lifetime.TTL,
		Idle:        m.Lifetime.Idle,
		Environment: m.Literals(), Transport: p.transport.Transport, ProtectedNames: names,
		Progress: p.stages(),
	}
	p.unenforced = unenforced(p.reg.desc.Features, p.request)
}

// digest covers all that makes two creates the same request.
func (p *plan) digest() string {
	sum := sha256.New()
	enc := json.NewEncoder(sum) // of plain strings; cannot fail
	_ = enc.Encode([]any{p.manifest.Digest(), p.providerName, p.transport.Transport, p.pairs})
	return "sha256:" + hex.EncodeToString(sum.Sum(nil))
}

// stages passes progress on, redacted.
func (p *plan) stages() func(provider.Stage) {
	if p.progress == nil {
		return nil
	}
	return func(st provider.Stage) {
		st.Name, st.Detail = p.boundary.text(st.Name), p.boundary.text(st.Detail)
		p.progress(st)
	}
}

// use is what a binding of this plan is for, under the grants in force now.
func (p *plan) use() (grants.Use, error) {
	now, err := p.h.effective(p.run)
	if err != nil {
		return grants.Use{}, failure(p.op, p.providerName, err)
	}
	return grants.Use{Manifest: p.manifest, Provider: p.reg.name, Session: p.id, Grants: now}, nil
}

// bind judges the references under the grants, reads their values in one
// snapshot and arms the redactor with them. Every decision is disclosed.
func (p *plan) bind(ctx context.Context) error {
	err := p.resolve(ctx)
	if err == nil {
		p.arm()
	}
	p.disclosure().resolved(p.pairs, err)
	if err == nil {
		return nil
	}
	p.binding.Revoke()
	p.binding, p.values = nil, secret.Env{}
	return failure(p.op, p.providerName, err)
}

func (p *plan) resolve(ctx context.Context) (err error) {
	p.binding, err = grants.Bind(ctx, grants.BindRequest{
		Manifest: p.manifest, Grants: p.grants, Source: p.h.source, Provider: p.reg.name, Session: p.id,
		RefusedDestinations: p.reg.desc.RefusedDestinations,
	})
	if err != nil {
		return err
	}
	use, err := p.use()
	if err != nil {
		return err
	}
	p.values, err = p.binding.Values(ctx, use)
	return err
}

// still confirms that nothing changed since bind: grants may be reloaded at any
// time.
func (p *plan) still() error {
	use, err := p.use()
	if err != nil {
		return err
	}
	return failure(p.op, p.providerName, p.binding.Covers(use))
}

// arm makes the redactor know the values, before any provider does.
func (p *plan) arm() {
	if p.redactor == nil {
		p.redactor = redact.New(p.h.redact)
	}
	refused := p.redactor.AddEnv(p.values)
	p.boundary = newBoundary(p.providerName, len(p.pairs) > 0, p.redactor)
	p.boundary.fact("session", p.id)
	p.boundary.fact("name", p.request.Name)
	p.h.unmaskable(p.redactor, p.id, p.providerName, refused)
}

func (p *plan) disclosure() disclosure {
	return disclosure{events: p.h.events, clean: p.redactor, record: Record{Host: p.h.id, Principal: p.principal,
		Session: p.id, Provider: p.providerName, Transport: p.transport.String()}, exposure: p.transport.Exposure}
}

// record is the ledger's first word on the sandbox: references only.
func (p *plan) record() (ledger.Record, error) {
	doc, err := p.manifest.MarshalJSON()
	if err != nil {
		return ledger.Record{}, failure(p.op, p.providerName, err)
	}
	now := p.h.clock()
	if !now.After(p.after) {
		now = p.after.Add(1)
	}
	rec := ledger.Record{
		Session: p.id, Owner: p.h.id, Epoch: p.h.epoch, Provider: p.providerName, Name: p.request.Name,
		Attempt: p.attempt, Digest: p.request.Digest, Key: p.key,
		Protected: len(p.pairs) > 0, ProtectedNames: destinations(p.pairs), Manifest: doc,
		CreatedAt: now, UpdatedAt: now, Idle: p.manifest.Lifetime.Idle,
	}
	if ttl := p.manifest.Lifetime.TTL; ttl > 0 {
		rec.ExpiresAt = now.Add(ttl)
	}
	return rec, nil
}

func destinations(pairs []manifest.Pair) []string {
	if len(pairs) == 0 {
		return nil
	}
	out := make([]string, len(pairs))
	for i, p := range pairs {
		out[i] = p.Destination
	}
	return out
}

// unenforced lists the wishes that this provider accepts without enforcing them.
func unenforced(f provider.Features, req provider.CreateRequest) []string {
	var out []string
	note := func(asked bool, s provider.Support, what string) {
		if asked && s == provider.SupportUnenforced {
			out = append(out, what)
		}
	}
	note(req.Image != "", f.Image, "image")
	note(req.User != "", f.User, "user")
	note(req.Network == "none", f.NetworkNone, "network: none")
	note(req.Network == "default", f.NetworkDefault, "network: default")
	note(len(req.Mounts) > 0, f.PathGrants, "pathGrants")
	note(len(req.Ports) > 0, f.Ports, "ports")
	note(req.Start == "image", f.StartImage, "start: image")
	note(req.Resources.CPUs > 0, f.CPUs, "resources.cpus")
	note(req.Resources.MemoryMiB > 0, f.MemoryMiB, "resources.memoryMiB")
	note(req.Resources.PIDs > 0, f.PIDs, "resources.pids")
	note(req.Resources.DiskMiB > 0, f.DiskMiB, "resources.diskMiB")
	return out
}
