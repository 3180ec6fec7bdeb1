package egress_test

import (
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sbxhost/sbxhost/abi"
	"github.com/sbxhost/sbxhost/plugin/internal/egress"
	"github.com/sbxhost/sbxhost/provider"
)

// TestSlots renders one slot from every source in every shape.
func TestSlots(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		role, slots, want string
		errno             abi.Errno
		change            func(*provider.CreateRequest)
		exec              func(*egress.Exec)
	}{
		"environment as map":        {"create", `{"pointer":"/e","from":"environment","shape":"map"}`, `{"e":{"PLAIN":"p","TOKEN":"` + canary + `"}}`, 0, nil, nil},
		"environment without shape": {"create", `{"pointer":"/e","from":"environment"}`, `{"e":{"PLAIN":"p","TOKEN":"` + canary + `"}}`, 0, nil, nil},
		"environment as nv":         {"create", `{"pointer":"/e","from":"environment","shape":"nv"}`, `{"e":[{"name":"PLAIN","value":"p"},{"name":"TOKEN","value":"` + canary + `"}]}`, 0, nil, nil},
		"nv with keys and extra":    {"create", `{"pointer":"/e","from":"environment","shape":"nv","nameKey":"k","valueKey":"v","extra":{"secret":true,"n":1,"s":"x"}}`, `{"e":[{"k":"PLAIN","v":"p","secret":true,"n":1,"s":"x"},{"k":"TOKEN","v":"` + canary + `","secret":true,"n":1,"s":"x"}]}`, 0, nil, nil},
		"environment as kv":         {"create", `{"pointer":"/a/b/e","from":"environment","shape":"kv"}`, `{"a":{"b":{"e":["PLAIN=p","TOKEN=` + canary + `"]}}}`, 0, nil, nil},
		"empty map":                 {"create", `{"pointer":"/l","from":"labels"},{"pointer":"/x","value":1}`, `{"l":{},"x":1}`, 0, func(q *provider.CreateRequest) { q.Labels = nil }, nil},
		"empty map left out":        {"create", `{"pointer":"/l","from":"labels","omitEmpty":true},{"pointer":"/x","value":1}`, `{"x":1}`, 0, func(q *provider.CreateRequest) { q.Labels = nil }, nil},
		"labels":                    {"create", `{"pointer":"/l","from":"labels","shape":"kv"}`, `{"l":["sbxhost.attempt=a1","sbxhost.owner=owner-1","sbxhost.session=` + session + `","team=core"]}`, 0, nil, nil},
		"owner labels":              {"create", `{"pointer":"/l","from":"ownerLabels"}`, `{"l":{"sbxhost.owner":"owner-1","sbxhost.session":"` + session + `"}}`, 0, nil, nil},
		"image":                     {"create", `{"pointer":"/i","from":"image"}`, `{"i":"debian"}`, 0, nil, nil},
		"image by default":          {"create", `{"pointer":"/i","from":"image","default":"config.size"}`, `{"i":7}`, 0, func(q *provider.CreateRequest) { q.Image = "" }, nil},
		"image absent":              {"create", `{"pointer":"/i","from":"image"}`, `{}`, 0, func(q *provider.CreateRequest) { q.Image = "" }, nil},
		"names":                     {"create", `{"pointer":"/n","from":"name"},{"pointer":"/s","from":"session"},{"pointer":"/a","from":"attempt"}`, `{"n":"sbxhost-` + session + `","s":"` + session + `","a":"a1"}`, 0, nil, nil},
		"times and sizes": {"create", `{"pointer":"/t","from":"ttlSeconds"},{"pointer":"/c","from":"cpus"},{"pointer":"/m","from":"memoryMiB"},{"pointer":"/d","from":"diskMiB"}`, `{"t":60,"c":1.5,"m":256,"d":1024}`, 0, func(q *provider.CreateRequest) {
			q.Resources = provider.Resources{CPUs: 1.5, MemoryMiB: 256, DiskMiB: 1024}
		}, nil},
		"unset sizes":           {"create", `{"pointer":"/c","from":"cpus"},{"pointer":"/p","from":"ports"}`, `{}`, 0, nil, nil},
		"network and ports":     {"create", `{"pointer":"/n","from":"network"},{"pointer":"/p","from":"ports"}`, `{"n":"default","p":[80,443]}`, 0, func(q *provider.CreateRequest) { q.Ports = []int{80, 443} }, nil},
		"settings":              {"create", `{"pointer":"/s","from":"config.size"},{"pointer":"/f","from":"config.flag"},{"pointer":"/t","from":"config.tag"}`, `{"s":7,"f":true}`, 0, nil, nil},
		"constants":             {"create", `{"pointer":"/a","value":"x"},{"pointer":"/b","value":1.5},{"pointer":"/c","value":false},{"pointer":"/d","value":null}`, `{"a":"x","b":1.5,"c":false,"d":null}`, 0, nil, nil},
		"array parent":          {"create", `{"pointer":"/a/0/n","from":"name"},{"pointer":"/a/0/i","from":"image"},{"pointer":"/a/1","value":"x"}`, `{"a":[{"n":"sbxhost-` + session + `","i":"debian"},"x"]}`, 0, nil, nil},
		"escaped pointer":       {"create", `{"pointer":"/a~1b/c~0d","from":"image"}`, `{"a/b":{"c~d":"debian"}}`, 0, nil, nil},
		"argv":                  {"exec", `{"pointer":"/c","from":"exec.argv0"},{"pointer":"/a","from":"exec.args"},{"pointer":"/v","from":"exec.argv"}`, `{"c":"echo","a":["hi"],"v":["echo","hi"]}`, 0, nil, nil},
		"a shell":               {"exec", `{"pointer":"/v","from":"exec.argv"},{"pointer":"/s","from":"exec.shell"}`, `{"v":["/bin/sh","-c","a | b"],"s":"a | b"}`, 0, nil, func(e *egress.Exec) { e.Args, e.Shell = nil, "a | b" }},
		"words as shell":        {"exec", `{"pointer":"/s","from":"exec.shell"}`, `{"s":"'a b' 'it'\\''s' '' x=1 '$HOME' ';'"}`, 0, nil, func(e *egress.Exec) { e.Args = []string{"a b", "it's", "", "x=1", "$HOME", ";"} }},
		"exec fields":           {"exec", `{"pointer":"/d","from":"exec.dir"},{"pointer":"/u","from":"exec.user"},{"pointer":"/ms","from":"exec.timeoutMs"},{"pointer":"/s","from":"exec.timeoutSeconds"},{"pointer":"/i","from":"exec.id"}`, `{"d":"/w","u":"bob","ms":1500,"s":2,"i":"e1"}`, 0, nil, func(e *egress.Exec) { e.User, e.TimeoutMs = "bob", 1500 }},
		"exec environment":      {"exec", `{"pointer":"/e","from":"exec.environment","shape":"map"}`, `{"e":{"L":"1","TOKEN":"` + canary + `","MINE":"m1ne-value"}}`, 0, nil, func(e *egress.Exec) { e.Secrets = values("MINE", "m1ne-value") }},
		"input":                 {"exec", `{"pointer":"/a","from":"exec.stdin","encoding":"base64"},{"pointer":"/b","from":"exec.stdin"}`, `{"a":"aGk=","b":"hi"}`, 0, nil, func(e *egress.Exec) { e.Input = []byte("hi") }},
		"input that is no text": {"exec", `{"pointer":"/b","from":"exec.stdin"}`, ``, abi.ErrnoInvalid, nil, func(e *egress.Exec) { e.Input = []byte{0xff} }},
		"no command":            {"exec", `{"pointer":"/c","from":"exec.argv0"}`, ``, abi.ErrnoState, nil, func(e *egress.Exec) { e.Args = nil }},
		"value that is no text": {"create", `{"pointer":"/e","from":"environment"}`, ``, abi.ErrnoInvalid, func(q *provider.CreateRequest) { q.Environment["BAD"] = "\xff\xfe" }, nil},
		"awkward value":         {"create", `{"pointer":"/e","from":"environment"}`, fmt.Sprintf(`{"e":{"A":%q,"PLAIN":"p","TOKEN":"%s"}}`, "a\"\n<&>é", canary), 0, func(q *provider.CreateRequest) { q.Environment["A"] = "a\"\n<&>é" }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			route := `{"id":"r","role":"create","origin":"api","method":"POST","path":"/r","request":{"body":"json","slots":[` + tc.slots + `]},"response":{"body":"json","sandbox":"/id"}}`
			if tc.role == "exec" {
				route = `{"id":"r","role":"exec","origin":"data","method":"POST","path":"/r","request":{"body":"json","slots":[` + tc.slots + `]}}`
			}
			m := manifest(t, "sealed", route)
			m.Protected.Create = append(m.Protected.Create, "r")
			m.Protected.Exec = append(m.Protected.Exec, "r")
			w := newWorld(t, m, always(200, `{"id":"sb-000001"}`))
			q := request(session)
			q.Protected = values("TOKEN", canary)
			if tc.change != nil {
				tc.change(&q)
			}
			sandbox, op := "", abi.OpCreate
			if tc.role == "exec" {
				sandbox, op = "sb-000001", abi.OpExec
			}
			s, err := w.b.Session(q, q.Protected, sandbox)
			require.NoError(t, err)
			e := command(io.Discard, io.Discard)
			if tc.exec != nil {
				tc.exec(e)
			}
			if tc.role == "exec" {
				w.b.Capture(s, "tok", token)
			}
			_, err = try(t, w.call(op, s, e, nil), meta("r", ""))
			if tc.errno != 0 {
				isErrno(t, err, tc.errno)
				return
			}
			require.NoError(t, err)
			assert.JSONEq(t, tc.want, w.last().Body)
		})
	}
}

