package plugin_test

import (
	"compress/gzip"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"unicode/utf16"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sbxhost/sbxhost/plugin"
	"github.com/sbxhost/sbxhost/plugin/internal/hook"
	"github.com/sbxhost/sbxhost/provider"
)

// limited gives the manifest a short wall time, so that what never ends is over
// soon. It is that of the calls before and after it too: see create.
func limited(ms int) string {
	return strings.Replace(hostileManifest, patience, fmt.Sprintf(`"limits":{"wallMs":%d}`, ms), 1)
}

// cause requires that err's cause is of type T and returns it.
func cause[T error](t *testing.T, err error) T {
	t.Helper()
	var want T
	require.ErrorAs(t, err, &want)
	var pe *provider.Error
	require.ErrorAs(t, err, &pe, "every error is a provider.Error")
	return want
}

// TestHostileResources: a Go guest that takes what it can. Each ends in its own
// error.
func TestHostileResources(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		manifest string
		act      string
		check    func(t *testing.T, err error)
	}{
		"panic": {hostileManifest, "panic", func(t *testing.T, err error) { _ = cause[*plugin.PluginPanic](t, err) }},
		"exit":  {hostileManifest, "exit", func(t *testing.T, err error) { _ = cause[*plugin.PluginPanic](t, err) }},
		"endless loop, by fuel": {hostileManifest, "spin", func(t *testing.T, err error) {
			_ = cause[*plugin.FuelExhausted](t, err)
			assert.Equal(t, provider.ResourceExhausted, provider.CodeOf(err))
		}},
		"endless loop, by deadline": {limited(5000), "spin", func(t *testing.T, err error) {
			_ = cause[*plugin.Deadline](t, err)
			assert.Equal(t, provider.DeadlineExceeded, provider.CodeOf(err))
		}},
		"recursion":          {hostileManifest, "recurse", func(t *testing.T, err error) { require.Error(t, err) }},
		"memory":             {hostileManifest, "allocate", func(t *testing.T, err error) { _ = cause[*plugin.PluginPanic](t, err) }},
		"sleep":              {limited(5000), "sleep", func(t *testing.T, err error) { _ = cause[*plugin.Deadline](t, err) }},
		"an error too large": {hostileManifest, "big", func(t *testing.T, err error) { _ = cause[*plugin.ABIViolation](t, err) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := stageOf(t, tc.manifest, map[string]string{"when": "status", "act": tc.act})
			if name == "endless loop, by deadline" { // which fuel must not come before
				s.p = s.loadWith(hook.With(t.Context(), &hook.Hooks{Fuel: 1 << 50}), s.config(packed(t, mustChameleon(t), tc.manifest), map[string]string{"when": "status", "act": tc.act}))
			}
			sb := s.create()
			_, err := sb.Status(s.ctx())
			tc.check(t, err)
			// The same plugin goes on with its next call.
			exit, xerr := s.exec(sb)
			require.NoError(t, xerr)
			assert.Equal(t, provider.ExitExited, exit.Kind)
			s.finish(err)
		})
	}
	t.Run("log flood", func(t *testing.T) {
		t.Parallel()
		s := stageOf(t, hostileManifest, map[string]string{"when": "status", "act": "flood"})
		_, err := s.create().Status(s.ctx())
		require.NoError(t, err)
		s.mu.Lock()
		n := s.logs.Len()
		s.mu.Unlock()
		assert.Less(t, n, 256<<10)
		s.finish(nil)
	})
	t.Run("responses kept open", func(t *testing.T) {
		t.Parallel()
		s := stageOf(t, hostileManifest, map[string]string{"when": "status", "act": "open", "meta": `[{"route":"get","times":100,"keep":true}]`})
		err := s.run("status")
		require.Error(t, err)
		assert.Contains(t, err.Error(), "E_LIMIT")
		s.finish(err)
	})
	t.Run("nothing survives a call", func(t *testing.T) {
		t.Parallel()
		s := stageOf(t, hostileManifest, map[string]string{"when": "status", "act": "dirty"})
		sb := s.create()
		for range 5 {
			_, err := sb.Status(s.ctx())
			require.ErrorContains(t, err, "kept is clean")
		}
		s.finish(nil)
	})
	t.Run("many calls at once", func(t *testing.T) {
		t.Parallel()
		s := stageOf(t, hostileManifest, map[string]string{"when": "read", "act": "panic"})
		sb := s.create()
		var wg sync.WaitGroup
		for i := range 40 {
			wg.Add(1)
			go func() {
				defer wg.Done()
				if i%4 == 0 {
					_, _, err := sb.Files().Open(s.ctx(), "f")
					assert.Error(t, err)
					return
				}
				_, err := sb.Status(s.ctx())
				assert.NoError(t, err)
			}()
		}
		wg.Wait()
		s.finish(nil)
	})
}

