package plugin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/sbxhost/sbxhost/abi"
	"github.com/sbxhost/sbxhost/plugin/internal/egress"
	"github.com/sbxhost/sbxhost/provider"
	"github.com/sbxhost/sbxhost/secret"
)

// sandboxState is what the host keeps of one sandbox of a plugin.
type sandboxState struct {
	session string
	attempt string
	digest  string
	root    string
	missed  []string // wishes that are not enforced
	net     *egress.Session

	mu      sync.Mutex
	ref     []byte // the plugin's own
	sandbox string
}

// refData is the opaque part of a provider.Ref. It holds no value: the plugin's
// part is scanned before it is kept.
type refData struct {
	Session string            `json:"session"`
	Root    string            `json:"root"`
	Digest  string            `json:"digest,omitempty"`
	Labels  map[string]string `json:"labels,omitempty"`
	Plugin  json.RawMessage   `json:"plugin,omitempty"`
}

const (
	minPoll = 100 * time.Millisecond
	maxPoll = 10 * time.Second
	// destroyWait bounds how long Destroy looks for the sandbox to be gone.
	destroyWait = 60 * time.Second
)

func (s *sandboxState) toRef(labels map[string]string) provider.Ref {
	s.mu.Lock()
	defer s.mu.Unlock()
	own := map[string]string{}
	for k, v := range labels {
		if strings.HasPrefix(k, provider.LabelPrefix) {
			own[k] = v
		}
	}
	data, err := json.Marshal(refData{Session: s.session, Root: s.root, Digest: s.digest, Labels: own, Plugin: s.ref})
	if err != nil {
		data = nil // only a malformed checkpoint could do that, and those are refused
	}
	id := s.sandbox
	if id == "" {
		id = provider.NamePrefix + s.session
	}
	return provider.Ref{ID: id, Data: data}
}

// run carries out one operation: encodes the request, runs the guest, decodes
// the reply. The caller closes net.
func (p *Plugin) run(ctx context.Context, opName string, op abi.Op, req interface{ AppendJSON([]byte) []byte }, reply interface {
	DecodeJSON([]byte, bool) error
}, c *call, timeout time.Duration,
) error {
	if !p.m.Has(op.String()) {
		return p.refused(provider.Unsupported, opName, "the plugin does not offer "+op.String())
	}
	c.p, c.op = p, op
	if c.scan == nil && c.net != nil {
		c.scan = c.net.Find
	}
	c.in = req.AppendJSON(nil)
	if len(c.in) > abi.MaxInput {
		return p.refused(provider.InvalidArgument, opName, "the request is too large for a plugin")
	}
	applied := func() provider.Applied {
		if c.net == nil {
			return provider.AppliedNo
		}
		return c.net.Applied()
	}
	pool, err := p.instances(ctx)
	if err != nil {
		return p.failed(opName, err, provider.AppliedNo)
	}
	if timeout <= 0 {
		timeout = p.wall()
	}
	res, err := pool.CallTimeout(ctx, int32(op), c, timeout)
	if err != nil {
		return p.failed(opName, err, applied())
	}
	var denied *egress.Denied
	if c.net != nil {
		denied = c.net.Denied()
	}
	if denied != nil && res.Code == 1 {
		p.saw("error document", c.doc)
	}
	if denied != nil && (res.Code == 0 || res.Code == 1) {
		// Also where the plugin went on as if nothing had been: what it asked for
		// is not what was approved.
		return p.failed(opName, denied, applied())
	}
	switch res.Code {
	case 0:
		if len(c.doc) > 0 {
			return p.failed(opName, &ABIViolation{What: "a reply and an error document at once"}, applied())
		}
		p.saw("reply", c.out)
		if err := reply.DecodeJSON(c.out, true); err != nil {
			return p.failed(opName, &ABIViolation{What: "the reply to " + op.String() + " is malformed: " + err.Error()}, applied())
		}
		return nil
	case 1:
		p.saw("error document", c.doc)
		return p.reported(opName, c, applied())
	}
	return p.failed(opName, &ABIViolation{What: "the call returned neither 0 nor 1"}, applied())
}

