package plugintest

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"time"

	"github.com/sbxhost/sbxhost/abi"
	"github.com/sbxhost/sbxhost/plugin"
	"github.com/sbxhost/sbxhost/plugin/internal/hook"
	"github.com/sbxhost/sbxhost/provider"
	"github.com/sbxhost/sbxhost/secret"
)

// static makes the checks that need nothing of the module to run.
func (k *kit) static(ctx context.Context) {
	const rule = "a module is judged before anything of it is compiled"
	began := time.Now()
	in, err := plugin.Inspect(k.opts.Module)
	took := time.Since(began)
	name := "static/module"
	var (
		manifest *plugin.ManifestError
		imports  *plugin.ImportError
	)
	switch {
	case errors.As(err, &manifest):
		name = "static/manifest"
	case errors.As(err, &imports):
		name = "static/imports"
	}
	if err != nil {
		k.add(Check{Name: name, Rule: rule, Status: Failed, Reasons: []string{err.Error()}, Duration: took})
		return
	}
	for _, n := range []string{"static/module", "static/manifest", "static/imports"} {
		if k.wanted(n) {
			k.add(Check{Name: n, Rule: rule, Status: Passed, Duration: took})
		}
	}
	k.module = in
	k.m, err = plugin.ParseManifest(in.Manifest)
	if err != nil { // Inspect has parsed it
		k.module = nil
		k.add(Check{Name: "static/manifest", Rule: rule, Status: Failed, Reasons: []string{err.Error()}})
		return
	}
}

// loadChecks makes the checks of loading.
func (k *kit) loadChecks(ctx context.Context) {
	began := time.Now()
	p, err := k.load(ctx, nil, nil, nil)
	if err != nil && k.fake == nil && len(k.m.Config) > 0 {
		k.add(Check{Name: "static/load", Status: NotProved, Reasons: []string{"no fake was given that would say what settings to use: " + err.Error()}})
		return
	}
	if err != nil {
		k.add(Check{Name: "static/load", Status: Failed, Rule: "an approved module loads with the fake's settings", Reasons: []string{err.Error()}, Duration: time.Since(began)})
		return
	}
	k.desc = p.Describe()
	_ = p.Close() // nothing of it ran
	if k.wanted("static/load") {
		k.add(Check{Name: "static/load", Status: Passed, Duration: time.Since(began)})
	}
	k.check(ctx, "static/description", "the description follows from the manifest and is always the same", 10*time.Second, func(t *t) {
		p, err := k.load(t.ctx, nil, nil, nil)
		t.must(err, "Load")
		t.cleanup(func() { _ = p.Close() })
		if !reflect.DeepEqual(p.Describe(), k.desc) || !reflect.DeepEqual(p.Describe(), p.Describe()) {
			t.errorf("two descriptions differ")
		}
	})
	k.check(ctx, "static/unapproved", "what is not approved is not loaded", 10*time.Second, func(t *t) {
		if _, err := k.loader(t.ctx, k.rt, plugin.Config{Module: k.opts.Module, Lock: &plugin.Lock{}}); provider.CodeOf(err) != provider.PermissionDenied {
			t.errorf("loading it ended with %q, it must be PermissionDenied", provider.CodeOf(err))
		}
	})
}

// references checks that values are refused before plugin code runs where the
// manifest gives them no protected way, or the operator does not allow it.
func (k *kit) references(ctx context.Context) {
	k.check(ctx, "references/refused-before-code", "without a protected transport, or plugin-driven without allowPluginDriven, references are refused before any code of the plugin has run", 30*time.Second, func(t *t) {
		if k.m.Protected.Any() && k.module.Kind != "plugin-driven" {
			t.leave(NotDeclared, "the manifest has a protected transport and the plugin is sealed")
		}
		ran := 0
		h := &hook.Hooks{
			Import: func(abi.Op, string) (int64, bool) { ran++; return 0, false },
			After:  func(abi.Op, []byte, int64) { ran++ },
		}
		lock := &plugin.Lock{}
		_, err := lock.Approve(k.opts.Module)
		t.must(err, "Approve")
		cfg := plugin.Config{Module: k.opts.Module, Lock: lock, Origins: map[string]plugin.Origin{}, Credentials: map[string]secret.Value{}}
		for _, c := range k.m.Credentials {
			cfg.Credentials[c.Name] = secret.FromString("unused-credential")
		}
		if k.fake != nil {
			cfg.Settings = k.fake.hello.Settings
			for n, u := range k.fake.hello.Origins {
				cfg.Origins[n] = plugin.Origin{URL: u, AllowPrivate: true}
			}
		}
		p, err := k.loader(hook.With(t.ctx, h), k.rt, cfg)
		t.must(err, "Load")
		t.cleanup(func() { _ = p.Close() })
		if len(p.Describe().Transports) > 0 {
			t.errorf("the description offers a transport")
		}
		for _, transport := range []provider.Transport{provider.TransportExec, provider.TransportCreate} {
			q := k.createRequest()
			q.Transport = transport
			q.Labels[provider.LabelProtected] = "1"
			if transport == provider.TransportCreate {
				q.Protected = secret.NewEnv(map[string]secret.Value{"TOKEN": secret.FromString("canary-" + word(20))})
			}
			q.ProtectedNames = []string{"TOKEN"}
			if _, err := p.Create(t.ctx, q); provider.CodeOf(err) != provider.Unsupported || provider.AppliedOf(err) != provider.AppliedNo {
				t.errorf("Create with a reference by %s ended with %q, it must be Unsupported and not applied", transport, provider.CodeOf(err))
			}
		}
		if ran > 0 {
			t.errorf("code of the plugin ran")
		}
	})
	k.check(ctx, "references/offered", "a sealed plugin with a protected transport offers it", 10*time.Second, func(t *t) {
		if !k.m.Protected.Any() {
			t.leave(NotDeclared, "the manifest has no protected transport")
		}
		for transport, routes := range map[provider.Transport][]string{provider.TransportExec: k.m.Protected.Exec, provider.TransportCreate: k.m.Protected.Create} {
			if offers := slices.ContainsFunc(k.desc.Transports, func(i provider.TransportInfo) bool { return i.Transport == transport }); offers != (len(routes) > 0) {
				t.errorf("transport %s: declared %t, offered %t", transport, len(routes) > 0, offers)
			}
		}
	})
}
