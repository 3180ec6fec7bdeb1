package docker

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/api/types/volume"

	"github.com/sbxhost/sbxhost/internal/shim"
	"github.com/sbxhost/sbxhost/provider"
)

const (
	opCreate = "create"
	// undoTime bounds the removal of what a failed create made.
	undoTime = 30 * time.Second
	// readyTime is how long a container's PID 1 may take to answer.
	readyTime = 30 * time.Second
)

// creation is one Create.
type creation struct {
	p   *Provider
	req provider.CreateRequest

	image   string // as asked for
	picture picture
	network string // id
	release func() // of the network, when there is one
	found   []container.Summary

	verified chan error // the supervisor's volume
	once     sync.Once
	proof    error

	workspace string // volume
	made      bool   // something may exist
	foreign   bool   // and a container of that name is not ours
	late      bool   // and a container may still come
	id        string // container
}

// Create implements provider.Provider.
func (p *Provider) Create(ctx context.Context, req provider.CreateRequest) (provider.Sandbox, error) {
	c, err := p.newCreation(req)
	if err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, ctxProblem(opCreate, req.Name, err, provider.AppliedNo)
	}
	unlock, err := p.sessions.lock(ctx, req.SessionID)
	if err != nil {
		return nil, ctxProblem(opCreate, req.Name, err, provider.AppliedNo)
	}
	defer unlock()
	s, err := c.run(ctx)
	if err != nil {
		err = c.fail(ctx, err)
	}
	if c.network != "" {
		c.release()
		if err != nil {
			after, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTime)
			defer cancel()
			_ = p.leave(after, req.Labels[provider.LabelOwner])
		}
	}
	if err != nil {
		return nil, err
	}
	return s, nil
}

func (c *creation) run(ctx context.Context) (*sandbox, error) {
	// The supervisor's volume is read back beside everything else, and nothing
	// starts before that is done.
	vctx, cancel := context.WithCancel(ctx)
	c.verified = make(chan error, 1)
	go func() { c.verified <- c.p.verifySupervisor(vctx) }()
	defer func() {
		cancel()
		_ = c.proven() // it ends before we do
	}()
	if err := c.prepare(ctx); err != nil {
		return nil, err
	}
	if s, err := c.existing(ctx); s != nil || err != nil {
		return s, err
	}
	return c.build(ctx)
}

// newCreation checks a request.
func (p *Provider) newCreation(req provider.CreateRequest) (*creation, error) {
	if err := provider.ValidateCreate(req); err != nil {
		return nil, ours(err)
	}
	if err := provider.CheckCreate(p.describe, req); err != nil {
		return nil, ours(err)
	}
	c := &creation{p: p, req: req, image: req.Image}
	invalid := func(subject, what, remedy string) error {
		return problem(provider.InvalidArgument, opCreate, subject, what).remedy(remedy)
	}
	if c.image == "" {
		c.image = p.opts.Image
	}
	if c.image == "" {
		return nil, invalid(req.Name, "no image is named", "set image in the manifest (--image), or "+SettingImage+" in the configuration")
	}
	if len(req.Ports) > 0 && req.Network == "none" {
		return nil, invalid(req.Name, "ports cannot be reached with network: none", "leave ports out, or set network: default")
	}
	if _, err := (shim.Workload{User: req.User}).Setup(); err != nil {
		return nil, invalid(req.Name, "the user's name is malformed", "use user, uid or uid:gid")
	}
	if why := reserved(req.Root); why != "" {
		return nil, invalid(req.Root, "the root is "+why, "use another directory, such as /workspace")
	}
	for _, m := range req.Mounts {
		switch why := reserved(m.Path); {
		case m.Path == "/":
			return nil, invalid(m.Path, "a path grant cannot be the whole file system", "")
		case why != "":
			return nil, invalid(m.Path, "a path grant is "+why, "use another path")
		case m.Path == req.Root || strings.HasPrefix(req.Root, m.Path+"/"):
			return nil, invalid(m.Path, "a path grant covers the root", "use a path below or beside it")
		}
	}
	if req.Transport == provider.TransportCreate {
		for _, kv := range shim.EngineEnviron() {
			if name, _, _ := strings.Cut(kv, "="); req.Protected.Has(name) {
				return nil, problem(provider.Unsupported, opCreate, name, "this variable is the supervisor's in a container's own environment").remedy("use the exec transport")
			}
		}
	}
	return c, nil
}