func (p *Plugin) wall() time.Duration {
	if p.m.Limits.WallMs > 0 {
		return time.Duration(p.m.Limits.WallMs) * time.Millisecond
	}
	return abi.DefaultWallMillis * time.Millisecond
}

func (p *Plugin) saw(what string, data []byte) {
	if p.cfg.Trace != nil {
		p.cfg.Trace(what, data)
	}
}

// reported turns an error document into an error. Its message is the plugin's
// own text: anything in it that looks like a value is dropped.
func (p *Plugin) reported(opName string, c *call, applied provider.Applied) error {
	var doc abi.ErrorDocument
	if err := doc.DecodeJSON(c.doc, true); err != nil {
		return p.failed(opName, &ABIViolation{What: "the error document is malformed: " + err.Error()}, applied)
	}
	code := provider.Internal
	for _, known := range provider.Codes() {
		if string(known) == doc.Code && known != provider.NotGranted {
			code = known
		}
	}
	msg := strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) { // nothing that moves a cursor, hides or reverses
			return ' '
		}
		return r
	}, doc.Message)
	if c.scan != nil {
		_, whole := c.scan(doc.Message)
		if _, shown := c.scan(msg); whole || shown {
			msg = "the plugin's message held a value and was dropped"
		}
	}
	if len(msg) > 1024 {
		msg = strings.ToValidUTF8(msg[:1024], "")
	}
	return &provider.Error{Code: code, Op: opName, Provider: p.m.Name, Message: msg, Applied: applied}
}

// settings is the config document a guest gets.
func (p *Plugin) settings() abi.Raw {
	out := map[string]string{}
	for name, f := range p.m.Config {
		if f.Default != "" {
			out[name] = f.Default
		}
	}
	maps.Copy(out, p.cfg.Settings)
	doc, err := json.Marshal(out)
	if err != nil {
		return abi.Raw("{}")
	}
	return doc
}

func (p *Plugin) handleNames(q provider.CreateRequest) []string {
	names := make([]string, 0, len(q.Environment)+len(q.ProtectedNames))
	for n := range q.Environment {
		names = append(names, n)
	}
	for n := range q.Protected.All() {
		names = append(names, n)
	}
	return sortedUnique(names)
}

func sortedUnique(names []string) []string {
	m := map[string]bool{}
	for _, n := range names {
		m[n] = true
	}
	return sortedKeys(m)
}

// Create makes a sandbox through the plugin. Before any of the plugin's code
// runs it is refused when a value would have no protected way.
func (p *Plugin) Create(ctx context.Context, q provider.CreateRequest) (provider.Sandbox, error) {
	const op = "create"
	if err := provider.ValidateCreate(q); err != nil {
		return nil, err
	}
	if err := p.mayProtect(op, q.Transport, len(q.ProtectedNames) > 0 || q.Protected.Len() > 0); err != nil {
		return nil, err
	}
	if err := provider.CheckCreate(p.desc, q); err != nil {
		return nil, err
	}
	leave, err := p.creating(ctx, q.SessionID)
	if err != nil {
		return nil, p.failed(op, err, provider.AppliedNo)
	}
	defer leave()
	known := p.known(q)
	p.plan(q)
	if known == nil {
		found, err := p.find(ctx, q)
		if err != nil {
			return nil, err
		}
		known = found
	}
	if known != nil {
		if known.digest != q.Digest {
			return nil, p.refused(provider.Conflict, op, "a sandbox of this session with another digest exists")
		}
		return p.sandbox(known, q.Labels), nil
	}
	net, err := p.broker.Session(q, q.Protected, "")
	if err != nil {
		return nil, p.failed(op, err, provider.AppliedNo)
	}
	st := &sandboxState{session: q.SessionID, attempt: q.Labels[provider.LabelAttempt], digest: q.Digest, root: q.Root, net: net, missed: unenforced(p.desc.Features, q)}
	if err := p.create(ctx, q, st); err != nil {
		return nil, p.undo(ctx, st, q, err)
	}
	p.keep(st)
	return p.sandbox(st, q.Labels), nil
}

