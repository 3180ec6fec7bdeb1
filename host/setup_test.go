package host_test

import (
	"context"
	"encoding/json"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/sbxhost/sbxhost/grants"
	"github.com/sbxhost/sbxhost/host"
	"github.com/sbxhost/sbxhost/manifest"
	"github.com/sbxhost/sbxhost/provider"
	"github.com/sbxhost/sbxhost/provider/fake"
	"github.com/sbxhost/sbxhost/secret"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(patient{m}) }

// patient waits for goroutines that end by themselves, longer than goleak does: on a
// busy machine that takes its time.
type patient struct{ *testing.M }

func (p patient) Run() int {
	code := p.M.Run()
	for until := time.Now().Add(30 * time.Second); code == 0 && goleak.Find() != nil && time.Now().Before(until); {
	}
	return code
}

// Canaries. None of them may come back from a host unmasked.
const (
	tokenCanary   = "canary-Tok3n-4f9b1c7e2a"
	rotatedCanary = "canary-R0tated-77aa01bc3d"
	requestCanary = "canary-R3quest-90ffee12ab"
)

// env is a host with one fake provider, registered as trusted under "fake".
type env struct {
	*host.Host
	fake   *fake.Provider
	source *recordingSource
	events *recorder
}

type setup struct {
	host      host.Options
	fake      fake.Options
	untrusted bool
	source    map[string]string
}

func newEnv(t *testing.T, with ...func(*setup)) *env {
	t.Helper()
	s := setup{source: map[string]string{"HOST_TOKEN": tokenCanary}}
	for _, f := range with {
		f(&s)
	}
	e := &env{source: newSource(s.source), events: &recorder{}}
	s.host.Source = e.source
	s.host.Sinks = append(s.host.Sinks, e.events)
	h, err := host.New(s.host)
	require.NoError(t, err)
	e.Host, e.fake = h, fake.New(s.fake)
	if s.untrusted {
		require.NoError(t, h.Register("fake", e.fake))
	} else {
		require.NoError(t, h.RegisterTrusted("fake", e.fake))
	}
	t.Cleanup(func() {
		e.fake.SetHooks(fake.Hooks{})
		assert.NoError(t, h.Close(context.Background()))
	})
	return e
}

func untrusted(s *setup) { s.untrusted = true }

func granted(s *setup) { s.host.Grants = tokenGrant() }

func tokenGrant() grants.Set {
	return grants.Set{ProcessEnvironmentBindings: map[string]string{"TOKEN": "HOST_TOKEN"}}
}

func describe(f func(*provider.Description)) func(*setup) {
	return func(s *setup) {
		before := s.fake.Describe
		s.fake.Describe = func(d *provider.Description) {
			if before != nil {
				before(d)
			}
			f(d)
		}
	}
}

// sharesExecs makes a provider whose commands can read each other's environment.
func sharesExecs(s *setup) {
	describe(func(d *provider.Description) { d.IsolatesExecs = false })(s)
}

func ordinary() manifest.Manifest {
	m := manifest.New()
	m.Environment = map[string]manifest.Entry{"GREETING": {Literal: "hello"}}
	return m
}

func protected() manifest.Manifest {
	m := ordinary()
	m.Environment["TOKEN"] = manifest.Entry{Reference: &manifest.Reference{Name: "HOST_TOKEN"}}
	return m
}

func with(m manifest.Manifest, key string, e manifest.Entry) manifest.Manifest {
	m = m.Clone()
	if m.Environment == nil {
		m.Environment = map[string]manifest.Entry{}
	}
	m.Environment[key] = e
	return m
}

func ref(source string) manifest.Entry {
	return manifest.Entry{Reference: &manifest.Reference{Name: source}}
}

func (e *env) create(t *testing.T, m manifest.Manifest) *host.Session {
	t.Helper()
	s, err := e.Create(t.Context(), host.CreateRequest{Provider: "fake", Manifest: m})
	require.NoError(t, err)
	return s
}

func run(t *testing.T, s *host.Session, args ...string) *host.Result {
	t.Helper()
	r, err := s.Exec(t.Context(), host.ExecRequest{Args: args})
	require.NoError(t, err)
	return r
}

// untouched asserts that nothing of the provider was called since it was
// registered, or since Forget.
func (e *env) untouched(t *testing.T) {
	t.Helper()
	assert.Empty(t, e.fake.Calls(), "the provider was touched")
}

