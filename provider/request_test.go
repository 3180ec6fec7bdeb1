package provider_test

import (
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sbxhost/sbxhost/provider"
	"github.com/sbxhost/sbxhost/secret"
)

const canary = "canary-7d1f"

func env(names ...string) secret.Env {
	m := map[string]secret.Value{}
	for _, n := range names {
		m[n] = secret.FromString(canary)
	}
	return secret.NewEnv(m)
}

func createRequest() provider.CreateRequest {
	id := strings.Repeat("0a", 16)
	return provider.CreateRequest{SessionID: id, Name: "sbxhost-" + id, Digest: "sha256:1", Root: "/workspace",
		Network: "none", Start: "idle", Environment: map[string]string{"LEVEL": "debug"},
		Labels: map[string]string{"team": "core", provider.LabelOwner: "o", provider.LabelEpoch: "e", provider.LabelSession: id,
			provider.LabelAttempt: "attempt-1", provider.LabelDigest: "sha256:1", provider.LabelProtected: "0"}}
}

func protectedRequest(t provider.Transport) provider.CreateRequest {
	r := createRequest()
	r.Transport, r.ProtectedNames = t, []string{"TOKEN", "AUTH"}
	r.Labels[provider.LabelProtected] = "1"
	if t == provider.TransportCreate {
		r.Protected = env("TOKEN", "AUTH")
	}
	return r
}

func TestValidateCreate(t *testing.T) {
	t.Parallel()
	replacement := createRequest()
	replacement.Replaces = &provider.Ref{ID: "old"}
	replacement.Name = provider.ReplacementName(replacement.SessionID, "attempt-1")
	for name, r := range map[string]provider.CreateRequest{"plain": createRequest(), "exec": protectedRequest(provider.TransportExec),
		"create": protectedRequest(provider.TransportCreate), "replacement": replacement} {
		require.NoError(t, provider.ValidateCreate(r), name)
	}
	for _, tt := range []struct {
		want   string
		change func(r *provider.CreateRequest)
	}{
		{"sessionID", func(r *provider.CreateRequest) { r.SessionID = strings.ToUpper(r.SessionID) }},
		{"sessionID", func(r *provider.CreateRequest) { r.SessionID = r.SessionID[1:] }},
		{"name must be", func(r *provider.CreateRequest) { r.Name = "other" }},
		{"replaces must be", func(r *provider.CreateRequest) { r.Replaces = &provider.Ref{} }},
		{"digest is missing", func(r *provider.CreateRequest) { r.Digest = "" }},
		{"label sbxhost.owner is missing", func(r *provider.CreateRequest) { delete(r.Labels, provider.LabelOwner) }},
		{"label sbxhost.session must be", func(r *provider.CreateRequest) { r.Labels[provider.LabelSession] = "x" }},
		{"label sbxhost.digest must be", func(r *provider.CreateRequest) { r.Labels[provider.LabelDigest] = "x" }},
		{"label sbxhost.protected must be", func(r *provider.CreateRequest) { r.Labels[provider.LabelProtected] = "1" }},
		{"are reserved", func(r *provider.CreateRequest) { r.Labels["sbxhost.other"] = "1" }},
		{"labels must be", func(r *provider.CreateRequest) { r.Labels["a\n"] = "1" }},
		{"labels must be", func(r *provider.CreateRequest) { r.Labels["a"] = canary + "\x00" }},
		{"image holds a NUL", func(r *provider.CreateRequest) { r.Image = "a\x00" }},
		{"root must be an absolute", func(r *provider.CreateRequest) { r.Root = "workspace" }},
		{"root must be an absolute", func(r *provider.CreateRequest) { r.Root = "/a/../b" }},
		{"root must not be", func(r *provider.CreateRequest) { r.Root = "/" }},
		{"network", func(r *provider.CreateRequest) { r.Network = "" }},
		{"start", func(r *provider.CreateRequest) { r.Start = "" }},
		{"ports[0]", func(r *provider.CreateRequest) { r.Ports = []int{0} }},
		{"ports[1] is listed twice", func(r *provider.CreateRequest) { r.Ports = []int{80, 80} }},
		{"resources.cpus", func(r *provider.CreateRequest) { r.Resources.CPUs = math.NaN() }},
		{"resources must not", func(r *provider.CreateRequest) { r.Resources.PIDs = -1 }},
		{"mounts[0].path", func(r *provider.CreateRequest) { r.Mounts = []provider.PathGrant{{Path: "x", HostPath: "/y"}} }},
		{"mounts[0].hostPath", func(r *provider.CreateRequest) { r.Mounts = []provider.PathGrant{{Path: "/x"}} }},
		{"ttl and idle", func(r *provider.CreateRequest) { r.TTL = -1 }},
		{"environment has a key", func(r *provider.CreateRequest) { r.Environment[canary] = "x" }},
		{"the value of A holds a NUL", func(r *provider.CreateRequest) { r.Environment["A"] = canary + "\x00" }},
		{"unknown transport", func(r *provider.CreateRequest) { r.Transport = "brokered" }},
		{"protectedNames needs a transport", func(r *provider.CreateRequest) { r.ProtectedNames = []string{"A"} }},
		{"exactly protectedNames", func(r *provider.CreateRequest) {
			*r = protectedRequest(provider.TransportCreate)
			r.Protected = env("TOKEN")
		}},
		{"need the create transport", func(r *provider.CreateRequest) { r.Protected = env("TOKEN") }},
		{"protected has a key", func(r *provider.CreateRequest) { r.Protected = env("A B") }},
		{"is also a literal", func(r *provider.CreateRequest) {
			*r = protectedRequest(provider.TransportExec)
			r.Environment["TOKEN"] = "x"
		}},
		{"listed twice", func(r *provider.CreateRequest) {
			*r = protectedRequest(provider.TransportExec)
			r.ProtectedNames = []string{"A", "A"}
		}},
	} {
		t.Run(tt.want, func(t *testing.T) {
			t.Parallel()
			r := createRequest()
			tt.change(&r)
			refused(t, provider.ValidateCreate(r), tt.want)
		})
	}
}