// together runs functions at the same time and returns the first one's error.
func together(ctx context.Context, fs ...func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	errs := make([]error, len(fs))
	var first error
	var once sync.Once
	var wg sync.WaitGroup
	for i, f := range fs {
		wg.Go(func() {
			if errs[i] = f(ctx); errs[i] != nil {
				once.Do(func() { first = errs[i] })
				cancel()
			}
		})
	}
	wg.Wait()
	return first
}

// prepare does what can be done at once before anything of the sandbox exists.
func (c *creation) prepare(ctx context.Context) error {
	fs := []func(context.Context) error{
		func(ctx context.Context) (err error) {
			c.found, err = c.p.containers(ctx, provider.Query{Session: c.req.SessionID})
			if err != nil {
				return engineProblem(ctx, opCreate, c.req.Name, err, provider.AppliedNo)
			}
			return nil
		},
		func(ctx context.Context) (err error) {
			c.picture, err = c.p.image(ctx, c.image, c.req.Progress)
			return err
		},
	}
	if c.req.Network == "default" {
		fs = append(fs, func(ctx context.Context) error {
			name, release, err := c.p.join(ctx, c.req.Labels[provider.LabelOwner])
			if err == nil {
				c.network, c.release = name, release
			}
			return err
		})
	}
	return together(ctx, fs...)
}

// existing finds the sandbox that this request adopts, or conflicts with. In a
// replacement the session's other sandbox is neither.
func (c *creation) existing(ctx context.Context) (*sandbox, error) {
	for _, x := range c.found {
		name := nameOf(x)
		if !proves(name, kindSandbox, x.Labels) || (c.req.Replaces != nil && name != c.req.Name) {
			continue
		}
		return c.adopt(ctx, x.ID)
	}
	return nil, nil
}

