package fake

import (
	"bytes"
	"fmt"
	"maps"
	"slices"

	"github.com/sbxhost/sbxhost/provider"
	"github.com/sbxhost/sbxhost/secret"
)

// Record is what a remote provider would keep of a sandbox and show to whoever
// can read its records: name, labels, image, creation environment, and of each
// exec the command line and literals. Values given by the exec transport and
// request secrets are not part of it. It is printed without values.
type Record struct {
	name, image, user, root string
	labels                  map[string]string
	env                     secret.Env
	execs                   []execRecord
}

type execRecord struct {
	id, shell, dir, user string
	args                 []string
	env                  secret.Env
}

func newRecord(sb *sandbox, req provider.CreateRequest) *Record {
	return &Record{name: req.Name, image: req.Image, user: req.User, root: req.Root,
		labels: maps.Clone(req.Labels), env: sb.creation}
}

func (r *Record) addExec(req provider.ExecRequest) {
	r.execs = append(r.execs, execRecord{id: req.ID, shell: req.Shell, dir: req.Dir, user: req.User,
		args: slices.Clone(req.Args), env: secret.NewEnv(values(req.Env))})
}

// Record returns what the provider stores of a sandbox, also after it was
// destroyed.
func (p *Provider) Record(ref provider.Ref) (Record, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	r, ok := p.records[ref.ID]
	if !ok {
		return Record{}, false
	}
	out := *r
	out.execs = slices.Clone(r.execs)
	return out, true
}

// EnvironmentNames returns the names in the creation environment, sorted.
func (r Record) EnvironmentNames() []string { return r.env.Names() }

// Labels returns a copy of the sandbox's labels.
func (r Record) Labels() map[string]string { return maps.Clone(r.labels) }

// Find returns the places of the record whose text contains v, such as
// "environment.TOKEN" or "exec 1 args[2]", in order. Nothing contains an empty
// value.
func (r Record) Find(v secret.Value) []string {
	needle, places := v.Reveal(), []string(nil)
	if len(needle) == 0 {
		return nil
	}
	look := func(place string, text []byte) {
		if bytes.Contains(text, needle) {
			places = append(places, place)
		}
	}
	look("name", []byte(r.name))
	look("image", []byte(r.image))
	look("user", []byte(r.user))
	look("root", []byte(r.root))
	for _, k := range slices.Sorted(maps.Keys(r.labels)) {
		look("labels."+k, []byte(k+"="+r.labels[k]))
	}
	for k, e := range r.env.All() {
		look("environment."+k, e.Reveal())
	}
	for i, x := range r.execs {
		at := fmt.Sprintf("exec %d ", i+1)
		look(at+"id", []byte(x.id))
		look(at+"shell", []byte(x.shell))
		look(at+"dir", []byte(x.dir))
		look(at+"user", []byte(x.user))
		for j, a := range x.args {
			look(fmt.Sprintf("%sargs[%d]", at, j), []byte(a))
		}
		for k, e := range x.env.All() {
			look(at+"env."+k, e.Reveal())
		}
	}
	return places
}

// String names the record without its content.
func (r Record) String() string { return "fake.Record[" + r.name + "]" }

// GoString is String.
func (r Record) GoString() string { return r.String() }

// Delivery is what reached one exec's processes.
type Delivery struct {
	// Sandbox is the ref's id, Exec the request's.
	Sandbox, Exec string
	env           secret.Env
	// Names of the whole environment, and the part that came as Protected and as
	// Secrets; sorted.
	Names, Protected, Secrets []string
}

// Got reports whether the process had name set to exactly want.
func (d Delivery) Got(name string, want secret.Value) bool {
	v, ok := d.env.Get(name)
	return ok && v.Equal(want)
}

// Has reports whether the process had name set.
func (d Delivery) Has(name string) bool { return d.env.Has(name) }

// Execs returns what reached the processes of every exec that was started, in
// order.
func (p *Provider) Execs() []Delivery {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := make([]Delivery, len(p.execs))
	for i, e := range p.execs {
		out[i] = Delivery{Sandbox: e.sb.id, Exec: e.req.ID, env: e.env, Names: e.env.Names(),
			Protected: e.req.Protected.Names(), Secrets: e.req.Secrets.Names()}
	}
	return out
}

// Process is one running process of a sandbox.
type Process struct {
	Exec string // the ExecRequest.ID that started it or an ancestor of it
	PID  int
	Args []string
}

// Running returns the processes that are alive in a sandbox, by PID. It answers
// for destroyed sandboxes too.
func (p *Provider) Running(ref provider.Ref) []Process {
	p.mu.Lock()
	execs := slices.Clone(p.execs)
	p.mu.Unlock()
	var out []Process
	for _, e := range execs {
		if e.sb.id != ref.ID {
			continue
		}
		for _, t := range e.alive() {
			out = append(out, Process{Exec: e.req.ID, PID: t.pid, Args: slices.Clone(t.args)})
		}
	}
	slices.SortFunc(out, func(a, b Process) int { return a.PID - b.PID })
	return out
}