func refused(t *testing.T, err error, want string) {
	t.Helper()
	require.ErrorIs(t, err, provider.ErrInvalidArgument)
	require.ErrorContains(t, err, want)
	require.Equal(t, provider.AppliedNo, provider.AppliedOf(err))
	require.NotContains(t, fmt.Sprintf("%v %+v %#v", err, err, err), canary)
}

func execRequest() provider.ExecRequest {
	return provider.ExecRequest{ID: "e1", Args: []string{"true"}, Stdin: provider.StdinNone, Stdout: io.Discard, Stderr: io.Discard,
		Env: map[string]string{"A": "x"}, Protected: env("TOKEN"), Secrets: env("KEY")}
}

func TestValidateExec(t *testing.T) {
	t.Parallel()
	require.NoError(t, provider.ValidateExec(execRequest()))
	shell := execRequest()
	shell.Args, shell.Shell, shell.Stdin, shell.Input = nil, "true", provider.StdinUpfront, strings.NewReader("x")
	require.NoError(t, provider.ValidateExec(shell))
	for _, tt := range []struct {
		want   string
		change func(r *provider.ExecRequest)
	}{
		{"id must be", func(r *provider.ExecRequest) { r.ID = "" }},
		{"id must be", func(r *provider.ExecRequest) { r.ID = "../x" }},
		{"exclude each other", func(r *provider.ExecRequest) { r.Shell = "true" }},
		{"one of args and shell", func(r *provider.ExecRequest) { r.Args = nil }},
		{"args[0] is empty", func(r *provider.ExecRequest) { r.Args = []string{""} }},
		{"args[1] holds a NUL", func(r *provider.ExecRequest) { r.Args = []string{"a", canary + "\x00"} }},
		{"shell holds a NUL", func(r *provider.ExecRequest) { r.Args, r.Shell = nil, canary+"\x00" }},
		{"dir holds a NUL", func(r *provider.ExecRequest) { r.Dir = "\x00" }},
		{"env has a key", func(r *provider.ExecRequest) { r.Env = map[string]string{canary: "x"} }},
		{"the value of A holds a NUL", func(r *provider.ExecRequest) { r.Env = map[string]string{"A": canary + "\x00"} }},
		{"protected has a key", func(r *provider.ExecRequest) { r.Protected = env("A=B") }},
		{"the value of N holds a NUL", func(r *provider.ExecRequest) {
			r.Secrets = secret.NewEnv(map[string]secret.Value{"N": secret.FromString(canary + "\x00")})
		}},
		{"TOKEN is in both env and protected", func(r *provider.ExecRequest) { r.Env = map[string]string{"TOKEN": "x"} }},
		{"TOKEN is in both secrets and protected", func(r *provider.ExecRequest) { r.Secrets = env("TOKEN") }},
		{"KEY is in both env and secrets", func(r *provider.ExecRequest) { r.Env = map[string]string{"KEY": "x"} }},
		{"input needs", func(r *provider.ExecRequest) { r.Input = strings.NewReader("x") }},
		{"upfront needs input", func(r *provider.ExecRequest) { r.Stdin = provider.StdinUpfront }},
		{"stdin must be", func(r *provider.ExecRequest) { r.Stdin = "later" }},
		{"timeout and grace", func(r *provider.ExecRequest) { r.Timeout = -time.Second }},
		{"stdout and stderr", func(r *provider.ExecRequest) { r.Stderr = nil }},
	} {
		t.Run(tt.want, func(t *testing.T) {
			t.Parallel()
			r := execRequest()
			tt.change(&r)
			refused(t, provider.ValidateExec(r), tt.want)
		})
	}
}