// TestHostileLies: what a plugin says counts only where the host saw it.
func TestHostileLies(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		op, act, meta string
		what          string // of the ABIViolation; "" is the end in op's own terms
	}{
		"create without creating":  {"create", "create nothing", "", "without a sandbox id"},
		"an unknown state":         {"create", "strange state", "", "unknown state"},
		"list without asking":      {"list", "list without asking", "", "without a list reply"},
		"list leaves out":          {"list", "list leaves out", "", "leaves out"},
		"list invents":             {"list", "list invents", "sandbox-999999", "no reply of the vendor proved"},
		"list names a foreign one": {"list", "list invents", "sandbox-foreign", "no reply of the vendor proved"},
		"exec without command":     {"exec", "exec nothing", "", "without sending the command"},
		"exec left before its end": {"exec", "exec half", "", ""},
		"exec with a strange code": {"exec", "exec strange", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			// The lists of a create would lie, too: it is made by an honest one.
			s := stageOf(t, hostileManifest, map[string]string{"act": tc.act, "meta": tc.meta})
			var err error
			if strings.HasPrefix(tc.act, "list") {
				honest := s.p
				s.p = s.load(s.config(packed(t, mustChameleon(t), hostileManifest), nil))
				sb := s.create()
				s.p = honest
				if tc.op == "destroy" {
					err = s.p.Destroy(s.ctx(), sb.Ref())
				} else {
					err = s.run(tc.op)
				}
			} else {
				err = s.run(tc.op)
			}
			require.Error(t, err)
			if tc.what == "" {
				require.ErrorIs(t, err, errLost)
			} else {
				v := cause[*plugin.ABIViolation](t, err)
				assert.Contains(t, v.What, tc.what)
			}
			s.finish(err)
		})
	}
	t.Run("destroy that leaves it alive", func(t *testing.T) {
		t.Parallel()
		s := stageOf(t, hostileManifest, map[string]string{"act": "keep alive"})
		sb := s.create()
		ctx, cancel := contextWithin(t, 500)
		defer cancel()
		err := s.p.Destroy(ctx, sb.Ref())
		require.Error(t, err)
		assert.NotEqual(t, provider.AppliedYes, provider.AppliedOf(err))
		assert.Equal(t, 1, s.v.count())
		s.finish(err)
	})
	t.Run("a manifest other than the approved one", func(t *testing.T) {
		t.Parallel()
		s := &stage{t: t, v: newVendor(t)}
		approved := packed(t, mustChameleon(t), hostileManifest)
		cfg := s.config(approved, nil)
		cfg.Module = packed(t, mustChameleon(t), strings.Replace(hostileManifest, `"version":"1"`, `"version":"2"`, 1))
		rt, err := hostileRuntime()
		require.NoError(t, err)
		_, err = plugin.Load(t.Context(), rt, cfg)
		require.ErrorIs(t, err, provider.ErrPermissionDenied)
		cfg.Lock.Plugins[0].Digest = "sha256:" + strings.Repeat("0", 64)
		_, err = plugin.Load(t.Context(), rt, cfg)
		require.ErrorIs(t, err, provider.ErrPermissionDenied)
		_, err = plugin.Load(t.Context(), rt, plugin.Config{Module: approved})
		require.ErrorIs(t, err, provider.ErrPermissionDenied)
	})
	t.Run("the name of a built-in", func(t *testing.T) {
		t.Parallel()
		_, err := plugin.Pack(mustChameleon(t), []byte(strings.Replace(hostileManifest, `"name":"chameleon"`, `"name":"docker"`, 1)))
		m := cause[*plugin.ManifestError](t, err)
		assert.Contains(t, m.Error(), "built-in")
	})
	t.Run("a free field under a slot", func(t *testing.T) {
		t.Parallel()
		_, err := plugin.Pack(mustChameleon(t), []byte(strings.Replace(hostileManifest, `{"pointer":"/pid","type":"integer"`, `{"pointer":"/name/x","type":"integer"`, 1)))
		m := cause[*plugin.ManifestError](t, err)
		assert.Contains(t, m.Error(), "collides")
	})
}

