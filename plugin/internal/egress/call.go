package egress

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/sbxhost/sbxhost/abi"
	"github.com/sbxhost/sbxhost/plugin/internal/spec"
	"github.com/sbxhost/sbxhost/provider"
	"github.com/sbxhost/sbxhost/secret"
)

// Exec is what the host renders into exec routes.
type Exec struct {
	ID             string
	Args           []string
	Shell          string
	Dir            string // absolute
	User           string
	TimeoutMs      int64
	Env            map[string]string
	Protected      secret.Env
	Secrets        secret.Env
	Input          []byte    // the chunk of an input operation, or upfront input
	Stdout, Stderr io.Writer // receive the decoded payload
}

// File is what the host renders into file routes.
type File struct {
	Path    string
	Mode    fs.FileMode
	Content io.Reader // of a write
	Size    int64     // -1 unknown
	Sink    io.Writer // of a read
}

// CallConfig describes one operation.
type CallConfig struct {
	Op      abi.Op
	Session *Session          // nil for list
	Owner   map[string]string // labels that list replies must carry, for list
	Exec    *Exec
	File    *File
	// Started, when set, is called once the vendor has accepted the request that
	// starts the operation's action.
	Started func()
}

// Call is one operation's use of the network. Open and the response methods are
// called from the one goroutine that runs the guest; the rest may be called from
// anywhere.
type Call struct {
	b      *Broker
	cfg    CallConfig
	sight  *sight
	handle string

	mu        sync.Mutex
	responses map[int64]*Response
	next      int64
	denied    *Denied
	truncated bool
	delivered bool // a payload route ended properly
	applied   provider.Applied
	uses      map[string]*uses // single-use rights of this operation, by what they do
	length    int64            // of the file that is being read, -1 unknown
	begun     bool             // the request that does the action was accepted
	streams   int              // payload streams that have not come to their end
	redacted  int              // replies of an operation without a session that held values
	listed    map[string]map[string]string
	asked     bool   // a list reply arrived
	uuid      string // of the exec
	listLast  string // id of the last element of the last list reply, of anyone
}

// Call begins an operation. Close it.
func (b *Broker) Call(cfg CallConfig) *Call {
	c := &Call{b: b, cfg: cfg, responses: map[int64]*Response{}, length: -1, applied: provider.AppliedNo, uses: map[string]*uses{}, listed: map[string]map[string]string{}}
	if cfg.Session == nil {
		c.sight = newSight(b.guard)
		return c
	}
	c.sight = cfg.Session.sight
	if e := cfg.Exec; e != nil {
		cfg.Session.Arm(e.Protected)
		cfg.Session.Arm(e.Secrets)
	}
	return c
}

// Close releases responses and kills the call's handle.
func (c *Call) Close() {
	c.mu.Lock()
	open := c.responses
	c.responses = map[int64]*Response{}
	c.mu.Unlock()
	for _, r := range open {
		r.close()
	}
	c.b.mu.Lock()
	delete(c.b.handles, c.handle)
	c.b.mu.Unlock()
}

// Denied returns the first thing that was refused, or nil.
func (c *Call) Denied() *Denied {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.denied
}

// Truncated reports whether a stream ended without its proper end.
func (c *Call) Truncated() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.truncated
}

// Delivered reports whether a payload arrived to its proper end.
func (c *Call) Delivered() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.delivered
}

// Begun reports whether the vendor accepted the request that does the
// operation's action: that creates, starts the command or moves the file.
func (c *Call) Begun() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.begun
}

// Unfinished reports whether a stream with output was left before its end.
func (c *Call) Unfinished() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.streams > 0
}

// Find reports the name of a value that text holds, whole or in part.
func (c *Call) Find(text string) (string, bool) { return c.sight.find(text) }

// maxProbes is how many texts of a plugin's own may hold a value before nothing
// of it is believed any more.
const maxProbes = 8

const probing = "the plugin has probed for values"

