package grants_test

import (
	"bytes"
	"encoding/gob"
	"encoding/json"
	"fmt"
	"log/slog"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sbxhost/sbxhost/grants"
	"github.com/sbxhost/sbxhost/manifest"
)

func TestParseRequirements(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		in   string
		want []grants.Requirement
	}{
		"P1 field absent":       {``, nil},
		"empty list":            {`[]`, nil},
		"P2 two bare strings":   {`["SECOND","FIRST"]`, []grants.Requirement{{Name: "SECOND"}, {Name: "FIRST"}}},
		"P3 flags respected":    {`[{"name":"A","optional":true},{"name":"B"},{"name":"C","optional":false}]`, []grants.Requirement{{Name: "A", Optional: true}, {Name: "B"}, {Name: "C"}}},
		"mixed":                 {`["A",{"optional":true,"name":"B"}]`, []grants.Requirement{{Name: "A"}, {Name: "B", Optional: true}}},
		"duplicates that agree": {`["A",{"name":"A"},"A",{"name":"B","optional":true},{"name":"B","optional":true}]`, []grants.Requirement{{Name: "A"}, {Name: "B", Optional: true}}},
	} {
		got, err := grants.ParseRequirements([]byte(c.in))
		require.NoError(t, err, name)
		assert.Equal(t, c.want, got, name)
	}
	var many strings.Builder
	many.WriteString(`["A0"`)
	for i := range grants.MaxRequirements {
		fmt.Fprintf(&many, `,"A%d"`, i+1)
	}
	for name, c := range map[string]struct{ in, text string }{
		"P6 scalar":                {`"` + canary + `"`, "must be a list, not a string"},
		"P6 number":                {`1`, "must be a list, not a number"},
		"P6 null":                  {`null`, "must be a list, not null"},
		"P6 mapping":               {`{"` + canary + `":true}`, "must be a list, not an object"},
		"quoted boolean":           {`["OK",{"name":"A","optional":"true"}]`, "entry 1: must be a boolean, not a string"},
		"optional a number":        {`[{"name":"A","optional":1}]`, "entry 0: must be a boolean, not a number"},
		"optional null":            {`[{"name":"A","optional":null}]`, "entry 0: must be a boolean, not null"},
		"entry a number":           {`["A","B",7]`, "entry 2: must be a name or an object"},
		"entry a list":             {`[["` + canary + `"]]`, "entry 0: must be a name or an object"},
		"entry null":               {`[null]`, "entry 0: must be a name or an object"},
		"no name":                  {`[{"optional":true}]`, "entry 0: has no name"},
		"name a number":            {`[{"name":1}]`, "entry 0: must be a string"},
		"unknown key":              {`[{"name":"A","` + canary + `":"x"}]`, "entry 0: unknown key"},
		"key in another case":      {`[{"Name":"A"}]`, "entry 0: unknown key"},
		"duplicate key":            {`[{"name":"A","name":"B"}]`, "entry 0: duplicate key"},
		"empty name":               {`[""]`, "entry 0: a variable name must not be empty"},
		"name with value":          {`["A","TOKEN=` + canary + `"]`, `entry 1: a variable name must not contain "="`},
		"pasted value":             {`["sk-` + canary + `"]`, "entry 0: an environment key must be an identifier"},
		"glob":                     {`["*"]`, "entry 0: an environment key must be an identifier"},
		"reserved":                 {`["A","LD_PRELOAD"]`, "entry 1: is managed by shells or the loader"},
		"reserved optional":        {`[{"name":"PWD","optional":true}]`, "entry 0: is managed by shells"},
		"duplicates that disagree": {`["A",{"name":"A","optional":true}]`, "entry 1: repeats an earlier name"},
		"trailing":                 {`["A"] ["B"]`, "data after the end"},
		"broken":                   {`["` + canary, "closing quote"},
		"not JSON":                 {canary, "not JSON"},
		"too many":                 {many.String() + "]", "more than 1000 entries (MaxRequirements)"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := grants.ParseRequirements([]byte(c.in))
			assert.Nil(t, got)
			require.ErrorIs(t, err, grants.KindMalformed)
			assert.Contains(t, err.Error(), c.text)
			assertNoCanary(t, err)
		})
	}
}

