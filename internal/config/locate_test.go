package config_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sbxhost/sbxhost/internal/config"
)

func write(t *testing.T, path, destination string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
	require.NoError(t, os.WriteFile(path, []byte("processEnvironmentBindings: {"+destination+": SOURCE}\n"), 0o600))
}

func TestLoadOrder(t *testing.T) {
	home, work, other := t.TempDir(), t.TempDir(), t.TempDir()
	t.Chdir(work)
	env := map[string]string{"HOME": home}
	getenv := func(k string) string { return env[k] }
	load := func(flag string) config.Loaded {
		l, err := config.Load(flag, getenv)
		require.NoError(t, err)
		return l
	}

	l := load("")
	assert.Equal(t, "none", l.Why)
	assert.Empty(t, l.Path)

	write(t, filepath.Join(home, ".config", "sbxhost", "config.yaml"), "FROM_HOME")
	assert.Contains(t, load("").ProcessEnvironmentBindings, "FROM_HOME")

	env["XDG_CONFIG_HOME"] = filepath.Join(home, "xdg")
	assert.Equal(t, "none", load("").Why, "XDG_CONFIG_HOME replaces ~/.config")
	write(t, filepath.Join(home, "xdg", "sbxhost", "config.yaml"), "FROM_XDG")
	assert.Contains(t, load("").ProcessEnvironmentBindings, "FROM_XDG")

	write(t, filepath.Join(work, "sbxhost.yaml"), "FROM_HERE")
	assert.Contains(t, load("").ProcessEnvironmentBindings, "FROM_HERE")

	env["SBXHOST_CONFIG"] = filepath.Join(other, "env.yaml")
	_, err := config.Load("", getenv)
	require.ErrorContains(t, err, "$SBXHOST_CONFIG", "a named file that is missing is an error, not the next in line")
	write(t, env["SBXHOST_CONFIG"], "FROM_ENV")
	assert.Contains(t, load("").ProcessEnvironmentBindings, "FROM_ENV")

	_, err = config.Load(filepath.Join(other, "flag.yaml"), getenv)
	require.ErrorContains(t, err, "--config")
	write(t, filepath.Join(other, "flag.yaml"), "FROM_FLAG")
	l = load(filepath.Join(other, "flag.yaml"))
	assert.Contains(t, l.ProcessEnvironmentBindings, "FROM_FLAG")
	assert.Equal(t, "--config", l.Why)
}

func TestLoadNamesTheFileAndResolvesPaths(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(t.TempDir())
	file := filepath.Join(dir, "c.yaml")
	require.NoError(t, os.WriteFile(file, []byte("hostPathRoots: [sub, /abs]\nlocal: {stateDir: state}\n"), 0o600))
	l, err := config.Load(file, func(string) string { return "" })
	require.NoError(t, err)
	assert.Equal(t, []string{filepath.Join(dir, "sub"), "/abs"}, l.HostPathRoots)
	assert.Equal(t, filepath.Join(dir, "state"), l.Local.StateDir)

	require.NoError(t, os.WriteFile(file, []byte("\nlog: {lveel: debug}\n"), 0o600))
	_, err = config.Load(file, func(string) string { return "" })
	require.ErrorContains(t, err, file+":2:7: /log: unknown key")
}