// code asserts an error's code.
func code(t *testing.T, want provider.Code, err error) {
	t.Helper()
	require.Error(t, err)
	require.Equal(t, want, provider.CodeOf(err), "%v", err)
	require.ErrorIs(t, err, want)
}

func value(s string) secret.Value { return secret.FromString(s) }

// activation is a request-scoped secret, required.
func activation(values map[string]string) grants.Activation {
	var reqs []grants.Requirement
	for n := range values {
		reqs = append(reqs, grants.Requirement{Name: n})
	}
	return grants.Activate(reqs, grants.NewCarrier(values))
}

// recordingSource is a source that knows what it was asked, and whose values can
// change.
type recordingSource struct {
	mu      sync.Mutex
	values  map[string]string
	lookups []string
	asked   []string
	hook    func(name string) error
}

func newSource(values map[string]string) *recordingSource {
	s := &recordingSource{values: map[string]string{}}
	for k, v := range values {
		s.values[k] = v
	}
	return s
}

func (s *recordingSource) Lookup(_ context.Context, name string) (secret.Value, bool, error) {
	s.mu.Lock()
	s.lookups = append(s.lookups, name)
	v, ok := s.values[name]
	hook := s.hook
	s.mu.Unlock()
	if hook != nil {
		if err := hook(name); err != nil {
			return secret.Value{}, false, err
		}
	}
	return secret.FromString(v), ok, nil
}

func (s *recordingSource) Present(_ context.Context, name string) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = append(s.asked, name)
	_, ok := s.values[name]
	return ok, nil
}

func (s *recordingSource) set(name, v string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.values[name] = v
}

func (s *recordingSource) unset(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.values, name)
}

func (s *recordingSource) onLookup(f func(string) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hook = f
}

// unread asserts that no value was read and no presence asked.
func (s *recordingSource) unread(t *testing.T) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	assert.Empty(t, s.lookups, "values were read")
	assert.Empty(t, s.asked, "presence was asked")
}

// recorder is a sink that keeps what it got.
type recorder struct {
	mu      sync.Mutex
	records []host.Record
}

func (r *recorder) Emit(rec host.Record) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.records = append(r.records, rec)
}

func (r *recorder) all() []host.Record {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]host.Record(nil), r.records...)
}

// wait returns the records of a kind once there are at least n.
func (r *recorder) wait(t *testing.T, n int, match func(host.Record) bool) []host.Record {
	t.Helper()
	var out []host.Record
	require.Eventually(t, func() bool {
		out = nil
		for _, rec := range r.all() {
			if match(rec) {
				out = append(out, rec)
			}
		}
		return len(out) >= n
	}, 30*time.Second, time.Millisecond, "records")
	return out
}

func kind(k host.Kind, operation string) func(host.Record) bool {
	return func(r host.Record) bool { return r.Kind == k && (operation == "" || r.Operation == operation) }
}

// edit changes a state document.
func edit(t *testing.T, state []byte, f func(map[string]any)) []byte {
	t.Helper()
	var doc map[string]any
	require.NoError(t, json.Unmarshal(state, &doc))
	f(doc)
	out, err := json.Marshal(doc)
	require.NoError(t, err)
	return out
}

func environmentOf(doc map[string]any) map[string]any {
	m := doc["manifest"].(map[string]any)
	if m["environment"] == nil {
		m["environment"] = map[string]any{}
	}
	return m["environment"].(map[string]any)
}

func noCanary(t *testing.T, text string) {
	t.Helper()
	for _, c := range []string{tokenCanary, rotatedCanary, requestCanary} {
		assert.False(t, strings.Contains(text, c), "a canary leaked")
	}
}

// failWith makes a method fail with exactly err.
func failWith(m fake.Method, err error) fake.Hooks {
	return fake.Hooks{Before: func(_ context.Context, c fake.Call) error {
		if c.Method == m {
			return err
		}
		return nil
	}}
}

// beforeFirst runs f before a method, and lets it go on.
func beforeFirst(m fake.Method, f func()) fake.Hooks {
	var once sync.Once
	return fake.Hooks{Before: func(_ context.Context, c fake.Call) error {
		if c.Method == m {
			once.Do(f)
		}
		return nil
	}}
}