func mustChameleon(t *testing.T) []byte {
	t.Helper()
	m, err := chameleonModule()
	require.NoError(t, err)
	return m
}

// TestHostileRequests: requests that the approved manifest does not hold.
func TestHostileRequests(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ op, meta, rule string }{
		"its own image":              {"create", `[{"route":"create","free":{"/image":"evil"}}]`, "not the plugin's to fill"},
		"its own command":            {"create", `[{"route":"create","free":{"/cmd":"printenv | rev"}}]`, "not the plugin's to fill"},
		"its own entrypoint":         {"create", `[{"route":"create","free":{"/image/entrypoint":"x"}}]`, "not the plugin's to fill"},
		"its own network":            {"create", `[{"route":"create","free":{"/network":"host"}}]`, "not the plugin's to fill"},
		"its own body":               {"create", `[{"route":"create","body":"{\"image\":\"evil\"}"}]`, "written by the host"},
		"its own environment":        {"create", `[{"route":"create","free":{"/env/LD_PRELOAD":"x"}}]`, "not the plugin's to fill"},
		"printenv | rev":             {"exec", `[{"route":"start","free":{"/argv":"printenv | rev"}}]`, "not the plugin's to fill"},
		"a command as a body":        {"exec", `[{"route":"start","body":"{\"argv\":[\"sh\",\"-c\",\"printenv | rev\"]}"}]`, "written by the host"},
		"a command in status":        {"status", `[{"route":"start"}]`, "cannot be used in status"},
		"a command in read":          {"read", `[{"route":"start"}]`, "cannot be used in read"},
		"the command twice":          {"exec", `[{"route":"start"},{"route":"start"}]`, "already sent once"},
		"create twice":               {"create", `[{"route":"create"},{"route":"create"}]`, "already sent once"},
		"create in status":           {"status", `[{"route":"create"}]`, "cannot be used in status"},
		"an unknown route":           {"status", `[{"route":"admin"}]`, "no such route"},
		"out of range":               {"status", `[{"route":"pid","free":{"/pid":100}}]`, "out of range"},
		"climbing in a path":         {"status", `[{"route":"page","params":{"p":".."}}]`, "plain segment"},
		"a path in a path":           {"status", `[{"route":"page","params":{"p":"../../sandboxes"}}]`, "plain segment"},
		"a header in a path":         {"status", `[{"route":"page","params":{"p":"x\r\nX-Key: y"}}]`, "line break"},
		"a header in a query":        {"status", `[{"route":"note","query":{"q":"x\r\nX: y"}}]`, "line break"},
		"another sandbox in a path":  {"status", `[{"route":"get","params":{"sandbox":"sandbox-foreign"}}]`, "not the plugin's to fill"},
		"another sandbox in a query": {"status", `[{"route":"note","query":{"sandbox":"sandbox-foreign"}}]`, "not the plugin's to fill"},
		"another session in a path":  {"status", `[{"route":"page","params":{"p":"sandbox-other1"}}]`, "another session's sandbox"},
		"another session in a query": {"status", `[{"route":"note","query":{"q":"id=sandbox%2Dother1"}}]`, "another session's sandbox"},
		"an unfiltered list":         {"list", `[{"route":"note","query":{"q":"all"}}]`, "can filter"},
		"a handle in sealed":         {"create", `[{"route":"create","env":"@H"}]`, "filled in by the host"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := stageOf(t, hostileManifest, map[string]string{"when": tc.op, "act": "open", "meta": tc.meta})
			if strings.HasPrefix(name, "another session") {
				// A second session of the same plugin, whose sandbox is known.
				q := s.request(strings.Repeat("b", 32))
				s.v.do(func(w http.ResponseWriter, r *http.Request, _ string) bool {
					if r.Method != http.MethodPost {
						return false
					}
					w.WriteHeader(http.StatusCreated)
					_, _ = io.WriteString(w, `{"id":"sandbox-other1"}`)
					return true
				})
				_, err := s.p.Create(s.ctx(), q)
				require.NoError(t, err)
				s.v.do(nil)
			}
			err := s.run(tc.op)
			if name == "the command twice" {
				// It runs: how it ended is not known, and the log says why.
				require.ErrorIs(t, err, errLost)
			} else {
				d := cause[*plugin.Denied](t, err)
				assert.Contains(t, d.Rule, tc.rule)
				assert.Equal(t, provider.PermissionDenied, provider.CodeOf(err))
			}
			for _, uri := range s.v.sent() {
				for _, bad := range []string{"..", "foreign", "evil", "admin", "other1"} {
					assert.NotContains(t, uri, bad, "must not be sent")
				}
			}
			s.finish(err)
		})
	}
	t.Run("denied and gone on", func(t *testing.T) {
		t.Parallel()
		s := stageOf(t, hostileManifest, map[string]string{"when": "status", "act": "open and go on", "meta": `[{"route":"admin"}]`})
		err := s.run("status")
		_ = cause[*plugin.Denied](t, err)
		s.finish(err)
	})
	t.Run("a failed create leaves nothing", func(t *testing.T) {
		t.Parallel()
		s := stageOf(t, hostileManifest, map[string]string{"when": "create", "act": "open", "meta": `[{"route":"create"},{"route":"admin"}]`})
		err := s.run("create")
		_ = cause[*plugin.Denied](t, err)
		assert.Equal(t, provider.AppliedNo, provider.AppliedOf(err))
		assert.Zero(t, s.v.count())
		s.finish(err)
	})
}

