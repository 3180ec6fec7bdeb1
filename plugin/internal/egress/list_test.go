package egress_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sbxhost/sbxhost/abi"
	"github.com/sbxhost/sbxhost/plugin/internal/egress"
	"github.com/sbxhost/sbxhost/provider"
)

func sandboxes(items ...map[string]any) string {
	b, err := json.Marshal(map[string]any{"items": items, "next": "t"})
	if err != nil {
		panic(err)
	}
	return string(b)
}

func item(id, of string, more map[string]any) map[string]any {
	m := map[string]any{"id": id, "labels": map[string]any{provider.LabelOwner: of, provider.LabelSession: session}, "state": "running"}
	for k, v := range more {
		m[k] = v
	}
	return m
}

// TestListsAreFiltered: a plugin sees the owner's sandboxes and nobody else's,
// and the host remembers which those were.
func TestListsAreFiltered(t *testing.T) {
	t.Parallel()
	w := newWorld(t, manifest(t, "sealed"), always(200, sandboxes(
		item("sb-000001", owner, nil), item("sb-000002", "someone-else", nil), item("sb-000003", owner+"x", nil),
		map[string]any{"id": "sb-000004"}, map[string]any{"id": "sb-000005", "labels": nil}, map[string]any{"id": "sb-000006", "labels": provider.LabelOwner},
		map[string]any{"id": "sb-000007", "other": map[string]any{provider.LabelOwner: owner}}, item("sb-000008", owner, map[string]any{"state": "gone"}),
	)))
	c := w.call(abi.OpList, nil, nil, nil)
	_, asked := c.Listed()
	assert.False(t, asked)
	got, err := try(t, c, meta("list", ""))
	require.NoError(t, err)
	for _, foreign := range []string{"sb-000002", "sb-000003", "sb-000004", "sb-000005", "sb-000006", "sb-000007"} {
		assert.NotContains(t, got, foreign)
	}
	assert.Equal(t, "t", decoded(t, got)["next"])
	listed, asked := c.Listed()
	assert.True(t, asked)
	assert.Len(t, listed, 2)
	assert.Equal(t, owner, listed["sb-000001"][provider.LabelOwner])
	assert.Contains(t, listed, "sb-000008")
	again, _ := w.call(abi.OpList, nil, nil, nil).Listed()
	assert.Empty(t, again, "what one call saw proves nothing in the next")
}

// TestListsShowNoEnvironment: a vendor's list repeats what sandboxes were created
// with, values of sessions this process never had included.
func TestListsShowNoEnvironment(t *testing.T) {
	t.Parallel()
	unknown := "a-value-nobody-here-knows-9K"
	w := newWorld(t, manifest(t, "sealed"), always(200, sandboxes(
		item("sb-000001", owner, map[string]any{"env": map[string]any{"TOKEN": unknown}}),
		item("sb-000002", owner, map[string]any{"note": canary}),
	)))
	s := w.session("ffffffffffffffffffffffffffffffff")
	c := w.call(abi.OpList, nil, nil, nil)
	got, err := try(t, c, meta("list", ""))
	require.NoError(t, err)
	assert.NotContains(t, got, unknown)
	clean(t, "a list sees the values of every session", got)
	_ = s
}

func TestListReplies(t *testing.T) {
	t.Parallel()
	m := manifest(t, "sealed")
	for name, tc := range map[string]struct {
		body, want string
		errno      abi.Errno
	}{
		"empty":                {body: `{"items":[]}`, want: `{"items":[]}`},
		"page without list":    {body: `{"next":"x"}`, want: `{"next":"x"}`},
		"null":                 {body: `{"items":null}`, want: `{"items":null}`},
		"not a list":           {body: `{"items":{}}`, errno: abi.ErrnoInvalid},
		"a list of texts":      {body: `{"items":["sb-000001"]}`, want: `{"items":[]}`},
		"what else it holds":   {body: `{"items":[],"all":[{"id":"sb-000002"}],"by":{"sb-000002":{}},"n":1}`, want: `{"items":[],"n":1}`},
		"bare list":            {body: `[{"id":"sb-000002"}]`, errno: abi.ErrnoInvalid},
		"ours without an id":   {body: sandboxes(map[string]any{"labels": map[string]any{provider.LabelOwner: owner}}), errno: abi.ErrnoInvalid},
		"ours with a bad id":   {body: sandboxes(item("../x", owner, nil)), errno: abi.ErrnoInvalid},
		"ours with number ids": {body: `{"items":[{"id":1,"labels":{"` + provider.LabelOwner + `":"` + owner + `"}}]}`, errno: abi.ErrnoInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, m, always(200, tc.body))
			got, err := try(t, w.call(abi.OpList, nil, nil, nil), meta("list", ""))
			if tc.errno != 0 {
				isErrno(t, err, tc.errno)
				assert.Empty(t, got)
				return
			}
			require.NoError(t, err)
			assert.JSONEq(t, tc.want, got)
		})
	}
}

