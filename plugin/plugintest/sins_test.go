package plugintest_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sbxhost/sbxhost/plugin"
	"github.com/sbxhost/sbxhost/plugin/internal/hook"
	"github.com/sbxhost/sbxhost/plugin/plugintest"
	"github.com/sbxhost/sbxhost/provider"
)

var sinnerModule = sync.OnceValues(func() ([]byte, error) { return build("testdata/sinner", "testdata/sinner/manifest.json") })

// ownChecks are the sections that are not providertest's, which has broken
// providers of its own.
var ownChecks = []string{"static/", "references/", "lifecycle/", "errno/", "http/", "cancel/", "limits/", "handles/", "taint/"}

// fixture is a plugin, a vendor or a host with a flaw, and the checks that find it.
type fixture struct {
	name   string
	sin    string
	driven bool
	flaw   func(*boxes)
	host   func(context.Context, *plugin.Runtime, plugin.Config) (plugintest.Loaded, error)
	only   []string // default: must
	must   []string
}

// operations are all that the sinner declares, but for resume, which is not asked
// for by itself.
var operations = []string{"create", "status", "exec", "list", "write", "read", "stat", "list_dir", "mkdir", "remove", "pause", "destroy"}

func each(format string, names ...string) []string {
	out := make([]string, len(names))
	for i, n := range names {
		out[i] = fmt.Sprintf(format, n)
	}
	return out
}

var fixtures = []fixture{
	{name: "panics when an import fails", sin: "panic at failures", must: each("errno/%s", operations...)},
	{name: "panics when the vendor fails", sin: "panic at failures", must: append(each("http/status/%s", "reset", "truncated", "oversized", "redirect", "gzip", "utf-16"), "http/create/lost")},
	{name: "has one error for everything", sin: "all failures are internal", must: each("http/status/%s", "401", "429", "500", "503")},
	{name: "takes failures for success", sin: "failures are successes", must: []string{"http/status/redirect", "http/stat/500", "http/read/401", "http/write/500", "errno/status"}},
	{name: "computes for ever when the vendor fails", sin: "spin at failures", must: []string{"http/status/500"}},
	{name: "is slow to hear of a hanging vendor", host: late(7 * time.Second), must: []string{"http/status/hang"}},
	{name: "invents exit codes", sin: "every command succeeds", must: []string{"errno/exec", "provider/exec/exit-codes"}},
	{name: "destroys once", sin: "destroy once", must: []string{"lifecycle/destroy-twice"}},
	{name: "lists what runs as gone", sin: "list says gone", must: []string{"lifecycle/duplicate-create"}},
	{name: "has a vendor and no list", sin: "list nothing", must: []string{"static/compile", "static/list"}},
	{name: "the vendor mixes boxes up", flaw: func(b *boxes) { b.mixes = true }, must: []string{"lifecycle/parallel"}},
	{name: "wastes fuel", sin: "waste fuel", must: []string{"limits/headroom"}},
	{name: "wastes memory", sin: "waste memory", must: []string{"limits/headroom"}},
	{name: "does without the environment when its handle is refused", sin: "create without an environment", driven: true, must: []string{"handles/altered", "handles/replayed"}},
	{name: "does not pass the environment on", sin: "give no environment", driven: true, only: []string{"taint/"}, must: []string{"taint/run", "taint/control"}},
	{name: "undoes disguises that the vendor made for it", sin: "undo disguises", flaw: func(b *boxes) { b.league = true }, only: []string{"taint/"},
		must: []string{"taint/values", "taint/credentials", "taint/captures"}},

	{name: "a host whose description changes", host: func(ctx context.Context, rt *plugin.Runtime, cfg plugin.Config) (plugintest.Loaded, error) {
		p, err := plugin.Load(ctx, rt, cfg)
		return &host{Loaded: p, describe: func(d provider.Description) provider.Description {
			d.Version = fmt.Sprint(time.Now().UnixNano())
			return d
		}}, err
	}, must: []string{"static/description"}},
	{name: "a host that loads anything", host: func(ctx context.Context, rt *plugin.Runtime, cfg plugin.Config) (plugintest.Loaded, error) {
		if len(cfg.Lock.Plugins) == 0 {
			_, err := cfg.Lock.Approve(cfg.Module)
			return nil, err
		}
		return plugin.Load(ctx, rt, cfg)
	}, must: []string{"static/unapproved"}},
	{name: "a host that trusts plugin-driven plugins", driven: true, host: func(ctx context.Context, rt *plugin.Runtime, cfg plugin.Config) (plugintest.Loaded, error) {
		cfg.AllowPluginDriven = true
		return plugin.Load(ctx, rt, cfg)
	}, must: []string{"references/refused-before-code"}},
	{name: "a host that offers no transport", host: func(ctx context.Context, rt *plugin.Runtime, cfg plugin.Config) (plugintest.Loaded, error) {
		p, err := plugin.Load(ctx, rt, cfg)
		return &host{Loaded: p, describe: func(d provider.Description) provider.Description { d.Transports = nil; return d }}, err
	}, must: []string{"references/offered"}},
	{name: "a host without a limit on fuel", host: func(ctx context.Context, rt *plugin.Runtime, cfg plugin.Config) (plugintest.Loaded, error) {
		h := *hook.From(ctx)
		h.Fuel = 0
		return plugin.Load(hook.With(ctx, &h), rt, cfg)
	}, must: []string{"limits/fuel"}},
	{name: "a host whose limits have no code", host: func(ctx context.Context, rt *plugin.Runtime, cfg plugin.Config) (plugintest.Loaded, error) {
		p, err := plugin.Load(ctx, rt, cfg)
		h := &host{Loaded: p}
		if hook.From(ctx).MemoryPages > 0 {
			h.create = func(context.Context, provider.CreateRequest) (provider.Sandbox, error) {
				return nil, errors.New("out of memory")
			}
		}
		return h, err
	}, must: []string{"limits/memory"}},
	{name: "a host that is slow to cancel", sin: "sleep", host: late(1200 * time.Millisecond), must: []string{"cancel/http", "cancel/sleep", "cancel/loop"}},
	{name: "a host whose errors repeat values", host: func(ctx context.Context, rt *plugin.Runtime, cfg plugin.Config) (plugintest.Loaded, error) {
		p, err := plugin.Load(ctx, rt, cfg)
		return &host{Loaded: p, create: func(ctx context.Context, q provider.CreateRequest) (provider.Sandbox, error) {
			sb, err := p.Create(ctx, q)
			if v, ok := q.Protected.Get("CANARY_PLAIN"); ok && err != nil {
				err = fmt.Errorf("with %s: %w", v.Reveal(), err)
			}
			return sb, err
		}}, err
	}, only: []string{"taint/"}, must: []string{"taint/errors"}},
}