// TestHostileHandles: a plugin-driven plugin, allowed references, and its
// environment handle.
func TestHostileHandles(t *testing.T) {
	t.Parallel()
	m := drivenManifest()
	for name, tc := range map[string]struct{ meta, rule string }{
		"in a body":          {`[{"route":"create","body":"{\"image\":\"@H\"}"}]`, "handle"},
		"in another route":   {`[{"route":"note","query":{"q":"@H"}}]`, "handle"},
		"in a path":          {`[{"route":"page","params":{"p":"@H"}}]`, "handle"},
		"for another route":  {`[{"route":"create","env":"@H","body":"{}"},{"route":"pid","env":"@H","body":"{}"}]`, "takes no environment"},
		"where it is taken":  {`[{"route":"create","env":"@H","body":"{\"env\":{}}"}]`, "occupied"},
		"under another case": {`[{"route":"create","env":"@H","body":"{\"ENV\":{}}"}]`, "another spelling"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := stageOf(t, m, map[string]string{"when": "create", "act": "open", "meta": tc.meta})
			err := s.run("create")
			d := cause[*plugin.Denied](t, err)
			assert.Contains(t, d.Rule, tc.rule)
			s.finish(err)
		})
	}
	for name, metaDoc := range map[string]string{
		"replayed": `[{"route":"create","env":"@H","body":"{}"},{"route":"create","env":"@H","body":"{}"}]`,
		"altered":  `[{"route":"create","env":"@H0","body":"{}"}]`,
		"invented": `[{"route":"create","env":"env_0123456789abcdef0123456789abcdef","body":"{}"}]`,
		"empty":    `[{"route":"create","env":"env_","body":"{}"}]`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := stageOf(t, m, map[string]string{"when": "create", "act": "open", "meta": metaDoc})
			err := s.run("create")
			require.ErrorContains(t, err, "E_BADF")
			for _, b := range s.v.received() {
				assert.NotContains(t, b, "0123456789abcdef0123456789abcdef")
			}
			assert.Zero(t, s.v.count())
			s.finish(err)
		})
	}
	t.Run("in a later call", func(t *testing.T) {
		t.Parallel()
		s := stageOf(t, m, map[string]string{"driven": "yes", "when": "exec", "act": "keep handle"})
		sb := s.create()
		exit, err := s.exec(sb)
		require.NoError(t, err)
		assert.Equal(t, provider.ExitExited, exit.Kind)
		ref := sb.Ref()
		require.Contains(t, string(ref.Data), "env_", "the plugin kept its handle")
		p := s.load(withSettings(s, m, map[string]string{"when": "exec", "act": "open", "meta": `[{"route":"start","env":"@R","body":"{}"}]`}))
		again, err := p.Open(s.ctx(), ref)
		require.NoError(t, err)
		_, err = s.exec(again)
		require.ErrorContains(t, err, "E_BADF")
		s.finish(err)
	})
}

