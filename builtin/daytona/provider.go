package daytona

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/sbxhost/sbxhost/provider"
)

// Provider makes sandboxes on one Daytona service. It is safe for concurrent use
// and has nothing to close.
type Provider struct {
	s        service
	opts     Options
	endpoint string
	describe provider.Description
	sessions locks // one create of a name at a time

	mu    sync.Mutex
	known map[string]map[string]string // labels of sandboxes made or opened here, by id
	fresh map[string]time.Time         // made here at that time, and not seen yet
}

// Format implements fmt.Formatter: its name, whatever the verb. Printing
// reads none of the fields that change.
func (p *Provider) Format(f fmt.State, _ rune) {
	_, _ = io.WriteString(f, "daytona.Provider["+p.describe.Name+"]")
}

// New returns a Provider, or an InvalidArgument error that says which setting is
// wrong. It sends no request; see Check.
func New(opts Options) (*Provider, error) {
	if opts.APIURL == "" {
		opts.APIURL = DefaultAPIURL
	}
	for _, d := range []struct {
		v *time.Duration
		n time.Duration
	}{{&opts.CallTimeout, time.Minute}, {&opts.CreateTimeout, 15 * time.Minute}, {&opts.DestroyTimeout, 2 * time.Minute}, {&opts.PortTTL, time.Hour}} {
		if *d.v <= 0 {
			*d.v = d.n
		}
	}
	if opts.AutoStop == 0 {
		opts.AutoStop = time.Hour
	}
	if opts.PortTTL < time.Second || opts.PortTTL > 24*time.Hour {
		return nil, problem(provider.InvalidArgument, "new", "", "the life of a port's address must be between 1 s and 24 h")
	}
	if opts.Heartbeat <= 0 {
		opts.Heartbeat = 5 * time.Minute
		if opts.AutoStop > 0 {
			opts.Heartbeat = min(opts.Heartbeat, opts.AutoStop/3)
		}
	}
	c, err := newClient(opts)
	if err != nil {
		return nil, err
	}
	return newProvider(c, opts, c.api.String()), nil
}

func newProvider(s service, opts Options, endpoint string) *Provider {
	p := &Provider{s: s, opts: opts, endpoint: endpoint, known: map[string]map[string]string{}, fresh: map[string]time.Time{}}
	p.sessions.taken = map[string]chan struct{}{}
	p.describe = description()
	return p
}

// Endpoint returns the address of the control API.
func (p *Provider) Endpoint() string { return p.endpoint }

// Place tells this service and organization from others: sandboxes of another one are
// not seen from here. With a key that is no JWT the organization is the key's, whatever
// Options.OrganizationID says, so each such key is a place; the key cannot be told
// from it.
func (p *Provider) Place() string {
	key := p.opts.APIKey.Reveal()
	if bytes.Count(key, []byte(".")) == 2 {
		return p.endpoint + " organization " + p.opts.OrganizationID
	}
	sum := sha256.Sum256(append([]byte("sbxhost daytona place\x00"), key...))
	return p.endpoint + " key " + hex.EncodeToString(sum[:8])
}

// Account is what the service says of the API key.
type Account struct {
	// Permissions of the key. Making and destroying sandboxes needs
	// write:sandboxes and delete:sandboxes.
	Permissions []string
	// Missing are those of them that the key does not have.
	Missing []string
}

// Check asks the service who we are. It changes nothing and may be retried.
// PermissionDenied when the key is refused, Unavailable when the service cannot
// be reached.
func (p *Provider) Check(ctx context.Context) (Account, error) {
	k, err := p.s.CurrentKey(ctx)
	if err != nil {
		return Account{}, serviceProblem(ctx, "check", p.endpoint, err, provider.AppliedNo)
	}
	a := Account{Permissions: k.Permissions}
	for _, need := range []string{"write:sandboxes", "delete:sandboxes"} {
		has := false
		for _, got := range k.Permissions {
			has = has || got == need
		}
		if !has {
			a.Missing = append(a.Missing, need)
		}
	}
	return a, nil
}

// Describe implements provider.Provider.
func (p *Provider) Describe() provider.Description {
	d := p.describe
	d.OpenEnds = append([]string(nil), d.OpenEnds...)
	d.Transports = append([]provider.TransportInfo(nil), d.Transports...)
	d.RefusedDestinations = append([]string(nil), d.RefusedDestinations...)
	return d
}

