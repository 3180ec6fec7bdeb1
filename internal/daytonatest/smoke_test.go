package daytonatest_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sbxhost/sbxhost/internal/daytonatest"
)

func TestSmoke(t *testing.T) {
	s := daytonatest.New(t, daytonatest.Options{Logf: t.Logf})
	do := func(method, url string, body any) (int, string) {
		t.Helper()
		var r io.Reader
		if body != nil {
			b, _ := json.Marshal(body)
			r = bytes.NewReader(b)
		}
		q, err := http.NewRequest(method, url, r)
		require.NoError(t, err)
		q.Header.Set("Authorization", "Bearer "+s.Key())
		at := time.Now()
		p, err := http.DefaultClient.Do(q)
		require.NoError(t, err)
		defer p.Body.Close()
		data, _ := io.ReadAll(p.Body)
		t.Log(method, url, p.StatusCode, string(data), time.Since(at))
		return p.StatusCode, string(data)
	}
	_, text := do("POST", s.URL()+"/sandbox", map[string]any{"name": "a", "env": map[string]string{"A": "b"}})
	var o struct{ ID string }
	require.NoError(t, json.Unmarshal([]byte(text), &o))
	do("GET", s.URL()+"/sandbox/a", nil)
	x := s.ToolboxURL() + "/" + o.ID
	do("POST", x+"/process/execute", map[string]any{"command": "id; pwd; echo $A $B; ls -la /; ps ax; exit 3", "envs": map[string]string{"B": "c"}})
	do("POST", x+"/process/execute", map[string]any{"command": "sleep 5", "timeout": 1})
	do("POST", x+"/process/session", map[string]any{"sessionId": "s"})
	do("POST", x+"/process/session/s/exec", map[string]any{"command": "echo hi; echo err >&2; cd /tmp; printf x; (exit 4)"})
	do("POST", x+"/process/session/s/exec", map[string]any{"command": "pwd"})
	do("DELETE", x+"/process/session/s", nil)
	do("DELETE", s.URL()+"/sandbox/a", nil)
}