func (c *creation) adopt(ctx context.Context, id string) (*sandbox, error) {
	info, err := c.p.inspectContainer(ctx, id)
	if err != nil {
		return nil, engineProblem(ctx, opCreate, c.req.Name, err, provider.AppliedNo)
	}
	l := info.Config.Labels
	if l[provider.LabelDigest] != c.req.Digest || l[provider.LabelOwner] != c.req.Labels[provider.LabelOwner] {
		return nil, problem(provider.Conflict, opCreate, c.req.Name, "a sandbox of this session exists and was made from another request").remedy("destroy it, or use another session")
	}
	s, err := c.p.sandbox(info)
	if err != nil {
		return nil, err
	}
	s.given(c.req, c.picture)
	if info.State.Paused {
		if err := s.Resume(ctx); err != nil {
			return nil, err
		}
	}
	if !info.State.Running {
		if c.p.shim != nil && !slices.ContainsFunc(info.Mounts, func(m container.MountPoint) bool {
			return m.Destination == supervisorDir && m.Name == c.p.supervisorName() && !m.RW
		}) {
			return nil, problem(provider.FailedPrecondition, opCreate, c.req.Name, "the stopped sandbox has the supervisor of another version of sbxhost").remedy("destroy it, and create another")
		}
		if err := c.start(ctx, s); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// fail completes the error of a create that made nothing, or removes what it made.
func (c *creation) fail(ctx context.Context, err error) error {
	var pe *provider.Error
	if !errors.As(err, &pe) {
		pe = &engineProblem(ctx, opCreate, c.req.Name, err, provider.AppliedUnknown).detail
	}
	if c.req.Protected.Len() > 0 {
		// The engine's text may repeat what it was given.
		pe.Err = nil
	}
	if c.made {
		after, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTime)
		defer cancel()
		pe.Applied = provider.AppliedNo
		if c.undo(after) != nil || c.late {
			pe.Applied = provider.AppliedUnknown
		}
	}
	return pe
}

// undo removes what a failed create made, and nothing else.
func (c *creation) undo(ctx context.Context) error {
	if c.foreign {
		return c.p.destroyVolumes(ctx, c.req.Name, c.req.Labels[provider.LabelOwner])
	}
	info, err := c.p.inspectContainer(ctx, c.req.Name)
	if err != nil && !gone(err) {
		return err
	}
	if err == nil && info.Config.Labels[provider.LabelAttempt] != c.req.Labels[provider.LabelAttempt] {
		// Another process was quicker, and the workspace is its too.
		return errElsewhere
	}
	return c.p.destroy(ctx, c.req.Name)
}

var errElsewhere = errors.New("the sandbox is of another attempt")

// proven returns what came of reading the supervisor's volume back.
func (c *creation) proven() error {
	c.once.Do(func() { c.proof = <-c.verified })
	return c.proof
}

// build makes volume and container and starts it.
func (c *creation) build(ctx context.Context) (*sandbox, error) {
	if err := c.makeVolume(ctx); err != nil {
		return nil, err
	}
	if err := c.makeContainer(ctx); err != nil {
		return nil, err
	}
	info, err := c.p.inspectContainer(ctx, c.id)
	if err != nil {
		return nil, engineProblem(ctx, opCreate, c.req.Name, err, provider.AppliedUnknown)
	}
	s, err := c.p.sandbox(info)
	if err != nil {
		return nil, err
	}
	s.given(c.req, c.picture)
	if err := c.start(ctx, s); err != nil {
		c.p.forget(s)
		return nil, err
	}
	return s, nil
}

// makeVolume makes the workspace, or finds that of the sandbox to be replaced.
func (c *creation) makeVolume(ctx context.Context) error {
	labels := c.workspaceLabels()
	c.workspace = c.req.Name
	if c.req.Replaces != nil && !c.req.EmptyWorkspace {
		found, err := c.previousWorkspace(ctx)
		if err != nil {
			return err
		}
		c.workspace = found
		// The replacement needs something that names it should its container
		// go before the workspace.
		labels[labelKind] = kindMarker
	}
	c.made = true
	v, err := c.p.e.VolumeCreate(ctx, volume.CreateOptions{Name: c.req.Name, Driver: "local", Labels: labels})
	if err != nil {
		return engineProblem(ctx, opCreate, c.req.Name, err, provider.AppliedUnknown)
	}
	if !proves(v.Name, labels[labelKind], v.Labels) || v.Labels[provider.LabelOwner] != labels[provider.LabelOwner] || v.Driver != "local" || len(v.Options) > 0 {
		// It was there before, and is not what we make.
		c.made = false
		return problem(provider.Conflict, opCreate, c.req.Name, "a volume of this name exists and is not ours").remedy("remove it: docker volume rm " + c.req.Name)
	}
	if c.req.Checkpoint != nil {
		if err := c.req.Checkpoint(provider.Ref{ID: c.req.Name}); err != nil {
			return problem(provider.Internal, opCreate, c.req.Name, "the sandbox's ref could not be made durable").cause(err).applied(provider.AppliedUnknown)
		}
	}
	return nil
}

// workspaceLabels are those of a workspace of this sandbox's own.
func (c *creation) workspaceLabels() map[string]string {
	labels := maps.Clone(c.req.Labels)
	labels[labelKind] = kindWorkspace
	return labels
}

// previousWorkspace returns the volume of the sandbox to be replaced, from what the
// engine says: the container's mount, or, when that is gone, the volume itself.
func (c *creation) previousWorkspace(ctx context.Context) (string, error) {
	owner := c.req.Labels[provider.LabelOwner]
	mine := func(labels map[string]string) bool {
		return labels[provider.LabelOwner] == owner && labels[provider.LabelSession] == c.req.SessionID
	}
	for _, x := range c.found {
		if nameOf(x) != c.req.Replaces.ID || !proves(nameOf(x), kindSandbox, x.Labels) || !mine(x.Labels) {
			continue
		}
		for _, m := range x.Mounts {
			if m.Destination == x.Labels[labelRoot] && m.Type == "volume" {
				return m.Name, c.provenWorkspace(ctx, m.Name, mine)
			}
		}
	}
	list, err := c.p.volumes(ctx, provider.Query{Owner: owner, Session: c.req.SessionID})
	if err != nil {
		return "", engineProblem(ctx, opCreate, c.req.Name, err, provider.AppliedNo)
	}
	var names []string
	for _, v := range list {
		if proves(v.Name, kindWorkspace, v.Labels) && mine(v.Labels) {
			names = append(names, v.Name)
		}
	}
	if len(names) != 1 {
		return "", problem(provider.NotFound, opCreate, c.req.Name, "the workspace of the sandbox to be replaced is not there").remedy("resume without it (DiscardWorkspace)")
	}
	return names[0], nil
}

// provenWorkspace checks that a volume is a workspace of the session's.
func (c *creation) provenWorkspace(ctx context.Context, name string, mine func(map[string]string) bool) error {
	v, err := c.p.e.VolumeInspect(ctx, name)
	if err != nil {
		return engineProblem(ctx, opCreate, name, err, provider.AppliedNo)
	}
	if !proves(v.Name, kindWorkspace, v.Labels) || !mine(v.Labels) {
		return problem(provider.Conflict, opCreate, name, "the workspace of the sandbox to be replaced does not carry our labels").remedy("resume without it (DiscardWorkspace)")
	}
	return nil
}

func (c *creation) makeContainer(ctx context.Context) error {
	made, err := c.askForContainer(ctx)
	switch {
	case err == nil:
		c.id = made.ID
	case cerrdefs.IsConflict(err) && ctx.Err() != nil:
		c.made = false // whoever has the name is not to be undone
		return ctxProblem(opCreate, c.req.Name, ctx.Err(), provider.AppliedUnknown)
	case cerrdefs.IsConflict(err):
		return c.taken(ctx)
	default:
		f := engineProblem(ctx, opCreate, c.subject(err), err, provider.AppliedUnknown)
		c.late = c.late || f.Applied != provider.AppliedNo && ctx.Err() == nil
		return f
	}
	if c.p.shim == nil {
		return nil
	}
	return c.checkPlaces(ctx)
}

// latePatience is how long a create that was given up waits for the engine's answer.
const latePatience = 5 * time.Second

// askForContainer has the engine make the container. An engine goes on with what its
// caller gave up, so the answer is waited for: what was made has to be removed. Should
// it come later still, it is removed then.
func (c *creation) askForContainer(ctx context.Context) (container.CreateResponse, error) {
	type answer struct {
		made container.CreateResponse
		err  error
	}
	done := make(chan answer, 1)
	go func() {
		config, hostConfig := c.config()
		made, err := c.p.e.ContainerCreate(context.WithoutCancel(ctx), config, hostConfig, nil, nil, c.req.Name)
		for i := range config.Env {
			config.Env[i] = "" // the only copy of ours of what is protected
		}
		done <- answer{made, err}
	}()
	select {
	case a := <-done:
		return a.made, a.err
	case <-ctx.Done():
	}
	select {
	case a := <-done:
		if a.err == nil {
			a.err = ctx.Err()
		}
		return a.made, a.err
	case <-time.After(c.p.latePatience):
	}
	c.late = true
	go func() {
		if a := <-done; a.err == nil {
			after, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTime)
			defer cancel()
			if unlock, err := c.p.sessions.lock(after, c.req.SessionID); err == nil {
				defer unlock()
				_ = c.p.destroy(after, c.req.Name) // else it is listed
			}
		}
	}()
	return container.CreateResponse{}, ctx.Err()
}