func withSettings(s *stage, manifest string, settings map[string]string) plugin.Config {
	cfg := s.config(packed(s.t, mustChameleon(s.t), manifest), settings)
	cfg.AllowPluginDriven = true
	return cfg
}

// TestHostileEchoes: a vendor, or a workload, repeats what must not be seen, and
// the plugin writes all it saw wherever it can: references, logs, errors,
// output, requests.
func TestHostileEchoes(t *testing.T) {
	t.Parallel()
	all := hostileValue + "|" + hostileKey + "|" + hostileToken
	b64 := base64.StdEncoding.EncodeToString([]byte(all))
	text := func(doc any) string {
		b, err := json.Marshal(doc)
		require.NoError(t, err)
		return string(b)
	}
	envelope := func(flags byte, msg string) string {
		head := [5]byte{flags}
		binary.BigEndian.PutUint32(head[1:], uint32(len(msg))) //nolint:gosec // short
		return string(head[:]) + msg
	}
	pieces := func(size int, frame func(string) string) string {
		out := ""
		for i := 0; i < len(all); i += size {
			out += frame(text(map[string]string{"x": all[i:min(i+size, len(all))]}))
		}
		return out
	}
	sse := func(doc string) string { return "data: " + doc + "\n\n" }
	var wide []byte
	for _, u := range utf16.Encode([]rune(`{"x":"` + all + `"}`)) {
		wide = binary.LittleEndian.AppendUint16(wide, u)
	}
	var gz strings.Builder
	z := gzip.NewWriter(&gz)
	_, err := io.WriteString(z, text(map[string]string{"x": all}))
	require.NoError(t, err)
	require.NoError(t, z.Close())
	type answer struct {
		status int
		header map[string]string
		body   string
	}
	for name, tc := range map[string]struct {
		route string
		answer
	}{
		"in a document":           {"note", answer{200, nil, text(map[string]any{"x": all, "y": []string{hostileValue}})}},
		"in an error":             {"note", answer{500, nil, text(map[string]any{"error": "sent " + all})}},
		"as text":                 {"note", answer{400, map[string]string{"Content-Type": "text/plain"}, "bad: " + all}},
		"in names":                {"note", answer{200, nil, text(map[string]any{all: 1})}},
		"in a header":             {"get", answer{200, map[string]string{"X-Info": hostileValue}, `{}`}},
		"in a redirect":           {"note", answer{302, map[string]string{"Location": "https://evil.example/" + hostileValue}, `{}`}},
		"base64":                  {"note", answer{200, nil, text(map[string]any{"x": b64})}},
		"cut over leaves":         {"note", answer{200, nil, text([]string{all[:9], all[9:17], all[17:23], all[23:31], all[31:41], all[41:]})}},
		"cut over frames":         {"sse", answer{200, nil, pieces(5, sse)}},
		"base64 in SSE":           {"sse", answer{200, nil, sse(text(map[string]string{"x": b64}))}},
		"bare base64 in SSE":      {"sse", answer{200, nil, sse(b64)}},
		"base64 in Connect":       {"connect", answer{200, nil, envelope(0, text(map[string]string{"x": b64})) + envelope(2, `{}`)}},
		"cut over Connect frames": {"connect", answer{200, nil, pieces(7, func(d string) string { return envelope(0, d) }) + envelope(2, `{}`)}},
		"in a Connect error end":  {"connect", answer{200, nil, envelope(2, text(map[string]any{"error": map[string]string{"message": all}}))}},
		"gzip":                    {"note", answer{200, map[string]string{"Content-Encoding": "gzip"}, gz.String()}},
		"gzip in disguise":        {"note", answer{500, map[string]string{"Content-Type": "text/plain"}, gz.String()}},
		"compressed envelope":     {"connect", answer{200, nil, envelope(1, gz.String()) + envelope(2, `{}`)}},
		"utf-16":                  {"note", answer{200, map[string]string{"Content-Type": "application/json; charset=utf-16le"}, string(wide)}},
		"utf-16 in disguise":      {"note", answer{500, map[string]string{"Content-Type": "text/plain"}, string(wide)}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			req := `[{"route":"` + tc.route + `","query":{"q":"x"}}]`
			if tc.route != "note" {
				req = `[{"route":"` + tc.route + `"}]`
			}
			s := stageOf(t, hostileManifest, map[string]string{"when": "status", "act": "smuggle", "meta": req})
			sb := s.create()
			s.v.do(func(w http.ResponseWriter, r *http.Request, _ string) bool {
				for k, v := range tc.header {
					w.Header().Set(k, v)
				}
				w.WriteHeader(tc.status)
				_, _ = io.WriteString(w, tc.body)
				return true
			})
			_, err := sb.Status(s.ctx())
			require.Error(t, err)
			s.corpus.Add("ref", append([]byte(sb.Ref().ID+" "), sb.Ref().Data...))
			for _, uri := range s.v.sent() {
				s.corpus.Add("sent", []byte(uri))
			}
			s.finish(err)
		})
	}
	t.Run("cut over polls", func(t *testing.T) {
		t.Parallel()
		s := stageOf(t, hostileManifest, map[string]string{"when": "status", "act": "smuggle", "meta": `[{"route":"note","query":{"q":"x"},"times":40}]`})
		sb := s.create()
		var n atomic.Int32
		s.v.do(func(w http.ResponseWriter, r *http.Request, _ string) bool {
			i := int(n.Add(1)-1) * 3 % len(all)
			_, _ = io.WriteString(w, text(map[string]string{"x": all[i:min(i+3, len(all))]}))
			return true
		})
		_, err := sb.Status(s.ctx())
		require.Error(t, err)
		s.corpus.Add("ref", append([]byte(sb.Ref().ID+" "), sb.Ref().Data...))
		s.finish(err)
	})
	t.Run("seventeen times", func(t *testing.T) {
		t.Parallel()
		s := stageOf(t, hostileManifest, map[string]string{"when": "status", "act": "open", "meta": `[{"route":"note","query":{"q":"x"},"times":40}]`})
		sb := s.create()
		s.v.do(func(w http.ResponseWriter, r *http.Request, _ string) bool {
			if !strings.Contains(r.URL.Path, "notes") {
				return false
			}
			_, _ = io.WriteString(w, text(map[string]string{"x": all}))
			return true
		})
		before := len(s.v.sent())
		_, err := sb.Status(s.ctx())
		d := cause[*plugin.Denied](t, err)
		assert.Contains(t, d.Rule, "more than 16")
		assert.Equal(t, 17, len(s.v.sent())-before)
		require.NoError(t, s.p.Destroy(s.ctx(), sb.Ref()), "what it made can still be removed")
		assert.Zero(t, s.v.count())
		s.finish(err)
	})
	t.Run("output and files go past", func(t *testing.T) {
		t.Parallel()
		s := stageOf(t, hostileManifest, nil)
		sb := s.create()
		_, err := s.exec(sb)
		require.NoError(t, err)
		r, _, err := sb.Files().Open(s.ctx(), "f")
		require.NoError(t, err)
		content, err := io.ReadAll(r)
		require.NoError(t, err)
		assert.Contains(t, string(content), reversed(hostileValue), "the caller gets it")
		s.finish(nil)
	})
	t.Run("forged output", func(t *testing.T) {
		t.Parallel()
		s := stageOf(t, hostileManifest, map[string]string{"when": "exec", "act": "emit"})
		err := s.run("exec")
		require.ErrorContains(t, err, "E_DENIED")
		s.finish(err)
	})
}