func description() provider.Description {
	return provider.Description{Name: "p", DefaultNetwork: "none",
		Transports: []provider.TransportInfo{{Transport: provider.TransportExec, Detail: "supervisor"}, {Transport: provider.TransportExec, Detail: "engine-env"}, {Transport: provider.TransportCreate}},
		Exec:       provider.ExecCapabilities{Stdin: provider.StdinLive, Stderr: provider.StderrSeparate, Kill: provider.KillTree, TTY: true},
		Features:   provider.Features{NetworkNone: provider.SupportEnforced}}
}

func TestValidateDescription(t *testing.T) {
	t.Parallel()
	require.NoError(t, provider.ValidateDescription(description()))
	for _, tt := range []struct {
		want   string
		change func(d *provider.Description)
	}{
		{"name", func(d *provider.Description) { d.Name = "" }},
		{"name", func(d *provider.Description) { d.Name = "a\n" }},
		{"transports[2]: unknown", func(d *provider.Description) { d.Transports[2].Transport = "" }},
		{"from least", func(d *provider.Description) { slices.Reverse(d.Transports) }},
		{"transports[1]: listed twice", func(d *provider.Description) { d.Transports[1] = d.Transports[0] }},
		{"detail", func(d *provider.Description) { d.Transports[0].Detail = "a/b" }},
		{"refusedDestinations[0]", func(d *provider.Description) { d.RefusedDestinations = []string{"A B"} }},
		{"exec.stdin", func(d *provider.Description) { d.Exec.Stdin = "" }},
		{"exec.stderr", func(d *provider.Description) { d.Exec.Stderr = "" }},
		{"exec.kill", func(d *provider.Description) { d.Exec.Kill = "" }},
		{"exec.maxTimeout", func(d *provider.Description) { d.Exec.MaxTimeout = -1 }},
		{"exec.tty needs", func(d *provider.Description) { d.Exec.Stdin = provider.StdinUpfront }},
		{"features.pids", func(d *provider.Description) { d.Features.PIDs = "maybe" }},
		{"sharedWorkspace", func(d *provider.Description) { d.Features.SharedWorkspace = true }},
		{"defaultNetwork is none, but", func(d *provider.Description) { d.Features.NetworkNone = provider.SupportNone }},
		{"defaultNetwork is default, but", func(d *provider.Description) { d.DefaultNetwork = "default" }},
		{"defaultNetwork must", func(d *provider.Description) { d.DefaultNetwork = "" }},
	} {
		t.Run(tt.want, func(t *testing.T) {
			t.Parallel()
			d := description()
			tt.change(&d)
			refused(t, provider.ValidateDescription(d), tt.want)
		})
	}
}