// subject of an engine's refusal: mostly the sandbox, but an image that vanished.
func (c *creation) subject(err error) string {
	if gone(err) {
		return c.image
	}
	return c.req.Name
}

// taken says who has the name.
func (c *creation) taken(ctx context.Context) error {
	info, err := c.p.inspectContainer(ctx, c.req.Name)
	if err != nil && !gone(err) {
		return engineProblem(ctx, opCreate, c.req.Name, err, provider.AppliedUnknown)
	}
	// An engine takes a name before it shows what has it.
	if err != nil || proves(strings.TrimPrefix(info.Name, "/"), kindSandbox, info.Config.Labels) {
		// Another process makes the same one; what it made is not to be undone.
		c.made = false
		return problem(provider.Conflict, opCreate, c.req.Name, "another process makes this sandbox").remedy("look it up with List").applied(provider.AppliedUnknown)
	}
	c.foreign = true
	return problem(provider.AlreadyExists, opCreate, c.req.Name, "a container of this name exists and is not ours").remedy("remove it: docker rm " + c.req.Name)
}

// start starts the container and returns when its PID 1 answers.
func (c *creation) start(ctx context.Context, s *sandbox) error {
	if err := c.proven(); err != nil {
		return err
	}
	if c.p.shim == nil {
		return c.startDirect(ctx, s)
	}
	conn, err := c.p.attach(ctx, s.id)
	if err != nil {
		return engineProblem(ctx, opCreate, c.req.Name, err, provider.AppliedUnknown)
	}
	ctl := shim.NewControl(conn)
	defer func() { _ = ctl.Close() }()
	if err := c.p.e.ContainerStart(ctx, s.id, container.StartOptions{}); err != nil {
		return engineProblem(ctx, opCreate, c.req.Name, err, provider.AppliedUnknown)
	}
	ready, cancel := context.WithTimeout(ctx, readyTime)
	defer cancel()
	pong, err := ctl.Ping(ready)
	if err != nil {
		if ctx.Err() != nil {
			return ctxProblem(opCreate, c.req.Name, ctx.Err(), provider.AppliedUnknown)
		}
		f := problem(provider.FailedPrecondition, opCreate, c.image, "the supervisor did not come up in the container").cause(err).applied(provider.AppliedUnknown)
		said, _ := conn.explanation()
		if strings.Contains(said, "the workspace's user") {
			return problem(provider.InvalidArgument, opCreate, c.user(), "the image has no such user").remedy("use a user of the image, or a numeric id").applied(provider.AppliedUnknown)
		}
		if said != "" {
			f.Err = errors.New(strings.TrimSpace(said))
		}
		return f.remedy("docker logs " + c.req.Name + " may say more; try another image")
	}
	if pong.Version != shim.ProtocolVersion {
		return problem(provider.FailedPrecondition, opCreate, c.req.Name, "the supervisor is of another version of sbxhost").remedy("destroy the sandbox, and create another").applied(provider.AppliedUnknown)
	}
	if c.req.Start == "image" {
		return c.startImage(ctx, ctl)
	}
	return nil
}

