package docker_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sbxhost/sbxhost/builtin/docker"
	"github.com/sbxhost/sbxhost/provider"
)

// context stores a docker context as the docker command does.
func storeContext(t *testing.T, dir, name, host string, files map[string]string) {
	t.Helper()
	sum := sha256.Sum256([]byte(name))
	id := hex.EncodeToString(sum[:])
	meta := filepath.Join(dir, "contexts", "meta", id)
	require.NoError(t, os.MkdirAll(meta, 0o700))
	doc, err := json.Marshal(map[string]any{"Name": name, "Metadata": map[string]any{},
		"Endpoints": map[string]any{"docker": map[string]any{"Host": host, "SkipTLSVerify": false}}})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(meta, "meta.json"), doc, 0o600))
	for file, content := range files {
		tlsDir := filepath.Join(dir, "contexts", "tls", id, "docker")
		require.NoError(t, os.MkdirAll(tlsDir, 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(tlsDir, file), []byte(content), 0o600))
	}
}

// Where the engine is: what the docker command would use, unless options say
// otherwise.
func TestEndpointRules(t *testing.T) {
	dir := t.TempDir()
	storeContext(t, dir, "work", "tcp://context.example:1", nil)
	storeContext(t, dir, "other", "tcp://other.example:1", nil)
	current := func(name string) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "config.json"), []byte(`{"auths":{"x":{"auth":"c2VjcmV0"}},"currentContext":"`+name+`"}`), 0o600))
	}
	for _, c := range []struct {
		name, env, envContext, current string
		opts                           docker.Options
		want                           string
	}{
		{name: "nothing is set", want: "/var/run/docker.sock"},
		{name: "DOCKER_HOST", env: "tcp://env.example:1", current: "work", want: "tcp://env.example:1"},
		{name: "the current context", current: "work", want: "tcp://context.example:1"},
		{name: "DOCKER_CONTEXT", envContext: "other", current: "work", want: "tcp://other.example:1"},
		{name: "the default context", current: "default", want: "/var/run/docker.sock"},
		{name: "options' host", env: "tcp://env.example:1", opts: docker.Options{Host: "tcp://opt.example:1", Context: ""}, want: "tcp://opt.example:1"},
		{name: "options' context", env: "tcp://env.example:1", opts: docker.Options{Context: "work"}, want: "tcp://context.example:1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Setenv("DOCKER_HOST", c.env)
			t.Setenv("DOCKER_CONTEXT", c.envContext)
			t.Setenv("DOCKER_TLS_VERIFY", "")
			t.Setenv("DOCKER_CERT_PATH", "")
			t.Setenv("DOCKER_CONFIG", dir)
			current(c.current)
			cli, err := docker.Connect(c.opts)
			require.NoError(t, err)
			defer func() { _ = cli.Close() }()
			if strings.HasPrefix(c.want, "/") {
				assert.True(t, strings.HasSuffix(cli.DaemonHost(), c.want) || strings.HasPrefix(cli.DaemonHost(), "npipe:"), cli.DaemonHost())
			} else {
				assert.Equal(t, c.want, cli.DaemonHost())
			}
		})
	}
	t.Run("what cannot be used", func(t *testing.T) {
		t.Setenv("DOCKER_HOST", "")
		t.Setenv("DOCKER_CONFIG", dir)
		_, err := docker.Connect(docker.Options{Context: "missing"})
		wantTyped(t, err, provider.NotFound, "docker context ls")
		require.NoError(t, os.WriteFile(filepath.Join(dir, "config.json"), []byte(`{"auths": "c2VjcmV0`), 0o600))
		_, err = docker.Connect(docker.Options{})
		wantTyped(t, err, provider.FailedPrecondition, "DOCKER_HOST")
		assert.NotContains(t, err.Error(), "c2VjcmV0", "what is in the file is repeated")
		storeContext(t, dir, "far", "ssh://user@host", nil)
		_, err = docker.Connect(docker.Options{Context: "far"})
		wantTyped(t, err, provider.Unsupported, "ssh -N -L")
		storeContext(t, dir, "badtls", "tcp://x:1", map[string]string{"ca.pem": "nonsense"})
		_, err = docker.Connect(docker.Options{Context: "badtls"})
		wantTyped(t, err, provider.FailedPrecondition, "ca.pem")
	})
}