// known returns the sandbox that makes a create a repetition. One that is to be
// replaced does not: for a while both live under the same session.
func (p *Plugin) known(q provider.CreateRequest) *sandboxState {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, st := range p.sessions[q.SessionID] {
		if q.Replaces == nil || st.attempt == q.Labels[provider.LabelAttempt] {
			return st
		}
	}
	return nil
}

// plan remembers what a list cannot tell about a sandbox that is adopted after
// an answer was lost.
func (p *Plugin) plan(q provider.CreateRequest) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.roots) > 100_000 {
		clear(p.roots)
	}
	p.roots[q.SessionID] = q.Root
}

// keep remembers a sandbox, or returns the state that is already kept of it.
func (p *Plugin) keep(st *sandboxState) *sandboxState {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, have := range p.sessions[st.session] {
		if have == st {
			return st
		}
		if _, sandbox := have.snapshot(); sandbox == st.sandbox {
			return have
		}
	}
	p.sessions[st.session] = append(p.sessions[st.session], st)
	return st
}

// forget drops a sandbox that is gone.
func (p *Plugin) forget(st *sandboxState) {
	p.mu.Lock()
	defer p.mu.Unlock()
	left := slices.DeleteFunc(p.sessions[st.session], func(have *sandboxState) bool { return have == st })
	if len(left) == 0 {
		delete(p.sessions, st.session)
		delete(p.roots, st.session)
		return
	}
	p.sessions[st.session] = left
}

// mayProtect refuses values that would have no protected way.
func (p *Plugin) mayProtect(op string, t provider.Transport, protected bool) error {
	if !protected {
		return nil
	}
	for _, have := range p.desc.Transports {
		if have.Transport == t {
			return nil
		}
	}
	e := p.refused(provider.Unsupported, op, "the plugin "+p.m.Name+" has no protected transport for references")
	e.Remedy = "use another provider, or a plugin with a protected transport"
	if p.m.Protected.Any() && p.m.Kind == "plugin-driven" {
		e.Message = "the plugin " + p.m.Name + " is plugin-driven and could obtain values"
		e.Remedy = "use a sealed plugin, or set allowPluginDriven for this one if you trust its author"
	}
	return e
}

// find looks for a sandbox of this session that an earlier attempt left behind.
func (p *Plugin) find(ctx context.Context, q provider.CreateRequest) (*sandboxState, error) {
	if !p.createsRemotely() {
		return nil, nil // nothing outlives its reference, so nothing can be found
	}
	list, err := p.List(ctx, provider.Query{Owner: q.Labels[provider.LabelOwner], Session: q.SessionID})
	if err != nil {
		e := p.failed("create", err, provider.AppliedNo)
		e.Code, e.Message = provider.CodeOf(err), "cannot tell whether the sandbox exists already"
		return nil, e
	}
	for _, r := range list {
		if r.State == provider.StateGone || q.Replaces != nil && r.Labels[provider.LabelAttempt] != q.Labels[provider.LabelAttempt] {
			continue
		}
		if r.Labels[provider.LabelDigest] != q.Digest {
			return nil, p.refused(provider.Conflict, "create", "a sandbox of this session with another digest exists")
		}
		net, err := p.broker.Session(q, q.Protected, r.Ref.ID)
		if err != nil {
			return nil, p.failed("create", err, provider.AppliedNo)
		}
		return p.keep(&sandboxState{session: q.SessionID, attempt: r.Labels[provider.LabelAttempt], digest: q.Digest, root: q.Root, net: net, sandbox: r.Ref.ID}), nil
	}
	return nil, nil
}