func TestCarrierFrom(t *testing.T) {
	t.Parallel()
	reqs := []grants.Requirement{{Name: "A"}, {Name: "B"}, {Name: "C"}}
	values := func(c grants.Carrier) map[string]string { return reveal(grants.Activate(reqs, c).Env()) }
	t.Run("C4 only string to string", func(t *testing.T) {
		t.Parallel()
		var decoded any
		require.NoError(t, json.Unmarshal([]byte(`{"A":"`+canary+`","B":1,"C":null,"D":["x"],"E":{"A":"x"},"F":true}`), &decoded))
		c := grants.CarrierFrom(decoded)
		assert.Equal(t, 1, c.Len())
		assert.Equal(t, map[string]string{"A": canary}, values(c))
		c = grants.CarrierFrom(map[any]any{"A": canary, 1: "x", "B": 2, nil: "y", "C": "z"})
		assert.Equal(t, map[string]string{"A": canary, "C": "z"}, values(c))
		c = grants.CarrierFrom(map[string]string{"B": canary})
		assert.Equal(t, map[string]string{"B": canary}, values(c))
	})
	t.Run("C5 missing, null and non-mapping", func(t *testing.T) {
		t.Parallel()
		var nilMap map[string]any
		for _, in := range []any{nil, nilMap, "A", 1, 1.5, true, []string{"A"}, []any{map[string]any{"A": "x"}}, struct{ A string }{"x"}, &struct{}{}, map[string]int{"A": 1}, func() {}} {
			assert.Equal(t, 0, grants.CarrierFrom(in).Len(), "%T", in)
		}
		assert.Equal(t, 0, grants.Carrier{}.Len())
		assert.Equal(t, 0, grants.NewCarrier(nil).Len())
	})
	t.Run("copied", func(t *testing.T) {
		t.Parallel()
		m := map[string]string{"A": canary}
		c := grants.NewCarrier(m)
		m["A"] = "changed"
		assert.Equal(t, map[string]string{"A": canary}, values(c))
	})
}

func TestActivate(t *testing.T) {
	t.Parallel()
	supplied := grants.NewCarrier(map[string]string{"ONE": canary, "TWO": "two-" + canary, "EMPTY": ""})
	t.Run("A1 only the declared one", func(t *testing.T) {
		t.Parallel()
		a := grants.Activate([]grants.Requirement{{Name: "ONE"}}, supplied)
		assert.Equal(t, map[string]string{"ONE": canary}, reveal(a.Env()))
		assert.Equal(t, []string{"ONE"}, a.Names())
		require.NoError(t, a.Check(nil))
		assert.False(t, a.IsZero())
	})
	t.Run("A2 nothing declared", func(t *testing.T) {
		t.Parallel()
		a := grants.Activate(nil, supplied)
		assert.Zero(t, a.Env().Len())
		assert.Empty(t, a.Missing())
		assert.True(t, a.IsZero())
		require.NoError(t, a.Check([]string{"ONE"}))
	})
	t.Run("A3 declared, none supplied", func(t *testing.T) {
		t.Parallel()
		a := grants.Activate([]grants.Requirement{{Name: "B"}, {Name: "A"}, {Name: "OPT", Optional: true}}, grants.Carrier{})
		assert.Zero(t, a.Env().Len(), "empty, no failure")
		assert.Equal(t, []string{"A", "B"}, a.Missing())
		assert.False(t, a.IsZero())
		err := a.Check(nil)
		require.ErrorIs(t, err, grants.KindNotSupplied)
		assert.EqualError(t, err, "grants: not supplied: A: required request secrets: A, B; supply them with the request")
	})
	t.Run("only optional missing", func(t *testing.T) {
		t.Parallel()
		a := grants.Activate([]grants.Requirement{{Name: "OPT", Optional: true}}, supplied)
		assert.True(t, a.IsZero())
		require.NoError(t, a.Check(nil))
	})
	t.Run("an empty value counts as supplied", func(t *testing.T) {
		t.Parallel()
		a := grants.Activate([]grants.Requirement{{Name: "EMPTY"}}, supplied)
		assert.Equal(t, map[string]string{"EMPTY": ""}, reveal(a.Env()))
		assert.Empty(t, a.Missing())
	})
	t.Run("names are exact", func(t *testing.T) {
		t.Parallel()
		a := grants.Activate([]grants.Requirement{{Name: "one"}}, supplied)
		assert.Equal(t, []string{"one"}, a.Missing())
	})
	t.Run("reserved and malformed names are never injected", func(t *testing.T) {
		t.Parallel()
		bad := grants.NewCarrier(map[string]string{"LD_PRELOAD": canary, "A=B": canary, "ONE": "1", "sk-" + canary: "x"})
		a := grants.Activate([]grants.Requirement{{Name: "LD_PRELOAD", Optional: true}, {Name: "A=B"}, {Name: "sk-" + canary}, {Name: "ONE"}}, bad)
		assert.Equal(t, []string{"ONE"}, a.Names())
		assert.Equal(t, []string{"<unusual name>", "LD_PRELOAD"}, a.Refused())
		assert.False(t, a.IsZero())
		err := a.Check(nil)
		require.ErrorIs(t, err, grants.KindRefused)
		assert.Contains(t, err.Error(), "LD_PRELOAD")
		assertNoCanary(t, err)
		assertNoCanary(t, a)
	})
	t.Run("a protected destination collides", func(t *testing.T) {
		t.Parallel()
		a := grants.Activate([]grants.Requirement{{Name: "ONE"}, {Name: "TWO"}}, supplied)
		require.NoError(t, a.Check([]string{"OTHER"}))
		err := a.Check([]string{"OTHER", "TWO"})
		require.ErrorIs(t, err, grants.KindConflict)
		assert.Contains(t, err.Error(), "TWO")
		assertNoCanary(t, err)
	})
	t.Run("values that no environment can carry", func(t *testing.T) {
		t.Parallel()
		for text, v := range map[string]string{"NUL": canary + "\x00", "128 KiB": strings.Repeat("v", manifest.MaxValue)} {
			a := grants.Activate([]grants.Requirement{{Name: "A"}}, grants.NewCarrier(map[string]string{"A": v}))
			err := a.Check(nil)
			require.ErrorIs(t, err, grants.KindMalformed)
			assert.Contains(t, err.Error(), text)
			assertNoCanary(t, err)
		}
	})
	t.Run("the next activation starts from nothing", func(t *testing.T) {
		t.Parallel()
		reqs := []grants.Requirement{{Name: "ONE"}}
		assert.Equal(t, 1, grants.Activate(reqs, supplied).Env().Len())
		assert.Zero(t, grants.Activate(reqs, grants.Carrier{}).Env().Len())
	})
	t.Run("results are copies", func(t *testing.T) {
		t.Parallel()
		a := grants.Activate([]grants.Requirement{{Name: "X"}, {Name: "Y"}}, supplied)
		a.Missing()[0] = "changed"
		assert.Equal(t, []string{"X", "Y"}, a.Missing())
	})
}