func TestCheckCreate(t *testing.T) {
	t.Parallel()
	d := description()
	require.NoError(t, provider.CheckCreate(d, createRequest()))
	require.NoError(t, provider.CheckCreate(d, protectedRequest(provider.TransportExec)))
	r := protectedRequest(provider.TransportCreate)
	r.Image, r.User, r.Network, r.Start, r.Ports = "i", "u", "default", "image", []int{1}
	r.Mounts = []provider.PathGrant{{Path: "/a", HostPath: "/b"}}
	r.Resources = provider.Resources{CPUs: 1, MemoryMiB: 1, PIDs: 1, DiskMiB: 1}
	d.Transports = d.Transports[:1]
	err := provider.CheckCreate(d, r)
	require.ErrorIs(t, err, provider.ErrUnsupported)
	require.Equal(t, provider.AppliedNo, provider.AppliedOf(err))
	for _, what := range []string{"image", "user", "network: default", "pathGrants", "ports", "start: image", "resources.cpus",
		"resources.memoryMiB", "resources.pids", "resources.diskMiB", "the create transport"} {
		require.ErrorContains(t, err, what)
	}
	d.Features = provider.Features{Image: provider.SupportUnenforced, User: provider.SupportEnforced, NetworkDefault: provider.SupportEnforced,
		PathGrants: provider.SupportEnforced, Ports: provider.SupportEnforced, StartImage: provider.SupportEnforced,
		CPUs: provider.SupportUnenforced, MemoryMiB: provider.SupportUnenforced, PIDs: provider.SupportEnforced, DiskMiB: provider.SupportUnenforced}
	d.Transports = description().Transports
	require.NoError(t, provider.CheckCreate(d, r))
}

func TestCheckExec(t *testing.T) {
	t.Parallel()
	r := execRequest()
	r.Stdin, r.TTY, r.Timeout = provider.StdinLive, true, time.Hour
	require.NoError(t, provider.CheckExec(description(), r))
	d := description()
	d.Transports, d.Exec.TTY, d.Exec.Stdin, d.Exec.MaxTimeout = nil, false, provider.StdinUpfront, time.Minute
	err := provider.CheckExec(d, r)
	require.ErrorIs(t, err, provider.ErrUnsupported)
	for _, what := range []string{"input while", "a terminal", "a timeout above 1m0s", "the exec transport"} {
		require.ErrorContains(t, err, what)
	}
	up := execRequest()
	up.Stdin, up.Input, up.Protected = provider.StdinUpfront, strings.NewReader("x"), secret.Env{}
	require.NoError(t, provider.CheckExec(d, up))
	d.Exec.Stdin = provider.StdinNone
	require.ErrorIs(t, provider.CheckExec(d, up), provider.ErrUnsupported)
}

func TestOffers(t *testing.T) {
	t.Parallel()
	d := description()
	require.True(t, d.Offers(provider.TransportExec))
	require.False(t, d.Offers(provider.TransportNone))
	require.False(t, provider.Description{}.Offers(provider.TransportCreate))
	require.Equal(t, "exec/supervisor", d.Transports[0].String())
	require.Equal(t, "create", d.Transports[2].String())
	require.Equal(t, "none", provider.TransportInfo{}.String())
}

func TestValidEnvKey(t *testing.T) {
	t.Parallel()
	keys := map[string]bool{"A": true, "_": true, "a_B9": true, "": false, "9A": false, "A-B": false, "A=B": false,
		"A B": false, "A\x00": false, "é": false, "A\n": false}
	for _, k := range slices.Sorted(maps.Keys(keys)) {
		require.Equal(t, keys[k], provider.ValidEnvKey(k), "%q", k)
	}
}