// host is a loaded plugin with other manners.
type host struct {
	plugintest.Loaded
	describe func(provider.Description) provider.Description
	create   func(context.Context, provider.CreateRequest) (provider.Sandbox, error)
	late     time.Duration
}

func (h *host) Describe() provider.Description {
	d := h.Loaded.Describe()
	if h.describe != nil {
		d = h.describe(d)
	}
	return d
}

func (h *host) Create(ctx context.Context, q provider.CreateRequest) (provider.Sandbox, error) {
	create := h.Loaded.Create
	if h.create != nil {
		create = h.create
	}
	sb, err := create(ctx, q)
	h.delay(ctx)
	if sb != nil && h.late > 0 {
		sb = &lateSandbox{sb, h}
	}
	return sb, err
}

func (h *host) Open(ctx context.Context, ref provider.Ref) (provider.Sandbox, error) {
	sb, err := h.Loaded.Open(ctx, ref)
	if sb != nil && h.late > 0 {
		sb = &lateSandbox{sb, h}
	}
	return sb, err
}

// delay is how long it takes to see that the caller gave up.
func (h *host) delay(ctx context.Context) {
	// A call may return by its deadline a moment before the context says so.
	if d, limited := ctx.Deadline(); ctx.Err() != nil || limited && time.Until(d) < 100*time.Millisecond {
		time.Sleep(h.late) // the flaw itself
	}
}

type lateSandbox struct {
	provider.Sandbox
	h *host
}

func (s *lateSandbox) Status(ctx context.Context) (provider.Status, error) {
	st, err := s.Sandbox.Status(ctx)
	s.h.delay(ctx)
	return st, err
}

func (s *lateSandbox) Exec(ctx context.Context, q provider.ExecRequest) (provider.Process, error) {
	p, err := s.Sandbox.Exec(ctx, q)
	s.h.delay(ctx)
	return p, err
}

// late gives a host that notices late that its caller gave up.
func late(d time.Duration) func(context.Context, *plugin.Runtime, plugin.Config) (plugintest.Loaded, error) {
	return func(ctx context.Context, rt *plugin.Runtime, cfg plugin.Config) (plugintest.Loaded, error) {
		p, err := plugin.Load(ctx, rt, cfg)
		return &host{Loaded: p, late: d}, err
	}
}

// theRuntime compiles each module once for all tests.
var theRuntime = sync.OnceValues(func() (*plugin.Runtime, error) {
	return plugin.NewRuntime(context.Background(), plugin.RuntimeConfig{CompileTimeout: 10 * time.Minute})
})

// TestFlawsAreFound: each flaw fails its checks. What no plugin and no vendor can
// make fail is shown to be able to fail with a broken host.
func TestFlawsAreFound(t *testing.T) {
	t.Parallel()
	for _, f := range fixtures {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			o := plugintest.Options{Module: sinner(t), Fake: startBoxes(t, f.sin, f.driven, f.flaw), Only: f.only}
			if f.driven {
				o.Module = driven(t)
			}
			if o.Only == nil {
				o.Only = f.must
			}
			r := runOn(t, o, f.host)
			for _, name := range f.must {
				if c, ok := r.Find(name); assert.True(t, ok, name) {
					assert.Equal(t, plugintest.Failed, c.Status, name)
				}
			}
			assert.False(t, r.OK())
		})
	}
}