// TestListsUseListRoutes: in a list no other reply is shown, not even an error's.
func TestListsUseListRoutes(t *testing.T) {
	t.Parallel()
	m := manifest(t, "plugin-driven", plainRoute, `{"id":"every","role":"control","origin":"api","method":"POST","path":"/every","response":{"body":"json"}}`, `{"id":"login","role":"control","origin":"api","method":"POST","path":"/login","response":{"body":"json","capture":[{"pointer":"/t","name":"shared"}]}}`)
	w := newWorld(t, m, always(200, `{"id":"sb-000002"}`))
	_, err := try(t, w.call(abi.OpList, nil, nil, nil), meta("every", ""))
	denied(t, err, "can filter")
	_, err = try(t, w.call(abi.OpList, nil, nil, nil), meta("create", ""))
	denied(t, err, "cannot be used in list")
	_, err = try(t, w.call(abi.OpList, nil, nil, nil), meta("get", ""))
	require.Error(t, err)
	w.then(always(200, `{"t":"sh4red-plugin-token-77"}`))
	got, err := try(t, w.call(abi.OpList, nil, nil, nil), meta("login", ""))
	require.NoError(t, err)
	assert.JSONEq(t, `{"t":"[captured:shared]"}`, got)
	w.then(always(500, `{"id":"sb-000002"}`))
	got, err = try(t, w.call(abi.OpList, nil, nil, nil), meta("login", ""))
	require.NoError(t, err)
	assert.Empty(t, got)
	c := w.b.Call(egress.CallConfig{Op: abi.OpList})
	defer c.Close()
	w.then(always(200, `{"items":[]}`))
	_, err = try(t, c, meta("list", ""))
	isErrno(t, err, abi.ErrnoState) // without an owner nothing can be proved
}

// TestUndeclaredItems: without a declaration the one list of the reply is taken,
// labels wherever they stand, and the id under its name in a create reply.
func TestUndeclaredItems(t *testing.T) {
	t.Parallel()
	m := manifest(t, "sealed", `{"id":"ls","role":"control","origin":"api","method":"GET","path":"/ls","query":{"labels":{"from":"ownerLabels"}},"response":{"body":"json"}}`)
	kv := []any{map[string]any{"name": provider.LabelOwner, "value": owner}}
	for name, tc := range map[string]struct {
		doc    any
		listed []string
		errno  abi.Errno
	}{
		"bare":          {doc: []any{item("sb-000001", owner, nil), item("sb-000002", "x", nil)}, listed: []string{"sb-000001"}},
		"in an object":  {doc: map[string]any{"data": []any{item("sb-000001", owner, nil)}, "n": 1}, listed: []string{"sb-000001"}},
		"name/value":    {doc: []any{map[string]any{"id": "sb-000001", "tags": kv}}, listed: []string{"sb-000001"}},
		"one deeper":    {doc: []any{map[string]any{"id": "sb-000001", "config": map[string]any{"metadata": map[string]any{provider.LabelOwner: owner}}}}, listed: []string{"sb-000001"}},
		"another's id":  {doc: []any{item("sb-000001", owner, map[string]any{"parent": "sb-000002"})}, listed: []string{"sb-000001"}},
		"several lists": {doc: map[string]any{"a": []any{}, "b": []any{}}, errno: abi.ErrnoInvalid},
		"no list":       {doc: map[string]any{"a": 1}, errno: abi.ErrnoInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, err := json.Marshal(tc.doc)
			require.NoError(t, err)
			w := newWorld(t, m, always(200, string(b)))
			c := w.call(abi.OpList, nil, nil, nil)
			_, err = try(t, c, meta("ls", ""))
			if tc.errno != 0 {
				isErrno(t, err, tc.errno)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, "/ls?labels=sbxhost.owner%3Downer-1", w.last().URI)
			listed, _ := c.Listed()
			assert.Len(t, listed, len(tc.listed))
			for _, id := range tc.listed {
				assert.Contains(t, listed, id)
			}
		})
	}
}