// TestOccupiedPointers: a plugin-built body cannot prepare the place where the
// environment goes.
func TestOccupiedPointers(t *testing.T) {
	t.Parallel()
	m := manifest(t, "plugin-driven", `{"id":"p","role":"create","origin":"api","method":"POST","path":"/p","request":{"body":"plugin","environment":{"pointer":"/config/env","shape":"map"}},"response":{"body":"json","sandbox":"/id"}}`)
	m.Protected.Create = []string{"p"}
	for name, tc := range map[string]struct{ body, want, rule string }{
		"free":               {body: `{"image":"x"}`, want: `{"image":"x","config":{"env":{"PLAIN":"p","TOKEN":"` + canary + `"}}}`},
		"parent there":       {body: `{"config":{"a":1}}`, want: `{"config":{"a":1,"env":{"PLAIN":"p","TOKEN":"` + canary + `"}}}`},
		"occupied":           {body: `{"config":{"env":{}}}`, rule: "occupied"},
		"occupied by null":   {body: `{"config":{"env":null}}`, rule: "occupied"},
		"case variant":       {body: `{"config":{"ENV":{}}}`, rule: "another spelling"},
		"Kelvin sign":        {body: `{"config":{"env":1},"x":"\u212a"}`, rule: "occupied"},
		"parent case":        {body: `{"Config":{}}`, rule: "another spelling"},
		"parent is a string": {body: `{"config":"x"}`, rule: "not an object"},
		"parent is an array": {body: `{"config":[]}`, rule: "does not fit"},
		"duplicate members":  {body: `{"config":{"a":1,"a":2}}`, rule: ""},
		"no JSON":            {body: `config=1`, rule: ""},
		"trailing data":      {body: `{} {}`, rule: ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, m, always(200, `{"id":"sb-000001"}`))
			c := w.call(abi.OpCreate, w.session(session), nil, nil)
			_, err := c.Open(t.Context(), []byte(meta("p", `,"env":"`+c.NewHandle()+`"`)), []byte(tc.body))
			switch {
			case tc.want != "":
				require.NoError(t, err)
				assert.JSONEq(t, tc.want, w.last().Body)
				return
			case tc.rule != "":
				denied(t, err, tc.rule)
			default:
				isErrno(t, err, abi.ErrnoInvalid)
			}
			assert.Empty(t, w.requests())
		})
	}
}