func runOn(t *testing.T, o plugintest.Options, load func(context.Context, *plugin.Runtime, plugin.Config) (plugintest.Loaded, error)) *plugintest.Report {
	t.Helper()
	rt, err := theRuntime()
	require.NoError(t, err)
	o.Runtime = rt
	if load == nil {
		load = func(ctx context.Context, rt *plugin.Runtime, cfg plugin.Config) (plugintest.Loaded, error) {
			return plugin.Load(ctx, rt, cfg)
		}
	}
	r, err := plugintest.RunOnHost(t.Context(), o, load)
	require.NoError(t, err)
	var b strings.Builder
	require.NoError(t, r.WriteText(&b, true))
	t.Log(b.String())
	return r
}

// TestWithoutSinEverythingPasses is the control, for both kinds. With it goes the
// proof that every check has a flaw that fails it.
func TestWithoutSinEverythingPasses(t *testing.T) {
	t.Parallel()
	red := map[string]bool{
		"static/module": true, "static/manifest": true, "static/imports": true, "static/load": true, // TestStaticChecks, TestLoadCheck
	}
	for _, f := range fixtures {
		for _, name := range f.must {
			red[general(name)] = true
		}
	}
	for _, kind := range []string{"sealed", "plugin-driven"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			o := plugintest.Options{Module: sinner(t), Fake: startBoxes(t, "sleep", kind != "sealed", nil), Only: ownChecks}
			if kind != "sealed" {
				o.Module, o.Only = driven(t), []string{"static/", "references/", "lifecycle/", "handles/", "taint/", "limits/"}
			}
			r := runOn(t, o, nil)
			declined := 0
			for _, c := range r.Checks {
				assert.True(t, red[general(c.Name)], "nothing fails %s", c.Name)
				switch c.Status {
				case plugintest.Passed:
				case plugintest.NotDeclared:
					declined++
				default:
					t.Errorf("%s: %s: %s", c.Name, c.Status, strings.Join(c.Reasons, "\n"))
				}
			}
			if kind == "plugin-driven" {
				for _, name := range []string{"handles/altered", "handles/replayed", "taint/values", "references/refused-before-code"} {
					c, ok := r.Find(name)
					require.True(t, ok, name)
					assert.Equal(t, plugintest.Passed, c.Status, name)
				}
			}
			assert.LessOrEqual(t, declined, 3)
		})
	}
}

// general is a check's name without the operation, where the check is the same for
// all of them.
func general(name string) string {
	if part := strings.Split(name, "/"); part[0] == "http" && len(part) == 3 {
		return "http/" + part[2]
	}
	return name
}

// A module whose manifest asks for a setting that the fake does not give fails to
// load, by name.
func TestLoadCheck(t *testing.T) {
	t.Parallel()
	module := sinner(t)
	in, err := plugin.Inspect(module)
	require.NoError(t, err)
	doc := strings.Replace(string(in.Manifest), `"driven":{`, `"more":{"type":"string","maxLength":8,"required":true},"driven":{`, 1)
	packed, err := plugin.Pack(module, []byte(doc))
	require.NoError(t, err)
	r := runOn(t, plugintest.Options{Module: packed, Fake: startBoxes(t, "", false, nil)}, nil)
	c, ok := r.Find("static/load")
	require.True(t, ok)
	assert.Equal(t, plugintest.Failed, c.Status)
	assert.Contains(t, strings.Join(c.Reasons, "\n"), "more")
	_, tried := r.Find("lifecycle/parallel")
	assert.False(t, tried)
}

func TestParseWords(t *testing.T) {
	t.Parallel()
	for doc, want := range map[string]string{
		`{"exit":["exit","{code}"],"print":["say","{stdout}","{stderr}"],"cat":["cat"]}`: "",
		`{"exit":["exit","{code}"]}`:                                                   `"print" is missing`,
		`{"exit":["exit"],"print":["say","{stdout}","{stderr}"]}`:                      `"exit" has no place for {code}`,
		`{"exit":["exit","{code}"],"print":["say","{stdout}","{stderr}"],"ls":["ls"]}`: `no use for "ls"`,
		`{"exit":["exit","{code}"],"print":["say","{stdout}","{stderr}"],"cat":[]}`:    `"cat" is empty`,
		`{} {}`: "something after",
		`[]`:    "the file of commands",
	} {
		_, err := plugintest.ParseWords([]byte(doc))
		if want == "" {
			require.NoError(t, err, doc)
			continue
		}
		require.ErrorContains(t, err, want, doc)
	}
}