func (p *Plugin) create(ctx context.Context, q provider.CreateRequest, st *sandboxState) error {
	const op = "create"
	net := p.broker.Call(egress.CallConfig{Op: abi.OpCreate, Session: st.net})
	defer net.Close()
	c := &call{net: net, scan: st.net.Find}
	c.checkpoint = func(kind int32, ref []byte) error {
		if kind != 0 {
			return &egress.Failure{Errno: abi.ErrnoInvalid, Detail: "an exec reference outside of exec"}
		}
		if err := st.keep(net, ref); err != nil {
			return err
		}
		if q.Checkpoint != nil {
			return q.Checkpoint(st.toRef(q.Labels))
		}
		return nil
	}
	req := abi.CreateRequest{
		Session: q.SessionID, Config: p.settings(), Name: q.Name, Image: q.Image, Network: q.Network,
		TTLSeconds: int64(q.TTL.Seconds()), IdleSeconds: int64(q.Idle.Seconds()),
		Env: abi.EnvHandle{Names: p.handleNames(q)},
	}
	for _, port := range q.Ports {
		req.Ports = append(req.Ports, int64(port))
	}
	if q.Resources != (provider.Resources{}) {
		req.Resources = &abi.Resources{CPUs: q.Resources.CPUs, MemoryMiB: q.Resources.MemoryMiB, DiskMiB: q.Resources.DiskMiB}
	}
	req.Env.Handle = net.NewHandle()
	var reply abi.CreateReply
	err := p.run(ctx, op, abi.OpCreate, &req, &reply, c, 0)
	st.note()
	if err != nil {
		return err
	}
	if len(reply.Ref) > 0 {
		if err := st.keep(net, reply.Ref); err != nil {
			return p.failed(op, err, net.Applied())
		}
	}
	if st.net.Sandbox() == "" && p.createsRemotely() {
		return p.failed(op, &ABIViolation{What: "create ended without a sandbox id in any create reply"}, net.Applied())
	}
	if q.Checkpoint != nil {
		if err := q.Checkpoint(st.toRef(q.Labels)); err != nil {
			return p.failed(op, err, net.Applied())
		}
	}
	return p.waitRunning(ctx, st, reply)
}

// createsRemotely reports whether the manifest has a route that creates: then
// its reply must have named the sandbox.
func (p *Plugin) createsRemotely() bool {
	for _, r := range p.m.Routes {
		if r.Response.Sandbox != "" {
			return true
		}
	}
	return false
}

// waitRunning polls status until the sandbox runs.
func (p *Plugin) waitRunning(ctx context.Context, st *sandboxState, reply abi.CreateReply) error {
	const op = "create"
	state, poll := reply.State, reply.PollMs
	for {
		switch provider.State(state) {
		case provider.StateRunning:
			return nil
		case provider.StatePending, provider.StateUnknown:
		case provider.StateGone, provider.StateStopped, provider.StatePaused:
			return &provider.Error{Code: provider.FailedPrecondition, Op: op, Provider: p.m.Name, Message: "the sandbox is " + state + " instead of running", Applied: provider.AppliedYes}
		default:
			return p.failed(op, &ABIViolation{What: "an unknown state in the reply"}, provider.AppliedYes)
		}
		wait := min(max(time.Duration(poll)*time.Millisecond, minPoll), maxPoll)
		t := time.NewTimer(p.hooks.Wait(wait))
		select {
		case <-ctx.Done():
			t.Stop()
			return p.failed(op, ctx.Err(), provider.AppliedYes)
		case <-t.C:
		}
		r, err := p.status(ctx, st)
		if err != nil {
			return err
		}
		state, poll = r.State, r.PollMs
	}
}

func (p *Plugin) status(ctx context.Context, st *sandboxState) (abi.StatusReply, error) {
	var reply abi.StatusReply
	net := p.broker.Call(egress.CallConfig{Op: abi.OpStatus, Session: st.net})
	defer net.Close()
	err := p.simpleOn(ctx, net, "status", abi.OpStatus, st, &reply)
	if err == nil && len(reply.Ref) > 0 {
		if err := st.keep(net, reply.Ref); err != nil {
			return reply, p.failed("status", err, provider.AppliedNo)
		}
	}
	return reply, err
}