func wantTyped(t testing.TB, err error, code provider.Code, words string) {
	t.Helper()
	require.Error(t, err)
	assert.Equal(t, code, provider.CodeOf(err), err)
	assert.ErrorContains(t, err, words)
}

// authority makes certificates for a test.
type authority struct {
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
	pem  string
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &key.PublicKey, key)
	require.NoError(t, err)
	cert, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	return &authority{key, cert, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))}
}

func (a *authority) issue(t *testing.T) (certPEM, keyPEM string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "engine"}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, a.cert, &key.PublicKey, a.key)
	require.NoError(t, err)
	raw, err := x509.MarshalECPrivateKey(key)
	require.NoError(t, err)
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})), string(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: raw}))
}

// An engine behind TLS that asks for a client's certificate: by environment and by
// context. One whose certificate is somebody else's is refused.
func TestTLS(t *testing.T) {
	ca := newAuthority(t)
	cert, key := ca.issue(t)
	pair, err := tls.X509KeyPair([]byte(cert), []byte(key))
	require.NoError(t, err)
	pool := x509.NewCertPool()
	pool.AddCert(ca.cert)
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Api-Version", "1.41")
		w.Header().Set("Content-Type", "application/json")
		if strings.HasSuffix(r.URL.Path, "/version") {
			_, _ = w.Write([]byte(`{"Version":"20.10.0","ApiVersion":"1.41","Os":"linux","Arch":"amd64","Components":[{"Name":"Engine","Version":"20.10.0"}]}`))
		} else {
			_, _ = w.Write([]byte(`{"ID":"engine-1"}`))
		}
	}))
	srv.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert}
	srv.Config.ErrorLog = log.New(io.Discard, "", 0)
	srv.StartTLS()
	defer srv.Close()
	host := "tcp://" + srv.Listener.Addr().String()

	clientCert, clientKey := ca.issue(t)
	files := map[string]string{"ca.pem": ca.pem, "cert.pem": clientCert, "key.pem": clientKey}
	dir := t.TempDir()
	for name, content := range files {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600))
	}
	t.Run("by environment", func(t *testing.T) {
		t.Setenv("DOCKER_HOST", host)
		t.Setenv("DOCKER_TLS_VERIFY", "1")
		t.Setenv("DOCKER_CERT_PATH", dir)
		p, err := docker.New(t.Context(), docker.Options{ConnectTimeout: connectTimeout})
		require.NoError(t, err)
		assert.Equal(t, "20.10.0", p.EngineVersion())
		assert.Equal(t, "engine-1", p.Place(), "what tells it from another engine, at whatever address")
		assert.Equal(t, provider.SupportNone, p.Describe().Features.PathGrants, "an engine elsewhere has no use for our paths")
	})
	config := t.TempDir()
	storeContext(t, config, "good", host, files)
	stranger := newAuthority(t)
	storeContext(t, config, "stranger", host, map[string]string{"ca.pem": stranger.pem, "cert.pem": clientCert, "key.pem": clientKey})
	storeContext(t, config, "anonymous", host, map[string]string{"ca.pem": ca.pem})
	t.Run("by context", func(t *testing.T) {
		_, err := docker.New(t.Context(), docker.Options{Context: "good", ConfigDir: config, ConnectTimeout: connectTimeout})
		require.NoError(t, err)
	})
	for _, name := range []string{"stranger", "anonymous"} {
		t.Run(name, func(t *testing.T) {
			_, err := docker.New(t.Context(), docker.Options{Context: name, ConfigDir: config})
			require.Error(t, err)
			assert.NotEqual(t, provider.Code(""), provider.CodeOf(err))
		})
	}
}
