package plugintest_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sbxhost/sbxhost/plugin"
	"github.com/sbxhost/sbxhost/plugin/plugintest"
	"github.com/sbxhost/sbxhost/plugin/plugintest/fakevendor"
	"github.com/sbxhost/sbxhost/plugins/examples/e2b/fake"
)

const e2bDir = "../../plugins/examples/e2b"

// build compiles a Go guest and packs it with a manifest.
func build(dir, manifest string) ([]byte, error) {
	tmp, err := os.MkdirTemp("", "guest-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(tmp) }()
	out := filepath.Join(tmp, "guest.wasm")
	cmd := exec.Command("go", "build", "-buildmode=c-shared", "-ldflags=-s -w", "-trimpath", "-o", out, ".")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm", "CGO_ENABLED=0")
	if msg, err := cmd.CombinedOutput(); err != nil {
		return msg, err
	}
	module, err := os.ReadFile(out)
	if err != nil {
		return nil, err
	}
	doc, err := os.ReadFile(manifest)
	if err != nil {
		return nil, err
	}
	return plugin.Pack(module, doc)
}

var e2b = sync.OnceValues(func() ([]byte, error) { return build(e2bDir, e2bDir+"/manifest.json") })

// startFake serves a fake of E2B in this process.
func startFake(t *testing.T) *fakevendor.Hello {
	t.Helper()
	v := fakevendor.New(t.TempDir())
	srv := v.Serve()
	hello := fake.Register(v, srv.URL)
	hello.Control = srv.URL + "/_fake"
	t.Cleanup(func() { srv.CloseClientConnections(); srv.Close(); v.CloseAll() })
	return &hello
}

func run(t *testing.T, o plugintest.Options) *plugintest.Report {
	t.Helper()
	r, err := plugintest.Run(t.Context(), o)
	require.NoError(t, err)
	var b strings.Builder
	require.NoError(t, r.WriteText(&b, true))
	t.Log(b.String())
	return r
}