// simple runs an operation that takes nothing but the sandbox.
func (p *Plugin) simple(ctx context.Context, opName string, op abi.Op, st *sandboxState, reply interface {
	DecodeJSON([]byte, bool) error
},
) error {
	net := p.broker.Call(egress.CallConfig{Op: op, Session: st.net})
	defer net.Close()
	return p.simpleOn(ctx, net, opName, op, st, reply)
}

func (p *Plugin) simpleOn(ctx context.Context, net *egress.Call, opName string, op abi.Op, st *sandboxState, reply interface {
	DecodeJSON([]byte, bool) error
},
) error {
	ref, sandbox := st.snapshot()
	req := abi.StatusRequest{Session: st.session, Config: p.settings(), Ref: ref, Sandbox: sandbox}
	c := &call{net: net, scan: st.net.Find, checkpoint: st.checkpoint(net)}
	return p.run(ctx, opName, op, &req, reply, c, 0)
}

func (s *sandboxState) snapshot() (ref abi.Raw, sandbox string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return abi.Raw(s.ref), s.sandbox
}

// checkpoint keeps a sandbox reference; an exec's is kept by its process.
func (s *sandboxState) checkpoint(net *egress.Call) func(kind int32, ref []byte) error {
	return func(kind int32, ref []byte) error {
		if kind != 0 {
			return &egress.Failure{Errno: abi.ErrnoInvalid, Detail: "an exec reference outside of exec"}
		}
		return s.keep(net, ref)
	}
}

// keep scans a plugin's reference and keeps it.
func (s *sandboxState) keep(net *egress.Call, ref []byte) error {
	if len(ref) > abi.MaxRef {
		return &egress.Failure{Errno: abi.ErrnoTooLarge, Detail: "the reference is too large"}
	}
	if err := checkRef(net, ref); err != nil {
		return err
	}
	doc, err := compact(ref)
	if err != nil {
		return &egress.Failure{Errno: abi.ErrnoInvalid, Detail: "the reference is not JSON"}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ref = doc
	s.sandbox = s.net.Sandbox()
	return nil
}

// checkRef refuses a reference that holds a value, also under JSON escapes.
func checkRef(net *egress.Call, ref []byte) error {
	var texts strings.Builder
	texts.Write(ref)
	texts.WriteByte('\n')
	if v, err := abi.Parse(ref); err == nil {
		leaves(&texts, v)
	}
	return net.CheckGuest("a reference", texts.String())
}

// leaves writes every text of a document, one after the other.
func leaves(out *strings.Builder, v abi.Value) {
	out.WriteString(v.Text())
	out.WriteString(v.Number())
	for _, item := range v.Items() {
		leaves(out, item)
	}
	for _, k := range v.Keys() {
		out.WriteString(k)
		leaves(out, v.Get(k))
	}
}

// note takes over the sandbox id that the broker saw.
func (s *sandboxState) note() {
	id := s.net.Sandbox()
	s.mu.Lock()
	defer s.mu.Unlock()
	if id != "" {
		s.sandbox = id
	}
}

// undo removes what a failed create may have made.
func (p *Plugin) undo(ctx context.Context, st *sandboxState, q provider.CreateRequest, cause error) error {
	var pe *provider.Error
	if !errors.As(cause, &pe) {
		pe = p.failed("create", cause, provider.AppliedUnknown)
	}
	st.note()
	if ref, sandbox := st.snapshot(); sandbox == "" && len(ref) == 0 {
		st.net.Close()
		return pe
	}
	// The caller's context may be what ended the create.
	clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), destroyWait)
	defer cancel()
	if err := p.destroy(clean, st, q.Labels[provider.LabelOwner]); err != nil {
		pe.Applied = provider.AppliedYes
		return pe
	}
	pe.Applied = provider.AppliedNo
	return pe
}

