package spec_test

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sbxhost/sbxhost/plugin/internal/spec"
)

func example(t testing.TB) string {
	t.Helper()
	doc, err := os.ReadFile("testdata/e2b.json")
	require.NoError(t, err)
	return string(doc)
}

func TestExampleParses(t *testing.T) {
	t.Parallel()
	m, err := spec.Parse([]byte(example(t)))
	require.NoError(t, err)
	assert.Equal(t, spec.Sealed, m.Kind)
	assert.Equal(t, int64(24*3600*1000), m.Exec.MaxTimeoutMillis)
	r, ok := m.Route("create")
	require.True(t, ok)
	assert.Equal(t, "/sandboxID", r.Response.Sandbox)
	assert.Equal(t, "config.template", r.Request.Slots[0].Default)
	assert.True(t, m.Origins["envd"].PerSandbox())
	assert.True(t, m.Protected.Any())
}

// TestRefusals changes one thing in the valid example and expects one problem at
// the right place.
func TestRefusals(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ from, to, pointer, message string }{
		"other version":          {`"abi":"sbx_v1"`, `"abi":"sbx_v2"`, "/abi", "no other version"},
		"name of a built-in":     {`"name":"e2b"`, `"name":"docker"`, "/name", "built-in"},
		"bad name":               {`"name":"e2b"`, `"name":"E2B"`, "/name", "lower-case"},
		"unknown kind":           {`"kind":"sealed"`, `"kind":"trusted"`, "/kind", "sealed"},
		"unknown field":          {`"kind":"sealed"`, `"kind":"sealed","trusted":true`, "/trusted", "unknown field"},
		"case variant":           {`"kind":"sealed"`, `"Kind":"sealed"`, "/Kind", "unknown field"},
		"duplicate":              {`"kind":"sealed"`, `"kind":"sealed","kind":"sealed"`, "", "duplicate"},
		"unknown operation":      {`"operations":["create"`, `"operations":["create","root"`, "/operations/1", "unknown operation"},
		"no destroy":             {`"list","destroy"]`, `"list"]`, "/operations", "destroy is missing"},
		"no list":                {`"list","destroy"]`, `"destroy"]`, "/operations", "list is missing"},
		"plain http":             {`https://api.e2b.app`, `http://api.e2b.app`, "/origins/api/url", "https"},
		"user info":              {`https://api.e2b.app`, `https://u:p@api.e2b.app`, "/origins/api/url", "user information"},
		"sandbox as domain":      {`https://49983-{sandbox}.e2b.app`, `https://{sandbox}.app`, "/origins/envd/url", "first label"},
		"sandbox as suffix":      {`https://49983-{sandbox}.e2b.app`, `https://a.{sandbox}.app`, "/origins/envd/url", "first label"},
		"sandbox twice":          {`https://49983-{sandbox}.e2b.app`, `https://{sandbox}-{sandbox}.e2b.app`, "/origins/envd/url", "once"},
		"credential to sandbox":  {`{"name":"X-Access-Token","capture":"envd"}`, `{"name":"X-Access-Token","credential":"apiKey"}`, "/origins/envd/headers/0/credential", "fixed or configured"},
		"capture elsewhere":      {`"captures":{"envd":{"scope":"session"}}`, `"captures":{"envd":{"scope":"galaxy"}}`, "/captures/envd/scope", "session, plugin"},
		"unknown credential":     {`"credential":"apiKey"`, `"credential":"other"`, "/origins/api/headers/0/credential", "no credential"},
		"host header":            {`"name":"X-API-Key"`, `"name":"Host"`, "/origins/api/headers/0/name", "transport's"},
		"cookie header":          {`"name":"X-API-Key"`, `"name":"cookie"`, "/origins/api/headers/0/name", "transport's"},
		"header line break":      {`"value":"Basic dXNlcjo="`, `"value":"Basic\r\nX: y"`, "/origins/envd/headers/1", "line breaks"},
		"header twice":           {`{"name":"Connect-Protocol-Version","value":"1"}`, `{"name":"authorization","value":"1"}`, "/origins/envd/headers/2/name", "twice"},
		"route id twice":         {`"id":"get"`, `"id":"create"`, "/routes/1/id", "twice"},
		"unknown origin":         {`"id":"get","role":"control","origin":"api"`, `"id":"get","role":"control","origin":"x"`, "/routes/1/origin", "no origin"},
		"dot dot in path":        {`"path":"/sandboxes/{sandbox}",` + "\n" + `   "response":{"body":"json","capture"`, `"path":"/sandboxes/../{sandbox}",` + "\n" + `   "response":{"body":"json","capture"`, "/routes/1/path", "'..'"},
		"query in path":          {`"path":"/v2/sandboxes"`, `"path":"/v2/sandboxes?all=1"`, "/routes/2/path", "query"},
		"undeclared parameter":   {`"path":"/v2/sandboxes"`, `"path":"/v2/{any}"`, "/routes/2/path", "not declared"},
		"free under a slot":      {`"free":[{"pointer":"/process/selector/pid","type":"integer"}]}}`, `"free":[{"pointer":"/input/stdin/x","type":"integer"}]}}`, "/routes/5/request/free/0/pointer", "collides"},
		"free above a slot":      {`"free":[{"pointer":"/process/selector/pid","type":"integer"}]}}`, `"free":[{"pointer":"/input","type":"integer"}]}}`, "/routes/5/request/free/0/pointer", "collides"},
		"free case variant":      {`"free":[{"pointer":"/process/selector/pid","type":"integer"}]}}`, `"free":[{"pointer":"/INPUT/Stdin","type":"integer"}]}}`, "/routes/5/request/free/0/pointer", "collides"},
		"slot twice":             {`{"pointer":"/metadata","from":"labels"}`, `{"pointer":"/envVars","from":"labels"}`, "/routes/0/request/slots/2/pointer", "collides"},
		"free text in sealed":    {`{"pointer":"/process/selector/pid","type":"integer"}]}}`, `{"pointer":"/process/cmd","type":"string","maxLength":64}]}}`, "/routes/5/request/free/0", "must be an enum"},
		"unbounded free":         {`"free":{"type":"string","maxLength":512}`, `"free":{"type":"string"}`, "/routes/2/query/nextToken/free/maxLength", "between"},
		"environment in query":   {`"metadata":{"from":"ownerLabels"}`, `"metadata":{"from":"environment"}`, "/routes/2/query/metadata/from", "role create"},
		"plugin body in sealed":  {`"request":{"body":"connect"`, `"request":{"body":"plugin"`, "/routes/4/request/body", "plugin-driven"},
		"exec without sandbox":   {`"id":"start","role":"exec","origin":"envd"`, `"id":"start","role":"exec","origin":"api"`, "/routes/4", "must name the sandbox"},
		"exec output to guest":   {`"response":{"body":"connect","payload":[`, `"response":{"body":"connect","Payload":[`, "/routes/4/response/Payload", "unknown field"},
		"protected of control":   {`"protectedTransport":{"create":["create"]`, `"protectedTransport":{"create":["get"]`, "/protectedTransport/create/0", "role control"},
		"protected unknown":      {`"exec":["start"]}`, `"exec":["nope"]}`, "/protectedTransport/exec/0", "no route"},
		"protected unlisted":     {`"metadata":{"from":"ownerLabels"},`, ``, "/protectedTransport", "could not be found"},
		"unknown source":         {`"from":"ttlSeconds"`, `"from":"secrets"`, "/routes/0/request/slots/3/from", "unknown host value"},
		"file value in exec":     {`"from":"exec.dir"`, `"from":"file.path"`, "/routes/4/request/slots/2/from", "role file"},
		"set-cookie to guest":    {`"headers":["X-Next-Token"]`, `"headers":["Set-Cookie"]`, "/routes/2/response/headers/0", "cannot be shown"},
		"retry of success":       {`"status":[429]`, `"status":[200]`, "/routes/0/retry/status/0", "400"},
		"live stdin, no input":   {`"exec","input","signal"`, `"exec","signal"`, "/exec/stdin", "input"},
		"environment as default": {`"default":"config.template"`, `"default":"environment"`, "/routes/0/request/slots/0/default", "cannot stand in"},
		"free path, no sandbox":  {`"path":"/sandboxes/{sandbox}"},`, `"path":"/sandboxes/{any}","params":{"any":{"free":{"type":"string","maxLength":64}}}},`, "/routes/3/params/any/free", "another session's sandbox"},
		"free query, no sandbox": {`"path":"/sandboxes/{sandbox}"},`, `"path":"/sandboxes","query":{"id":{"free":{"type":"string","maxLength":64}}}},`, "/routes/3/query/id/free", "another session's sandbox"},
		"free query in create":   {`"method":"POST","path":"/sandboxes",`, `"method":"POST","path":"/sandboxes","query":{"image":{"free":{"type":"string","maxLength":64}}},`, "/routes/0/query/image/free", "must be an enum"},
		"free query in exec":     {`"path":"/process.Process/Start",`, `"path":"/process.Process/Start","query":{"cmd":{"free":{"type":"string","maxLength":64}}},`, "/routes/4/query/cmd/free", "must be an enum"},
		"unfiltered list":        {`"metadata":{"from":"ownerLabels"},`, ``, "/routes/2", "anybody's"},
		"json output to guest": {`"response":{"body":"connect","payload":[
     {"pointer":"/event/data/stdout","encoding":"base64","to":"stdout"},
     {"pointer":"/event/data/stderr","encoding":"base64","to":"stderr"}]}}`, `"response":{"body":"json"}}`, "/routes/4/response/payload", "where its output is"},
		"no sandbox in the reply":    {`"sandbox":"/sandboxID",`, ``, "/protectedTransport", "response.sandbox"},
		"plugin capture per sandbox": {`"captures":{"envd":{"scope":"session"}}`, `"captures":{"envd":{"scope":"plugin"}}`, "/origins/envd/headers/0/capture", "fixed or configured"},
		"bad condition":              {`"encoding":"base64","to":"stdout"}`, `"encoding":"base64","to":"stdout","when":"x=1"}`, "/routes/4/response/payload/0/when", "JSON pointer"},
		"environment as a part":      {`{"name":"file","from":"file.content"}`, `{"name":"file","from":"exec.environment"}`, "/routes/8/request/parts/0/from", "json or connect body"},
		"wrong type":                 {`"version":"0.1.0"`, `"version":1`, "/version", "string"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			doc := example(t)
			require.Equal(t, 1, min(1, strings.Count(doc, tc.from)), "the example no longer holds %s", tc.from)
			_, err := spec.Parse([]byte(strings.Replace(doc, tc.from, tc.to, 1)))
			var e *spec.Error
			require.ErrorAs(t, err, &e)
			var got []string
			for _, p := range e.Problems {
				got = append(got, p.Pointer+": "+p.Message)
				if p.Pointer == tc.pointer && strings.Contains(p.Message, tc.message) {
					return
				}
			}
			t.Fatalf("no problem at %s with %q; got:\n%s", tc.pointer, tc.message, strings.Join(got, "\n"))
		})
	}
}

func TestProblemsAreListedTogether(t *testing.T) {
	t.Parallel()
	_, err := spec.Parse([]byte(`{"abi":"x","name":"?","version":"","kind":"?","operations":[]}`))
	var e *spec.Error
	require.ErrorAs(t, err, &e)
	assert.GreaterOrEqual(t, len(e.Problems), 8)
}

// FuzzParse: no input may crash the parser, and a manifest with problems is never
// returned.
func FuzzParse(f *testing.F) {
	f.Add([]byte(example(f)))
	f.Add([]byte(`{}`))
	f.Fuzz(func(t *testing.T, doc []byte) {
		m, err := spec.Parse(doc)
		if (m == nil) == (err == nil) {
			t.Fatalf("manifest %v with error %v", m, err)
		}
		if m != nil && m.Kind == spec.Sealed {
			for _, r := range m.Routes {
				for _, fr := range r.Request.Free {
					if fr.Type == "string" && len(fr.Enum) == 0 {
						t.Fatal("free text in a sealed body")
					}
				}
			}
		}
	})
}
