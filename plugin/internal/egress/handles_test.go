package egress_test

import (
	"encoding/base64"
	"encoding/hex"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sbxhost/sbxhost/abi"
	"github.com/sbxhost/sbxhost/plugin/internal/egress"
	"github.com/sbxhost/sbxhost/plugin/internal/spec"
)

const (
	drivenRoute = `{"id":"p","role":"create","origin":"api","method":"POST","path":"/p","request":{"body":"plugin","environment":{"pointer":"/env","shape":"map"}},"response":{"body":"json","sandbox":"/id"}}`
	plainRoute  = `{"id":"plain","role":"control","origin":"api","method":"POST","path":"/plain/{sandbox}","query":{"q":{"free":{"type":"string","maxLength":4096,"optional":true}}},"request":{"body":"plugin"}}`
)

func driven(t *testing.T) *spec.Manifest {
	t.Helper()
	m := manifest(t, "plugin-driven", drivenRoute, plainRoute)
	m.Protected.Create = append(m.Protected.Create, "p")
	return m
}

// TestHandles: a handle stands for an environment in one call, once. Everything
// else looks the same to the plugin.
func TestHandles(t *testing.T) {
	t.Parallel()
	m := driven(t)
	w := newWorld(t, m, always(201, `{"id":"sb-000001"}`))
	s := w.session(session)
	c := w.call(abi.OpCreate, s, nil, nil)
	h := c.NewHandle()
	require.Regexp(t, `^env_[0-9a-f]{32}$`, h)

	open := func(c *egress.Call, handle string) error {
		_, err := c.Open(t.Context(), []byte(meta("p", `,"env":"`+handle+`"`)), []byte(`{}`))
		return err
	}
	altered := h[:len(h)-1] + map[bool]string{true: "0", false: "1"}[h[len(h)-1] != '0']
	for name, bad := range map[string]string{"wrong": "env_00000000000000000000000000000000", "altered": altered, "upper case": strings.ToUpper(h), "cut": h[:20], "padded": h + " "} {
		t.Run(name, func(t *testing.T) {
			err := open(c, bad)
			require.Error(t, err)
			assert.NotContains(t, err.Error(), h)
			assert.Empty(t, w.requests())
			isErrno(t, err, abi.ErrnoBadf)
		})
	}
	t.Run("another call's", func(t *testing.T) {
		other := w.call(abi.OpCreate, w.session("ffffffffffffffffffffffffffffffff"), nil, nil)
		isErrno(t, open(other, h), abi.ErrnoBadf)
		assert.Empty(t, w.requests())
	})
	t.Run("replayed", func(t *testing.T) {
		require.NoError(t, open(c, h))
		assert.JSONEq(t, `{"env":{"PLAIN":"p","TOKEN":"`+canary+`"}}`, w.last().Body)
		isErrno(t, open(c, h), abi.ErrnoBadf)
		assert.Len(t, w.requests(), 1)
	})
	t.Run("stale", func(t *testing.T) {
		w := newWorld(t, m, always(201, `{"id":"sb-000001"}`))
		s := w.session(session)
		c := w.call(abi.OpCreate, s, nil, nil)
		h := c.NewHandle()
		c.Close()
		isErrno(t, open(w.call(abi.OpCreate, s, nil, nil), h), abi.ErrnoBadf)
		assert.Empty(t, w.requests())
	})
	t.Run("after a definite refusal", func(t *testing.T) {
		w := newWorld(t, m, always(422, `{}`))
		c := w.call(abi.OpCreate, w.session(session), nil, nil)
		h := c.NewHandle()
		for range 6 {
			require.NoError(t, open(c, h))
		}
		isErrno(t, open(c, h), abi.ErrnoBadf)
		assert.Len(t, w.requests(), 6)
	})
	t.Run("after an unknown outcome", func(t *testing.T) {
		w := newWorld(t, m, always(502, `{}`))
		c := w.call(abi.OpCreate, w.session(session), nil, nil)
		h := c.NewHandle()
		require.NoError(t, open(c, h))
		isErrno(t, open(c, h), abi.ErrnoBadf)
	})
	t.Run("without a handle the environment is absent", func(t *testing.T) {
		w := newWorld(t, m, always(201, `{"id":"sb-000001"}`))
		c := w.call(abi.OpCreate, w.session(session), nil, nil)
		_, err := c.Open(t.Context(), []byte(meta("p", "")), []byte(`{"a":1}`))
		require.NoError(t, err)
		assert.JSONEq(t, `{"a":1}`, w.last().Body)
		_, err = c.Open(t.Context(), []byte(meta("p", "")), []byte(`{"a":1}`))
		denied(t, err, "already sent once")
	})
	t.Run("on a route that takes none", func(t *testing.T) {
		w := newWorld(t, m, always(201, `{"id":"sb-000001"}`))
		c := w.call(abi.OpCreate, w.running(session), nil, nil)
		_, err := c.Open(t.Context(), []byte(meta("plain", `,"env":"`+c.NewHandle()+`"`)), []byte(`{}`))
		denied(t, err, "takes no environment")
	})
}

// TestHandlesElsewhere: a live handle must not leave in any other place, however
// it is written.
func TestHandlesElsewhere(t *testing.T) {
	t.Parallel()
	w := newWorld(t, driven(t), always(201, `{"id":"sb-000001"}`))
	s := w.running(session)
	c := w.call(abi.OpStatus, s, nil, nil)
	h := c.NewHandle()
	unicode := ""
	for _, r := range h {
		unicode += `\u00` + hex.EncodeToString([]byte{byte(r)})
	}
	forms := map[string]string{
		"raw": h, "bits": h[4:], "upper": strings.ToUpper(h), "inside": "x" + h + "y",
		"base64": base64.StdEncoding.EncodeToString([]byte(h)), "base64 shifted": base64.StdEncoding.EncodeToString([]byte("ab" + h)), "base64 url": base64.RawURLEncoding.EncodeToString([]byte("a" + h)),
		"hex": hex.EncodeToString([]byte(h)), "hex inside": "zz" + hex.EncodeToString([]byte(h)),
		"percent": percent(h), "percent twice": url.QueryEscape(percent(h)), "JSON": unicode,
	}
	n := len(w.requests())
	for name, form := range forms {
		for place, open := range map[string]func() error{
			"body": func() error {
				_, err := c.Open(t.Context(), []byte(meta("plain", "")), []byte(`{"x":"`+form+`"}`))
				return err
			},
			"bare body": func() error { _, err := c.Open(t.Context(), []byte(meta("plain", "")), []byte(form)); return err },
			"query": func() error {
				_, err := c.Open(t.Context(), []byte(meta("plain", `,"query":{"q":"`+strings.ReplaceAll(form, `\`, `\\`)+`"}`)), nil)
				return err
			},
			"another call": func() error {
				_, err := w.call(abi.OpStatus, s, nil, nil).Open(t.Context(), []byte(meta("plain", "")), []byte(`{"x":"`+form+`"}`))
				return err
			},
		} {
			t.Run(name+"/"+place, func(t *testing.T) { denied(t, open(), "handle") })
		}
	}
	assert.Len(t, w.requests(), n, "nothing may be sent")
	c.Close()
	_, err := w.call(abi.OpStatus, s, nil, nil).Open(t.Context(), []byte(meta("plain", "")), []byte(`{"x":"`+h+`"}`))
	require.NoError(t, err, "a dead handle is a text like any other")
}

func percent(s string) string {
	out := ""
	for i := range len(s) {
		out += "%" + strings.ToUpper(hex.EncodeToString([]byte{s[i]}))
	}
	return out
}