// Open attaches to a sandbox that this plugin made. It asks the vendor whether
// it is there.
func (p *Plugin) Open(ctx context.Context, ref provider.Ref) (provider.Sandbox, error) {
	st, labels, err := p.state("open", ref)
	if err != nil {
		return nil, err
	}
	r, err := p.status(ctx, st)
	if err != nil {
		return nil, err
	}
	if provider.State(r.State) == provider.StateGone {
		return nil, p.refused(provider.NotFound, "open", "the sandbox is gone")
	}
	return p.sandbox(p.keep(st), labels), nil
}

// state rebuilds what the host keeps of a sandbox from its ref.
func (p *Plugin) state(op string, ref provider.Ref) (*sandboxState, map[string]string, error) {
	var d refData
	if len(ref.Data) > 0 {
		dec := json.NewDecoder(strings.NewReader(string(ref.Data)))
		dec.DisallowUnknownFields()
		if err := dec.Decode(&d); err != nil {
			return nil, nil, p.refused(provider.InvalidArgument, op, "the sandbox reference is malformed")
		}
	}
	p.mu.Lock()
	kept := slices.Clone(p.sessions[d.Session])
	if d.Root == "" {
		d.Root = p.roots[d.Session]
	}
	p.mu.Unlock()
	sandbox := ref.ID
	if sandbox == provider.NamePrefix+d.Session {
		sandbox = "" // never named by the vendor
	}
	for _, st := range kept {
		if _, have := st.snapshot(); have == sandbox {
			return st, d.Labels, nil
		}
	}
	q := provider.CreateRequest{SessionID: d.Session, Name: provider.NamePrefix + d.Session, Labels: d.Labels, Root: d.Root}
	net, err := p.broker.Session(q, secret.Env{}, sandbox)
	if err != nil {
		return nil, nil, p.failed(op, err, provider.AppliedNo)
	}
	root := d.Root
	if root == "" {
		root = "/"
	}
	return &sandboxState{session: d.Session, attempt: d.Labels[provider.LabelAttempt], digest: d.Digest, root: root, net: net, ref: d.Plugin, sandbox: sandbox}, d.Labels, nil
}

// List asks the plugin and keeps only what the vendor's own replies proved to be
// the owner's.
func (p *Plugin) List(ctx context.Context, q provider.Query) ([]provider.Resource, error) {
	const op = "list"
	owner := map[string]string{}
	if q.Owner != "" {
		owner[provider.LabelOwner] = q.Owner
	}
	if q.Session != "" {
		owner[provider.LabelSession] = q.Session
	}
	net := p.broker.Call(egress.CallConfig{Op: abi.OpList, Owner: owner})
	defer net.Close()
	var reply abi.ListReply
	req := abi.ListRequest{Config: p.settings(), Owner: q.Owner, Session: q.Session}
	if err := p.run(ctx, op, abi.OpList, &req, &reply, &call{net: net}, 0); err != nil {
		return nil, err
	}
	out := make([]provider.Resource, 0, len(reply.Items))
	listed, asked := net.Listed()
	if p.createsRemotely() && !asked {
		return nil, p.failed(op, &ABIViolation{What: "list ended without a list reply of the vendor"}, provider.AppliedNo)
	}
	for _, item := range reply.Items {
		labels, ok := listed[item.Sandbox]
		if !p.createsRemotely() {
			labels, ok = item.Labels, true // a plugin without a network has no other witness
		}
		if !ok || q.Owner != "" && labels[provider.LabelOwner] != q.Owner || q.Session != "" && labels[provider.LabelSession] != q.Session {
			return nil, p.failed(op, &ABIViolation{What: "the list holds a sandbox that no reply of the vendor proved to be the owner's"}, provider.AppliedNo)
		}
		own := map[string]string{}
		for k, v := range labels {
			if strings.HasPrefix(k, provider.LabelPrefix) {
				own[k] = v
			}
		}
		data, err := json.Marshal(refData{Session: labels[provider.LabelSession], Digest: labels[provider.LabelDigest], Labels: own})
		if err != nil {
			return nil, p.failed(op, err, provider.AppliedNo)
		}
		state := provider.State(item.State)
		switch state {
		case provider.StatePending, provider.StateRunning, provider.StatePaused, provider.StateStopped, provider.StateGone:
		default:
			state = provider.StateUnknown
		}
		if session := labels[provider.LabelSession]; item.Name == "" && session != "" {
			item.Name = provider.NamePrefix + session // a vendor without names
		}
		r := provider.Resource{Ref: provider.Ref{ID: item.Sandbox, Data: data}, Name: item.Name, Labels: labels, State: state}
		if item.CreatedAt > 0 {
			r.CreatedAt = time.Unix(item.CreatedAt, 0)
		}
		out = append(out, r)
		delete(listed, item.Sandbox)
	}
	if p.createsRemotely() && len(listed) > 0 {
		// A sandbox that is kept silent about would be taken for gone.
		return nil, p.failed(op, &ABIViolation{What: "the list leaves out a sandbox that the vendor listed"}, provider.AppliedNo)
	}
	return out, nil
}