// startImage runs the image's own entrypoint and command.
func (c *creation) startImage(ctx context.Context, ctl *shim.Control) error {
	args := append(slices.Clone(c.picture.entrypoint), c.picture.cmd...)
	if len(args) == 0 {
		return problem(provider.FailedPrecondition, opCreate, c.image, "the image has neither entrypoint nor command").remedy("set start: idle").applied(provider.AppliedUnknown)
	}
	env := baseEnv(c.picture.env)
	for k, v := range c.req.Environment {
		env.set(k, v)
	}
	for k, v := range c.req.Protected.All() {
		env.setValue(k, v)
	}
	err := ctl.StartImage(ctx, shim.ImageCommand{Workload: shim.Workload{User: c.user()}, Args: args, Env: env.list(), Dir: c.picture.dir})
	var start *shim.StartError
	var refused *shim.RefusedError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &refused) && refused.Reason == "again":
		return nil // a start whose answer was lost
	case ctx.Err() != nil:
		return ctxProblem(opCreate, c.req.Name, ctx.Err(), provider.AppliedUnknown)
	case errors.As(err, &start):
		return problem(provider.FailedPrecondition, opCreate, c.image, "the image's own command cannot be started").cause(errno(start)).remedy("set start: idle").applied(provider.AppliedUnknown)
	}
	return problem(provider.Unavailable, opCreate, c.req.Name, "the supervisor did not start the image's command").cause(err).applied(provider.AppliedUnknown)
}

// user is whose commands run: the manifest's, else the image's.
func (c *creation) user() string {
	if c.req.User != "" {
		return c.req.User
	}
	return c.picture.user
}

// containers lists containers that carry our session label.
func (p *Provider) containers(ctx context.Context, q provider.Query) ([]container.Summary, error) {
	return p.e.ContainerList(ctx, container.ListOptions{All: true, Filters: labelFilter(q)})
}

// volumes lists volumes that carry our session label.
func (p *Provider) volumes(ctx context.Context, q provider.Query) ([]*volume.Volume, error) {
	l, err := p.e.VolumeList(ctx, volume.ListOptions{Filters: labelFilter(q)})
	return l.Volumes, err
}

func labelFilter(q provider.Query) filters.Args {
	f := filters.NewArgs(filters.Arg("label", provider.LabelSession))
	if q.Session != "" {
		f = filters.NewArgs(filters.Arg("label", provider.LabelSession+"="+q.Session))
	}
	if q.Owner != "" {
		f.Add("label", provider.LabelOwner+"="+q.Owner)
	}
	return f
}

// nameOf returns a listed container's own name: links add others, with slashes.
func nameOf(x container.Summary) string {
	for _, n := range x.Names {
		if n = strings.TrimPrefix(n, "/"); !strings.Contains(n, "/") {
			return n
		}
	}
	return ""
}

func itoa(n int) string { return strconv.Itoa(n) }