// A5: a variable of the host is no request secret: nothing here reads the
// environment of the process.
func TestA5HostVariablesAreNotSupplied(t *testing.T) {
	t.Setenv("SBXHOST_TEST_A5", canary)
	a := grants.Activate([]grants.Requirement{{Name: "SBXHOST_TEST_A5"}}, grants.Carrier{})
	assert.Zero(t, a.Env().Len())
	assert.Equal(t, []string{"SBXHOST_TEST_A5"}, a.Missing())
}

// S5, S7: printing or marshalling what carries request secrets, and what holds
// it, shows none; an empty one stays itself.
func TestS5S7CarriersAreNotShown(t *testing.T) {
	t.Parallel()
	c := grants.NewCarrier(map[string]string{"ONE": canary, canary: "name"})
	a := grants.Activate([]grants.Requirement{{Name: "ONE"}}, c)
	type inside struct {
		thread string
		c      grants.Carrier
		a      grants.Activation
		pc     *grants.Carrier
		list   []grants.Activation
		m      map[string]grants.Carrier
	}
	type exposed struct {
		Thread string
		C      grants.Carrier
		A      *grants.Activation
	}
	for name, x := range map[string]any{
		"carrier": c, "activation": a, "pointers": []any{&c, &a}, "exposed": exposed{"t1", c, &a},
		"unexported": inside{"t1", c, a, &c, []grants.Activation{a}, map[string]grants.Carrier{"k": c}}, "map": map[string]any{"c": c, "a": a},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var text, js, g bytes.Buffer
			slog.New(slog.NewTextHandler(&text, nil)).Info("m", "x", x)
			slog.New(slog.NewJSONHandler(&js, nil)).Info("m", "x", x)
			_ = gob.NewEncoder(&g).Encode(x)
			rec := &bytesT{}
			assert.Equal(rec, x, reflect.Zero(reflect.TypeOf(x)).Interface())
			out, _ := json.Marshal(x)
			assertNoCanary(t, x)
			for _, s := range []string{text.String(), js.String(), rec.String(), string(out), g.String()} {
				assert.NotContains(t, s, "canary")
			}
		})
	}
	assert.Equal(t, "grants.Carrier[2 names]", c.String())
	assert.Equal(t, "grants.Carrier[0 names]", fmt.Sprintf("%+v", grants.Carrier{}))
	assert.Equal(t, "grants.Activation[ONE]", fmt.Sprintf("%#v", a))
	for name, call := range map[string]func() error{
		"carrier json":      func() error { _, err := json.Marshal(c); return err },
		"carrier field":     func() error { _, err := json.Marshal(exposed{C: c}); return err },
		"carrier text":      func() error { _, err := c.MarshalText(); return err },
		"carrier binary":    func() error { _, err := c.MarshalBinary(); return err },
		"carrier yaml":      func() error { _, err := c.MarshalYAML(); return err },
		"carrier gob":       func() error { return gob.NewEncoder(&bytes.Buffer{}).Encode(c) },
		"activation json":   func() error { _, err := json.Marshal(a); return err },
		"activation text":   func() error { _, err := a.MarshalText(); return err },
		"activation binary": func() error { _, err := a.MarshalBinary(); return err },
		"activation yaml":   func() error { _, err := a.MarshalYAML(); return err },
		"activation gob":    func() error { return gob.NewEncoder(&bytes.Buffer{}).Encode(a) },
	} {
		require.ErrorIs(t, call(), grants.ErrMarshal, name)
	}
}
