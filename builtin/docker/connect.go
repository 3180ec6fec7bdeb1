package docker

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"github.com/docker/docker/client"
	"github.com/docker/go-connections/tlsconfig"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/sbxhost/sbxhost/provider"
)

// endpoint is where the engine is and how to get there.
type endpoint struct {
	host    string
	tls     *tlsconfig.Options // nil: none
	fromEnv bool               // TLS too comes from DOCKER_TLS_VERIFY and DOCKER_CERT_PATH
}

// connect makes a client. It does no I/O but reading configuration.
func connect(o Options) (*client.Client, error) {
	e, err := o.endpoint()
	if err != nil {
		return nil, err
	}
	if strings.HasPrefix(e.host, "ssh://") {
		return nil, problem(provider.Unsupported, "connect", e.host, "engines are not reached over ssh").
			remedy("forward the socket: ssh -N -L /tmp/docker.sock:/var/run/docker.sock HOST, and set " + SettingHost + " to unix:///tmp/docker.sock")
	}
	opts := []client.Opt{client.WithAPIVersionNegotiation(),
		// The client's own spans would leave the redaction boundary.
		client.WithTraceProvider(noop.NewTracerProvider())}
	if e.tls != nil {
		cfg, err := tlsconfig.Client(*e.tls)
		if err != nil {
			return nil, problem(provider.FailedPrecondition, "connect", e.host, "the engine's TLS files cannot be used").cause(err).remedy("check ca.pem, cert.pem and key.pem")
		}
		opts = append(opts, client.WithHTTPClient(&http.Client{Transport: &http.Transport{TLSClientConfig: cfg}, CheckRedirect: client.CheckRedirect}))
	} else if e.fromEnv {
		opts = append(opts, client.WithTLSClientConfigFromEnv())
	}
	if e.host != "" {
		opts = append(opts, client.WithHost(e.host))
	}
	c, err := client.NewClientWithOpts(opts...)
	if err != nil {
		return nil, problem(provider.InvalidArgument, "connect", e.host, "the engine's address cannot be used").cause(err).
			remedy("use unix:///path, tcp://host:port or npipe:////./pipe/name")
	}
	return c, nil
}

// endpoint follows the docker command's rules.
func (o Options) endpoint() (endpoint, error) {
	if o.Host != "" {
		return endpoint{host: o.Host, fromEnv: true}, nil
	}
	name := o.Context
	if name == "" {
		if host := os.Getenv(client.EnvOverrideHost); host != "" {
			return endpoint{host: host, fromEnv: true}, nil
		}
		if name = os.Getenv("DOCKER_CONTEXT"); name == "" {
			var err error
			if name, err = o.currentContext(); err != nil {
				return endpoint{}, err
			}
		}
	}
	if name == "" || name == "default" {
		return endpoint{fromEnv: true}, nil
	}
	return o.context(name)
}

func (o Options) configDir() string {
	if o.ConfigDir != "" {
		return o.ConfigDir
	}
	if dir := os.Getenv("DOCKER_CONFIG"); dir != "" {
		return dir
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return ""
	}
	return filepath.Join(home, ".docker")
}

func (o Options) currentContext() (string, error) {
	dir := o.configDir()
	if dir == "" {
		return "", nil
	}
	file := filepath.Join(dir, "config.json")
	b, err := os.ReadFile(file) //nolint:gosec // the user's own configuration
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	var cfg struct {
		CurrentContext string `json:"currentContext"`
	}
	if err == nil && json.Unmarshal(b, &cfg) != nil {
		err = errors.New("not JSON") // what is in it, credentials perhaps, is not repeated
	}
	if err != nil {
		return "", problem(provider.FailedPrecondition, "connect", file, "the docker command's configuration cannot be read").cause(err).
			remedy("correct it, or set DOCKER_HOST or " + SettingHost)
	}
	return cfg.CurrentContext, nil
}

// context reads what `docker context create` stored.
func (o Options) context(name string) (endpoint, error) {
	sum := sha256.Sum256([]byte(name))
	id := hex.EncodeToString(sum[:])
	base := filepath.Join(o.configDir(), "contexts")
	missing := func(err error) (endpoint, error) {
		return endpoint{}, problem(provider.NotFound, "connect", name, "there is no such docker context, or it has no engine").cause(err).
			remedy("docker context ls lists them; or set DOCKER_HOST or " + SettingHost)
	}
	b, err := os.ReadFile(filepath.Join(base, "meta", id, "meta.json")) //nolint:gosec // the user's own configuration
	if err != nil {
		return missing(err)
	}
	var meta struct {
		Name      string
		Endpoints map[string]struct {
			Host          string
			SkipTLSVerify bool
		}
	}
	if json.Unmarshal(b, &meta) != nil || meta.Name != name || meta.Endpoints["docker"].Host == "" {
		return missing(nil)
	}
	e := endpoint{host: meta.Endpoints["docker"].Host}
	dir := filepath.Join(base, "tls", id, "docker")
	opts := tlsconfig.Options{InsecureSkipVerify: meta.Endpoints["docker"].SkipTLSVerify, ExclusiveRootPools: true}
	found := opts.InsecureSkipVerify
	for file, field := range map[string]*string{"ca.pem": &opts.CAFile, "cert.pem": &opts.CertFile, "key.pem": &opts.KeyFile} {
		if _, err := os.Stat(filepath.Join(dir, file)); err == nil {
			*field, found = filepath.Join(dir, file), true
		}
	}
	if found {
		e.tls = &opts
	}
	return e, nil
}