// CheckGuest looks through a text of the plugin's that the host is about to
// keep. A plugin never sees a value, so one that writes one is guessing, and
// whether it guessed right is an answer it must not get often: the operation
// fails, and after a few such texts the plugin is refused altogether.
func (c *Call) CheckGuest(what, text string) error {
	_, hit := c.sight.find(text)
	c.b.mu.Lock()
	over := c.b.probes > maxProbes
	if hit {
		c.b.probes++
	}
	c.b.mu.Unlock()
	switch {
	case over: // right or wrong
		return c.deny("", probing)
	case hit:
		return c.deny("", what+" that holds a value")
	}
	return nil
}

// Applied says whether the operation's action may have happened, computed from
// what was sent.
func (c *Call) Applied() provider.Applied {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.applied
}

func (c *Call) deny(route, rule string) error {
	d := &Denied{Route: route, Rule: rule}
	c.mu.Lock()
	if c.denied == nil {
		c.denied = d
	}
	c.mu.Unlock()
	return d
}

// roleAllowed lists the operations in which a role's routes may be used; control
// routes may be used in any.
func roleAllowed(r spec.Role, op abi.Op) bool {
	switch r {
	case spec.RoleCreate:
		return op == abi.OpCreate
	case spec.RoleExec:
		return op == abi.OpExec || op == abi.OpInput || op == abi.OpResize || op == abi.OpSignal
	case spec.RoleFile:
		return slices.Contains([]abi.Op{abi.OpRead, abi.OpWrite, abi.OpListDir, abi.OpStat, abi.OpRemove, abi.OpMkdir}, op)
	}
	return true
}