// TestHostileGuesses: the host tells a plugin that guesses a value, byte by byte
// through what it keeps, no few times and then nothing any more.
func TestHostileGuesses(t *testing.T) {
	t.Parallel()
	s := stageOf(t, hostileManifest, nil)
	sb := s.create()
	guess := func(act, text string) error {
		doc, err := json.Marshal(text)
		require.NoError(t, err)
		p := s.load(withSettings(s, hostileManifest, map[string]string{"when": "status", "act": act, "meta": string(doc)}))
		other, err := p.Create(s.ctx(), s.request(strings.Repeat("c", 32)))
		require.NoError(t, err)
		for range 20 {
			if _, err = other.Status(s.ctx()); err == nil || strings.Contains(fmt.Sprintf("%+v", err), "probed") {
				break
			}
			d := cause[*plugin.Denied](t, err)
			require.Contains(t, d.Rule, "holds a value")
		}
		assert.NotContains(t, string(other.Ref().Data), text)
		require.NoError(t, p.Destroy(s.ctx(), other.Ref()))
		return err
	}
	for _, act := range []string{"checkpoint", "checkpoint twice"} {
		err := guess(act, "is it "+hostileValue[:14])
		d := cause[*plugin.Denied](t, err)
		assert.Contains(t, d.Rule, "probed", "after a few wrong ones nothing is answered")
		s.corpus.AddError(act, err)
	}
	require.NoError(t, s.p.Destroy(s.ctx(), sb.Ref()))
	s.finish(nil)
}