// markName is the variable by which a command's processes are found.
const markName = "SBXHOST_EXEC"

func description() provider.Description {
	return provider.Description{
		Name: providerName, Isolation: "container",
		Transports: []provider.TransportInfo{
			{Transport: provider.TransportExec, Detail: "envs",
				Exposure: "processes in the sandbox while the command runs; the service passes them on and keeps them nowhere"},
			{Transport: provider.TransportCreate,
				Exposure: "anyone with an API key of the organisation can read them, also in snapshots and for a day after the sandbox is gone"},
		},
		RefusedDestinations: []string{markName, "DAYTONA_SANDBOX_ID", "DAYTONA_SANDBOX_SNAPSHOT", "DAYTONA_SANDBOX_USER"},
		Exec: provider.ExecCapabilities{
			Stream: true, Stdin: provider.StdinLive, TTY: true, Stderr: provider.StderrSeparate,
			Kill: provider.KillGroup, PartialOnTimeout: true, BackgroundSafe: true,
		},
		Features: provider.Features{
			Image:       provider.SupportEnforced,
			NetworkNone: provider.SupportEnforced, NetworkDefault: provider.SupportEnforced,
			Ports: provider.SupportEnforced,
			CPUs:  provider.SupportUnenforced, MemoryMiB: provider.SupportUnenforced, DiskMiB: provider.SupportUnenforced,
			TTL: provider.SupportUnenforced, WorkspaceMove: provider.SupportEnforced,
		},
		DefaultNetwork: "default", Survives: true,
		OpenEnds: []string{
			"whoever has an API key of the organisation can run commands in every sandbox, and with the create transport read the values",
			"the address of any port opens all ports of its sandbox, the toolbox included: treat it as a secret",
			"any process in a sandbox can use the sandbox's own toolbox, which asks for no key",
			"commands of one sandbox can read each other's environment",
			"output of a running command rests in a file of the sandbox until it has ended, so a snapshot, backup or archive taken meanwhile holds it",
			"what a command leaves running is found by its environment: what cleared that goes on until the sandbox is destroyed",
		},
	}
}

// remember keeps what is known of a sandbox beside the service's lists, which are
// late.
func (p *Provider) remember(sb sandboxInfo) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.known[sb.ID] = sb.Labels
}

func (p *Provider) forget(id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.known, id)
	delete(p.fresh, id)
}

// born notes that the service made a sandbox, which it may not find for a while.
func (p *Provider) born(id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fresh[id] = time.Now()
}

// seen notes that the service knows a sandbox.
func (p *Provider) seen(id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.fresh, id)
}

// unborn reports whether the service may not find a sandbox that it made.
func (p *Provider) unborn(id string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	at, ok := p.fresh[id]
	if ok && time.Since(at) > visibleAfter {
		delete(p.fresh, id)
		ok = false
	}
	return ok
}

// look asks for a sandbox by its id, and does not believe that a new one is gone
// before it was seen.
func (p *Provider) look(ctx context.Context, id string) (sandboxInfo, error) {
	for pause := 20 * time.Millisecond; ; pause = min(pause*3/2, 500*time.Millisecond) {
		young := p.unborn(id) // when it is asked for: the answer may be long on its way
		sb, err := p.s.GetSandbox(ctx, id)
		if err == nil {
			p.seen(id)
		}
		if !isGone(err) || !young || !sleep(ctx, pause) {
			return sb, err
		}
	}
}

// locks holds a lock per name, taken with a context.
type locks struct {
	mu    sync.Mutex
	taken map[string]chan struct{}
}

func (l *locks) lock(ctx context.Context, name string) (unlock func(), err error) {
	for {
		l.mu.Lock()
		busy := l.taken[name]
		if busy == nil {
			c := make(chan struct{})
			l.taken[name] = c
			l.mu.Unlock()
			return func() {
				l.mu.Lock()
				delete(l.taken, name)
				l.mu.Unlock()
				close(c)
			}, nil
		}
		l.mu.Unlock()
		select {
		case <-busy:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// isGone reports whether the service says that there is no such sandbox.
func isGone(err error) bool {
	var f *fault
	if errors.As(err, &f) {
		return f.Code == provider.NotFound
	}
	var e *callError
	return errors.As(err, &e) && e.status == 404 && !e.stray
}
