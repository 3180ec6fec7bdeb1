//go:build linux

package daytonatest_test

import (
	"fmt"
	"net/http"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sbxhost/sbxhost/internal/daytonatest"
)

// listen starts an HTTP server in the sandbox that answers with what it was asked.
func (c *client) listen(id string, port int) {
	c.t.Helper()
	if _, err := exec.LookPath("perl"); err != nil {
		c.t.Fatal("perl is needed as a server in the sandbox; on Debian: apt-get install perl")
	}
	script := fmt.Sprintf(`use Socket; socket(S,PF_INET,SOCK_STREAM,0); setsockopt(S,SOL_SOCKET,SO_REUSEADDR,1);
bind(S,sockaddr_in(%d,INADDR_ANY)) or die; listen(S,5);
while(accept(C,S)){ my $h=""; while(<C>){ last if /^\r?$/; $h.=$_; } print C "HTTP/1.0 200 OK\r\nContent-Length: ".length($h)."\r\n\r\n".$h; close C; }`, port)
	r := c.upload(id, "/tmp/server.pl", script)
	require.Equal(c.t, 200, r.status)
	c.exec(id, "perl /tmp/server.pl >/dev/null 2>&1 </dev/null &")
	require.Eventually(c.t, func() bool {
		return c.box(id, "GET", fmt.Sprintf("port/%d/in-use", port), nil).object(c.t)["isInUse"] == true
	}, 30*time.Second, 5*time.Millisecond)
}

func noKey(r *http.Request) { r.Header.Del("Authorization") }

func TestPreviews(t *testing.T) {
	t.Parallel()
	for _, hosts := range []bool{false, true} {
		c := fake(t, daytonatest.Options{HostPreviews: hosts})
		if hosts {
			c.http = c.s.HTTPClient()
			c.http.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
			t.Cleanup(c.http.CloseIdleConnections)
		}
		id, other := c.create(), c.create()
		c.listen(id, 8000)
		c.listen(other, 8000) // its own network: the same port is free
		assert.Equal(t, []any{8000.0}, c.box(id, "GET", "port", nil).object(t)["ports"])

		o := c.api("GET", "sandbox/"+id+"/ports/8000/preview-url", nil).object(t)
		link, token := o["url"].(string), o["token"].(string)
		assert.Equal(t, hosts, strings.Contains(link, "8000-"+id+".preview.localhost"))
		assert.Equal(t, 307, c.do("GET", link+"/x", nil, noKey).status, "without a token to the login")
		r := c.do("GET", link+"/x?q=1", nil, noKey, header("X-Daytona-Preview-Token", token))
		assert.Equal(t, 200, r.status)
		assert.Contains(t, r.text, "GET /x?q=1 ")
		assert.NotContains(t, r.text, token, "the token does not reach the program")
		assert.NotContains(t, r.text, c.s.Key())
		r = c.do("GET", link+"/y?DAYTONA_SANDBOX_AUTH_KEY="+token, nil, noKey)
		assert.Contains(t, r.text, "GET /y ")
		assert.Equal(t, 200, c.do("GET", link, nil).status, "the key opens it too")
		// A standard token of any port is a token for everything.
		r = c.box(id, "POST", "process/execute", object{"command": "echo ran"}, noKey, header("X-Daytona-Preview-Token", token))
		assert.Equal(t, 200, r.status)
		assert.Equal(t, 401, c.box(other, "GET", "work-dir", nil, noKey, header("X-Daytona-Preview-Token", token)).status)

		o = c.api("GET", "sandbox/"+id+"/ports/8000/signed-preview-url?expiresInSeconds=60", nil).object(t)
		signed := o["url"].(string)
		r = c.do("GET", signed+"/z", nil, noKey)
		assert.Equal(t, 200, r.status)
		assert.Contains(t, r.text, "GET /z ")
		cookie := r.header.Get("Set-Cookie")
		assert.Contains(t, cookie, "Max-Age=3600")
		c.s.Advance(61 * time.Second)
		assert.Equal(t, 307, c.do("GET", signed, nil, noKey).status, "it has expired")
		withCookie := header("Cookie", strings.SplitN(cookie, ";", 2)[0])
		assert.Equal(t, 200, c.do("GET", signed, nil, noKey, withCookie).status, "its cookie has not")
		r = c.do("POST", strings.Replace(signed, "8000-", "2280-", 1)+"/process/execute", object{"command": "echo rooted"}, noKey, withCookie)
		assert.Equal(t, 200, r.status)
		assert.Contains(t, r.text, "rooted", "and opens the toolbox")

		o = c.api("GET", "sandbox/"+id+"/ports/8000/signed-preview-url", nil).object(t)
		assert.Equal(t, 200, c.do("GET", o["url"].(string), nil, noKey).status)
		assert.Equal(t, 200, c.api("POST", "sandbox/"+id+"/ports/8000/signed-preview-url/"+o["token"].(string)+"/expire", nil).status)
		assert.Equal(t, 307, c.do("GET", o["url"].(string), nil, noKey).status)
		assert.NotEmpty(t, c.s.Find([]byte(o["token"].(string))))

		o = c.api("GET", "sandbox/"+id+"/ports/9000/signed-preview-url", nil).object(t)
		r = c.do("GET", o["url"].(string), nil, noKey)
		assert.Equal(t, 502, r.status, "nothing listens there")
		assert.Empty(t, r.text)

		c.api("POST", "sandbox/"+id+"/public/true", nil)
		assert.Equal(t, 200, c.do("GET", link, nil, noKey).status)
		assert.Equal(t, 307, c.do("GET", strings.Replace(link, "8000-", "2280-", 1)+"/work-dir", nil, noKey).status)
	}
}

func TestPreviewRefuses(t *testing.T) {
	t.Parallel()
	c := plainFake(t, daytonatest.Options{})
	id := c.create()
	for _, path := range []string{"ports/0/preview-url", "ports/x/preview-url", "ports/80/signed-preview-url?expiresInSeconds=0", "ports/80/signed-preview-url?expiresInSeconds=86401"} {
		assert.Equal(t, 400, c.api("GET", "sandbox/"+id+"/"+path, nil).status, path)
	}
	assert.Equal(t, 404, c.api("POST", "sandbox/"+id+"/ports/80/signed-preview-url/none/expire", nil).status)
	assert.Equal(t, 404, c.do("GET", strings.TrimSuffix(c.s.URL(), "/api")+"/preview/nonsense", nil).status)
}