// Destroy removes a sandbox and verifies that it is gone.
func (p *Plugin) Destroy(ctx context.Context, ref provider.Ref) error {
	st, labels, err := p.state("destroy", ref)
	if err != nil {
		return err
	}
	return p.destroy(ctx, st, labels[provider.LabelOwner])
}

func (p *Plugin) destroy(ctx context.Context, st *sandboxState, owner string) error {
	const op = "destroy"
	err := p.simple(ctx, op, abi.OpDestroy, st, &abi.Empty{})
	if err != nil && provider.CodeOf(err) != provider.NotFound {
		return err
	}
	// The plugin's word, and a status of its own, are not proof: the vendor's
	// list, filtered by the host, is.
	deadline := time.Now().Add(destroyWait)
	for wait := minPoll; ; wait = min(wait*2, 2*time.Second) {
		gone, err := p.gone(ctx, st, owner)
		if err != nil {
			e := p.failed(op, err, provider.AppliedUnknown)
			e.Code, e.Message = provider.CodeOf(err), "cannot verify that the sandbox is gone"
			return e
		}
		if gone {
			break
		}
		if time.Now().After(deadline) {
			return &provider.Error{Code: provider.Unavailable, Op: op, Provider: p.m.Name, Message: "the sandbox is still there", Remedy: "try again", Applied: provider.AppliedUnknown}
		}
		t := time.NewTimer(p.hooks.Wait(wait))
		select {
		case <-ctx.Done():
			t.Stop()
			return p.failed(op, ctx.Err(), provider.AppliedUnknown)
		case <-t.C:
		}
	}
	st.net.Close()
	p.forget(st)
	return nil
}

// gone reports whether the vendor's list no longer holds the sandbox.
func (p *Plugin) gone(ctx context.Context, st *sandboxState, owner string) (bool, error) {
	if owner == "" || !p.createsRemotely() {
		r, err := p.status(ctx, st)
		if provider.CodeOf(err) == provider.NotFound {
			return true, nil
		}
		return err == nil && provider.State(r.State) == provider.StateGone, err
	}
	list, err := p.List(ctx, provider.Query{Owner: owner, Session: st.session})
	if err != nil {
		return false, err
	}
	_, sandbox := st.snapshot()
	for _, r := range list {
		if r.Ref.ID == sandbox && r.State != provider.StateGone {
			return false, nil
		}
	}
	return true, nil
}

// sandboxHandle implements provider.Sandbox.
type sandboxHandle struct {
	p      *Plugin
	st     *sandboxState
	labels map[string]string
}