// TestUploads: raw and multipart content comes from the caller.
func TestUploads(t *testing.T) {
	t.Parallel()
	multi := `{"id":"multi","role":"file","origin":"data","method":"POST","path":"/m","request":{"body":"multipart","parts":[{"name":"path","from":"file.path"},{"name":"kind","value":"k"},{"name":"file","from":"file.content"}]}}`
	inline := `{"id":"inline","role":"file","origin":"data","method":"POST","path":"/i","request":{"body":"json","slots":[{"pointer":"/p","from":"file.path"},{"pointer":"/m","from":"file.mode"},{"pointer":"/c","from":"file.content","encoding":"base64"}]}}`
	w := newWorld(t, manifest(t, "sealed", writeRoute, multi, inline), nil)
	s := w.running(session)
	put := func(route string) received {
		f := &egress.File{Path: "/w/f", Mode: 0o640, Content: strings.NewReader("content"), Size: -1}
		_, err := try(t, w.call(abi.OpWrite, s, nil, f), meta(route, ""))
		require.NoError(t, err)
		return w.last()
	}
	r := put("write")
	assert.Equal(t, "content", r.Body)
	assert.Equal(t, "/data/sb-000001/files?path=%2Fw%2Ff", r.URI)
	r = put("multi")
	assert.Contains(t, r.Header.Get("Content-Type"), "multipart/form-data")
	assert.Contains(t, r.Body, `name="file"; filename="f"`)
	assert.Contains(t, r.Body, "\r\n\r\ncontent\r\n")
	assert.Contains(t, r.Body, "\r\n\r\n/w/f\r\n")
	assert.JSONEq(t, `{"p":"/w/f","m":"0640","c":"Y29udGVudA=="}`, put("inline").Body)

	c := w.call(abi.OpWrite, s, nil, &egress.File{Path: "/w/f", Content: strings.NewReader(strings.Repeat("x", 6<<20)), Size: -1})
	_, err := try(t, c, meta("inline", ""))
	isErrno(t, err, abi.ErrnoTooLarge)
}