// TestHostileRedirect: nothing goes to where a redirect leads.
func TestHostileRedirect(t *testing.T) {
	t.Parallel()
	var visits atomic.Int32
	evil := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { visits.Add(1) }))
	t.Cleanup(evil.Close)
	s := stageOf(t, hostileManifest, nil)
	s.v.do(func(w http.ResponseWriter, r *http.Request, _ string) bool {
		if r.Method != http.MethodPost {
			return false
		}
		http.Redirect(w, r, evil.URL, http.StatusTemporaryRedirect)
		return true
	})
	err := s.run("create")
	require.Error(t, err)
	assert.Zero(t, visits.Load())
	assert.Equal(t, provider.AppliedUnknown, provider.AppliedOf(err))
	s.finish(err)
}

// TestPluginDriven: without allowPluginDriven no reference, with it they work,
// and Describe says what that means.
func TestPluginDriven(t *testing.T) {
	t.Parallel()
	s := &stage{t: t, v: newVendor(t)}
	cfg := s.config(packed(t, mustChameleon(t), drivenManifest()), map[string]string{"driven": "yes"})
	s.p = s.load(cfg)
	assert.Empty(t, s.p.Describe().Transports)
	assert.Contains(t, strings.Join(s.p.Describe().OpenEnds, "\n"), "plugin-driven")
	_, err := s.p.Create(s.ctx(), s.request(sessionA))
	require.ErrorIs(t, err, provider.ErrUnsupported)
	assert.Contains(t, fmt.Sprintf("%+v", err), "allowPluginDriven")
	assert.Empty(t, s.v.sent())
	s.mu.Lock()
	assert.Zero(t, s.seen.Len(), "no code of the plugin may have run")
	s.mu.Unlock()

	cfg.AllowPluginDriven = true
	s.p = s.load(cfg)
	d := s.p.Describe()
	require.NotEmpty(t, d.Transports)
	assert.Contains(t, strings.Join(d.OpenEnds, "\n"), "could obtain values")
	for _, tr := range d.Transports {
		assert.Contains(t, tr.Exposure, "plugin")
	}
	s.create()
	got := strings.Join(s.v.received(), "\n")
	assert.Contains(t, got, `"TOKEN":"`+hostileValue+`"`)
	s.finish(nil)
}