// Format implements fmt.Formatter: the plugin's name and the session, whatever the verb. Printing
// reads none of the fields that change, and shows none of the request's.
func (h *sandboxHandle) Format(f fmt.State, _ rune) {
	_, _ = io.WriteString(f, "plugin.Sandbox["+h.p.desc.Name+" "+h.st.session+"]")
}

type pausable struct{ *sandboxHandle }

type reachable struct{ *sandboxHandle }

type pausableReachable struct {
	*sandboxHandle
	pausable
	reachable
}

// sandbox returns a handle with the optional interfaces that the manifest
// declares, and no others.
func (p *Plugin) sandbox(st *sandboxState, labels map[string]string) provider.Sandbox {
	h := &sandboxHandle{p: p, st: st, labels: maps.Clone(labels)}
	pause, port := p.m.Has("pause") && p.m.Has("resume"), p.m.Has("port")
	switch {
	case pause && port:
		return pausableReachable{h, pausable{h}, reachable{h}}
	case pause:
		return pausable{h}
	case port:
		return reachable{h}
	}
	return h
}

// Ref names the sandbox.
func (h *sandboxHandle) Ref() provider.Ref { return h.st.toRef(h.labels) }

// Status asks the vendor through the plugin.
func (h *sandboxHandle) Status(ctx context.Context) (provider.Status, error) {
	r, err := h.p.status(ctx, h.st)
	if err != nil {
		return provider.Status{}, err
	}
	s := provider.Status{State: provider.State(r.State), Reason: r.Reason, Unenforced: slices.Clone(h.st.missed)}
	if _, hit := h.st.net.Find(s.Reason); hit {
		s.Reason = ""
	}
	switch s.State {
	case provider.StatePending, provider.StateRunning, provider.StatePaused, provider.StateStopped, provider.StateGone:
	default:
		s.State = provider.StateUnknown
	}
	return s, nil
}

// Pause pauses the sandbox.
func (h pausable) Pause(ctx context.Context) error {
	return h.p.simple(ctx, "pause", abi.OpPause, h.st, &abi.Empty{})
}

// Resume lets it go on.
func (h pausable) Resume(ctx context.Context) error {
	return h.p.simple(ctx, "resume", abi.OpResume, h.st, &abi.Empty{})
}

// Port returns where a port can be reached.
func (h reachable) Port(ctx context.Context, port int) (provider.Endpoint, error) {
	net := h.p.broker.Call(egress.CallConfig{Op: abi.OpPort, Session: h.st.net})
	defer net.Close()
	ref, sandbox := h.st.snapshot()
	var reply abi.PortReply
	req := abi.PortRequest{Session: h.st.session, Config: h.p.settings(), Ref: ref, Sandbox: sandbox, Port: int64(port)}
	if err := h.p.run(ctx, "port", abi.OpPort, &req, &reply, &call{net: net, scan: h.st.net.Find, checkpoint: h.st.checkpoint(net)}, 0); err != nil {
		return provider.Endpoint{}, err
	}
	if _, hit := h.st.net.Find(reply.Address); hit {
		return provider.Endpoint{}, h.p.failed("port", &egress.Denied{Rule: "an address that holds a value"}, provider.AppliedNo)
	}
	return provider.Endpoint{Address: reply.Address, Secret: reply.Secret}, nil
}

// within resolves a path of a file operation against the root; it must stay
// beneath.
func (h *sandboxHandle) within(op, name string) (string, error) {
	if strings.ContainsRune(name, 0) {
		return "", h.p.refused(provider.InvalidArgument, op, "the path holds a NUL")
	}
	if path.IsAbs(name) {
		return "", h.p.refused(provider.PermissionDenied, op, "the path must be relative to the root")
	}
	clean := path.Clean("/" + name)
	if rel := path.Clean(name); rel == ".." || strings.HasPrefix(rel, "../") {
		return "", h.p.refused(provider.PermissionDenied, op, "the path leads out of the root")
	}
	return path.Join(h.st.root, clean), nil
}