// Open sends the request of a route and returns the answer's handle. meta is the
// plugin's HTTPMeta document; body is accepted for plugin-built bodies only. The
// error is a *Denied, a *Failure or the context's.
func (c *Call) Open(ctx context.Context, metaDoc, body []byte) (int64, error) {
	var meta abi.HTTPMeta
	if err := meta.DecodeJSON(metaDoc, true); err != nil {
		// Re-encoding shows whether only optional fields were left out.
		meta = abi.HTTPMeta{}
		return 0, failure(abi.ErrnoInvalid, "meta: "+err.Error())
	}
	r, ok := c.b.m.Route(meta.Route)
	if !ok {
		return 0, c.deny("", "the manifest has no such route")
	}
	if rule := c.forbidden(r, meta); rule != "" {
		return 0, c.deny(r.ID, rule)
	}
	c.mu.Lock()
	full := len(c.responses) >= abi.MaxHandles
	c.mu.Unlock()
	if full {
		return 0, failure(abi.ErrnoLimit, "too many open responses")
	}
	if err := c.scanGuest(r, meta, body); err != nil {
		return 0, err
	}
	if len(body) > 0 && r.Request.Body != spec.BodyPlugin {
		return 0, c.deny(r.ID, "this route's body is written by the host")
	}
	spent, err := c.spend(r, meta)
	if err != nil {
		return 0, err
	}
	resp, sent, err := c.send(ctx, r, meta, body)
	c.settle(r, resp, sent, spent)
	if err != nil {
		return 0, c.classify(ctx, r, err)
	}
	out, err := c.receive(ctx, r, resp)
	if err != nil {
		_ = resp.Body.Close()
		return 0, c.classify(ctx, r, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.next++
	c.responses[c.next] = out
	if c.b.shown != nil {
		c.b.shown("answer on route "+r.ID, out.shown)
	}
	return c.next, nil
}

// forbidden returns the rule that keeps the operation from using a route, or "".
func (c *Call) forbidden(r *spec.Route, meta abi.HTTPMeta) string {
	op := c.cfg.Op
	if !roleAllowed(r.Role, op) {
		return "a route with the role " + string(r.Role) + " cannot be used in " + op.String()
	}
	does := actions(r)
	for _, a := range does {
		if !slices.Contains(opsOf[a], op) {
			return "a request that " + sentence[a] + " cannot be used in " + op.String()
		}
	}
	if op == abi.OpList && !lists(r) && len(r.Response.Capture) == 0 && r.Response.Body != spec.BodyNone {
		return "a list must come from a route whose reply the host can filter"
	}
	// Values travel on the routes that were approved for them, and on no other
	// that happens to have a place for an environment.
	approved, carried := c.b.m.Protected.Create, 0
	if s := c.cfg.Session; s != nil && r.Role == spec.RoleCreate {
		carried = s.req.Protected.Len()
	}
	if e := c.cfg.Exec; e != nil && r.Role == spec.RoleExec {
		approved, carried = c.b.m.Protected.Exec, e.Protected.Len()+e.Secrets.Len()
	}
	takes := slices.Contains(does, actEnv) || meta.Env != "" && r.Request.Body == spec.BodyPlugin
	if carried > 0 && takes && !slices.Contains(approved, r.ID) {
		return "the route is not one of the protected transport's"
	}
	c.b.mu.Lock()
	probes := c.b.probes
	c.b.mu.Unlock()
	over := probes > maxProbes || c.cfg.Session != nil && c.cfg.Session.exhausted()
	if over && op != abi.OpDestroy && op != abi.OpList {
		return probing
	}
	return ""
}

// scanGuest looks through everything the plugin wrote, before anything of the
// host's is put beside it.
func (c *Call) scanGuest(r *spec.Route, meta abi.HTTPMeta, body []byte) error {
	texts := []string{meta.Route, string(meta.Free), string(body)}
	for k, v := range meta.Params {
		texts = append(texts, k, v)
	}
	for k, v := range meta.Query {
		texts = append(texts, k, v)
	}
	if c.b.carriesHandle(texts...) {
		return c.deny(r.ID, "an environment handle stands where none belongs")
	}
	c.b.mu.Lock()
	var foreign []string
	for id, s := range c.b.claimed {
		if s != c.cfg.Session && len(id) >= 6 {
			foreign = append(foreign, id)
		}
	}
	c.b.mu.Unlock()
	if len(foreign) == 0 {
		return nil
	}
	for _, t := range texts {
		for _, view := range decodings(t) {
			for _, id := range foreign {
				if strings.Contains(view, id) {
					return c.deny(r.ID, "another session's sandbox is named")
				}
			}
		}
	}
	return nil
}

// What a request can do that must not be done twice.
const (
	actCreate  = "create"
	actCommand = "command"
	actStdin   = "stdin"
	actFile    = "file"
	actEnv     = "environment" // carries it; no action by itself
)

// opsOf says in which operations each is allowed.
var opsOf = map[string][]abi.Op{
	actCreate:  {abi.OpCreate},
	actCommand: {abi.OpExec},
	actStdin:   {abi.OpExec, abi.OpInput},
	actFile:    {abi.OpWrite},
	actEnv:     {abi.OpCreate, abi.OpExec},
}

var sentence = map[string]string{
	actCreate: "creates a sandbox", actCommand: "starts a command", actStdin: "carries input", actFile: "carries file content", actEnv: "carries an environment",
}

// actions returns what a route's request does.
func actions(r *spec.Route) []string {
	var out []string
	add := func(a string) {
		if !slices.Contains(out, a) {
			out = append(out, a)
		}
	}
	if r.Role == spec.RoleCreate {
		add(actCreate)
	}
	source := func(from string) {
		switch from {
		case "exec.argv0", "exec.args", "exec.argv", "exec.shell", "exec.line":
			add(actCommand)
		case "exec.environment":
			add(actCommand)
			add(actEnv)
		case "environment":
			add(actEnv)
		case "exec.stdin":
			add(actStdin)
		case "file.content":
			add(actFile)
		}
	}
	for _, s := range r.Request.Slots {
		source(s.From)
		source(s.Default)
	}
	for _, p := range r.Request.Parts {
		source(p.From)
	}
	return out
}

// startsAction reports whether sending the route's request twice would do twice
// what the operation is to do once.
func startsAction(r *spec.Route) bool {
	return slices.ContainsFunc(actions(r), func(a string) bool { return a != actEnv })
}

// spend uses up the rights that a request needs and returns what to give back
// after a definite refusal.
func (c *Call) spend(r *spec.Route, meta abi.HTTPMeta) ([]*uses, error) {
	var spent []*uses
	if r.Request.Body == spec.BodyPlugin && meta.Env != "" {
		if r.Request.EnvPointer == "" {
			return nil, c.deny(r.ID, "this route takes no environment")
		}
		h, err := c.take(meta.Env)
		if err != nil {
			return nil, err
		}
		spent = append(spent, &h.uses)
	} else if meta.Env != "" {
		return nil, c.deny(r.ID, "this route's environment is filled in by the host")
	}
	c.b.mu.Lock()
	defer c.b.mu.Unlock()
	for _, a := range actions(r) {
		if a == actEnv {
			continue
		}
		u := c.uses[a]
		if a == actCreate && c.cfg.Session != nil {
			u = &c.cfg.Session.create
		}
		if u == nil {
			u = &uses{}
			c.uses[a] = u
		}
		if u.spent {
			for _, s := range spent {
				s.spent = false // nothing was sent
			}
			return nil, c.deny(r.ID, "a request that "+sentence[a]+" was already sent once")
		}
		u.spent = true
		spent = append(spent, u)
	}
	return spent, nil
}

// settle records what the answer says about the action.
func (c *Call) settle(r *spec.Route, resp *http.Response, sent bool, spent []*uses) {
	outcome := provider.AppliedUnknown
	switch {
	case !sent:
		outcome = provider.AppliedNo
	case resp == nil:
	case resp.StatusCode >= 200 && resp.StatusCode < 300:
		outcome = provider.AppliedYes
	case resp.StatusCode == http.StatusRequestTimeout:
		// Vendors use 408 for work that took too long, too.
	case resp.StatusCode >= 400 && resp.StatusCode < 500:
		outcome = provider.AppliedNo
	}
	if outcome == provider.AppliedNo {
		c.b.mu.Lock()
		for _, u := range spent {
			u.giveBack()
		}
		c.b.mu.Unlock()
	}
	does := startsAction(r)
	// A Connect stream answers 200 and then says in its first message whether it
	// was accepted: see firstFrame.
	if outcome == provider.AppliedYes && does && c.cfg.Started != nil && r.Response.Body != spec.BodyConnect {
		c.cfg.Started()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.begun = c.begun || does && outcome == provider.AppliedYes
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		return
	}
	if c.applied == provider.AppliedYes || outcome == provider.AppliedNo {
		return
	}
	c.applied = outcome
}

// classify turns any error into one the plugin can be told as an errno, and
// drops texts that hold addresses.
func (c *Call) classify(ctx context.Context, r *spec.Route, err error) error {
	var d *Denied
	if errors.As(err, &d) {
		return c.deny(r.ID, d.Rule)
	}
	if ctx.Err() != nil {
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			return failure(abi.ErrnoDeadline, "the call's deadline passed")
		}
		return failure(abi.ErrnoCanceled, "the call was cancelled")
	}
	var f *Failure
	if errors.As(err, &f) {
		return f
	}
	return failure(abi.ErrnoNetwork, "no answer from the vendor on route "+r.ID)
}

// response returns an open response.
func (c *Call) response(h int64) (*Response, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.responses[h]
	if r == nil {
		return nil, failure(abi.ErrnoBadf, "no such response")
	}
	return r, nil
}

// Status returns the HTTP status of a response.
func (c *Call) Status(h int64) (int, error) {
	r, err := c.response(h)
	if err != nil {
		return 0, err
	}
	return r.status, nil
}

// Header returns a response header that the route declares.
func (c *Call) Header(h int64, name string) (string, error) {
	r, err := c.response(h)
	if err != nil {
		return "", err
	}
	return r.showHeader(name)
}

// Read copies guest-visible body; 0 is its end.
func (c *Call) Read(h int64, dst []byte) (int, error) {
	r, err := c.response(h)
	if err != nil {
		return 0, err
	}
	return r.read(dst)
}

// Next returns the next frame of a framed body. A frame stays the next one until
// it was taken with a large enough limit.
func (c *Call) Next(h int64, limit int) ([]byte, error) {
	r, err := c.response(h)
	if err != nil {
		return nil, err
	}
	return r.nextFrame(limit)
}

// CloseResponse releases a response.
func (c *Call) CloseResponse(h int64) error {
	r, err := c.response(h)
	if err != nil {
		return err
	}
	c.mu.Lock()
	delete(c.responses, h)
	c.mu.Unlock()
	r.close()
	return nil
}
